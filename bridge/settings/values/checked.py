"""Values of settings, checked and normalised.

Errors are pydantic's own kind, so that they carry the key; `bridge.settings.explain` adds file and line.
None of them shows a value that may be secret.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

from pydantic import BeforeValidator, ValidationInfo
from pydantic_core import PydanticCustomError

from bridge.errors import SettingsError
from bridge.settings.values.units import parse_duration

_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
# These stand in <bucket>/.bridge beside the pipelines' folders.
_TAKEN_NAMES = frozenset({"tables", "lake.json", "catalog.db"})
# The characters a stream's folder encodes too; `a=b` would be a phantom column to DuckDB.
NOT_IN_PATHS = re.compile(r'[\\%=:?*"<>|{}\x00-\x1f\x7f]')


def wrong(text: str, hint: str = "", at: str = "") -> PydanticCustomError:
    """The error for a wrong value of the right type. `at`: the key below this one, if it is not this one."""
    return PydanticCustomError("wrong_value", "{text}", {"text": text, "hint": hint, "at": at})


def parsed(parse: Callable[[Any], Any]) -> BeforeValidator:
    """Call a parser that raises SettingsError, and turn that into an error that gets file and line."""

    def validate(value: Any) -> Any:
        if isinstance(value, timedelta):
            return value
        try:
            return parse(value)
        except SettingsError as error:
            raise wrong(error.message, error.hint) from None

    return BeforeValidator(validate)


def _folder(info: ValidationInfo) -> Path:
    """The folder of the settings file that has this key."""
    return Path((info.context or {}).get("folders", {}).get(info.field_name) or Path.cwd())


def rooted(text: str, info: ValidationInfo) -> Path:
    """The path as it stands in the settings file, whose folder a relative one begins in."""
    try:
        return _folder(info) / Path(text).expanduser()
    except RuntimeError:
        raise wrong("no such user in ~", hint="write the whole path") from None


def file_path(value: Any, info: ValidationInfo) -> Any:
    """The path, relative to the settings file's folder."""
    if isinstance(value, Path):
        value = str(value)
    if value == "":
        raise wrong("must not be empty", hint="give a path or remove the key")
    return rooted(value, info) if isinstance(value, str) else value


def spool_place(value: Any, info: ValidationInfo) -> Any:
    """`bucket`, or the path of a folder as `file_path` has it."""
    return value if value == "bucket" else file_path(value, info)


def tap_config(value: Any, info: ValidationInfo) -> Any:
    """The tap's settings, or the path of their file. An empty value means no settings."""
    if value is None:
        return {}
    if not isinstance(value, str | dict | Path):
        raise wrong(
            "must be a mapping, or the path of a JSON file", hint="write the tap's settings below it, or a path"
        )
    return value if isinstance(value, dict) else file_path(value, info)


def tap_command(value: Any, info: ValidationInfo) -> Any:
    """Split the command; an executable given as a path is relative to the settings, like every other path."""
    if isinstance(value, list) and not all(isinstance(part, str) for part in value):
        raise wrong("must be text or a list of texts", hint="quote numbers")
    try:
        argv = value if isinstance(value, list) else shlex.split(value) if isinstance(value, str) else None
    except ValueError:
        raise wrong("quotes are not closed", hint="write the arguments as a list") from None
    if argv is None:
        raise wrong("must be text or a list of texts", hint="such as tap-postgres, or [tap-postgres, --flag]")
    if not argv or not argv[0]:
        raise wrong("must not be empty", hint="give the tap's command")
    if "/" in argv[0]:
        return [str(rooted(argv[0], info)), *argv[1:]]
    return value


def named(value: Any) -> Any:
    """Refuse an empty text, which would mean something else than a missing key."""
    if isinstance(value, str) and (not value or value != value.strip()):
        raise wrong("must not be empty", hint="give a name or remove the key")
    return value


def table_path(value: Any) -> Any:
    """Refuse names that readers skip (`.hidden`), paths out of the bucket, and unknown placeholders."""
    if not isinstance(value, str):
        return value
    for name in _PLACEHOLDER.findall(value):
        if name not in ("pipeline", "tap"):
            raise wrong(f"unknown placeholder {{{name}}}", hint="there are {pipeline} and {tap}")
    plain = _PLACEHOLDER.sub("x", value)
    parts = plain.split("/")
    if not all(parts):
        raise wrong("must be a relative path without empty parts", hint='such as "{pipeline}" or raw/{tap}')
    if any(part.startswith(".") for part in parts):
        raise wrong("no part of the path may start with a dot", hint="readers skip such folders")
    if NOT_IN_PATHS.search(plain):
        raise wrong("a character that table folders cannot have", hint='leave out \\ % = : ? * " < > | { }')
    return value


def _positive(value: timedelta | None) -> timedelta | None:
    if value is not None and value <= timedelta(0):
        raise wrong("must be longer than nothing", hint="write null for no limit")
    return value


def duration_or_none(value: Any) -> Any:
    """A positive duration, or None for no limit."""
    return None if value is None else _positive(value if isinstance(value, timedelta) else parse_duration(value))


def process_count(value: Any) -> Any:
    """How many processes of the tap there may be at once, or `auto`."""
    if value == "auto" or (isinstance(value, int) and not isinstance(value, bool) and value >= 1):
        return value
    raise wrong("must be a whole number from 1 on, or auto", hint="1 is one process of the tap for all streams")


def pipeline_name(name: str) -> tuple[str, str] | None:
    """The problem of a pipeline's name, and what to do; None if there is none."""
    if not _NAME.fullmatch(name):
        hint = "letters, digits, dot, dash and underscore, at most 100, the first a letter or digit"
        return "not a name for a pipeline", hint
    if name.lower() in _TAKEN_NAMES:
        return "this name is taken by the bridge itself", "choose another name"
    return None


def stream_glob(value: Any) -> Any:
    """Refuse globs that can match no stream, or that are misleading."""
    if not isinstance(value, str):
        return value
    if not value.strip() or value != value.strip():
        raise wrong("not a glob of stream names", hint='such as "public-*"; "*" is every stream')
    if value.startswith("!"):
        raise wrong("a glob here cannot exclude", hint="write the exception below it: the last match wins")
    if "[" in re.sub(r"\[!?\]?[^\]]*\]", "", value):
        raise wrong("a bracket is not closed", hint="[abc] is one of these characters, [[] a bracket itself")
    return value
