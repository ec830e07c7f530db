"""A lake in memory and taps of every resume habit, around the real Dispatcher, BarrierPolicy and Spool.

What is simulated is Spark and the bucket: sealed lines become pending rows, a barrier publishes them. The taps are
generators over their STATE, so a run can be cut at any message and the next one starts from what was committed.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from copy import deepcopy
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import orjson

from bridge.load.run.barriers import Barrier, BarrierPolicy
from bridge.load.run.dispatcher import Dispatcher, DispatchRules
from bridge.load.run.events import Event, Sealed
from bridge.load.run.streams import StreamPlan, StreamProgress
from bridge.load.spool.folder import SealedBatch
from bridge.load.spool.spool import Spool
from bridge.load.write.layout import TableLayout
from bridge.protocol.schema.table_schema import TableSchema, from_singer
from bridge.protocol.singer.messages import Activate, Message, Records, Schema, State
from bridge.protocol.singer.state import continues
from bridge.settings.destination import LoadMethod
from tests.support.load import Tables

VERSION = 1000
"""More than the rows of a stream."""
SCHEMA = {"properties": {"id": {"type": "integer"}}}
TABLE = from_singer(SCHEMA, [])


@dataclass(frozen=True)
class Source:
    """One stream: `records` rows and a habit of resuming, see `Tap`. A child's rows precede their parent's record."""

    name: str
    habit: str
    records: int
    replace: bool = False
    children: str | None = None


class Tap:
    """A tap over some streams. `dice` decide where STATEs go and, if it interleaves, whose turn it is."""

    def __init__(
        self,
        sources: list[Source],
        state: Any,
        dice: random.Random,
        *,
        syncing: bool = False,
        interleave: bool = False,
        upfront: bool = False,
        activate_first: bool = False,
        flat: bool = False,
        version: int = 1,
    ) -> None:
        self.dice, self.sources = dice, sources
        self.syncing, self.interleave, self.upfront = syncing, interleave, upfront
        self.activate_first, self.new_version = activate_first, version
        empty: dict[str, Any] = {} if flat else {"bookmarks": {}}
        self.value: dict[str, Any] = deepcopy(state) if state else empty
        self.bookmarks = self.value if flat else self.value["bookmarks"]

    def messages(self) -> Iterator[Message]:
        """Yield one run."""
        if self.dice.random() < 0.3 and self.bookmarks:
            yield self.state()
        todo = list(self.sources)
        if self.upfront:
            for source in self.sources:
                yield from self.schemas(source)
        if self.interleave:
            yield from self.alternate([self.stream(source) for source in todo])
            return
        names = [source.name for source in todo]
        if self.syncing and self.value.get("currently_syncing") in names:
            todo = todo[names.index(self.value["currently_syncing"]) :]
        for source in todo:
            if self.syncing:
                self.value["currently_syncing"] = source.name
                yield self.state()
            yield from self.stream(source)

    def alternate(self, turns: list[Iterator[Message]]) -> Iterator[Message]:
        """Yield from all in random order, each in its own."""
        while turns:
            turn = self.dice.choice(turns)
            message = next(turn, None)
            if message is None:
                turns.remove(turn)
            else:
                yield message

    def schemas(self, source: Source) -> Iterator[Message]:
        for name in filter(None, (source.name, source.children)):
            yield Schema(name, SCHEMA, [], None)

    def state(self) -> Message:
        return State(orjson.dumps({"type": "STATE", "value": self.value}))

    def maybe(self) -> Iterator[Message]:
        if self.dice.random() < 0.4:
            yield self.state()

    def row(self, name: str, number: int, version: int | None = None) -> Message:
        message: dict[str, Any] = {"type": "RECORD", "stream": name, "record": {"id": number}}
        if version is not None:
            message["version"] = version
        return Records(name, orjson.dumps(message) + b"\n", 1, None)

    def stream(self, source: Source) -> Iterator[Message]:
        """Yield one stream by its habit."""
        if not self.upfront:
            yield from self.schemas(source)
        yield from getattr(self, f"_{source.habit}")(source)

    def _sorted(self, source: Source) -> Iterator[Message]:
        """The bookmark is exact after every record."""
        start = self.bookmarks.get(source.name, {}).get("id", 0)
        for number in range(start + 1, source.records + 1):
            if source.children:
                for child in range(3):
                    yield self.row(source.children, number * 10 + child)
                    yield from self.maybe()
            self.bookmarks[source.name] = {"id": number}
            yield self.row(source.name, number)
            yield from self.maybe()

    def _late(self, source: Source) -> Iterator[Message]:
        """Rows in any order, a plain bookmark that moves only at the end."""
        start = self.bookmarks.get(source.name, {}).get("id", 0)
        for number in range(start + 1, source.records + 1):
            yield self.row(source.name, number)
            yield from self.maybe()
        self.bookmarks[source.name] = {"id": source.records}
        yield from self.maybe()

    def _unsorted(self, source: Source) -> Iterator[Message]:
        """As an unsorted SDK stream: progress markers until the end."""
        mark = self.bookmarks.setdefault(source.name, {})
        mark.pop("progress_markers", None)
        start = mark.get("replication_key_value", 0)
        mark |= {"replication_key_signpost": "now", "starting_replication_value": start or None}
        for number in range(start + 1, source.records + 1):
            yield self.row(source.name, number)
            mark["progress_markers"] = {"replication_key": "id", "replication_key_value": number}
            yield from self.maybe()
        self.bookmarks[source.name] = {"replication_key": "id", "replication_key_value": source.records}
        yield from self.maybe()

    def _full(self, source: Source) -> Iterator[Message]:
        """A full table with an empty bookmark: from the start each time."""
        self.bookmarks[source.name] = {}
        for number in range(1, source.records + 1):
            yield self.row(source.name, number)
            yield from self.maybe()

    def _resumable(self, source: Source) -> Iterator[Message]:
        """A versioned full table that is continued after the last key, or now and then started again."""
        mark = self.bookmarks.setdefault(source.name, {})
        if "last_pk" not in mark or self.dice.random() < 0.2:
            mark |= {"version": self.new_version, "last_pk": 0}
        version = mark["version"]
        if self.activate_first:
            yield Activate(source.name, version)
        for number in range(mark["last_pk"] + 1, source.records + 1):
            mark["last_pk"] = number
            yield self.row(source.name, number, version)
            yield from self.maybe()
        yield Activate(source.name, version)
        self.bookmarks[source.name] = {"initial_full_table_complete": True}
        yield from self.maybe()

    def _early(self, source: Source) -> Iterator[Message]:
        """As `_resumable`, but ACTIVATE_VERSION may come anywhere inside the table, and STATEs after it."""
        mark = self.bookmarks.setdefault(source.name, {})
        if "last_pk" not in mark or self.dice.random() < 0.2:
            mark |= {"version": self.new_version, "last_pk": 0}
        version = mark["version"]
        for number in range(mark["last_pk"] + 1, source.records + 1):
            mark["last_pk"] = number
            yield self.row(source.name, number, version)
            yield from self.maybe()
            if self.dice.random() < 0.4:
                yield Activate(source.name, version)
                yield from self.maybe()
        yield Activate(source.name, version)
        yield from self.maybe()
        self.bookmarks[source.name] = {"initial_full_table_complete": True}
        yield from self.maybe()

    def _versioned(self, source: Source) -> Iterator[Message]:
        """A full table that restarts, under the version that its bookmark keeps (tables without a usable key)."""
        mark = self.bookmarks.setdefault(source.name, {})
        version = mark.setdefault("version", self.new_version)
        if self.activate_first:
            yield Activate(source.name, version)
        yield from self.maybe()
        for number in range(1, source.records + 1):
            yield self.row(source.name, number, version)
            yield from self.maybe()
        yield Activate(source.name, version)
        self.bookmarks[source.name] = {}
        yield from self.maybe()


@dataclass
class SimulatedLake:
    """Tables, STATE and staged rows, as the commit log would have them; `pending` dies with its run."""

    state: Any = None
    tables: dict[str, list[int]] = field(default_factory=dict)
    versions: dict[str, int | None] = field(default_factory=dict)
    staged: dict[str, tuple[int, list[int]]] = field(default_factory=dict)
    commits: list[Barrier] = field(default_factory=list)
    check: Callable[[SimulatedLake], None] = lambda lake: None


class Bridge:
    """One run of the bridge against a lake."""

    def __init__(
        self,
        lake: SimulatedLake,
        folder: Path,
        modes: dict[str, LoadMethod],
        *,
        commit_bytes: int,
        commit_every: timedelta,
        sweeps: Collection[str] = (),
    ):
        """Rows of a stream in `sweeps` are `version * VERSION + id`, and older ones go where a version is complete."""
        self.lake, self.modes, self.sweeps = lake, modes, sweeps
        self.spool = Spool(folder)
        self.pending = {name: list(rows) for name, (_, rows) in lake.staged.items()}
        self.seen = {name: {version} for name, (version, _) in lake.staged.items()}
        policy = BarrierPolicy(lake.state, staged={name: version for name, (version, _) in lake.staged.items()})
        self.dispatcher = Dispatcher(
            policy, self.spool, Tables(self._opened), DispatchRules(commit_every, commit_bytes)
        )

    def _opened(self, message: Schema) -> tuple[StreamProgress, TableSchema | None]:
        layout = TableLayout("", hard_delete=True if message.stream in self.sweeps else None)
        method = self.modes.get(message.stream, "append-only")
        stream = StreamProgress(StreamPlan(message.stream, (message.stream,), method, layout=layout), TABLE)
        version = self.lake.versions.get(message.stream)
        if message.stream not in self.lake.staged and version is not None:
            stream.swapped = continues(self.lake.state, message.stream, version)
            stream.version = version if stream.swapped else None
        return stream, None

    def _discard(self, name: str) -> None:
        void = self.lake.staged.get(name, (0, []))[1]
        self.pending[name] = [row for row in self.pending.get(name, []) if row not in void]
        self.seen.pop(name, None)

    def act(self, events: Iterable[Event]) -> None:
        for event in events:
            assert isinstance(event, Sealed)
            for name in event.begun_anew:
                self._discard(name)
            if event.batch:
                self._store(event.batch)
            if event.barrier:
                self._commit(event.barrier)

    def _store(self, batch: SealedBatch) -> None:
        for segment in (segment for bundle in batch.bundles for segment in bundle):
            for line in self.spool.folder.read_segment(segment).splitlines():
                message = json.loads(line)
                row = message["record"]["id"]
                row += message["version"] * VERSION if segment.stream in self.sweeps else 0
                self.pending.setdefault(segment.stream, []).append(row)
                self.seen.setdefault(segment.stream, set()).add(message.get("version"))
        self.spool.release(batch)
        self.spool.retire(batch)

    def _commit(self, barrier: Barrier) -> None:
        lake = self.lake
        for name, mode in barrier.publish.items():
            rows, versions = self.pending.pop(name, []), self.seen.pop(name, set())
            if name in barrier.extends:
                assert versions <= {lake.versions[name]}
            if barrier.replaces(name) and (rows or barrier.end):
                assert len(versions) <= 1
                lake.versions[name] = next(iter(versions), None)
            if rows or barrier.end:
                lake.tables[name] = rows if barrier.replaces(name) else lake.tables.get(name, []) + rows
            if mode == "upsert":
                lake.tables[name] = list({row % VERSION: row for row in lake.tables.get(name, [])}.values())
        for name, version in barrier.activate.items():
            lake.tables[name] = [row for row in lake.tables.get(name, []) if row // VERSION >= version]
        lake.state = barrier.state
        lake.staged = {name: (version, list(self.pending.get(name, []))) for name, version in barrier.staged.items()}
        lake.commits.append(barrier)
        lake.check(lake)

    def run(self, tap: Iterator[Message], *, cut: int | None = None, salvage: bool = False) -> bool:
        """Take a tap's messages, or the first `cut` of them; True if the tap came to its end."""
        for position, message in enumerate(tap):
            if position == cut:
                if salvage:
                    self.act(self.dispatcher.end(clean=False))
                return False
            self.act(self.dispatcher.take([message]))
        self.act(self.dispatcher.end(clean=True))
        return True


def doubled_and_lost(have: list[int], want: list[int]) -> tuple[list[int], list[int]]:
    """Return the rows that are there too often, and those that are missing."""
    there, wanted = Counter(have), Counter(want)
    return sorted((there - wanted).elements()), sorted((wanted - there).elements())
