"""What is wrong with a setting, said with its place and without its value.

A place is a line of the settings file or a flag of the command line; keys are relative to the pipeline.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from pydantic import ValidationError

from bridge.errors import NotAvailable, SettingsError
from bridge.settings.options import Keys, Section
from bridge.settings.yamlfile import Document, Key

__all__ = ["CommandLine", "InFile", "Place", "did_you_mean", "explained"]

_FLAGS: dict[Key, str] = {
    ("name",): "--name",
    ("source", "tap"): "--tap",
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


class Place(Protocol):
    """Where settings were written."""

    def error(
        self, key: Key, text: str, hint: str, kind: type[SettingsError] = SettingsError, **facts: Any
    ) -> SettingsError:
        """Return the error for a key of the pipeline."""
        ...

    def order(self, key: Key) -> int:
        """Return a number by which errors are sorted as a reader meets them."""
        ...


@dataclass(frozen=True)
class InFile:
    """A mapping in the settings file, `at` from the top."""

    document: Document
    at: Key = ()

    def error(
        self, key: Key, text: str, hint: str, kind: type[SettingsError] = SettingsError, **facts: Any
    ) -> SettingsError:
        key = self._written((*self.at, *key))
        dotted = ".".join(str(part) for part in key)
        if text == "unknown key":
            return kind(f"{self.document.where(key)}: {text} {dotted}", hint=hint, **facts)
        return kind(f"{self.document.where(key)}: {text}", hint=hint, key=dotted, **facts)

    def order(self, key: Key) -> int:
        return self.document.line(self._written((*self.at, *key)))

    def _written(self, key: Key) -> Key:
        """Return the key as the file spells it: `select` has another name."""
        if key not in self.document.lines and key[2:4] == ("source", "select"):
            return (*key[:3], "streams", *key[4:])
        return key


@dataclass(frozen=True)
class CommandLine:
    """The flags of one command."""

    def error(
        self, key: Key, text: str, hint: str, kind: type[SettingsError] = SettingsError, **facts: Any
    ) -> SettingsError:
        return kind(f"{_FLAGS.get(key[:2], '.'.join(map(str, key)))}: {text}", hint=hint, **facts)

    def order(self, key: Key) -> int:
        return 0


def explained(error: ValidationError, place: Place, at: Key = ()) -> SettingsError:
    """Return the first of the errors, in reading order. What was validated stands `at` that key of the pipeline."""
    first = min(error.errors(include_url=False), key=lambda one: place.order((*at, *one["loc"])))
    key: Key = (*at, *first["loc"])
    kind, facts = first["type"], first.get("ctx", {})
    if kind == "extra_forbidden":
        return _unknown(key, place)
    if kind == "not_available":
        return place.error(key, "not available yet", facts["hint"], NotAvailable, value=facts["value"])
    if kind == "wrong_value":
        below = facts["at"].split(".") if facts["at"] else ()
        return place.error((*key, *below), facts["text"], facts["hint"])
    if kind == "missing":
        return place.error(key, "missing key", "add it")
    if kind == "literal_error":
        choices = facts["expected"].replace("'", "")
        guess = did_you_mean(str(first["input"]), re.split(r", | or ", choices))
        return place.error(key, f"must be {choices}", guess or "choose one of them")
    if kind == "greater_than_equal":
        return place.error(key, f"must be at least {facts['ge']}", "raise it")
    return place.error(key, *_TYPES.get(kind, ("is not valid", "look it up in the reference of settings")))


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return the question, or nothing if no known name is close."""
    close = difflib.get_close_matches(name, list(known), n=1)
    return f'did you mean "{close[0]}"?' if close else ""


def _unknown(key: Key, place: Place) -> SettingsError:
    section = _section(key[:-1])
    name = str(key[-1])
    if name in section.later:
        return place.error(key, "not available yet", "remove it", NotAvailable)
    return place.error(key, "unknown key", did_you_mean(name, section.model_fields) or _belongs(name, section))


def _section(key: Key) -> type[Section]:
    kind = Keys.model_fields[str(key[0])].annotation if key else Keys
    return kind if isinstance(kind, type) and issubclass(kind, Section) else Keys


def _belongs(name: str, section: type[Section]) -> str:
    """Say where a key that stands at the wrong depth belongs, else which keys there are."""
    for parent in Keys.model_fields:
        if name in _section((parent,)).model_fields:
            return f'"{name}" belongs under "{parent}"'
    return "the keys here are: " + ", ".join(section.model_fields)
