"""Which rows a STATE covers: decides what a commit at this STATE publishes, holds and stages, or that none may be made.

A STATE at which we may commit is a **barrier**. The thread that reads the tap decides, from the order of messages
alone, before Spark has seen the rows.

- A stream's rows are **published** if a tap restarted from the STATE would not send them again: if the stream's own
  bookmark has moved since before the first of them.
- They are **held** if it would: the bookmark has not moved, is empty, or has `progress_markers`. They wait until it
  moves, or for the end. But another stream's bookmark may cover them: a child stream has none of its own, its parent's
  covers it. So if any other bookmark has moved, of a stream that was open while the rows came, the STATE is **not a
  barrier**, and everything waits for a later one. Nor is it while a tap goes through files by their time: it asks for
  files that are newer than its bookmark, so a STATE between two files of one second would lose the second.
- Rows of an overwrite are **staged** until ACTIVATE_VERSION or the clean end. If the stream's bookmark moves meanwhile,
  the commit names its staged files, so that a tap that resumes the same `version` finds them. If there is no version,
  or `currently_syncing` has moved on to another stream, the STATE is not a barrier.
- A version is **complete** when ACTIVATE_VERSION came after rows of it, a STATE after that, and these rows are
  published. Then rows of older versions are removed or marked as deleted, unless the table is replaced as a whole. An
  ACTIVATE_VERSION before the rows counts at the clean end. A new version without rows empties the table at the end,
  wherever the tap resumed.
- Each STATE is decided on once. Rows that come later are not covered by it.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from bridge.errors import DataError, SettingsError
from bridge.lake.pipeline_state import PipelineState
from bridge.lake.state.lookback import Lookback
from bridge.load.run.streams import NEW_KEY, StreamProgress
from bridge.protocol.schema.table_schema import TableSchema
from bridge.protocol.singer.state import (
    bookmark,
    covers,
    has_own_bookmark,
    is_empty,
    is_flat,
    moved_on,
    overlay,
    parse_state,
    resume_point,
    resume_points,
)
from bridge.settings.destination import APPEND_ONLY, OVERWRITE, UPSERT, LoadMethod


@dataclass(frozen=True, slots=True)
class Barrier:
    """A STATE at which to commit. `staged` maps a stream to the version that its staged rows carry."""

    state: Any
    merged: bool
    publish: dict[str, LoadMethod]
    """The streams whose rows a commit makes visible, and how."""
    staged: dict[str, int]
    schemas: dict[str, TableSchema]
    end: bool
    activate: dict[str, int] = field(default_factory=dict)
    """Streams with a complete version, and that version: rows of older ones are removed, or marked as deleted."""
    from_tap: bool = True
    """Whether `state` comes from the tap's latest STATE; otherwise it is the one that was committed before."""
    uncovered: tuple[str, ...] = ()
    """Streams with rows after the STATE, which a tap started from it sends again."""
    unresumed: frozenset[str] = frozenset()
    """Where no STATE came at all: streams that do not resume, as far as the tap says. Their rows may be meant to be
    added in each run."""
    read: frozenset[str] = frozenset()
    """Streams with RECORDs before the STATE."""
    stored: PipelineState | None = None
    """The state that the commit stores if several processes of the tap are read; see `division.JointBarriers`."""
    extends: frozenset[str] = frozenset()
    """Streams of `publish` whose table an overwrite has replaced already: their rows are added to it."""

    def replaces(self, stream: str) -> bool:
        """Whether the stream's rows replace its table."""
        return self.publish.get(stream) == OVERWRITE and stream not in self.extends


