"""Read a config file strictly: an unknown key or a wrong type is an error that names it, never a default."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any, TypeVar

from tap_smoke.records import column_schemas
from tap_smoke.settings import Settings, StreamSettings, TapError

T = TypeVar("T")
PYTHON_TYPES: dict[str, type] = {"integer": int, "boolean": bool, "string": str, "array": list}


def load(path: str) -> Settings:
    """The settings in this JSON file; raises TapError for anything that is not exactly a setting."""
    settings = _parse(Settings, read_json(path, "config"), "")
    names = [stream.name for stream in settings.streams]
    if not names:
        raise TapError("the config has no streams")
    if len(set(names)) < len(names):
        raise TapError("two streams have one name")
    for stream in settings.streams:
        _check_stream(stream)
    _check_flat(settings)
    return settings


def read_json(path: str, what: str) -> Any:
    """The JSON value in a file; `what` names the file in the error."""
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except (OSError, ValueError) as error:
        raise TapError(f"cannot read the {what} file: {error}") from error


def json_schema(cls: type[Any] = Settings) -> dict[str, Any]:
    """The settings as JSON Schema, for `--about`."""
    properties: dict[str, Any] = {}
    for setting in fields(cls):
        nested = setting.metadata.get("of")
        kind = json_schema(nested) if nested else dict(setting.metadata["kind"])
        if setting.metadata.get("many"):
            kind = {"type": "array", "items": kind}
        if not nested and setting.default is not None:
            kind["default"] = setting.default
        properties[setting.name] = {**kind, "description": setting.metadata["doc"]}
    return {"type": "object", "properties": properties, "additionalProperties": False}


def _parse(cls: type[T], raw: Any, where: str) -> T:
    if not isinstance(raw, dict):
        raise TapError(f"{where.rstrip('.') or 'the config'} must be an object")
    declared = {setting.name: setting for setting in fields(cls)}  # type: ignore[arg-type]
    unknown = [key for key in raw if key not in declared]
    if unknown:
        raise TapError(f"unknown setting {where}{unknown[0]}; known here: {', '.join(declared)}")
    return cls(**{key: _value(declared[key], value, where + key) for key, value in raw.items()})


def _value(setting: Any, raw: Any, where: str) -> Any:
    nested, many = setting.metadata.get("of"), setting.metadata.get("many")
    if many:
        _check(raw, {"type": "array"}, where)
        return tuple(_parse(nested, item, f"{where}[{index}].") for index, item in enumerate(raw))
    # key_properties is the one setting whose null means something else than its default
    if raw is None and (setting.default is None or setting.name == "key_properties"):
        return None
    if nested:
        return _parse(nested, raw, where + ".")
    _check(raw, setting.metadata["kind"], where)
    return tuple(raw) if isinstance(raw, list) else raw


def _check(raw: Any, kind: dict[str, Any], where: str) -> None:
    if "enum" in kind:
        if raw not in kind["enum"]:
            raise TapError(f"{where} must be one of {', '.join(kind['enum'])}")
        return
    if not _is(raw, kind["type"]):
        raise TapError(f"{where} must be of type {kind['type']}")
    if "minimum" in kind and raw < kind["minimum"]:
        raise TapError(f"{where} must be at least {kind['minimum']}")
    if "minLength" in kind and not raw:
        raise TapError(f"{where} must not be empty")
    for item in raw if "items" in kind else ():
        _check(item, kind["items"], f"{where} item")


def _is(raw: Any, type_name: str) -> bool:
    # bool is an int to Python, not to JSON
    return isinstance(raw, PYTHON_TYPES[type_name]) and (type_name == "boolean" or not isinstance(raw, bool))


def _check_stream(stream: StreamSettings) -> None:
    full = stream.replication_method == "FULL_TABLE"
    change = stream.schema_change
    columns = column_schemas(stream)
    complaints = {
        "resumable needs FULL_TABLE and a version": stream.resumable and not (full and stream.version is not None),
        "progress_markers needs INCREMENTAL": stream.progress_markers and full,
        "activate_first needs a version": stream.activate_first and stream.version is None,
        "key_properties names an unknown column": not set(stream.key_properties or ()) <= set(columns),
        "schema_change needs either add or retype": change is not None
        and (change.add is None) == (change.retype is None),
    }
    if change and change.add is not None:
        complaints["schema_change.add names a column that exists"] = change.add in columns
    if change and change.retype is not None:
        kind = columns.get(change.retype, {}).get("type", ())
        complaints["schema_change.retype names an unknown column"] = change.retype not in columns
        complaints["schema_change to number needs an integer column"] = change.to == "number" and "integer" not in kind
    for complaint, applies in complaints.items():
        if applies:
            raise TapError(f"stream {stream.name}: {complaint}")


def _check_flat(settings: Settings) -> None:
    """A flat STATE has one number a stream: whatever needs more room than that is refused, not dropped."""
    if not settings.state.flat:
        return
    if settings.state.currently_syncing:
        raise TapError("a flat state has no currently_syncing")
    for stream in settings.streams:
        if stream.resumable or stream.progress_markers:
            raise TapError(f"stream {stream.name}: a flat state cannot hold its bookmark")
