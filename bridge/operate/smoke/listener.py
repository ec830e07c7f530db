"""The messages that a tap sends in one run, one by one, and what is wrong with them."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import orjson
import simplejson

from bridge.errors import DataError
from bridge.exact_json import NotJson, loads
from bridge.load.tap.batch_files import Batches
from bridge.operate.smoke.catalogs import schema_error
from bridge.operate.smoke.verdicts import Verdicts
from bridge.protocol.decode.arrow.pieces import ArrowPieces
from bridge.protocol.decode.instants import date_of, timestamp_of
from bridge.protocol.decode.validate import validator_of
from bridge.protocol.schema.valid import json_pointer
from bridge.protocol.singer.messages import Batch, Reader, parse

_SHOWN = 80
"""Characters of a value that are shown."""


@dataclass(slots=True)
class Sent:
    """The messages that a tap sent for one stream."""

    schema: dict[str, Any] = field(default_factory=dict)
    keys: list[str] = field(default_factory=list)
    bookmarks: list[str] = field(default_factory=list)
    schemas: int = 0
    records: int = 0
    size: int = 0
    """Bytes of its RECORD lines."""
    versions: bool = False
    validator: Any = None
    seen_keys: set[bytes] = field(default_factory=set)
    bookmark: Any = None
    """The latest `replication_key_value` of a STATE."""
    highest: Any = None
    """The greatest replication key of a RECORD."""
    kinds: dict[str, set[str]] = field(default_factory=dict)
    """The JSON types of each column's values."""

    def to_json(self) -> dict[str, Any]:
        """The SCHEMA as `--golden` writes it."""
        return {"schema": self.schema, "key_properties": self.keys, "bookmark_properties": self.bookmarks}


