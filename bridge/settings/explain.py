"""Errors of settings: each names its place, and none shows the value.

A place is a line of the settings file or a flag of the command line; keys are relative to the pipeline.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Protocol

from pydantic import ValidationError

from bridge.errors import SettingsError, did_you_mean
from bridge.settings.options import Keys
from bridge.settings.text.tree import Document, Key
from bridge.settings.values.section import Section, section_of

Order = tuple[str, int]
"""File and line: errors come in reading order."""

_FLAGS: dict[Key, str] = {
    ("name",): "--name",
    ("source", "tap"): "--tap",
    ("source", "pip_url"): "--pip-url",
    ("source", "config"): "--tap-config",
    ("source", "catalog"): "--catalog",
    ("destination", "bucket"): "--to",
    ("destination", "load_method"): "--load-method",
}
_TYPES = {
    "string_type": ("must be text", "quote it if it is meant as text"),
    "int_type": ("must be a whole number", "write it without quotes"),
    "bool_type": ("must be true or false", "write true or false, without quotes"),
    "list_type": ("must be a list", 'such as ["public-*"]'),
    "dict_type": ("must be a mapping", "write its keys below it, or remove it"),
    "model_type": ("must be a mapping", "write its keys below it, or remove it"),
}


class ErrorPlace(Protocol):
    """Where settings are written."""

    def error(self, key: Key, text: str, hint: str, **facts: Any) -> SettingsError:
        """The error for a key of the pipeline."""
        ...

    def order(self, key: Key) -> Order:
        """The place of a key's error among the others, to sort by."""
        ...


@dataclass(frozen=True)
class InFile:
    """A pipeline in the settings files."""

    document: Document

    def error(self, key: Key, text: str, hint: str, **facts: Any) -> SettingsError:
        node, below = self.document.nearest(key)
        return node.error(text, hint, below=below, **facts)

    def order(self, key: Key) -> Order:
        node, _ = self.document.nearest(key)
        return node.origin.label, node.line


@dataclass(frozen=True)
class CommandLine:
    """The flags of one command."""

    def error(self, key: Key, text: str, hint: str, **facts: Any) -> SettingsError:
        return SettingsError(f"{_FLAGS.get(key[:2], '.'.join(map(str, key)))}: {text}", hint=hint, **facts)

    def order(self, key: Key) -> Order:
        return "", 0


def explained(error: ValidationError, place: ErrorPlace, at: Key = ()) -> list[tuple[Key, SettingsError]]:
    """All errors with their keys, in reading order. `at`: the key of what was validated."""
    located = [((*at, *_key(one["loc"])), one) for one in error.errors(include_url=False)]
    return [(key, _explain(key, one, place)) for key, one in sorted(located, key=lambda pair: place.order(pair[0]))]


def _key(place: Key) -> Key:
    """Pydantic's place as a key, without the mark that pydantic puts on a mapping's key."""
    return place[:-1] if place[-1:] == ("[key]",) else place


def _explain(key: Key, error: Any, place: ErrorPlace) -> SettingsError:
    kind, facts = error["type"], error.get("ctx", {})
    if kind == "extra_forbidden":
        return _unknown(key, place)
    if kind == "wrong_value":
        below = facts["at"].split(".") if facts["at"] else ()
        return place.error((*key, *below), facts["text"], facts["hint"])
    if kind == "missing":
        return place.error(key, "missing key", "add it")
    if kind == "literal_error":
        choices = facts["expected"].replace("'", "")
        guess = did_you_mean(str(error["input"]), re.split(r", | or ", choices))
        return place.error(key, f"must be {choices}", guess or "choose one of them")
    if kind == "greater_than_equal":
        return place.error(key, f"must be at least {facts['ge']}", "raise it")
    if kind == "less_than_equal":
        return place.error(key, f"must be at most {facts['le']}", "lower it")
    return place.error(key, *_TYPES.get(kind, ("is not valid", "look it up in the reference of settings")))


def _unknown(key: Key, place: ErrorPlace) -> SettingsError:
    section = _section(key[:-1])
    name = str(key[-1])
    return place.error(key, "unknown key", did_you_mean(name, section.model_fields) or _belongs(name, section))


def _section(key: Key) -> type[Section]:
    """The section that a key of the pipeline holds."""
    section: type[Section] = Keys
    for part in key:
        field = section.model_fields.get(str(part))
        section = (section_of(field.annotation) if field else None) or section
    return section


def _belongs(name: str, section: type[Section]) -> str:
    """Say where a key belongs that is at the wrong depth; else list the keys."""
    if name in Keys.model_fields and section is not Keys:
        return f'"{name}" belongs one level higher'
    for parent in Keys.model_fields:
        if name in _section((parent,)).model_fields:
            return f'"{name}" belongs under "{parent}"'
    return "the keys here are: " + ", ".join(section.model_fields)
