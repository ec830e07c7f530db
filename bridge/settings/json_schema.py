"""The JSON Schema of bridge.yaml, made from `options`: editors complete and check the file with it.

What is not available yet is left out. A variable may stand for any value, so every value may also be a text with `${`.
It is shipped as a file, since verbs have to answer fast. To write that anew:
`python -m bridge.settings.json_schema > bridge/settings/bridge.schema.json`
"""

from __future__ import annotations

import ast
import inspect
import json
import sys
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from annotated_types import Ge
from pydantic import WithJsonSchema
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from bridge.settings import destination, options, receivers, service
from bridge.settings.options import Keys, Source
from bridge.settings.service import Service
from bridge.settings.system_tables import DEFAULT
from bridge.settings.values import guarding, replication_slot, schedules
from bridge.settings.values.section import Section, section_of
from bridge.settings.values.units import SIZE, duration_text, size_text

SCHEMA_FILE = Path(__file__).with_name("bridge.schema.json")

_VARIABLE = {"$ref": "#/$defs/variable"}
_PLAIN: dict[Any, str] = {str: "string", int: "integer", bool: "boolean", NoneType: "null"}
_SCALARS = ["string", "number", "boolean", "null"]
_TEXTS = {"type": "object", "additionalProperties": {"type": _SCALARS}}
_NAMES = {"propertyNames": {"pattern": "^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$"}}


def json_schema() -> dict[str, Any]:
    """The schema of a whole file, draft 2020-12."""
    pipelines = {"type": "object", "additionalProperties": _ref(Keys), **_NAMES}
    overlay = {
        "defaults": {**_ref(Keys), "description": "Keys of a pipeline, laid under each."},
        "pipelines": {**pipelines, "description": "The pipelines by their names."},
    }
    environments = {
        "type": "object",
        "additionalProperties": {"type": "object", "properties": overlay, "additionalProperties": False},
        "description": "Overlays, chosen by `--env` or SINGER_BRIDGE_ENV.",
    }
    include = {
        "type": "array",
        "items": {"type": "string"},
        "description": "Further files with pipelines; globs, relative to this file.",
    }
    system_tables = {
        "type": "object",
        "properties": {"path": {"type": "string", "default": DEFAULT, "description": "Folder inside each bucket."}},
        "additionalProperties": False,
        "description": "Also keep runs, commits, bookmarks and streams as Parquet tables of the lake.",
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "bridge.yaml",
        "description": "Settings of singer-bridge.",
        "type": "object",
        "properties": {
            **overlay,
            "environments": environments,
            "include": include,
            "system_tables": system_tables,
            "service": _ref(Service),
        },
        "patternProperties": {"^x-": {"description": "Yours, for YAML anchors."}},
        "additionalProperties": False,
        "$defs": _definitions(),
    }


def _ref(section: type[Section]) -> dict[str, Any]:
    return {"$ref": f"#/$defs/{section.__name__}"}


def _definitions() -> dict[str, Any]:
    described = _descriptions()
    definitions: dict[str, Any] = {
        "variable": {
            "type": "string",
            "pattern": r"\$\{",
            "description": "${NAME}, ${NAME:-default}, ${file:/path}, ${cmd:command}",
        }
    }

    def define(section: type[Section]) -> None:
        properties = {}
        for name, field in section.model_fields.items():
            inner = section_of(field.annotation)
            if inner and inner.__name__ not in definitions:
                define(inner)
            description = described.get((section.__name__, name)) or inspect.cleandoc((inner and inner.__doc__) or "")
            properties[name] = {**_property(field), **({"description": description} if description else {})}
        if section is Source:
            properties["streams"] = {**properties["select"], "description": "Another name of `select`."}
        text = inspect.cleandoc(section.__doc__ or "")
        shape = {"type": "object", "properties": properties, "additionalProperties": False}
        definitions[section.__name__] = {"description": text, **shape}

    define(Keys)
    define(Service)
    return definitions


def _descriptions() -> dict[tuple[str, str], str]:
    """The docstrings of the keys, by section and key."""
    descriptions = {}
    for section in (
        node
        for room in (options, destination, guarding, receivers, replication_slot, schedules, service)
        for node in ast.walk(ast.parse(inspect.getsource(room)))
    ):
        body = section.body if isinstance(section, ast.ClassDef) else []
        for key, text in pairwise(body):
            if isinstance(key, ast.AnnAssign) and isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant):
                name = (section.name if isinstance(section, ast.ClassDef) else "", ast.unparse(key.target))
                descriptions[name] = inspect.cleandoc(str(text.value.value))
    return descriptions


def _property(field: FieldInfo) -> dict[str, Any]:
    declared = next((item.json_schema for item in field.metadata if isinstance(item, WithJsonSchema)), None)
    schema = dict(declared) if declared else _schema(field.annotation)
    least = next((item.ge for item in field.metadata if isinstance(item, Ge)), None)
    if least is not None and schema == {"type": "integer"}:
        schema["minimum"] = least
    default = field.default
    if default is not PydanticUndefined and default is not None and not isinstance(default, Section):
        return {**_or_variable(schema), "default": _written(default, schema)}
    return _or_variable(schema)


def _or_variable(schema: dict[str, Any]) -> dict[str, Any]:
    """Allow a variable in the place of any scalar but plain text, which allows one already."""
    kinds = schema.get("type", [])
    has_text = "string" in ([kinds] if isinstance(kinds, str) else kinds) and not {"pattern", "enum"} & schema.keys()
    if has_text or kinds in ("object", "array") or "$ref" in schema or "anyOf" in schema:
        return schema
    return {"anyOf": [schema, _VARIABLE]}


def _written(default: Any, schema: dict[str, Any]) -> Any:
    if isinstance(default, timedelta):
        return duration_text(default)
    return size_text(default) if schema.get("pattern") == SIZE else default


def _schema(annotation: Any) -> dict[str, Any]:
    origin, inside = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        declared = next((item.json_schema for item in inside[1:] if isinstance(item, WithJsonSchema)), None)
        return dict(declared) if declared else _schema(inside[0])
    if origin is Literal:
        return {"type": "string", "enum": list(inside)}
    if origin is list:
        return {"type": "array", "items": _schema(inside[0])}
    if origin is dict:
        section = section_of(inside[1])
        return {"type": "object", "additionalProperties": _ref(section)} if section else dict(_TEXTS)
    if origin in (Union, UnionType):
        return _union(inside)
    if isinstance(annotation, type) and issubclass(annotation, Section):
        return _ref(annotation)
    return {"type": _PLAIN[annotation]}


def _union(kinds: tuple[Any, ...]) -> dict[str, Any]:
    schemas = [_or_variable(_schema(kind)) for kind in kinds if kind is not NoneType]
    if len(schemas) == 1 and NoneType not in kinds:
        return schemas[0]
    return {"anyOf": [*schemas, *([{"type": "null"}] if NoneType in kinds else [])]}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(json_schema(), indent=2) + "\n")