class Listener:
    """Reads stdout as it comes, and tells `verdicts` what is wrong.

    `replication` has each stream's replication key; keys of the streams in `may_repeat` may come twice.
    """

    def __init__(
        self,
        verdicts: Verdicts,
        *,
        replication: dict[str, str],
        may_repeat: set[str],
        batches: Batches | None = None,
    ) -> None:
        self.streams: dict[str, Sent] = {}
        self.state: Any = None
        self.states = self.records = self.lines = self.unmarked = 0
        self.recorded: list[tuple[str, bytes]] = []
        """The records in their order, as canonical JSON: to compare two runs."""
        self._verdicts, self._replication, self._may_repeat = verdicts, replication, may_repeat
        self._batches, self._most, self._rest = batches or Batches(), 0, b""
        checks = ("stdout", "schema-first", "schema", "records", "dates", "keys", "replication-key")
        verdicts.make(*checks)

    def feed(self, chunk: bytes, most: int) -> bool:
        """Read a piece of stdout; return whether `most` records have come."""
        self._most = most
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        for line in lines:
            self._line(line)
            if self.records >= most:
                return True
        return False

    def finish(self) -> None:
        """Read what came after the last line end."""
        if self._rest.strip():
            self._line(self._rest)
        self._rest = b""

    @property
    def unfinished(self) -> bool:
        """Whether the last line has no end yet."""
        return bool(self._rest.strip())

    def _line(self, line: bytes) -> None:
        self.lines += 1
        if not line.strip():
            return
        message = parse(line)
        kind = str(message["type"]).upper() if message else ""
        if message is None or not kind:
            hint = "log to stderr: stdout is for messages only"
            example = line[:_SHOWN].decode("utf-8", "replace")
            self._verdicts.fail("stdout", "a line is no Singer message", hint, example=f"line {self.lines}: {example}")
        elif kind == "SCHEMA":
            self._schema(message, _exactly(line, message))
        elif kind == "RECORD":
            self._record(message, _exactly(line, message), len(line))
        elif kind == "STATE":
            self._state(message)
        elif kind == "ACTIVATE_VERSION":
            self.streams.setdefault(str(message.get("stream")), Sent()).versions = True
        elif kind == "BATCH":
            self._batch(line)
        else:
            self._verdicts.warn("stdout", f"messages of an unknown type {kind}", "targets ignore these, or end")

    def _schema(self, message: dict[str, Any], exactly: dict[str, Any]) -> None:
        name, schema = str(message.get("stream")), message.get("schema")
        if not isinstance(message.get("stream"), str) or not isinstance(schema, dict):
            self._verdicts.fail("schema", "a SCHEMA without stream or schema", "both are required", stream=name)
            return
        sent = self.streams.setdefault(name, Sent())
        sent.schema, sent.schemas = schema, sent.schemas + 1
        sent.keys, sent.bookmarks = (_names(message.get(key)) for key in ("key_properties", "bookmark_properties"))
        if wrong := schema_error(schema):
            hint = "targets may refuse it, or guess"
            text = f"the SCHEMA is no JSON Schema: {wrong[1]}"
            self._verdicts.fail("schema", text, hint, stream=name, pointer=wrong[0])
            sent.validator = None
        else:
            sent.validator = validator_of(exactly["schema"])
        if "key_properties" not in message:
            self._verdicts.warn("schema", "the SCHEMA has no key_properties", "write [] for no key", stream=name)
        columns = schema.get("properties") or {}
        for word, names in (("key", sent.keys), ("bookmark property", sent.bookmarks)):
            for column in names:
                if column not in columns:
                    hint = "targets find rows by it: it has to be a property"
                    self._verdicts.fail("schema", f"{word} {column} is not in the SCHEMA", hint, stream=name)

    def _batch(self, line: bytes) -> None:
        """Check the rows of files as RECORDs, up to as many as are wanted."""
        self._verdicts.make("batch")
        batch = next(Reader().feed(line + b"\n"), None)
        if not isinstance(batch, Batch):
            hint = "write stream, encoding and manifest, as the Singer SDK does"
            self._verdicts.fail("batch", "a BATCH without stream or files", hint)
            return
        try:
            for records in self._batches.records(batch):
                data = bytes(records.data)
                data = ArrowPieces(data, records.stream).lines() if records.arrow else data
                for each in data.splitlines():
                    message = parse(each) or {"stream": batch.stream}
                    self._record(message, _exactly(each, message), len(each))
                    if self.records >= self._most:
                        return
        except DataError as error:
            self._verdicts.fail("batch", error.message, error.hint, stream=batch.stream)

    def _record(self, message: dict[str, Any], exactly: dict[str, Any], size: int) -> None:
        name, record = str(message.get("stream")), message.get("record")
        if not isinstance(message.get("stream"), str) or not isinstance(record, dict):
            self._verdicts.fail("records", "a RECORD without stream or record", "both are required", stream=name)
            return
        sent = self.streams.setdefault(name, Sent())
        self.records, self.unmarked = self.records + 1, self.unmarked + 1
        sent.records, sent.size = sent.records + 1, sent.size + size
        if not sent.schemas:
            hint = "write a stream's SCHEMA before its first RECORD; targets end here"
            self._verdicts.fail("schema-first", "a RECORD came before its SCHEMA", hint, stream=name)
        self.recorded.append((name, orjson.dumps(record, default=str, option=orjson.OPT_SORT_KEYS)))
        self._valid(name, sent, exactly["record"])
        self._declared(name, sent, record)
        self._keys(name, sent, record)
        self._order(name, sent, record)
        for column, value in record.items():
            sent.kinds.setdefault(column, set()).add(_kind(value))

    def _valid(self, name: str, sent: Sent, record: dict[str, Any]) -> None:
        from referencing.exceptions import Unresolvable

        try:
            broken = list(sent.validator.iter_errors(record)) if sent.validator else []
        except Unresolvable as nowhere:
            hint = "no target fetches it: write the definition into the SCHEMA"
            self._verdicts.fail("schema", f"a $ref leads nowhere: {_short(nowhere.ref)}", hint, stream=name)
            sent.validator = None
            return
        for error in broken:
            pointer = json_pointer(step if isinstance(step, str) else "*" for step in error.absolute_path)
            rule = _short(error.validator_value)
            text = f"{error.validator} {rule}" if error.validator != "required" else error.message
            hint = "declare what is sent, or send what is declared; targets reject or coerce it"
            example = f"record {sent.records}: {_short(error.instance)}"
            facts = {"stream": name, "pointer": pointer, "example": example}
            self._verdicts.fail("records", f"not as declared: {text}", hint, **facts)

    def _declared(self, name: str, sent: Sent, record: dict[str, Any]) -> None:
        properties = sent.schema.get("properties")
        if properties and "additionalProperties" not in sent.schema and "patternProperties" not in sent.schema:
            for column in record.keys() - properties.keys():
                hint = "most targets drop it: declare it, or leave it out"
                self._verdicts.warn("records", "a field that the SCHEMA lacks", hint, stream=name, pointer=f"/{column}")
        for column, node in (properties or {}).items():
            self._dated(name, column, node, record.get(column))

    def _dated(self, name: str, column: str, node: Any, value: Any) -> None:
        read = {"date-time": timestamp_of, "date": date_of}.get(_format(node))
        if read is None or not isinstance(value, str):
            return
        try:
            read(value)
        except ValueError:
            hint = "write RFC 3339, as 2026-01-31T12:00:00Z"
            text, pointer = f"no {_format(node)}", f"/{column}"
            self._verdicts.fail("dates", text, hint, stream=name, pointer=pointer, example=_short(value))

    def _keys(self, name: str, sent: Sent, record: dict[str, Any]) -> None:
        hint = "rows without a key can be neither updated nor deleted"
        missing = [key for key in sent.keys if record.get(key) is None]
        for key in missing:
            text = "a key is null" if key in record else "a key is missing"
            example = f"record {sent.records}"
            self._verdicts.fail("keys", text, hint, stream=name, pointer=f"/{key}", example=example)
        if not sent.keys or missing:
            return
        row = orjson.dumps([record[key] for key in sent.keys], default=str)
        if row in sent.seen_keys and name not in self._may_repeat:
            text = f"two records have one key {', '.join(sent.keys)}"
            self._verdicts.fail("keys", text, "choose a key that is unique", stream=name, example=row.decode()[:_SHOWN])
        sent.seen_keys.add(row)

    def _order(self, name: str, sent: Sent, record: dict[str, Any]) -> None:
        column = self._replication.get(name) or (sent.bookmarks[0] if sent.bookmarks else None)
        if column is None:
            return
        value = record.get(column)
        if value is None:
            if column not in record:
                hint, text = "a run that resumes by it would not know where", "a record lacks its replication key"
                self._verdicts.fail("replication-key", text, hint, stream=name, pointer=f"/{column}")
            return
        if is_less(value, sent.bookmark):
            hint = "sort by the replication key, or write progress_markers: a run that ends here would lose it"
            text, example = (
                "a record is older than a bookmark before it",
                f"{_short(value)} after {_short(sent.bookmark)}",
            )
            self._verdicts.fail("replication-key", text, hint, stream=name, example=example)
        if sent.highest is None or is_less(sent.highest, value):
            sent.highest = value

    def _state(self, message: dict[str, Any]) -> None:
        self.states += 1
        if "value" not in message:
            self._verdicts.fail("state", "a STATE has no value", 'write {"type": "STATE", "value": {...}}')
            return
        self.state, self.unmarked = message["value"], 0
        marks = self.state.get("bookmarks") if isinstance(self.state, dict) else None
        for name, mark in marks.items() if isinstance(marks, dict) else ():
            if isinstance(mark, dict) and "progress_markers" not in mark and name in self.streams:
                self.streams[name].bookmark = mark.get("replication_key_value")


