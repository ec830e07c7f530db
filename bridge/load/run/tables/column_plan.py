"""Which columns a SCHEMA gives its table: the selected ones, under which names, and those that the bridge adds."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

import pyarrow as pa

from bridge.errors import SettingsError
from bridge.load.write.merge.versioning import last_match
from bridge.load.write.metadata_columns import METADATA, leave_out, with_metadata
from bridge.protocol.schema.json_schema import DELETED_AT, EXTRA, NULL_TIMES, Names, source
from bridge.protocol.schema.merging import Evolution
from bridge.protocol.schema.table_schema import TableSchema, from_singer, merge
from bridge.protocol.schema.valid import valid_schema
from bridge.protocol.singer.messages import Schema
from bridge.settings.sql.transform import Statement

_WORDS = (re.compile(r"([A-Z]+)([A-Z][a-z])"), re.compile(r"([a-z0-9])([A-Z])"))
_MORE = frozenset({"$ref", "allOf", "anyOf", "oneOf"})
"""Where a SCHEMA may have properties beside its own."""
_BETWEEN = re.compile(r"[\s.\-]+")


def snake_case(name: str) -> str:
    """A name in lower case with `_` between its words: `userID`, `User ID` and `user-id` are `user_id`."""
    for words in _WORDS:
        name = words.sub(r"\1_\2", name)
    return _BETWEEN.sub("_", name).lower()


_STYLES = {"snake_case": snake_case, "lower": str.lower}


@dataclass(frozen=True, slots=True)
class IncomingSchema:
    """The columns that one SCHEMA message declares for its table. `notes` are for people."""

    columns: TableSchema
    """The columns of a new table with this SCHEMA."""
    left_out: tuple[pa.Field, ...] = ()
    """Properties that are not kept."""
    null_times: frozenset[str] = frozenset()
    """Properties in which a text that is no time becomes null."""
    metadata: bool = False
    statement: Statement | None = None
    """The SQL statement that transforms rows before they are stored."""
    notes: tuple[str, ...] = ()

    @property
    def skipped(self) -> set[str]:
        """Properties that the settings leave out, or that the bridge writes itself."""
        return {source(field) for field in self.left_out} | (set(METADATA) if self.metadata else set())

    def into(self, table: TableSchema | None, evolution: Evolution, made: pa.Schema | None = None) -> TableSchema:
        """The table with these columns, or those that the statement `made` of them, and what RECORDs are read
        into. Raises DataError for what `evolution` does not allow; the metadata columns are never refused.
        """
        if made is not None:
            table_columns = with_metadata(made) if self.metadata else list(made)
            return merge(_grown(table, metadata=self.metadata), _named_as(table, table_columns), evolution)
        merged = merge(_grown(table, metadata=self.metadata), self.columns, evolution)
        return self._marked(leave_out(merged, self.left_out, metadata=self.metadata))

    def read(self) -> TableSchema:
        """The columns into which RECORDs are decoded before the statement."""
        return self._marked(leave_out(self.columns, self.left_out, metadata=self.metadata))

    def _marked(self, schema: TableSchema) -> TableSchema:
        """The columns with what decoding them needs to know of bad times."""
        if not self.null_times:
            return schema
        fields = [_with(each, NULL_TIMES) if source(each) in self.null_times else each for each in schema.fields]
        return TableSchema(schema.arrow, pa.schema(fields))


def _grown(table: TableSchema | None, *, metadata: bool) -> TableSchema | None:
    if table is None or not metadata:
        return table
    present = {source(field) for field in table.arrow}
    more = [pa.field(name, type_) for name, type_ in METADATA.items() if name not in present]
    at = table.arrow.names.index(EXTRA) if EXTRA in table.arrow.names else len(table.arrow)
    return TableSchema(pa.schema([*list(table.arrow)[:at], *more, *list(table.arrow)[at:]]))


def _named_as(table: TableSchema | None, fields: Iterable[pa.Field]) -> TableSchema:
    """The columns of a statement; one with the name of a table's column is that column."""
    existing = {field.name: field for field in table.arrow} if table else {}
    properties = {source(field) for field in existing.values()}
    result = []
    for each in fields:
        column = existing.get(each.name) if source(each) not in properties else None
        singer = {b"singer": source(column).encode()} if column is not None else {}
        result.append(_with(each, singer) if singer else each)
    return TableSchema(pa.schema(result))


def _with(field: pa.Field, metadata: dict[bytes, bytes]) -> pa.Field:
    return field.with_metadata({**(field.metadata or {}), **metadata})


