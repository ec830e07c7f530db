"""A SCHEMA as taps really send it. What is no JSON Schema in it ends no run: it is left out.

Where that was to decide a type, the column is JSON text, which loses nothing, and the run says so.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

import orjson

if TYPE_CHECKING:
    from jsonschema import ValidationError
    from jsonschema_rs import Draft7Validator as Draft7InRust

MAX_DIGITS = 38
"""Digits that a decimal column holds at most."""
INT64_DIGITS = 19
SAYS_TYPE = frozenset({"type", "anyOf", "oneOf", "allOf", "$ref", "properties"})
_NARROWS = frozenset({"items", "enum", "const", "format", "minimum", "maximum", "multipleOf"})
_OLDER = frozenset({"exclusiveMaximum", "exclusiveMinimum", "required"})
"""Keywords with another meaning in drafts 3 and 4, which taps still use; what they say there is read, too."""
_MAPS = frozenset({"properties", "patternProperties", "definitions", "dependencies"})
"""Keywords whose value has a schema for each name."""


def json_pointer(path: Iterable[object]) -> str:
    """The JSON pointer of these steps; empty for the whole document."""
    return "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in path)


def valid_schema(schema: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """The schema without what is no JSON Schema, and a sentence for each part that was to decide a type.

    With properties it is an object, whatever its type says.
    """
    root = dict(schema)
    if isinstance(root.get("properties"), dict):
        root["type"] = "object"
        if _is_of_valid_parts(root):
            return root, []
    root, notes = deepcopy(root), set[str]()
    while errors := list(_errors(root)):
        for error in errors:
            path = list(error.absolute_path)
            if _leave_out(root, path) and (note := _note(path, error.instance)):
                notes.add(note)
    return root, sorted(notes)  # jsonschema names faults in any order


def _is_of_valid_parts(root: dict[str, Any]) -> bool:
    """Whether an object and each of its properties is valid JSON Schema. Most properties were seen in other streams."""
    try:
        rest = orjson.dumps(root | {"properties": {}})
        return all(map(_is_valid, (rest, *map(orjson.dumps, root["properties"].values()))))
    except TypeError:  # nested deeper than orjson writes, or a number of more than 64 bits
        return False


@lru_cache(4096)
def _is_valid(schema: bytes) -> bool:
    """Whether it is JSON Schema. What Rust does not take is jsonschema's to judge, which takes long to import."""
    part = orjson.loads(schema)
    if _in_rust().is_valid(part):
        return True
    from jsonschema import Draft7Validator

    return bool(Draft7Validator(Draft7Validator.META_SCHEMA).is_valid(part))


@cache
def _in_rust() -> Draft7InRust:
    from jsonschema_rs import Draft7Validator  # not needed to read tables

    return Draft7Validator({"$ref": "http://json-schema.org/draft-07/schema#"}, validate_formats=False, offline=True)


def _errors(root: dict[str, Any]) -> Iterator[ValidationError]:
    from jsonschema import Draft7Validator

    for error in Draft7Validator(Draft7Validator.META_SCHEMA).iter_errors(root):
        for part in _innermost(error):
            path = list(part.absolute_path)
            if not (path[-1] in _OLDER and isinstance(part.instance, bool) and path[-2:-1] != ["properties"]):
                yield part


def _innermost(error: ValidationError) -> Iterator[ValidationError]:
    """Yield the faults in `items` or `dependencies`, instead of the fact that they have some."""
    if error.validator == "anyOf" and (not error.absolute_path or error.absolute_path[-1] != "type"):
        branch = 1 if isinstance(error.instance, list) else 0
        parts = [part for part in error.context or () if part.schema_path[0] == branch]
        if any(part.relative_path for part in parts):
            for part in parts:
                yield from _innermost(part)
            return
    yield error


def _leave_out(root: Any, path: list[Any]) -> bool:
    """Take one part out of a schema; False if it is gone already. A type that is named twice is named once."""
    *above, last = path
    parent = root
    for step in above:
        if not (isinstance(parent, list) or (isinstance(parent, dict) and step in parent)):
            return False
        parent = parent[step]
    if not (isinstance(parent, list) or last in parent):
        return False
    if isinstance(parent, list) or _is_map(above):
        parent[last] = {}
        return True
    value = parent.pop(last)
    if last == "type" and isinstance(value, list) and all(isinstance(name, str) for name in value):
        names = list(dict.fromkeys(value))
        if 0 < len(names) < len(value):
            parent[last] = names
            return False
    return True


def _is_map(path: list[Any]) -> bool:
    """Whether what is there has a schema for each name: a property may have the name of a keyword."""
    return bool(path) and path[-1] in _MAPS and not _is_map(path[:-1])


def _note(path: list[Any], value: Any) -> str:
    at, last = json_pointer(path), path[-1]
    is_schema = isinstance(last, int) or (_is_map(path[:-1]) and path[-2] == "properties")
    shown = repr(value)[:80]
    if is_schema or last == "type" or (last in SAYS_TYPE and value is not None):
        return f"its SCHEMA has at {at} {shown}, which is no type: the values are kept as JSON text"
    if (last in _NARROWS or last in _OLDER) and value is not None:
        return f"its SCHEMA has at {at} {shown}, which means nothing there and is ignored"
    return ""


def undeclared(keys: Sequence[str], properties: Mapping[str, Any]) -> str:
    """A hint for a tap that declares no type of its key: of a store without columns it often declares nothing."""
    types = {key: {"type": "string"} for key in keys if key not in properties}
    declared = f"declares only {', '.join(list(properties)[:20])}" if properties else "declares no column"
    return (
        f"the schema of the stream {declared}. Add the key to `properties` of its schema in the catalog, which is "
        f".singer-bridge/catalogs/NAME.json unless source.catalog names another: {json.dumps(types)}. Fields that it "
        f"does not name are kept in _sdc_extra"
    )
