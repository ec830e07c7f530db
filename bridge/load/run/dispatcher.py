"""Turns the tap's messages into sealed batches and barriers: the one loop that sees every message.

Runs in the main thread. This module and `barriers` decide what a message means; RECORD lines go to the spool unparsed.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from hashlib import sha256

from bridge.errors import BridgeError, DataError, RecordBeforeSchema, SettingsError
from bridge.load.run.barriers import Barrier, BarrierPolicy
from bridge.load.run.checks.changed_values import ChangedValues, text_columns
from bridge.load.run.checks.commit_clock import CommitClock
from bridge.load.run.checks.held_back import NOTHING_HELD, HeldBack
from bridge.load.run.checks.ignored_messages import IgnoredMessages
from bridge.load.run.events import Event, KeyChanges, SchemaNeedsSpark, Sealed, SpoolGrew
from bridge.load.run.result import Counts
from bridge.load.run.streams import StreamProgress, Unsettled
from bridge.load.run.tables.column_plan import IncomingSchema
from bridge.load.run.tables.table_plan import TablePlanner
from bridge.load.spool.folder import RULES
from bridge.load.spool.spool import Spool
from bridge.load.tap.batch_files import Batches
from bridge.protocol.decode.validate import rules_text
from bridge.protocol.schema.table_schema import TableSchema
from bridge.protocol.singer.messages import Activate, Batch, Message, Noise, Records, Schema, State
from bridge.settings.destination import APPEND_ONLY, OVERWRITE, UPSERT
from bridge.settings.redact import Redactor, redactor


@dataclass(frozen=True, slots=True)
class DispatchRules:
    """When the lines of one process of the tap are sealed and committed, and which of its messages count."""

    commit_every: timedelta
    commit_bytes: int
    commit_rows: int | None = None
    only_at_end: bool = False
    """The only commit is at the tap's clean end, or where `max_records` stops it."""
    max_noise: int = 0
    """How many lines may be no Singer messages before the run fails."""
    max_records: int | None = None
    """After so many RECORDs, the next barrier is the last."""
    validates: bool = False
    """Whether RECORDs are validated against their whole SCHEMA."""
    deselected: Collection[str] = ()
    own: Collection[str] | None = None
    """Names of the streams that this process of the tap extracts; None: it is the only process."""
    redact: Redactor = field(default_factory=lambda: redactor(()))
    tasks: int = 2
    """Tasks that can work on a batch at once."""