@dataclass(frozen=True, slots=True)
class ColumnPlan:
    """The settings of one stream's columns."""

    stream: str
    columns: Sequence[str] = ()
    rename: dict[str, str] = field(default_factory=dict)
    style: str = "keep"
    metadata: bool = False
    statement: Statement | None = None
    replication_key: str | None = None
    sequence: str | None = None
    """The property that orders the versions of a row."""
    log_based: bool = False
    """Whether the tap reads a log, so that deletions may come, also where its SCHEMA does not say so."""
    null_times: bool = False
    """Whether texts that are no time become null, but for those of a key, a replication key or a deletion."""

    def incoming(self, message: Schema, never_null: Sequence[str], keys: Sequence[str]) -> IncomingSchema:
        """The columns of a SCHEMA.

        Raises `SettingsError` for a key that would be left out, `DataError` for a SCHEMA that cannot be read.
        """
        columns = from_singer(_with_key(self._with_deletions(message.schema), message.key_properties or ()), never_null)
        fields = [each for each in columns.arrow if each.name != EXTRA]
        needed = {
            *keys,
            *(message.bookmark_properties or ()),
            *filter(None, [self.replication_key, self.sequence]),
        }
        selected = [each for each in fields if self._keeps(source(each), needed)]
        left_out = [each for each in fields if each not in selected]
        if self.metadata:
            left_out += [each for each in selected if source(each) in METADATA and source(each) != DELETED_AT]
            selected = with_metadata(selected)
        schema = TableSchema(pa.schema(self._named(selected) or columns.arrow))
        notes = [f"{self.stream}: {text}" for text in valid_schema(message.schema)[1]]
        names = (source(each) for each in fields) if self.null_times else ()
        null_times = frozenset(names) - needed - {DELETED_AT}
        notes = [*self._notes(fields), *notes]
        return IncomingSchema(schema, tuple(left_out), null_times, self.metadata, self.statement, tuple(notes))

    def _with_deletions(self, schema: dict[str, Any]) -> dict[str, Any]:
        """The SCHEMA with the column of deletions, which tap-mysql sends without having said that it does.

        For tap-mongodb it is a time or anything else, as all of its times are.
        """
        properties = schema.get("properties")
        if not self.log_based or not isinstance(properties, dict):
            return schema
        declared = properties.get(DELETED_AT)
        either = declared.get("anyOf") if isinstance(declared, dict) else None
        if DELETED_AT in properties and {} not in (either if isinstance(either, list) else ()):
            return schema
        return {**schema, "properties": {**properties, DELETED_AT: {"type": ["null", "string"], "format": "date-time"}}}

    def wants(self, name: str) -> bool:
        """Whether a column is stored that is neither a key nor a bookmark."""
        return self._keeps(name, ())

    def _keeps(self, name: str, needed: Collection[str]) -> bool:
        """Whether a column is stored: the last glob that matches wins, and naming some leaves out the others."""
        if self.metadata and name in METADATA:
            return True
        pattern = last_match(self.columns, name)
        if pattern is not None and pattern.startswith("!") and name in needed:
            hint = "remove the pattern, or write the column behind it: tables and bookmarks need it"
            raise SettingsError("columns leaves out a key", hint=hint, stream=self.stream, column=name, pattern=pattern)
        if pattern is None:
            return name in needed or all(glob.startswith("!") for glob in self.columns)
        return not pattern.startswith("!")

    def _named(self, fields: list[pa.Field]) -> list[pa.Field]:
        """The columns as the table names them: names from the settings first, then in the order of the SCHEMA."""
        style = _STYLES.get(self.style)
        if not self.rename and not style:
            return fields
        metadata = METADATA if self.metadata else ()
        names = {name: name for name in metadata}
        taken = Names([EXTRA, *metadata])
        for each in sorted(fields, key=lambda one: source(one) not in self.rename):
            name = source(each)
            if name not in names:
                names[name] = taken.take(self.rename.get(name) or (style(name) if style else name))
        return [_renamed(each, names[source(each)]) for each in fields]

    def _notes(self, fields: Sequence[pa.Field]) -> Iterable[str]:
        names = [source(each) for each in fields]
        for glob in self.columns:
            if not any(fnmatchcase(name, glob.removeprefix("!")) for name in names):
                yield f"{self.stream}: no column is like {glob} in its setting columns"
        for name in self.rename:
            if name not in names:
                yield f"{self.stream}: there is no column {name} to rename"


def _with_key(schema: dict[str, Any], keys: Sequence[str]) -> dict[str, Any]:
    """The SCHEMA with the key that the tap names, as text if it says no type of it, as tap-mongodb of its `_id`."""
    properties = schema.get("properties", {})
    if not isinstance(properties, dict) or not _MORE.isdisjoint(schema) or schema.get("additionalProperties") is False:
        return schema
    undeclared = {key: {"type": "string"} for key in keys if key not in properties}
    return {**schema, "properties": {**undeclared, **properties}} if undeclared else schema


def _renamed(field: pa.Field, name: str) -> pa.Field:
    metadata = {key: value for key, value in (field.metadata or {}).items() if key != b"singer"}
    if source(field) != name:
        metadata[b"singer"] = source(field).encode()
    return field.with_name(name).with_metadata(metadata or None)


def allows_null(schema: Any) -> bool:
    """Whether a property's schema has null among its values."""
    if not isinstance(schema, dict):
        return schema is True
    for word in ("anyOf", "oneOf"):
        if isinstance(schema.get(word), list):
            return any(allows_null(one) for one in schema[word])
    type_ = schema.get("type", "null" if "$ref" not in schema else "")
    return type_ == "null" or (isinstance(type_, list) and "null" in type_)