def _exactly(line: bytes, message: dict[str, Any]) -> dict[str, Any]:
    """The message with every digit of its fractions, to check it against its SCHEMA."""
    with suppress(NotJson):  # nested too deep
        return dict(loads(line))
    return message


def _comparable(value: Any) -> Any:
    """The value by which a replication key is compared: the microseconds of an instant, otherwise the value."""
    if isinstance(value, str):
        try:
            return timestamp_of(value)
        except ValueError:
            return value
    return value


def is_less(value: Any, than: Any) -> bool:
    """Whether one is smaller; False if the two cannot be compared."""
    if value is None or than is None:
        return False
    with suppress(TypeError):
        return bool(_comparable(value) < _comparable(than))
    return False


def _names(value: Any) -> list[str]:
    return [value] if isinstance(value, str) else [str(name) for name in value or ()]


def _format(node: Any) -> str:
    """The one format that a column's text has; empty if it may have several."""
    if not isinstance(node, dict):
        return ""
    nodes = [node, *(node.get("anyOf") or ()), *(node.get("oneOf") or ())]
    texts = [n for n in nodes if isinstance(n, dict) and "string" in str(n.get("type", ""))]
    formats = {str(n.get("format", "")) for n in texts}
    return formats.pop() if len(formats) == 1 else ""


def _kind(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return "null" if value is None else "boolean"
    kinds: dict[type, str] = {int: "integer", float: "number", str: "string", list: "array", dict: "object"}
    return kinds.get(type(value), "number")


def _short(value: Any) -> str:
    text: str = simplejson.dumps(value, use_decimal=True, default=str, ensure_ascii=False)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."
