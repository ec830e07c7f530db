"""Taps read to their ends: one by the main thread itself, or several, each at its own pace; and how they may fail.

After a failure of a tap, or when somebody stops us, everything up to its last STATE is still committed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

from bridge.errors import BridgeError, DataError, Interrupted, TapError, TimedOut
from bridge.load.tap_session import RunContext, TapSession
from bridge.spark import Engine
from bridge.tap.pipe import Feed
from bridge.tap.pumps import SIGNAL_GRACE, Pumps


@dataclass(frozen=True, slots=True)
class TapReader:
    """Reads taps into the parts of a load. `hold_back` waits while the spool is full, `tell` says what is waited for.

    `idle` is how long each of the taps may be silent; `warnings` takes what the operator should know.
    """

    parts: Sequence[TapSession]
    engine: Engine
    follow: RunContext
    idle: timedelta | None
    warnings: list[str]
    hold_back: Callable[[], None]
    tell: Callable[[], None]

    def one(self, tap: Feed) -> None:
        """Read the only tap until it has exited 0 in good order, or until it is enough."""
        (part,) = self.parts
        self.follow.stage("waiting for the tap")
        try:
            for chunk in tap.chunks(idle=self.idle, tick=self._check):
                self._take(tap, part, chunk)
                if part.intake.enough:
                    self.follow.stage("stopping the tap")
                    tap.terminate()
                    return
                self.hold_back()
            self._take(tap, part, b"")
            tap.wait(idle=self.idle, tick=self._check)
            time.sleep(SIGNAL_GRACE)
            self._has_ended(tap, part)
        except (TapError, DataError, Interrupted) as error:
            self.follow.stage("stopping the tap")
            tap.terminate()
            self._salvage(error)
            raise
        self._end(tap, part)

    def all(self, taps: Sequence[Feed]) -> None:
        """Read several taps, and end each when it ends. One that fails does so alone; what failed first is raised."""
        failures: list[BridgeError] = []
        self.follow.stage("waiting for the taps")
        with Pumps(taps, idle=self.idle) as pumps:
            try:
                for number, said in pumps.heard(self._check):
                    try:
                        self._hear(taps[number], self.parts[number], said)
                    except TimedOut:
                        raise
                    except (TapError, DataError) as error:
                        pumps.stop(number)
                        failures.append(error)
                        self._fell(self.parts[number], error)
            except (TimedOut, Interrupted) as error:
                self.follow.stage("stopping the taps")
                pumps.stop_all()
                self._salvage(error)
                raise
        if failures:
            self.tell()
            self.engine.drain(self.follow.tick)
            raise failures[0]

    def _hear(self, tap: Feed, part: TapSession, said: bytes | BaseException | None) -> None:
        if isinstance(said, BaseException):
            raise said
        if said is None:
            self._has_ended(tap, part)
            self._end(tap, part)
        else:
            self._take(tap, part, said)
            self.hold_back()

    def _take(self, tap: Feed, part: TapSession, chunk: bytes) -> None:
        if chunk:
            self.follow.stage("extracting")
        part.intake.take(tap.heard(part.reader.feed(chunk) if chunk else part.reader.finish()))

    def _has_ended(self, tap: Feed, part: TapSession) -> None:
        """Make sure that a tap which exited 0 did so in good order."""
        if part.reader.rest().strip():
            raise tap.failure("the tap stopped in the middle of a line")
        self._check()

    def _end(self, tap: Feed, part: TapSession) -> None:
        """Have all of a tap's rows be committed after its clean end."""
        self.tell()
        part.ended = True
        if not tap.proves_end:
            part.intake.end(clean=False)  # so that the rows after the last STATE have a commit of their own
        part.intake.end(clean=True)
        for stream in part.intake.epochs.streams:
            part.intake.counts[stream].ended = True

    def _fell(self, part: TapSession, error: BridgeError) -> None:
        """Keep what one of several taps sent before it failed."""
        self.engine.check()
        self.warnings.append(f"{part.label}: their process of the tap failed, others went on: {error.message}")
        self._keep(part, error)

    def _salvage(self, error: BridgeError) -> None:
        """Commit up to the taps' last STATEs, if it is a tap that failed and not we."""
        self.engine.check()
        self.follow.stage("committing up to the last STATE")
        for part in self.parts:
            if not part.ended:
                self._keep(part, error)
        with self._keeping(error):
            self.engine.drain(self.follow.tick)

    def _keep(self, part: TapSession, error: BridgeError) -> None:
        part.ended = True
        with self._keeping(error):
            part.intake.end(clean=False)

    @contextmanager
    def _keeping(self, error: BridgeError) -> Iterator[None]:
        """Say what cannot be kept after an error, rather than hide that."""
        try:
            yield
        except BridgeError as second:
            self.warnings.append(f"what was read since the last commit was dropped: {second.message}")
            if isinstance(second, TimedOut) or not isinstance(second, (TapError, DataError)):
                raise second from (None if second is error else error)

    def _check(self) -> None:
        self.follow.tick()
        self.engine.check()