class BarrierPolicy:
    """Follows the run's messages.

    `start` is the STATE of the lake's head, `retained` are streams that this run does not load.

    A stream in `retained` keeps its bookmark if the tap's STATE lacks it. One in `muted`, whose RECORDs were ignored,
    always does. One in `held` is held back, and in no barrier. `staged` maps a stream to the version of its staged
    files that the last commit names. With `whole` nothing is published before the clean end: `--full` replaces
    everything in one commit. With `lookback` the tap was given an earlier STATE than `start`. `proves_end`: an end
    without a STATE is the tap's own, and not perhaps its death.
    """

    def __init__(
        self,
        start: Any,
        *,
        staged: dict[str, int],
        retained: Collection[str] = (),
        whole: bool = False,
        lookback: Lookback | None = None,
    ) -> None:
        self.streams: dict[str, StreamProgress] = {}
        self.staged = staged
        self.committed = self._start = start
        self._retained = set(retained)
        self._lookback = lookback or Lookback()
        self.muted: set[str] = set()
        self.held: Collection[str] = ()
        self._whole = whole
        self.proves_end = True
        self._clock = 0
        self._latest: bytes | None = None
        self._marked = self._decided = -1

    def open(self, stream: StreamProgress) -> None:
        """Note a stream's first SCHEMA. Raises `SettingsError` if a half loaded table changed its load method."""
        stream.opened = self._tick()
        if stream.name in self.staged:
            if stream.method != OVERWRITE:
                again = f"; or start the table again: --full -s {shlex.quote(stream.name)}"
                hint = f"set load_method back to what it was{again if stream.method != APPEND_ONLY else ''}"
                raise SettingsError("a half loaded table changed its load method", hint=hint, stream=stream.name)
            stream.waiting, stream.versions = True, {self.staged[stream.name]}
        self.streams[stream.name] = stream

    def _tick(self) -> int:
        self._clock += 1
        return self._clock

    def rows(self, stream: StreamProgress, lines: int) -> None:
        """Note RECORDs of a stream."""
        stream.records += lines
        stream.last_row = self._tick()
        if not stream.waiting:
            stream.waiting, stream.first_state = True, self._latest

    def warnings(self) -> list[str]:
        """A warning for overwritten tables to which a tap sent changes."""
        if not (names := sorted(name for name, stream in self.streams.items() if stream.doubles)):
            return []
        what = (
            "load_method is overwrite, but the tap sent changes: they were added, and rows that changed are there twice"
        )
        return [f"{', '.join(names)}: {what}. Set load_method: upsert, and let the tap send the whole table once"]

    def state(self, raw: bytes) -> None:
        """Note a STATE: a possible barrier."""
        self._latest, self._marked = raw, self._tick()

    def activate(self, stream: StreamProgress, version: int) -> None:
        """Note an ACTIVATE_VERSION: the end of a full table, if rows of that version came before it in this run.

        In this run, because taps that continue a table begin by repeating the message of the first attempt. For a
        stream whose plan `sweeps`, a message before the rows counts at the clean end.
        """
        stream.announced = version
        if stream.plan.sweeps:
            if stream.records and stream.latest == version:
                stream.activated, stream.complete = self._tick(), version
            return
        if not stream.records and version != stream.version:
            stream.swapped = False  # a new version without rows empties the table; it adds nothing to the old one
        if stream.waiting and stream.records and stream.versions <= {version, None}:
            stream.activated = self._tick()

    def barrier(self, *, end: bool) -> Barrier | None:
        """Decide on the latest STATE, or with `end` on the tap's clean end. None: no commit may be made there."""
        if not end and (self._latest is None or self._whole or self._decided == self._marked):
            return None
        self._decided = self._marked
        declared = parse_state(self._latest) if self._latest is not None else None
        if is_empty(declared) and not (self._whole and self._latest is not None):
            if not end and not is_empty(self.committed):
                return None  # an empty STATE is never stored over a full one
            declared = None
        state = self._stored(declared)
        publish, staged = self._choose(state, end)
        if publish is None or (not end and self._is_among_files(state)):
            return None
        activate = self._activations(publish, end=end)
        if not end and not publish and not activate and resume_points(state) == resume_points(self.committed):
            return None
        barrier = Barrier(
            state,
            declared is not None and state != declared,
            publish,
            staged,
            {s: self.streams[s].schema for s in self.streams},
            end,
            activate,
            declared is not None,
            self._uncovered(publish, state) if end else (),
            self._unresumed(state) if end else frozenset(),
            self._with_records,
            extends=frozenset(name for name in publish if self.streams[name].swapped),
        )
        self._note_barrier(barrier)
        return barrier

    def barrier_before_key(self, stream: StreamProgress, *, only_at_end: bool) -> Barrier:
        """A barrier that commits, under the STATE of the lake, what came of a stream before its key changes.

        The latest STATE must have been decided on. A tap that sends these rows again has them merged again. Raises
        `DataError` if there may be no commit.
        """
        if only_at_end:
            hint = f"{NEW_KEY}; or leave commit.at: end out"
            raise DataError("the key changes before the only commit of the run", hint=hint, stream=stream.name)
        stream.waiting = False
        stream.versions.clear()
        publish: dict[str, LoadMethod] = {stream.name: UPSERT}
        staged, schemas = dict(self.staged), {name: one.schema for name, one in self.streams.items()}
        return Barrier(
            self.committed, False, publish, staged, schemas, end=False, from_tap=False, read=self._with_records
        )

    @property
    def _with_records(self) -> frozenset[str]:
        return frozenset(stream.name for stream in self.streams.values() if stream.records)

    def _stored(self, declared: Any) -> Any:
        """The STATE to store: the tap's, except for streams that this run does not load, or that look back."""
        if declared is None:
            return self.committed
        declared = self._lookback.stored(declared)
        retained = self._retained
        if self._whole and not is_flat(declared) and not is_flat(self.committed):
            spoke = set(declared["bookmarks"]) | {name for stream in self.streams.values() for name in stream.names}
            retained = retained | (set(self.committed["bookmarks"]) - spoke)
        return overlay(self.committed, declared, retained, self.muted)

    def _choose(self, state: Any, end: bool) -> tuple[dict[str, LoadMethod] | None, dict[str, int]]:
        publish: dict[str, LoadMethod] = {}
        staged = {name: version for name, version in self.staged.items() if name not in self.streams}
        for stream in self.streams.values():
            if stream.name in self.held:
                if not end and self._left_out_too_soon(stream, state):
                    return None, {}
                continue
            if end and self._has_nothing_new(stream):
                continue
            if end or self._complete(stream):
                publish[stream.name] = stream.method
            elif stream.waiting and stream.method == OVERWRITE and not stream.swapped:
                if not self._stage(stream, state, staged):
                    return None, {}
            elif stream.waiting and self._covers(stream, state):
                publish[stream.name] = stream.method
            elif stream.waiting and self._covered_elsewhere(stream, state):
                return None, {}
        return publish, staged

    def _left_out_too_soon(self, stream: StreamProgress, state: Any) -> bool:
        """Whether another stream's bookmark may cover rows of a stream that is held back.

        A later STATE may have a bookmark of its own.
        """
        is_apart = stream.is_apart or has_own_bookmark(state, stream.names)
        return stream.waiting and not is_apart and self._covered_elsewhere(stream, state)

    def _uncovered(self, publish: dict[str, LoadMethod], state: Any) -> tuple[str, ...]:
        """The streams with rows that a STATE committed earlier does not cover, though they resume from it.

        Full tables do not resume: the tap sends them again in any case. But a tap that ended before its first STATE may
        have died, so that its next attempt sends them once more.
        """
        if state != self.committed:
            return ()
        unresumed = set() if self._latest is None and not self.proves_end else self._not_resuming(state)
        streams = (self.streams[name] for name, how in publish.items() if how == APPEND_ONLY)
        return tuple(s.name for s in streams if s.waiting and not s.keyed and s.name not in unresumed)

    def _unresumed(self, state: Any) -> frozenset[str]:
        return frozenset() if self._latest is not None or self.proves_end else frozenset(self._not_resuming(state))

    def _not_resuming(self, state: Any) -> set[str]:
        streams = self.streams.values()
        return {s.name for s in streams if not s.plan.resumes and resume_point(state, s.names) is None}

    def _activations(self, publish: Collection[str], *, end: bool) -> dict[str, int]:
        """The complete versions, by stream, whose rows are visible with this commit.

        At the clean end: the version announced last, if the stream's latest rows carry it. Without any rows: if the
        version is new, or the tap did not resume in another stream.
        """
        activations = {}
        for stream in self.streams.values():
            if stream.name in self.held:
                continue
            activated = stream.activated is not None and stream.activated < self._marked
            if end and stream.plan.sweeps and stream.announced is not None and self._is_whole(stream):
                activations[stream.name] = stream.announced
            elif activated and stream.complete is not None and (stream.name in publish or not stream.waiting):
                activations[stream.name] = stream.complete
        return activations

    def _is_whole(self, stream: StreamProgress) -> bool:
        if stream.records:
            return stream.latest == stream.announced
        return self._begun_anew(stream) or not moved_on(None, self._start, stream.names)

    def _begun_anew(self, stream: StreamProgress) -> bool:
        """Whether the tap announced a new version, and so has read the table in this run."""
        start = bookmark(self._start, stream.names)
        earlier = {stream.former, start.get("version") if isinstance(start, dict) else None} - {None}
        return bool(earlier) and stream.announced not in (None, *earlier)

    def _complete(self, stream: StreamProgress) -> bool:
        return stream.method == OVERWRITE and stream.activated is not None and stream.activated < self._marked

    def _has_nothing_new(self, stream: StreamProgress) -> bool:
        """Whether no rows mean no change, not an empty table: the tap resumed elsewhere, or inside this one."""
        if stream.method != OVERWRITE or stream.records or stream.waiting or self._whole or self._begun_anew(stream):
            return False
        start = bookmark(self._start, stream.names)
        inside = isinstance(start, dict) and "version" in start and resume_point(self._start, stream.names) is not None
        return inside or moved_on(None, self._start, stream.names)

    def _stage(self, stream: StreamProgress, state: Any, staged: dict[str, int]) -> bool:
        """Decide whether a commit may leave this overwrite staged; note it in `staged` if the STATE needs its files."""
        before = self._before(stream)
        if moved_on(before, state, stream.names):
            return False
        moved = resume_point(before, stream.names) != resume_point(state, stream.names)
        if not moved and stream.name not in self.staged:
            return True
        mark = bookmark(state, stream.names)
        version = mark.get("version") if isinstance(mark, dict) else None
        if not isinstance(version, int) or stream.versions != {version}:
            return False
        staged[stream.name] = version
        return True

    def _before(self, stream: StreamProgress) -> Any:
        """The STATE that the tap had sent, or was started with, before the stream's waiting rows."""
        return self._stored(parse_state(stream.first_state)) if stream.first_state else self._start

    def _covers(self, stream: StreamProgress, state: Any) -> bool:
        before = self._before(stream)
        if (
            is_flat(state)
            and not is_empty(state)
            and not any(bookmark(state, other.names) is not None for other in self.streams.values())
        ):
            return bool(resume_points(before) != resume_points(state))  # one position for the whole tap
        return covers(before, state, stream.names)

    def _is_among_files(self, state: Any) -> bool:
        """Whether more files of a stream may come, of the same second as those that a STATE covers."""
        last = max((other.opened for other in self.streams.values()), default=0)
        reading = [stream for stream in self.streams.values() if stream.waiting and last <= stream.last_row]
        points = [resume_point(state, stream.names) for stream in reading]
        return any(isinstance(point, dict) and Lookback.FILE_TIME in point for point in points)

    def _covered_elsewhere(self, stream: StreamProgress, state: Any) -> bool:
        before = self._before(stream)
        if moved_on(before, state, stream.names):
            return True
        later = {name for other in self.streams.values() if other.opened > stream.last_row for name in other.names}
        return bool(resume_points(before, ignoring=later) != resume_points(state, ignoring=later))

    def _note_barrier(self, barrier: Barrier) -> None:
        self.committed, self.staged = barrier.state, barrier.staged
        for name in barrier.activate:
            self.streams[name].activated = None
        for name in barrier.publish:
            stream = self.streams[name]
            if barrier.replaces(name):
                stream.swapped = True
                versions = stream.versions - {None}
                stream.version = versions.pop() if len(versions) == 1 else None
            stream.activated = None
            stream.waiting = stream.last_row > self._marked
            stream.first_state = self._latest
            stream.versions.clear()
