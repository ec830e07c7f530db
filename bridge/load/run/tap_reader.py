"""Reads taps to their ends: one in the main thread itself, or several, each with a thread that waits for it.

If a tap fails, or somebody stops the run, everything up to the tap's last STATE is still committed. After a failure of
our own (Spark, the bucket, the accounting) nothing more is committed.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from bridge.errors import BridgeError, DataError, Interrupted, SettingsError, TapError, TimedOut
from bridge.lake.records import TapGroup
from bridge.lake.state.lookback import Lookback
from bridge.load.run.barriers import BarrierPolicy
from bridge.load.run.dispatcher import Dispatcher, DispatchRules
from bridge.load.run.events import Event, KeyChanges, SchemaNeedsSpark, Sealed
from bridge.load.run.loader import Loader
from bridge.load.run.plan import LoadPlan
from bridge.load.run.planning.division import JointBarriers
from bridge.load.spool.spool import Spool
from bridge.load.tap.batch_files import Batches
from bridge.load.tap.pipe import Feed
from bridge.load.tap.pumps import SIGNAL_GRACE, Pumps
from bridge.protocol.singer.messages import LONGEST_LINE, Reader
from bridge.settings.destination import OVERWRITE
from bridge.settings.redact import redactor

_LISTED = 8
_LONG_LINE = 64 << 20
"""Bytes that one line may have, however small the spool is."""


@dataclass(slots=True)
class TapSession:
    """One process of the tap. `label` names its streams for people, where it is not the only one.

    `ended`: its last barrier has been submitted.
    """

    number: int
    label: str
    reader: Reader
    dispatcher: Dispatcher
    ended: bool = False


class TapReader:
    """Reads taps, has their messages dispatched, and hands the events to the loader."""

    def __init__(self, plan: LoadPlan, loader: Loader) -> None:
        self._plan, self._loader, self._context = plan, loader, plan.context
        self._idle = plan.pipeline.source.idle_timeout
        self._warnings: list[str] = []
        at_end = plan.pipeline.commit.at == "end"
        self._joint = plan.division and JointBarriers(plan.division, plan.start, plan.continued_versions, at_end=at_end)
        sessions = zip(plan.groups, plan.lookbacks, strict=True)
        self._sessions = [self._new_session(*each, number) for number, each in enumerate(sessions)]
        self.waiting_seconds = 0.0

    def _new_session(self, group: TapGroup, lookback: Lookback, number: int) -> TapSession:
        plan, pipeline, division = self._plan, self._plan.pipeline, self._plan.division
        longest = min(LONGEST_LINE, max(_LONG_LINE, pipeline.spool.max_bytes // 4))
        spool = Spool(self._loader.spool.folder.path, beside=self._loader.spool) if number else self._loader.spool
        policy = BarrierPolicy(
            group.state,
            staged=self._joint.staged[number] if self._joint else plan.continued_versions,
            # With several processes, each STATE lacks the streams of the others.
            retained=plan.slots.retained | (frozenset() if division else plan.retained),
            whole=plan.full,
            lookback=lookback,
        )
        rules = DispatchRules(
            commit_every=pipeline.commit.every,
            commit_bytes=pipeline.commit.bytes // len(plan.groups),
            commit_rows=pipeline.commit.rows,
            only_at_end=pipeline.commit.at == "end" or plan.backfill is not None,
            max_noise=plan.max_rejects,
            max_records=plan.max_records,
            validates=pipeline.rejects.validate == "full",
            deselected=plan.deselected,
            own=division.names[number] if division else None,
            redact=redactor(pipeline.secrets),
            tasks=self._loader.tasks,
        )
        store, config = pipeline.destination.store_options, pipeline.source.config
        settings = config if isinstance(config, dict) else {}  # else a file, which only the tap reads
        batches = Batches(spool.folder.path, store, self._loader.check, longest, settings)
        dispatcher = Dispatcher(
            policy, spool, plan.tables, rules, counts=self._loader.counts, batches=batches, held=plan.held
        )
        reader = Reader(every_state=plan.max_records is not None, longest=longest)
        return TapSession(number, group.label, reader, dispatcher)

    @property
    def is_partial(self) -> bool:
        """Whether the tap was stopped because it had sent enough. Rows that no STATE covers may still be pending."""
        return any(session.dispatcher.enough for session in self._sessions)

    @property
    def without_state(self) -> list[str]:
        """The streams with rows that no STATE covers, as none came; not those whose table each run replaces."""
        return [stream for session in self._sessions for stream in self._uncovered(session)]

    def _uncovered(self, session: TapSession) -> list[str]:
        dispatcher = session.dispatcher
        streams = () if dispatcher.has_state else dispatcher.policy.streams.values()
        return [s.name for s in streams if dispatcher.counts[s.name].records and s.plan.usual != OVERWRITE]

    def warnings(self) -> list[str]:
        """Warnings for the operator."""
        warnings = [text for session in self._sessions for text in session.dispatcher.warnings()]
        return [*warnings, *self._plan.tables.streams.masking.warnings(), *self._warnings]

    def read(self, *taps: Feed) -> None:
        """Read the taps, one for each group, to their ends and commit.

        Raises the first failure, after committing what can be.

        If one of several taps fails, the others are still read to their ends.
        """
        began = time.monotonic()
        if len(taps) == 1:
            self._read_one(taps[0])
        else:
            self._read_all(taps)
        self.waiting_seconds = self._waited(began, time.monotonic())
        self._loader.finish()

    def _waited(self, began: float, ended: float) -> float:
        """The seconds before the first RECORD and after the last in which the tap had nothing to load."""
        counts = self._loader.counts.values()
        times = [(each.first_at, each.last_at) for each in counts if each.first_at is not None]
        if not times:
            return 0.0
        last = max(self._loader.held_until, *(last for _, last in times))
        return min(first for first, _ in times) - began + max(0.0, ended - last)

    def _read_one(self, tap: Feed) -> None:
        """Read the only tap until it has exited with 0, or has sent enough."""
        (session,) = self._sessions
        self._context.stage = "waiting for the tap"
        try:
            for chunk in tap.chunks(idle=self._idle, tick=self._loader.check):
                self._take(tap, session, chunk)
                if session.dispatcher.enough:
                    self._context.stage = "stopping the tap"
                    tap.terminate()
                    return
                self._loader.hold_back()
            self._take(tap, session, b"")
            tap.wait(idle=self._idle, tick=self._loader.check)
            time.sleep(SIGNAL_GRACE)
            self._check_end(tap, session)
        except (TapError, DataError, Interrupted) as error:
            self._context.stage = "stopping the tap"
            tap.terminate()
            self._salvage(error)
            raise
        self._end(tap, session)

    def _read_all(self, taps: tuple[Feed, ...]) -> None:
        """Read several taps, and commit each at its end. If one fails, the others go on; the first error is raised."""
        failures: list[BridgeError] = []
        self._context.stage = "waiting for the taps"
        with Pumps(taps, idle=self._idle) as pumps:
            try:
                for number, output in pumps.outputs(self._loader.check):
                    try:
                        self._hear(taps[number], self._sessions[number], output)
                    except TimedOut:
                        raise
                    except (TapError, DataError) as error:
                        pumps.stop(number)
                        failures.append(error)
                        self._drop(self._sessions[number], error)
            except (TimedOut, Interrupted) as error:
                self._context.stage = "stopping the taps"
                pumps.stop_all()
                self._salvage(error)
                raise
        if failures:
            self._loader.drain()
            raise failures[0]

    def _hear(self, tap: Feed, session: TapSession, output: bytes | BaseException | None) -> None:
        if isinstance(output, BaseException):
            raise output
        if output is None:
            self._check_end(tap, session)
            self._end(tap, session)
        else:
            self._take(tap, session, output)
            self._loader.hold_back()

    def _take(self, tap: Feed, session: TapSession, chunk: bytes) -> None:
        if chunk:
            self._context.stage = "extracting"
        messages = tap.select_messages(session.reader.feed(chunk) if chunk else session.reader.finish())
        self._act(session, session.dispatcher.take(messages))

    def _act(self, session: TapSession, events: Iterable[Event]) -> None:
        for event in events:
            if isinstance(event, Sealed):
                barrier = event.barrier
                if barrier and self._joint:
                    barrier = self._joint.barrier(session.number, barrier)
                elif barrier and self._plan.backfill:
                    barrier = self._plan.of_window(barrier)
                self._loader.submit(replace(event, barrier=barrier))
            elif isinstance(event, SchemaNeedsSpark):
                try:
                    event.columns = self._loader.columns_of(event)
                except (DataError, SettingsError) as error:
                    event.error = error
            elif isinstance(event, KeyChanges):
                self._loader.drain()
            else:
                self._loader.check()
                self._loader.hold_back()

    def _check_end(self, tap: Feed, session: TapSession) -> None:
        """Raise `TapError` if a tap that exited with 0 stopped in the middle of a line."""
        if session.reader.rest().strip():
            raise tap.failure("the tap stopped in the middle of a line")
        self._loader.check()

    def _end(self, tap: Feed, session: TapSession) -> None:
        """Submit the last barrier after a tap's clean end, so that all of its rows are committed."""
        self._loader.show_stage()
        if self._plan.pipeline.on_no_state == "fail" and (streams := self._uncovered(session)):
            hint = "nothing of it is in the lake; report it to the tap's authors, or set on_no_state: warn"
            raise TapError("the tap sent rows and no STATE", hint=hint, streams=", ".join(streams[:_LISTED]))
        session.ended = True
        dispatcher = session.dispatcher
        dispatcher.policy.proves_end = tap.proves_end
        if not tap.proves_end:
            self._act(session, dispatcher.end(clean=False))  # so that rows after the last STATE have their own commit
        self._act(session, dispatcher.end(clean=True))
        for stream in dispatcher.policy.streams:
            dispatcher.counts[stream].ended = True

    def _drop(self, session: TapSession, error: BridgeError) -> None:
        """Commit what one of several taps sent before it failed, up to its last STATE."""
        self._loader.collect()
        self._warnings.append(f"{session.label}: their process of the tap failed, others went on: {error.message}")
        self._keep(session, error)

    def _salvage(self, error: BridgeError) -> None:
        """Commit up to the taps' last STATEs. Raises first if something of our own has failed."""
        self._loader.collect()
        self._context.stage = "committing up to the last STATE"
        for session in self._sessions:
            if not session.ended:
                self._keep(session, error)
        with self._keeping(error):
            self._loader.drain()

    def _keep(self, session: TapSession, error: BridgeError) -> None:
        session.ended = True
        with self._keeping(error):
            self._act(session, session.dispatcher.end(clean=False))

    @contextmanager
    def _keeping(self, error: BridgeError) -> Iterator[None]:
        """Turn an error of committing after `error` into a warning, and raise it if it is our own."""
        try:
            yield
        except BridgeError as second:
            self._warnings.append(f"what was read since the last commit was dropped: {second.message}")
            if isinstance(second, TimedOut) or not isinstance(second, (TapError, DataError)):
                raise second from (None if second is error else error)
