"""The settings of a replay, read strictly: an unknown key or a wrong type is an error that names it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, fields
from typing import Any

PYTHON_TYPES: dict[str, type] = {"integer": int, "boolean": bool, "string": str}


class TapError(Exception):
    """The user has to change the config, the catalog, the state or the recording; the message says which."""


def _setting(default: Any, kind: str, doc: str, minimum: int | None = None) -> Any:
    schema = {"type": kind} if minimum is None else {"type": kind, "minimum": minimum}
    return field(default=default, metadata={"kind": schema, "doc": doc})


@dataclass(frozen=True)
class Settings:
    """The whole config file; `path` is the one setting without a default."""

    path: str = _setting("", "string", "the recorded Singer file; a name ending in .gz is decompressed")
    loops: int = _setting(1, "integer", "how many times it is played", 1)
    honour_state: bool = _setting(True, "boolean", "resume after the last STATE line equal to the one passed in")
    lines_per_second: int | None = _setting(None, "integer", "pace; null is as fast as the disk", 1)
    chunk_bytes: int = _setting(1024 * 1024, "integer", "bytes moved by one system call", 1)


def load(path: str) -> Settings:
    """The settings in this JSON file."""
    raw = read_json(path, "config")
    if not isinstance(raw, dict):
        raise TapError("the config must be an object")
    declared = {setting.name: setting for setting in fields(Settings)}
    for key, value in raw.items():
        if key not in declared:
            raise TapError(f"unknown setting {key}; known: {', '.join(declared)}")
        if value is not None or declared[key].default is not None:
            _check(key, value, declared[key].metadata["kind"])
    if not raw.get("path"):
        raise TapError("the config needs a path")
    return Settings(**raw)


def read_json(path: str, what: str) -> Any:
    """The JSON value in a file; `what` names the file in the error."""
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except (OSError, ValueError) as error:
        raise TapError(f"cannot read the {what} file: {error}") from error


def json_schema() -> dict[str, Any]:
    """The settings as JSON Schema, for `--about`."""
    properties = {
        setting.name: {
            **setting.metadata["kind"],
            **({"default": setting.default} if setting.default not in (None, "") else {}),
            "description": setting.metadata["doc"],
        }
        for setting in fields(Settings)
    }
    return {"type": "object", "properties": properties, "required": ["path"], "additionalProperties": False}


def _check(key: str, value: Any, kind: dict[str, Any]) -> None:
    expected = PYTHON_TYPES[kind["type"]]
    # bool is an int to Python, not to JSON
    if not isinstance(value, expected) or (expected is int and isinstance(value, bool)):
        raise TapError(f"{key} must be of type {kind['type']}")
    if "minimum" in kind and value < kind["minimum"]:
        raise TapError(f"{key} must be at least {kind['minimum']}")
