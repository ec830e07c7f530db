"""A run of several processes of a tap: a real load with its threads, which say a line when it is their turn.

Only the processes and Spark are missing. The lines come in one order, so that a step is the same one each time.
"""

from __future__ import annotations

import shutil
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

from bridge.errors import TapError
from bridge.lake.commit.committer import Committer
from bridge.lake.state.lookback import Lookback
from bridge.lake.storage import Storage
from bridge.load.run.plan import LoadPlan
from bridge.load.run.planning.division import divided
from bridge.load.run.scratch import Scratch
from bridge.load.run.tables.table_plan import TablePlanner
from bridge.load.run.tap_reader import TapReader
from bridge.protocol.singer.messages import Message
from bridge.settings.options import Pipeline
from tests.support.pipe import InProcess, Watched

from .driver import PIPELINE, Line, Run


@dataclass
class Parallel(Run):
    """Two processes of one tap. `taps` are, by the stream that each reads, functions of its STATE; `order` is whose
    line comes next. Each STATE is a barrier. A parent and its child are two streams of which nobody was told more.
    """

    taps: dict[str, Callable[[Any], Iterable[Line]]] = field(default_factory=dict)
    order: str = ""

    def _load(self, storage: Storage, committer: Committer, scratch: Path) -> None:
        pipeline = Pipeline.model_validate(
            {
                "name": PIPELINE,
                "source": {"tap": "tap", "parallelism": 2},
                "destination": {"bucket": storage.uri},
                "commit": {"rows": 1},
                "streams": {"t": {"load_method": "overwrite"}},
            }
        )
        streams = [{"tap_stream_id": name, "stream": name, "schema": {"selected": True}} for name in self.taps]
        catalog = {"streams": streams}
        division, _ = divided(pipeline, storage, committer.snapshot, catalog)
        assert division
        shutil.rmtree(scratch, ignore_errors=True)
        home = Scratch(scratch, pipeline, "run")
        home.prepare(storage)
        turns = _Turns(self.order, {group.streams[0] for group in division.groups})
        plan = LoadPlan(
            pipeline,
            committer,
            TablePlanner(storage, pipeline, committer.snapshot, catalog, full=False, append=False),
            home,
            Watched(),
            restarted=frozenset(committer.snapshot.staged),
            lookbacks=[Lookback() for _ in division.groups],
            division=division,
        )
        load = InProcess(plan)
        try:
            said = [(group.streams[0], self.taps[group.streams[0]](group.state)) for group in division.groups]
            TapReader(plan, load).read(*(_Tap(stream, lines, turns) for stream, lines in said))
        finally:
            self.mark("the end of the tap")
            load.close()


class _Turns:
    """Who may say the next line: as `order` says, where those who have ended are left out."""

    def __init__(self, order: str, live: set[str]) -> None:
        self._order, self._live = deque(order), live
        self._changed = threading.Condition()

    def wait(self, name: str, tick: Callable[[], None]) -> None:
        with self._changed:
            while self._next() not in (name, ""):
                self._changed.wait(0.2)
                tick()

    def _next(self) -> str:
        while self._order and self._order[0] not in self._live:
            self._order.popleft()
        return self._order[0] if self._order else min(self._live, default="")

    def said(self) -> None:
        with self._changed:
            if self._order:
                self._order.popleft()
            self._changed.notify_all()

    def ended(self, name: str) -> None:
        with self._changed:
            self._live.discard(name)
            self._changed.notify_all()


@dataclass
class _Tap:
    """What one process says, and how it ends."""

    name: str
    lines: Iterable[Line]
    turns: _Turns
    proves_end: bool = True

    def chunks(self, *, idle: timedelta | None, tick: Callable[[], None]) -> Iterator[bytes]:
        try:
            for line in self.lines:
                self.turns.wait(self.name, tick)
                if isinstance(line, TapError):
                    raise line
                yield line.encode() + b"\n"
                self.turns.said()
        finally:
            self.turns.ended(self.name)

    def select_messages(self, messages: Iterable[Message]) -> Iterable[Message]:
        return messages

    def wait(self, *, idle: timedelta | None, tick: Callable[[], None]) -> None:
        tick()

    def terminate(self) -> None:
        pass

    def failure(self, message: str) -> TapError:
        return TapError(message)
