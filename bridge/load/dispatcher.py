"""From the tap's messages to sealed epochs: the one loop that sees every line.

Runs in the main thread. What a message means is decided here and in `epoch`; its rows go to the spool unread.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from hashlib import sha256
from typing import Any

from bridge.decode.validate import rules_text
from bridge.errors import BridgeError, DataError, RecordBeforeSchema
from bridge.lake.records import TableChange
from bridge.load.barriers import METHODS, Barrier, BarrierPolicy, StreamProgress
from bridge.load.column_plan import IncomingSchema, as_it_is
from bridge.schema.table_schema import TableSchema
from bridge.settings.redact import Redactor, redactor
from bridge.singer.messages import (
    Activate,
    Batch,
    Message,
    Noise,
    Records,
    Schema,
    State,
    Unsupported,
    parse,
    version_of,
)
from bridge.spool.spool import Spool
from bridge.tap.batch_files import Batches
from bridge.write.validation import RULES

_RETRY = timedelta(seconds=1)
"""How long a STATE that was no barrier keeps us from asking the next one: taps may send one a record."""

_KIND, _KINDS = 40, 20
"""Characters of an unknown message's type, and such types, that are told apart."""

_TAIL = 4096
"""Bytes looked into for the last line of many; most lines are shorter."""
_KEPT = 1 << 20
"""Bytes kept of one line that is not a message."""


@dataclass(slots=True)
class Counts:
    """What one stream has come to: `records` read from the tap, the rest committed.

    `ended` says that the tap was done with it: another stream's rows began, and none of its own came after.
    """

    load_method: str
    reason: str
    records: int = 0
    committed: int = 0
    rejected: int = 0
    filtered: int = 0
    files: int = 0
    bytes: int = 0
    ended: bool = False
    refused: bool = False
    """The guard refused its commit: its records come again."""
    first_at: float | None = None
    last_at: float = 0.0
    merged: dict[str, int] = field(default_factory=dict)
    """What became of rows that were merged by key, as commits say it."""

    @property
    def seconds(self) -> float:
        """Time from the chunk with the first RECORD to the one with the latest."""
        return 0.0 if self.first_at is None else self.last_at - self.first_at

    def seen(self, now: float) -> None:
        """Note that RECORDs came, at `now` by the monotonic clock."""
        self.first_at = now if self.first_at is None else self.first_at
        self.last_at = now

    def took(self, change: TableChange) -> None:
        """Count what a commit did to the stream's table."""
        self.committed += change.new_rows
        for name, rows in change.merged.items():
            self.merged[name] = self.merged.get(name, 0) + rows
        self.files += len(change.adds)
        self.bytes += sum(add.size for add in change.adds)

    def to_json(self) -> dict[str, Any]:
        """Return the committed figures as the reference names them."""
        return {
            "records": self.committed,
            "rejected": self.rejected,
            "filtered": self.filtered,
            "files": self.files,
            "bytes": self.bytes,
            "seconds": round(self.seconds, 3),
            "load_method": self.load_method,
            "reason": self.reason,
            "complete": self.ended
            and not self.refused
            and self.committed + self.rejected + self.filtered >= self.records,
        } | ({"merged": self.merged} if self.merged else {})


