"""Changes without end: an offset is a commit, and a batch is what the commits between two offsets changed."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader

from bridge.errors import LakeError, SettingsError
from bridge.lake.storage.parallel import parallel_map
from bridge.read.query.changes.change import Position
from bridge.read.query.changes.feed import ChangeFeed
from bridge.read.query.follow import LatestCommit
from bridge.read.spark_source.changes import ChangePart, ChangesOf, changes_since, whole_table
from bridge.read.spark_source.place import explained

try:
    from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxFiles, SupportsTriggerAvailableNow
except ImportError:  # Spark 4.0 and 4.1 give a source no limit
    ReadAllAvailable = ReadMaxFiles = SupportsTriggerAvailableNow = type("Nothing", (), {})

_LOOK_EVERY = 1.0
"""Seconds: an idle query asks a hundred times as often."""

Offset = dict[str, Any]
"""`commit` and `nonce` of a position; `whole` where nothing was read yet, and the whole table is to come first."""


class ChangeStream(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """Reads what each commit from `first` on changes; without it the whole table first, and then what changes."""

    def __init__(self, of: ChangesOf, first: int | None, most: int | None) -> None:
        self._of, self._first, self._most = of, first, most
        self._head: LatestCommit | None = None
        self._looked, self._last = 0.0, 0
        self._until: int | None = None
        self._reached: Offset | None = None
        self._seen = 0
        self._takes_back: dict[int, int] = {}
        """By commit, the one before those that it takes back."""

    def __getstate__(self) -> dict[str, Any]:
        """Executors only read."""
        return self.__dict__ | {"_head": None}

    def initialOffset(self) -> Offset:  # noqa: N802 - Spark's name, as those below
        self._reached = self._reached or self._initial()
        return self._reached

    def _initial(self) -> Offset:
        if self._first is None:
            return {"commit": 0, "nonce": "", "whole": True}
        before = self._first - 1
        with explained(self._of.place.environment):
            feed = ChangeFeed(self._of.place.log())
            if before > feed.head.commit:
                hint = f"the last commit is {feed.head.commit}"
                raise SettingsError("startingCommit: there is no such commit yet", hint=hint, commit=self._first)
            return _offset(feed.position(before))

    def latestOffset(self, start: Offset | None = None, limit: Any = None) -> Offset:  # noqa: N802
        """Up to where the next batch goes.

        Spark 4.0 and 4.1 name no start, but have asked for its partitions. Before that nobody knows what a limit is of.
        """
        begin, knows = start or self._reached or self._initial(), bool(start or self._reached)
        with explained(self._of.place.environment):
            end = self._latest() if self._until is None else self._until
            if begin.get("whole"):
                return _offset(self._position(end)) if end else begin
            if end < begin["commit"] and self._until is None:
                hint = "start again: a new query with a new checkpoint"
                text = "the lake has fewer commits than were read: it was made anew, or restored from a backup"
                raise LakeError(text, hint=hint, commit=begin["commit"], last=end)
            most = (
                limit.max_files if isinstance(limit, ReadMaxFiles) else self._most if limit is None and knows else None
            )
            end = self._end(begin["commit"], most, end) if most else end
            return _offset(self._position(end)) if end > begin["commit"] else begin

    def getDefaultReadLimit(self) -> Any:  # noqa: N802
        """Spark knows no limit of commits; of files it passes on whatever a source says."""
        return ReadMaxFiles(self._most) if self._most else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        with explained(self._of.place.environment):
            self._until = self._latest()

    def partitions(self, start: Offset, end: Offset) -> list[ChangePart]:
        self._reached = end
        if start == end:
            return []
        with explained(self._of.place.environment):
            feed = ChangeFeed(self._of.place.log(), end["commit"])
            if _offset(feed.head) != end:
                hint = "start again: a new query with a new checkpoint"
                raise LakeError("the lake was made anew, or restored from a backup", hint=hint, commit=end["commit"])
            if start.get("whole"):
                self._check_types(feed)
                return whole_table(self._of, feed)
            parts = changes_since(self._of, feed, Position(start["commit"], start["nonce"]))
            self._check_types(feed)
            return parts

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        return self._of.batches(partition.value or ())

    def _latest(self) -> int:
        """The last commit that a reader may see, looked for once a second."""
        now = time.monotonic()
        if self._head is None or now >= self._looked + _LOOK_EVERY:
            self._head = self._head or LatestCommit(self._of.place.log())
            self._last, self._looked = self._head.now().n, now
        return self._last

    def _end(self, start: int, most: int, head: int) -> int:
        """The commit after so many more, or a later one that takes back some of them: such rows are not given."""
        end = min(head, start + most)
        self._look_back(start, head)
        for n, back in self._takes_back.items():
            if end < n <= head and start <= back < end:
                end = n
        return end

    def _look_back(self, start: int, head: int) -> None:
        """Look for rollbacks and voids among the commits up to the head, each of which is read once."""
        log, numbers = self._of.place.log(), range(max(start, self._seen) + 1, head + 1)
        for n, record in zip(numbers, parallel_map(log.storage, log.record, numbers), strict=True):
            back = None if record is None else record.to if record.voids is None else record.voids - 1
            if back is not None:
                self._takes_back[n] = back
        self._seen = max(self._seen, head)

    def _position(self, n: int) -> Position:
        record = self._of.place.log().record(n)
        if record is None:
            raise LakeError("this commit is not in the log", hint="`singer-bridge verify` looks for damage", commit=n)
        return Position(n, record.nonce)

    def _check_types(self, feed: ChangeFeed) -> None:
        """A query has the columns that the table had when it began: new ones wait, another type cannot."""
        if self._of.stream not in feed.streams:
            return
        types = {field.name: field.type for field in feed.columns(self._of.stream)}
        for field in self._of.fields:
            if types.get(field.name, field.type) != field.type:
                hint = "start the query again, with the same checkpoint: it takes the new type"
                raise LakeError("a column has another type now", hint=hint, table=self._of.stream, column=field.name)


def _offset(at: Position) -> Offset:
    return {"commit": at.commit, "nonce": at.nonce}
