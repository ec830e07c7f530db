"""Streams that are held back (`on_error: hold`): what cannot be stored of one stream does not stop the others.

From then on no row of the stream is committed, and each commit keeps the bookmark that the lake has of it. A STATE is
one value for all streams, so this is only done where the STATE says what belongs to which stream. If another stream's
bookmark may cover the rows that are left out, the run is refused instead: the next run would not extract them again.

Some streams go together. A child's rows come again only if its parent is read again, and a parent's with its
children's; streams of one database log are read from the earliest of their positions. So families of parents and
children, as settings and catalog name them, and all LOG_BASED streams, are held back as one.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from bridge.errors import BridgeError, DataError, SettingsError, StreamsHeldBack
from bridge.lake.log import Snapshot
from bridge.load.run.barriers import Barrier
from bridge.load.run.checks.changed_values import COMPLETE
from bridge.load.run.streams import StreamProgress, Streams
from bridge.protocol.singer.catalog import selected_streams, stream_ids
from bridge.protocol.singer.replication import yaml_text
from bridge.protocol.singer.state import has_own_bookmark, is_empty, is_flat, resume_points, shared_part
from bridge.settings.destination import APPEND_ONLY, OVERWRITE, LoadMethod


class HeldBack:
    """The streams of one run that are held back, and why. A stream is never released within the run.

    The thread that reads the tap and the one that prepares a commit both add to it.
    """

    def __init__(self, streams: Streams) -> None:
        self._streams, catalog = streams, streams.catalog
        self._ids = list(dict.fromkeys(stream_ids(catalog))) if catalog else list[str]()
        self._selected = selected_streams(catalog) if catalog else set[str]()
        self._read: dict[str, StreamProgress] = {}
        self.errors: dict[str, BridgeError] = {}
        """Why, by the id of each stream."""
        self.names: frozenset[str] = frozenset()
        """All names of these streams. Replaced, never changed in place: whoever has read it has one state of it."""
        self._lock = threading.Lock()

    def _id(self, name: str) -> str:
        return self._streams[name].names[0]

    def opened(self, stream: StreamProgress) -> None:
        """Note a stream of this run; it is held back if one of its family is."""
        one = self._id(stream.name)
        is_full = stream.method == OVERWRITE or self._streams[one].replication == "FULL_TABLE"
        stream.is_apart = is_full or self._parent(one) is not None
        with self._lock:
            self._read[one] = stream
            for held in list(self.errors):
                self._spread(held)

    def hold(self, stream: str, error: BridgeError) -> None:
        """Hold a stream and its family back because of this error, or raise the error."""
        if self._streams[stream].settings.on_error != "hold":
            raise error
        with self._lock:
            self.errors.setdefault(self._id(stream), error)
            self._spread(self._id(stream))

    @contextmanager
    def holding(self, stream: str) -> Iterator[None]:
        """Hold a stream back if the work inside cannot store it, or let the error pass."""
        try:
            yield
        except (DataError, SettingsError) as error:
            self.hold(stream, error)

    def check_null_keys(self, stream: str, rows: Counter[str]) -> None:
        """Hold a stream back, or raise `DataError`, if it has rows without a replication key and may not."""
        if rows and stream not in self.names and self._streams.pipeline.refuses_null_keys(stream):
            hint = f"none of them was committed. {COMPLETE}; or on_null_key: warn"
            what = "rows have no replication key, so an incremental run does not see them again when they change"
            self.hold(stream, DataError(what, hint=hint, stream=stream, column=", ".join(rows)))

    def hold_refused(self, stream: str, error: BridgeError, barrier: Barrier, snapshot: Snapshot) -> bool:
        """Hold a stream back whose commit the guard refuses, so that it does not stop the others.

        False, and nothing is held, if the settings say `on_error: fail`, if it is the only stream, or if nobody says so
        and the STATE does not allow it. Raises `DataError` if it does not allow what the settings ask for.
        """
        chosen = self._streams[stream].settings.on_error
        if chosen == "fail" or (chosen is None and len(self._selected | self._read.keys()) < 2):
            return False
        with self._lock:
            before = dict(self.errors), self.names
            self.errors.setdefault(self._id(stream), error)
            self._spread(self._id(stream))
        try:
            self.kept_out(barrier, snapshot)
        except DataError:
            if chosen == "hold":
                raise
            with self._lock:
                self.errors, self.names = before
            return False
        return True

    def left_out(self, stream: str, *, is_staged: bool) -> StreamProgress:
        """The progress of a stream whose first SCHEMA cannot be used. `is_staged`: its table is half loaded."""
        plan = self._streams.expected(stream)
        replaces = is_staged or plan.replication == "FULL_TABLE" or plan.setting == OVERWRITE
        method: LoadMethod = OVERWRITE if replaces else APPEND_ONLY
        return StreamProgress(replace(plan, method=method, reason="held back", keys=(), resumes=False))

    def _spread(self, held: str) -> None:
        family = self._family(held)
        for other in sorted(family - self.errors.keys()):
            text = f"{held} failed, and this stream shares a bookmark with it"
            self.errors[other] = DataError(text, hint=f"see what holds {held} back")
        self.names |= self._streams.pipeline.all_names(family)

    def _family(self, stream: str) -> set[str]:
        """The ids of the streams that share an ancestor with this one, or a database's log."""
        family, streams = {stream}, {*self._ids, *self._read}
        while True:
            parents = {parent for one in family if (parent := self._parent(one))}
            logs = any(map(self._reads_log, family))
            more = {other for other in streams if self._parent(other) in family or (logs and self._reads_log(other))}
            if more | parents <= family:
                return family
            family |= more | parents

    def _parent(self, stream: str) -> str | None:
        """The id of a stream's parent; its own id if it is declared to have none; None if nobody says."""
        parent = self._streams[stream].parent
        return self._id(parent) if parent else None

    def _reads_log(self, stream: str) -> bool:
        return self._streams[stream].replication == "LOG_BASED"

    def kept_out(self, barrier: Barrier, snapshot: Snapshot) -> Barrier:
        """The barrier without the streams that are held back: their bookmarks stay as the lake has them.

        Raises `DataError` if a bookmark that moves may cover rows that are left out.
        """
        names = self.names
        if not names:
            return barrier
        before, state = snapshot.pipeline_state, barrier.stored or snapshot.pipeline_state.said_by_one(barrier.state)
        self._require_apart(before.shown, state.shown, names, barrier)
        stored = state.keeping({self._streams[name].names for name in names}, before)
        return replace(
            barrier,
            state=stored.shown,
            merged=barrier.merged or stored != state,
            stored=stored if barrier.stored else None,
            publish={stream: how for stream, how in barrier.publish.items() if stream not in names},
            staged={stream: version for stream, version in barrier.staged.items() if stream not in names},
            activate={stream: version for stream, version in barrier.activate.items() if stream not in names},
            uncovered=tuple(stream for stream in barrier.uncovered if stream not in names),
        )

    def _require_apart(self, before: Any, state: Any, names: frozenset[str], barrier: Barrier) -> None:
        """Raise `DataError` unless the STATE can leave the held streams where they are, and move the others."""
        if state == before:
            return
        if any(is_flat(each) and not is_empty(each) for each in (before, state)):
            raise self._impossible("its STATE has no `bookmarks`, so nobody knows what belongs to which stream")
        if shared_part(before) != shared_part(state):
            raise self._impossible("its STATE has a position beside `bookmarks`, which is all streams'")
        if resume_points(before, ignoring=names) == resume_points(state, ignoring=names):
            return
        for stream in list(self._read.values()):
            if stream.name not in names and (stream.method != APPEND_ONLY or stream.name not in barrier.publish):
                continue  # rows that are merged or replaced are not doubled if they come again
            own = stream.is_apart or any(has_own_bookmark(each, stream.names) for each in (before, state))
            if stream.name in barrier.read and not own:
                name = yaml_text(stream.name)
                raise self._impossible(
                    f"the bookmark of another stream may cover the rows of {stream.name}, which has none of its own",
                    f"if no other stream's rows bring them along: streams: {{{name}: {{parent: {name}}}}}"
                    f"; if one does, name it there, and they are held back together",
                )

    def _impossible(self, why: str, hint: str = "") -> DataError:
        stream, error = next(iter(self.errors.items()))
        hint = f"{hint or 'leave on_error out for this pipeline'}\nwhat held {stream} back: {error.hint}"
        return DataError(f"{stream} cannot be held back: {why}; {error.message}", hint=hint)

    def of(self, streams: Iterable[str]) -> Iterator[tuple[str, BridgeError]]:
        """Yield those of the streams that are held back, and why."""
        for stream in streams if self.errors else ():
            if error := self.errors.get(self._id(stream)):
                yield stream, error

    def result(self) -> StreamsHeldBack | None:
        """The error of a run that has committed all other streams; None if it held none back."""
        if not self.errors:
            return None
        # A stream that did not come may be held back as well, by a view that does not fit it.
        errors = {stream: error for stream, error in self.errors.items() if stream in self._read} or self.errors
        listed = ", ".join(errors)
        parts = [(stream, error.message.removeprefix(f"{stream}: "), error.hint) for stream, error in errors.items()]
        lines = [f"{stream}: {message}; {hint}" for stream, message, hint in parts]
        hint = "\n".join([*lines, "then run again: their rows are extracted from the bookmarks that they have"])
        return StreamsHeldBack(f"held back: {listed}; all else is committed", hint=hint)


class _NothingHeld(HeldBack):
    """For a load that holds nothing back: the error of any stream ends it."""

    def __init__(self) -> None:
        self.errors, self.names = {}, frozenset()

    def opened(self, stream: StreamProgress) -> None:
        pass

    def hold(self, stream: str, error: BridgeError) -> None:
        raise error

    def check_null_keys(self, stream: str, rows: Counter[str]) -> None:
        pass

    def hold_refused(self, stream: str, error: BridgeError, barrier: Barrier, snapshot: Snapshot) -> bool:
        return False


NOTHING_HELD: HeldBack = _NothingHeld()