@dataclass(slots=True)
class Dispatcher:
    """Feeds the spool. `opened(message)` decides on a stream's first SCHEMA and returns it with its table's columns,
    `incoming(message)` says what it brings, `checked(stream, columns)` raises if the columns cannot be stored, and
    `transformed(stream, incoming, columns, name)` gives the columns that its statement leads to.

    `flush(barrier, all_lines)` seals the spool and hands the manifest on; with a barrier it leads to a commit.
    `discard(stream)` drops the staged files of an earlier run. From `max_records` on, the next barrier is the last:
    `enough` says that it came, and nothing after it is taken. `validates`: RECORDs are held against their whole SCHEMA.
    `batches` reads the files of BATCHes; `unknown` counts messages of types that Singer does not have. `own` are the
    names of the streams that this process of the tap is to read; None: it is the only one. `redact` masks secrets in
    lines that are no messages.
    """

    epochs: BarrierPolicy
    spool: Spool
    opened: Callable[[Schema], tuple[StreamProgress, TableSchema | None]]
    flush: Callable[[Barrier | None, bool], None]
    discard: Callable[[str], None]
    commit_every: timedelta
    commit_bytes: int
    max_noise: int
    commit_rows: int | None = None
    incoming: Callable[[Schema], IncomingSchema] = as_it_is
    checked: Callable[[str, TableSchema], None] = lambda _stream, _schema: None
    transformed: Callable[[StreamProgress, IncomingSchema, TableSchema | None, str], TableSchema] | None = None
    batches: Batches = field(default_factory=Batches)
    redact: Redactor = field(default_factory=lambda: redactor(()))
    max_records: int | None = None
    validates: bool = False
    deselected: set[str] = field(default_factory=set)
    own: Collection[str] | None = None
    counts: dict[str, Counts] = field(default_factory=dict)
    ignored: dict[str, int] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    unknown: dict[str, int] = field(default_factory=dict)
    noise: list[dict[str, Any]] = field(default_factory=list)
    noise_count: int = 0
    last_barrier: float = field(default_factory=time.monotonic)
    uncommitted: int = 0
    uncommitted_rows: int = 0
    enough: bool = False
    _records_read: int = 0
    _speaking: str | None = None
    _interleaved: set[str] = field(default_factory=set)
    _next_try: float = 0.0
    _now: float = 0.0
    _seen: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    _early: dict[str, Activate] = field(default_factory=dict)
    _hashes: dict[str, str] = field(default_factory=dict)
    _unsettled: dict[str, tuple[Schema, IncomingSchema, TableSchema | None]] = field(default_factory=dict)

    def take(self, messages: Iterable[Message]) -> None:
        """Act on messages in order. Raises `DataError` for what cannot be loaded; what came before is safe."""
        self._now = time.monotonic()
        for message in messages:
            if self.enough:
                return
            if isinstance(message, Records):
                self._records(message)
            elif isinstance(message, State):
                self._state(message)
            elif isinstance(message, Schema):
                self._schema(message)
            elif isinstance(message, Activate):
                self._activate(message)
            elif isinstance(message, Noise):
                self._noise(message)
            elif isinstance(message, Batch):
                self._batch(message)
            else:
                self._unsupported(message)

    def _records(self, message: Records) -> None:
        stream = self.epochs.streams.get(message.stream)
        if stream is None:
            if message.stream in self.deselected:
                self.epochs.muted.add(message.stream)
                self.ignored[message.stream] = self.ignored.get(message.stream, 0) + message.lines
                return
            if not self._is_own(message.stream):
                hint = "the tap does not keep to its catalog's selection: set source.parallelism to 1"
                what = "a process of the tap sent a stream that is not its own"
                raise DataError(what, hint=hint, stream=message.stream)
            hint = "a SCHEMA must come before a stream's first RECORD; report it to the tap's authors"
            raise RecordBeforeSchema("a RECORD came before its SCHEMA", hint=hint, stream=message.stream)
        if stream.refused:
            raise stream.refused
        self.epochs.rows(stream, message.lines)
        if stream.mode == "replace":
            self._note_version(stream, _version(message))
        elif stream.sweeps:
            stream.latest = _version(message, last=True)
        if stream.name != self._speaking:
            self._changes_to(stream.name)
        counts = self.counts[stream.name]
        counts.records += message.lines
        counts.seen(self._now)
        self._records_read += message.lines
        if stream.name in self._unsettled:
            self._settle(stream)
        self.spool.append(stream.name, self._hashes[stream.name], message.prefix, message.data, message.lines)
        self.uncommitted += len(message.data)
        self.uncommitted_rows += message.lines
        if self.spool.fresh >= self.commit_bytes and not self._barrier():
            self.flush(None, False)

    def _is_own(self, stream: str) -> bool:
        return self.own is None or stream in self.own

    def _batch(self, message: Batch) -> None:
        for records in self.batches.records(message):
            self._now = time.monotonic()
            self._records(records)

    def _changes_to(self, name: str) -> None:
        """Note that another stream's rows begin. One that comes back is interleaved, as parents and children are."""
        if self._speaking is not None:
            self.counts[self._speaking].ended = self._speaking not in self._interleaved
        if self.counts[name].ended:
            self._interleaved.add(name)
            self.counts[name].ended = False
        self._speaking = name

    def _note_version(self, stream: StreamProgress, version: int | None) -> None:
        adopted = self.epochs.staged.get(stream.name)
        if adopted is not None and version != adopted and stream.versions == {adopted}:
            self.discard(stream.name)  # the tap started this table again: what an earlier run staged is void
            stream.versions.clear()
        if version not in (None, stream.version):
            stream.swapped = False  # a new table: it replaces the one that these rows would have been added to
        stream.versions.add(version)

    def _state(self, message: State) -> None:
        self.epochs.state(message.raw)
        self.spool.mark()
        if self.max_records is not None and self._records_read >= self.max_records:
            self.enough = self._barrier()
            return
        now = time.monotonic()
        due = self.uncommitted >= self.commit_bytes or now - self.last_barrier >= self.commit_every.total_seconds()
        due = due or (self.commit_rows is not None and self.uncommitted_rows >= self.commit_rows)
        if due and now >= self._next_try:
            self._next_try = 0.0 if self._barrier() else now + _RETRY.total_seconds()

    def _barrier(self) -> bool:
        barrier = self.epochs.barrier(end=False)
        if barrier is None:
            return False
        self._close_epoch(barrier, all_lines=False)
        return True

    def _close_epoch(self, barrier: Barrier, *, all_lines: bool) -> None:
        self.flush(barrier, all_lines)
        self.last_barrier = time.monotonic()
        self.uncommitted, self.uncommitted_rows = self.spool.fresh, 0

    def end(self, *, clean: bool) -> None:
        """Close the last epoch: everything after a clean end, else what the latest STATE covers."""
        for name in [name for name, (_, _, table) in self._unsettled.items() if clean and table is None]:
            self._settle(self.epochs.streams[name])  # an empty table has columns, too
        barrier = self.epochs.barrier(end=clean)
        if barrier is not None:
            self._close_epoch(barrier, all_lines=clean)

    def _schema(self, message: Schema) -> None:
        if message.stream in self.deselected or not self._is_own(message.stream):
            return
        said = (message.schema, message.key_properties)
        if self._seen.get(message.stream) == said:
            return
        self._seen[message.stream] = said
        incoming = _read(message, self.incoming)
        known = self.epochs.streams.get(message.stream)
        stream, table = (known, known.schema) if known else self.opened(message)
        if stream.name in self._unsettled:
            table = self._unsettled[stream.name][2]
        self._unsettled[stream.name] = message, incoming, table
        if incoming.statement is None:
            self._settle(stream)
        elif table is not None:
            stream.schema = table
        if not known:  # only now: an error above leaves the stream unopened
            self.epochs.open(stream)
            self.counts[stream.name] = Counts(METHODS[stream.mode], stream.reason)
            if stream.keyed:
                self.spool.ordered.add(stream.name)
        if early := self._early.pop(stream.name, None):
            self._activate(early)

    def _settle(self, stream: StreamProgress) -> None:
        """Decide on the columns of a stream's latest SCHEMA: where a statement is, not before there are rows for it."""
        message, incoming, table = self._unsettled.pop(stream.name)
        if incoming.statement is None:
            schema = incoming.into(table, stream.evolution)
            self._hashes[stream.name] = self._kept(message, schema)
        else:
            assert self.transformed is not None
            name = self._hashes[stream.name] = self._kept(message, incoming.read())
            schema = self.transformed(stream, incoming, table, name)
        self.checked(stream.name, schema)
        if names := [name for name in schema.left_out if name not in incoming.skipped]:
            what = f"{len(names)} new column(s) left out, as schema_policy is discard"
            self._warn(f"{stream.name}: {what}: {', '.join(names[:5])}")
        for note in incoming.notes:
            self._warn(note)
        stream.schema = schema

    def _kept(self, message: Schema, schema: TableSchema) -> str:
        """Keep the columns, and the rules if there are any, where executors find them, and return their name."""
        name = schema.hash
        if self.validates:
            rules = rules_text(message.schema, message.stream)
            name += f"-{sha256(rules).hexdigest()[:16]}"
            self.spool.put_schema(f"{name}{RULES}", rules)
        self.spool.put_schema(name, schema.to_json())
        return name

    def _activate(self, message: Activate) -> None:
        stream = self.epochs.streams.get(message.stream)
        if stream is None:
            if message.stream not in self.deselected and self._is_own(message.stream):
                self._early[message.stream] = message  # some taps send it before the SCHEMA
            return
        if stream.mode == "append" and not stream.sweeps:
            what = "an append-only table keeps rows of older versions unless hard_delete is set"
            self._warn(f"{message.stream}: ACTIVATE_VERSION ignored, {what}")
        self.epochs.activate(stream, message.version)

    def _noise(self, message: Noise) -> None:
        self.noise_count += 1
        raw = self.redact(message.raw)[:_KEPT]
        self.noise.append({"stream": None, "reason": "not a Singer message", "offset": message.line, "raw": raw})
        if self.noise_count > self.max_noise:
            hint = "the tap prints other things than Singer messages on stdout: its logs belong on stderr"
            first = self.noise[0]["raw"][:80].decode("utf-8", "replace")
            raise DataError("too many lines are not Singer messages", hint=hint, lines=self.noise_count, first=first)

    def _unsupported(self, message: Unsupported) -> None:
        kind = message.type[:_KIND]
        if kind not in self.unknown and len(self.unknown) >= _KINDS:
            kind = "other types"
        self.unknown[kind] = self.unknown.get(kind, 0) + 1

    def told(self) -> list[str]:
        """Return what the operator should know of the messages that came."""
        told = list(self.warnings)
        if self.noise_count:
            kept = "kept as rejects" if not self.noise else "not kept, as no commit came after them"
            told.append(f"{self.noise_count} line(s) of the tap's stdout were no Singer messages: {kept}")
        for kind, count in self.unknown.items():
            told.append(f"{count} message(s) of type {kind} were ignored: not one of Singer's types")
        for stream, lines in self.ignored.items():
            told.append(f"{stream}: {lines} record(s) ignored, the stream is not selected")
        return told

    def _warn(self, text: str) -> None:
        if text not in self.warnings:
            self.warnings.append(text)


def _read(message: Schema, incoming: Callable[[Schema], IncomingSchema]) -> IncomingSchema:
    """Return what a SCHEMA brings, before anything is done for its stream."""
    try:
        return incoming(message)
    except BridgeError:
        raise
    except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError) as error:
        hint = "it is no JSON Schema; correct it in the catalog, or report it to the tap's authors"
        cause = f"{type(error).__name__}: {error}"[:200]
        raise DataError("a SCHEMA cannot be read", hint=hint, stream=message.stream, cause=cause) from error


def _version(records: Records, *, last: bool = False) -> int | None:
    """Return the `version` of the first RECORD, or the last; the executors see every one and the commit compares."""
    return version_of((parse(_last(records) if last else records.first()) or {}).get("version"))


def _last(records: Records) -> bytes:
    """Return the last line, without copying all of them."""
    data, size = records.data, _TAIL
    while True:
        _, end, line = bytes(data[-size:]).rstrip(b"\r\n").rpartition(b"\n")
        if end or size >= len(data):
            return line
        size *= 4
