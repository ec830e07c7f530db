"""One run's copies of the slot, and the original that follows its commits. Works beside the run, in a thread.

If the database refuses or delays something during a run, the run does not fail and no commit waits: the run warns, and
the next run does the rest. What would lose rows is refused before the tap starts.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from contextlib import suppress
from dataclasses import replace

from bridge.errors import BridgeError, SlotError
from bridge.lake.log import Snapshot
from bridge.load.slots.branch import Server
from bridge.load.slots.database import Database, opened
from bridge.load.slots.note import Note, NoteFile, Safe
from bridge.load.slots.positions import bookmark_lsn, proven, target
from bridge.load.tap.slot_source import SlotSource
from bridge.protocol.singer.state import bookmark

_LOOK_SECONDS = 0.5
"""How often the server is asked how far it has read for the tap."""
_MARGIN_SECONDS = 3.0
"""All that the server had read this long ago has reached the tap: it reads whenever there is something."""
_ADVANCE_SECONDS = 30.0
"""Shortest time between two moves of the original: for each move the server reads the log in between."""
_MUCH_BYTES = 16 << 20
"""One segment of the log. The server reads less than that in a moment."""
_DROP_SECONDS = 10.0
"""How long the server may take to end the reader of a copy, before it is dropped."""


class Keeper(threading.Thread):
    """Keeps the original behind the commits from `start` to `close`. `copies` are the slots' names by stream."""

    def __init__(
        self,
        source: SlotSource,
        database: Database,
        file: NoteFile,
        note: Note,
        copies: dict[str, str],
        snapshot: Snapshot,
        limit: float,
    ) -> None:
        """`note` says how far each stream is safe, also streams that this run does not read.

        `limit`: after so many seconds the tap ends, whatever there is still to read.
        """
        super().__init__(name="replication-slot", daemon=True)
        self._source, self._database, self._file, self._note = source, database, file, note
        self._limit, self._starts, self._copies = limit, note.streams, copies
        self._sent: dict[str, deque[tuple[float, int]]] = {copy: deque() for copy in copies.values()}
        self._old = dict.fromkeys(copies.values(), 0)
        self._lock, self._closing, self._overtaken = threading.Lock(), threading.Event(), False
        self._committed = snapshot
        self._tip, self._began = database.tip(), time.monotonic()
        self._seen = dict[str, float]()
        self._failure = ""

    def committed(self, snapshot: Snapshot) -> None:
        """Note a commit; returns at once. Called in the thread that commits."""
        self._committed = snapshot

    def run(self) -> None:
        """Look at the readers of the copies, and move the original now and then."""
        moved = time.monotonic()
        while not self._closing.wait(_LOOK_SECONDS):
            with self._lock:
                try:
                    self._look()
                    if time.monotonic() - moved > _ADVANCE_SECONDS:
                        self._follow(self._positions(ended=False))
                        moved = time.monotonic()
                    self._failure = ""
                except BridgeError as error:
                    self._failure = error.message
                    self._reconnect()

    def close(self, *, ended: bool) -> list[str]:
        """Move the original to where all is committed, drop the copies, return warnings. `ended`: the tap read all."""
        self._closing.set()
        self.join()
        try:
            if self._failure:
                self._reconnect()
            exposed = tuple(s for s in self._note.exposed if s not in self._copies) if ended else None
            self._follow(self._positions(ended=ended), exposed=exposed)
            self._note_slot()
        except BridgeError as error:
            self._failure = error.message
            self._reconnect()
        dropped = drop(self._database, sorted(set(self._copies.values())))
        self._database.close()
        warnings = ["another run took over the replication slot"] if self._overtaken else []
        warnings += self._unread() if ended else []
        if self._failure:
            text = "the replication slot was not moved behind the last commit; the next run does it first"
            warnings.append(f"{text}: {self._failure}")
        return warnings + ([] if dropped else ["copies of the replication slot remain; the next run drops them"])

    @property
    def read_to(self) -> dict[str, int]:
        """How far each stream is read in the log: what was committed before is in the lake. Empty if it is unknown."""
        is_known = not (self._failure or self._overtaken)
        return {stream: self._note.streams[stream].position for stream in self._copies} if is_known else {}

    def _unread(self) -> list[str]:
        """A warning if the tap ended while the server was still reading the log of other tables for it."""
        read = min((sent for sent in self._old.values() if sent), default=self._tip)
        if self._source.kind != "meltanolabs" or self._tip - read < _MUCH_BYTES:
            return []
        rest = f"{(self._tip - read) >> 20:,} MiB are left for the next run"
        fix = "raise replication_idle_exit_seconds in the tap's settings, which is how long it waits"
        return [f"the tap ended before the server had read its log: {rest}; {fix}"]

    def _look(self) -> None:
        """Note how far the server has read for each process of the tap, and how much of that has reached the tap."""
        for copy, sent in self._database.sent(list(self._sent)).items():
            samples, now = self._sent[copy], time.monotonic()
            samples.append((now, sent))
            self._seen[copy] = now - self._began
            while samples and samples[0][0] <= now - _MARGIN_SECONDS:
                self._old[copy] = max(self._old[copy], samples.popleft()[1])

    def _positions(self, *, ended: bool) -> dict[str, Safe]:
        snapshot, positions = self._committed, dict(self._starts)
        for stream, copy in self._copies.items():
            mark, start, sent = bookmark_lsn(bookmark(snapshot.state, stream)), self._starts[stream], self._old[copy]
            safe = proven(self._source.kind, start, mark, sent)
            if ended and start.bookmark is None:
                safe = replace(safe, bookmark=mark)
            elif ended and mark is not None:
                safe = replace(safe, position=max(safe.position, self._read(copy)))
            positions[stream] = safe
        return positions

    def _read(self, copy: str) -> int:
        """How far a tap had read when it ended because nothing came for a while; 0 if it ended for another reason.

        The tap of meltanolabs has only one other reason, its time limit. That of pipelinewise also ends at the first
        change after its own start, so only changes from before its start are certain. Without this, the server would
        keep its log forever if tables do not change, as their bookmarks then stand still.
        """
        if self._seen.get(copy, self._limit) + _LOOK_SECONDS * 2 >= self._limit:
            return 0
        sent = self._old[copy]
        return {"meltanolabs": sent, "pipelinewise": min(sent, self._tip)}.get(self._source.kind, 0)

    def _follow(self, streams: dict[str, Safe], *, exposed: tuple[str, ...] | None = None) -> None:
        """Note how far the streams are safe, then move the original there."""
        self._note = replace(self._note, streams=streams, exposed=self._note.exposed if exposed is None else exposed)
        if self._overtaken or not self._file.write(self._note):
            self._overtaken = True
            return
        advance(self._database, self._source.slot, target(streams.values()))

    def _note_slot(self) -> None:
        """Note where the original stands, by which the next run sees a server that was set back."""
        slot, before = self._database.slot(self._source.slot), self._note.server
        if slot and before and not self._overtaken:
            server = Server.of(before.branch, self._database, slot, before)
            self._note = replace(self._note, server=server)
            self._overtaken = not self._file.write(self._note)

    def _reconnect(self) -> None:
        self._database.close()
        with suppress(SlotError):
            self._database = opened(self._source)


def advance(database: Database, slot: str, position: int | None) -> None:
    """Move a slot forward to a position, if it is not there yet; never beyond the end of the server's log."""
    facts = database.slot(slot)
    if position is None or facts is None or facts.confirmed_lsn is None:
        return
    if facts.confirmed_lsn < (position := min(position, database.tip())):
        database.advance(slot, position)


def drop(database: Database, names: list[str]) -> bool:
    """Drop slots, waiting for readers that are about to end; return whether all are dropped."""
    end = time.monotonic() + _DROP_SECONDS
    try:
        while remaining := database.slots(names):
            for facts in remaining:
                database.drop(facts.name)
            if time.monotonic() > end:
                return False
            time.sleep(0.1 if database.slots(names) else 0)
    except SlotError:
        return False
    return True
