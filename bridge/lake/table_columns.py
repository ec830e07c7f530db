"""A table's columns as the bucket has them: what verbs need that only name them, without loading Arrow.

An entry is `{"name", "type"}`, where it says something also `required`, `kind` and `singer`. A type is a word,
`{"struct": [entries]}`, `{"list": entry}` or `{"decimal": [precision, scale]}`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from bridge.errors import CorruptLake
from bridge.exact_json import NotJson, loads
from bridge.lake.paths import pipeline_key
from bridge.lake.records import TableState
from bridge.lake.storage import Storage

Entry = dict[str, Any]

_WORDS = {"float64": "double", "date32": "date32[day]", "timestamp[us, UTC]": "timestamp[us, tz=UTC]"}
"""Arrow's own words, where they are others than the bucket's."""


def read_columns(storage: Storage, pipeline: str, name: str) -> list[Entry]:
    """A schema's columns by its hash. Raises `CorruptLake` if they are not there."""
    key = pipeline_key(pipeline, "schemas", f"{name}.json")
    try:
        return list(loads(storage.read(key) or b"")["columns"])
    except (NotJson, KeyError, TypeError) as error:
        raise CorruptLake("a table's schema is unreadable", hint="restore it from a backup", file=key) from error


def visible_columns(storage: Storage, pipeline: str, table: TableState) -> list[Entry]:
    """The columns of a table, without a view's hidden ones; none if the table was taken back by a rollback."""
    columns = read_columns(storage, pipeline, table.schema) if table.schema else []
    return [entry for entry in columns if not table.hides(entry["name"])]


def holds_json(entry: Entry) -> bool:
    """Whether a column of text holds JSON."""
    return entry.get("kind") in ("json", "null", "extra")


def struct_of(type_: Any) -> list[Entry] | None:
    """The fields of a struct, None for any other type."""
    return type_.get("struct") if isinstance(type_, dict) else None


def item_of(type_: Any) -> Entry | None:
    """The item of a list, None for any other type."""
    return type_.get("list") if isinstance(type_, dict) else None


def words(type_: Any) -> str:
    """A type as Arrow writes it."""
    if (fields := struct_of(type_)) is not None:
        return "struct<" + ", ".join(f"{entry['name']}: {words(entry['type'])}" for entry in fields) + ">"
    if (item := item_of(type_)) is not None:
        return f"list<{item['name']}: {words(item['type'])}>"
    return _WORDS.get(type_, type_) if isinstance(type_, str) else "decimal128({}, {})".format(*type_["decimal"])


def flat(entries: Iterable[Entry], above: str = "") -> dict[str, str]:
    """All columns and the fields inside them, dotted, with their types."""
    columns: dict[str, str] = {}
    for entry in entries:
        columns |= _flat(entry, f"{above}{entry['name']}")
    return columns


def _flat(entry: Entry, name: str) -> dict[str, str]:
    if (fields := struct_of(entry["type"])) is not None:
        return {name: "struct"} | flat(fields, f"{name}.")
    if (item := item_of(entry["type"])) is not None:
        return {name: "list"} | _flat(item, f"{name}[]")
    return {name: "json" if holds_json(entry) else words(entry["type"])}