class Dispatcher:
    """Feeds the spool, and yields events. After each event the caller acts on it, then asks for the next.

    `enough`: the last barrier that `max_records` allows has come, and later messages are ignored. `has_state`: a STATE
    has come.
    """

    def __init__(
        self,
        policy: BarrierPolicy,
        spool: Spool,
        tables: TablePlanner,
        rules: DispatchRules,
        *,
        counts: dict[str, Counts] | None = None,
        batches: Batches | None = None,
        held: HeldBack = NOTHING_HELD,
    ) -> None:
        self._held = held
        self.policy, self.spool, self._tables, self._rules = policy, spool, tables, rules
        self._masking = tables.streams.masking
        self.counts = {} if counts is None else counts
        self.ignored, self._batches = IgnoredMessages(rules.max_noise, rules.redact), batches or Batches()
        self.enough = self.has_state = False
        self._clock = CommitClock(rules.commit_every, rules.commit_bytes, rules.commit_rows)
        self._warnings: list[str] = []
        self._begun_anew: list[str] = []
        self._records_read, self._now = 0, 0.0
        self._current: StreamProgress | None = None
        self._early: dict[str, Activate] = {}

    def take(self, messages: Iterable[Message]) -> Iterator[Event]:
        """Act on messages in order. Raises `DataError` for what cannot be loaded; earlier messages are not affected."""
        self._now = time.monotonic()
        for message in messages:
            if self.enough:
                return
            if isinstance(message, Records):
                yield from self._records(self._masking.records(message))
            elif isinstance(message, State):
                yield from self._state(message)
            elif isinstance(message, Schema):
                yield from self._schema(message)
            elif isinstance(message, Activate):
                self._activate(message)
            elif isinstance(message, Noise):
                self.ignored.add_noise(self._masking.noise(message))
            elif isinstance(message, Batch):
                yield from self._batch(message)
            else:
                self.ignored.add_unsupported(self._masking.unsupported(message))

    def end(self, *, clean: bool) -> Iterator[Event]:
        """Close the last epoch (since the last barrier): all of it after a clean end, else up to the latest STATE."""
        for stream in list(self.policy.streams.values()) if clean else ():
            if stream.unsettled and stream.unsettled.table is None:
                yield from self._settle(stream)  # an empty table has columns, too
        barrier = None if self._rules.only_at_end and not clean else self._barrier(end=clean)
        if barrier is not None:
            yield from self._seal(barrier, all_lines=clean)

    def warnings(self) -> list[str]:
        """Warnings about the messages that came."""
        return [*self._warnings, *self.policy.warnings(), *self.ignored.warnings()]

    def _records(self, message: Records) -> Iterator[Event]:
        stream = self.policy.streams.get(message.stream)
        if stream is None:
            self._pass_over(message)
            return
        self.policy.rows(stream, message.lines)
        if stream.refused:
            self._hold_back(stream.name, stream.refused)
        if self._is_held(stream.name):
            self.counts[stream.name].records += message.lines
            return
        if stream.method == OVERWRITE:
            self._note_version(stream, message.version())
        elif stream.plan.sweeps:
            stream.latest = message.version(last=True)
        if stream is not self._current:
            self._changes_to(stream)
        counts = self.counts[stream.name]
        counts.records += message.lines
        counts.seen(self._now)
        self._records_read += message.lines
        if stream.unsettled:
            yield from self._settle(stream)
            if self._is_held(stream.name):
                return
        whole = stream.name, stream.stored_as, message.prefix, message.data, message.lines
        self.spool.append(*whole, is_arrow=message.arrow is not None)
        self._clock.add(len(message.data), message.lines)
        if self.spool.fresh >= self._rules.commit_bytes:
            barrier = None if self._rules.only_at_end else self._barrier(end=False)
            yield from self._seal(barrier, all_lines=False)

    def _pass_over(self, message: Records) -> None:
        """Ignore RECORDs of a stream that is not selected.

        Raises `DataError` for those of any other stream without a SCHEMA.
        """
        if message.stream in self._rules.deselected:
            self.policy.muted.add(message.stream)
            self.ignored.ignore(message)
            return
        if not self._is_own(message.stream):
            hint = "the tap does not keep to its catalog's selection: set source.parallelism to 1"
            raise DataError("a process of the tap sent a stream that is not its own", hint=hint, stream=message.stream)
        hint = "a SCHEMA must come before a stream's first RECORD; report it to the tap's authors"
        raise RecordBeforeSchema("a RECORD came before its SCHEMA", hint=hint, stream=message.stream)

    def _is_own(self, stream: str) -> bool:
        return self._rules.own is None or stream in self._rules.own

    def _batch(self, message: Batch) -> Iterator[Event]:
        for records in self._batches.records(message):
            yield SpoolGrew()
            self._now = time.monotonic()
            yield from self._records(self._masking.records(records))

    def _changes_to(self, stream: StreamProgress) -> None:
        """Note that another stream's rows begin. One that comes back is interleaved, like a parent with children."""
        if self._current:
            self.counts[self._current.name].ended = not self._current.interleaves
        stream.interleaves = stream.interleaves or self.counts[stream.name].ended
        self.counts[stream.name].ended = False
        self._current = stream

    def _note_version(self, stream: StreamProgress, version: int | None) -> None:
        continued = self.policy.staged.get(stream.name)
        if continued is not None and version != continued and stream.versions == {continued}:
            self._begun_anew.append(stream.name)  # the earlier run's staged files do not count
            stream.versions.clear()
        if version not in (None, stream.version):
            stream.swapped = False  # a new version replaces the table, rather than add to it
        stream.versions.add(version)

    def _state(self, message: State) -> Iterator[Event]:
        self.has_state = True
        self.policy.state(message.raw)
        self.spool.mark()
        last = self._rules.max_records is not None and self._records_read >= self._rules.max_records
        if not last and (self._rules.only_at_end or not self._clock.is_due):
            return
        barrier = self._barrier(end=False)
        if barrier is not None:
            self.enough = last
            yield from self._seal(barrier, all_lines=False)
        elif not last:
            self._clock.postpone()

    def _barrier(self, *, end: bool) -> Barrier | None:
        self.policy.held = self._held.names
        barrier = self.policy.barrier(end=end)
        if barrier:
            self._masking.check_state(barrier.state)
        return barrier

    def _is_held(self, stream: str) -> bool:
        return stream in self._held.names

    def _hold_back(self, name: str, error: BridgeError) -> None:
        """Leave out a stream that cannot be stored from now on. Raises the error if that ends the run."""
        self._held.hold(name, error)
        if name in self.policy.streams:
            self.policy.streams[name].unsettled = None
        else:
            self._open(self._held.left_out(name, is_staged=name in self.policy.staged))

    def _open(self, stream: StreamProgress) -> None:
        self.policy.open(stream)
        self._held.opened(stream)
        plan, changed = stream.plan, ChangedValues(stream.texts)
        mark = plan.resumes_by[0] if len(plan.resumes_by) == 1 else ""
        self.counts[stream.name] = Counts(plan.word, plan.reason, stream.names, plan.keys, mark, changed=changed)
        if stream.keyed:
            self.spool.ordered.add(stream.name)

    def _seal(self, barrier: Barrier | None, *, all_lines: bool) -> Iterator[Event]:
        """Seal lines for Spark; with a barrier, a commit follows once all lines before it are stored."""
        batch = self.spool.seal(tasks=self._rules.tasks, all_lines=all_lines)
        noise = self.ignored.take_noise() if barrier else []
        if barrier:
            self._clock.restart(self.spool.fresh)
        if batch or barrier:
            self._tables.claim_tables()
            begun_anew, self._begun_anew = self._begun_anew, []
            yield Sealed(batch, barrier, noise, begun_anew)

    def _schema(self, message: Schema) -> Iterator[Event]:
        if message.stream in self._rules.deselected or not self._is_own(message.stream):
            return
        message = self._masking.schema(message)
        stream = self.policy.streams.get(message.stream)
        if stream and (self._is_held(stream.name) or stream.declared == message):
            return
        try:
            yield from self._take_schema(message)
        except (DataError, SettingsError) as error:
            self._hold_back(message.stream, error)
        if early := self._early.pop(message.stream, None):
            self._activate(early)

    def _take_schema(self, message: Schema) -> Iterator[Event]:
        incoming = self._read(message)
        existing = self.policy.streams.get(message.stream)
        if existing and self._tables.changes_key(existing, message):
            yield from self._change_key(existing, message)
            if self._is_held(message.stream):
                return
        stream, table = (existing, existing.schema) if existing else self._tables.open(message)
        if stream.unsettled:
            table = stream.unsettled.table
        stream.declared, stream.unsettled = message, Unsettled(incoming, table)
        if incoming.statement is None:
            yield from self._decide_columns(stream)
        elif table is not None:
            stream.schema = table
        if not existing:  # last: after an error above the stream is not open
            self._open(stream)

    def _change_key(self, stream: StreamProgress, message: Schema) -> Iterator[Event]:
        """Commit the rows so far by the key that they came under, and go on by the new one."""
        if stream.waiting and not self._rules.only_at_end:
            yield from self._seal(self._barrier(end=False), all_lines=False)
        if stream.waiting and stream.method == UPSERT:
            barrier = self.policy.barrier_before_key(stream, only_at_end=self._rules.only_at_end)
            yield from self._seal(barrier, all_lines=True)
        yield KeyChanges()
        if self._is_held(stream.name):
            return
        self._tables.rekey(stream, message)
        counts = self.counts[stream.name]
        counts.load_method, counts.reason = stream.plan.word, stream.plan.reason
        if stream.keyed:
            self.spool.ordered.add(stream.name)

    def _read(self, message: Schema) -> IncomingSchema:
        """The columns that a SCHEMA declares. Raises `DataError` if it is no JSON Schema."""
        try:
            return self._tables.incoming(message)
        except BridgeError:
            raise
        except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError) as error:
            hint = "it is no JSON Schema; correct it in the catalog, or report it to the tap's authors"
            cause = f"{type(error).__name__}: {error}"[:200]
            raise DataError("a SCHEMA cannot be read", hint=hint, stream=message.stream, cause=cause) from error

    def _settle(self, stream: StreamProgress) -> Iterator[Event]:
        """Decide on the columns of a stream, or hold it back."""
        try:
            yield from self._decide_columns(stream)
        except (DataError, SettingsError) as error:
            self._hold_back(stream.name, error)

    def _decide_columns(self, stream: StreamProgress) -> Iterator[Event]:
        """Decide on the columns of a stream's latest SCHEMA.

        If SQL transforms the stream, this waits for its first row.
        """
        message, unsettled, stream.unsettled = stream.declared, stream.unsettled, None
        assert message
        assert unsettled
        incoming, table = unsettled.incoming, unsettled.table
        if incoming.statement is None:
            schema = incoming.into(table, stream.plan.evolution)
            stream.stored_as = self._keep(message, schema)
        else:
            name = stream.stored_as = self._keep(message, incoming.read())
            question = SchemaNeedsSpark(stream, incoming, table, name)
            yield question
            schema = question.answer
        self._tables.check(stream.name, schema)
        if names := [name for name in schema.left_out if name not in incoming.skipped]:
            what = f"{len(names)} new column(s) left out, as schema_policy is discard"
            self._warn(f"{stream.name}: {what}: {', '.join(names[:5])}")
        for note in incoming.notes:
            self._warn(note)
        if table is not None:
            stream.texts |= text_columns(table, schema)
        stream.schema = schema

    def _keep(self, message: Schema, schema: TableSchema) -> str:
        """Store the columns, and any rules to validate by, in the spool for the executors; return their name there."""
        name = schema.hash
        if self._rules.validates:
            rules = rules_text(message.schema, message.stream)
            name += f"-{sha256(rules).hexdigest()[:16]}"
            self.spool.put_schema(f"{name}{RULES}", rules)
        self.spool.put_schema(name, schema.to_json())
        return name

    def _activate(self, message: Activate) -> None:
        stream = self.policy.streams.get(message.stream)
        if stream is None:
            if message.stream not in self._rules.deselected and self._is_own(message.stream):
                self._early[message.stream] = message  # some taps send it before the SCHEMA
            return
        if stream.method == APPEND_ONLY and not stream.plan.sweeps and self._tables.is_new(stream.name):  # said once
            what = "an append-only table keeps rows of older versions unless hard_delete is set"
            self._warn(f"{message.stream}: ACTIVATE_VERSION ignored, {what}")
        self.policy.activate(stream, message.version)

    def _warn(self, text: str) -> None:
        if text not in self._warnings:
            self._warnings.append(text)
