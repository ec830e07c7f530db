"""The work that is due for one table, in the order in which it is sent, and the bookmark behind each step."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b

import pyarrow as pa

from bridge.errors import CommitExpired, DataError
from bridge.read.query.changes.change import Position
from bridge.read.query.changes.feed import ChangeFeed, FeedStep, WholeTable
from tap_bridge.bookmark import Bookmark, Place
from tap_bridge.sending import Chunk, Due, chunks_of


@dataclass(frozen=True, slots=True)
class Activate:
    """All rows of the whole table are sent: no others are valid any more."""

    version: int


@dataclass(slots=True)
class Progress:
    """Yields what is due of a table. `bookmark` moves behind what was yielded when the next is asked for."""

    feed: ChangeFeed
    stream: str
    fields: Sequence[pa.Field]
    keys: tuple[str, ...]
    threads: int
    most: int
    """Rows that are yielded at once."""
    logger: logging.Logger
    as_text: bool
    """Write rows as JSON, for RECORDs."""
    bookmark: Bookmark | None = None

    @property
    def version(self) -> int:
        """That of the rows which are sent now."""
        return self.bookmark.version if self.bookmark else 0

    def events(self) -> Iterator[Chunk | Activate]:
        """Yield rows, and the end of a whole table.

        If the changes since the bookmark cannot be had, the whole table is due. Raises `CommitExpired` if a file of the
        present table was deleted, `DataError` if one cannot be read as the present types.
        """
        if self.bookmark is None:
            self.begin()
        elif self.bookmark.keys != self.keys:
            self._begin_again("its key is another one")
        try:
            yield from self._due()
        except (WholeTable, CommitExpired, DataError) as why:
            place = self.bookmark.next if self.bookmark and not self.bookmark.complete else None
            if not isinstance(why, WholeTable) and place and place.at == self.feed.head:
                raise  # of the present table: nothing else can be taken
            self._begin_again(str(why))
            yield from self._due()

    def _begin_again(self, why: str) -> None:
        text = "%s: %s, so the whole table is sent again, and ACTIVATE_VERSION behind it"
        self.logger.warning(text, self.stream, why)
        self.begin()

    def begin(self) -> None:
        """Let the whole table be due, as it is now, under a version greater than any before."""
        version = max(int(time.time() * 1000), self.version + 1)
        self.bookmark = Bookmark(version, None, Place(self.feed.head), self.keys)

    def _due(self) -> Iterator[Chunk | Activate]:
        assert self.bookmark is not None
        if self.bookmark.complete is None:
            yield from self._whole(self.bookmark)
        yield from self._changes(self.bookmark)

    def _whole(self, bookmark: Bookmark) -> Iterator[Chunk | Activate]:
        place = bookmark.next
        assert place is not None
        self.feed.unreplaced_changes(self.stream, place.at, self.keys)
        step = self.feed.whole(self.stream, place.at, self.fields)
        for chunk in chunks_of(_rest(step, place), self.threads, self.most, as_text=self.as_text):
            yield chunk
            self.bookmark = replace(bookmark, next=chunk.place)
        yield Activate(bookmark.version)
        self.bookmark = Bookmark(bookmark.version, place.at, None, self.keys)

    def _changes(self, bookmark: Bookmark) -> Iterator[Chunk]:
        columns = _digest(self.fields)
        complete, current = bookmark.complete, bookmark.next.at if bookmark.next else None
        assert complete is not None
        parts = self._parts(complete, bookmark.next, columns)
        for chunk in chunks_of(parts, self.threads, self.most, as_text=self.as_text):
            if current not in (None, chunk.place.at):
                complete = current
            current = chunk.place.at
            yield chunk
            self.bookmark = replace(bookmark, complete=complete, next=replace(chunk.place, columns=columns))
        self.bookmark = Bookmark(bookmark.version, self.feed.head, None, self.keys)

    def _parts(self, complete: Position, place: Place | None, columns: str) -> Iterator[Due]:
        """The parts of the commits after `complete`, without what is sent already of the first.

        Other columns choose other rows of a merge: then all of it is sent, as its rows have a key.
        """
        for step in self.feed.since(self.stream, complete, self.keys, self.fields):
            if place is not None and step.at != place.at:
                raise WholeTable("a commit that was sent in part was taken back")
            if place is not None and step.merges and place.columns != columns:
                place = Place(step.at)
            yield from _rest(step, place or Place(step.at))
            place = None
        if place is not None:
            raise WholeTable("a commit that was sent in part was taken back")


def _digest(fields: Sequence[pa.Field]) -> str:
    """Names and types in a few letters."""
    return blake2b(repr([(field.name, str(field.type)) for field in fields]).encode(), digest_size=8).hexdigest()


def _rest(step: FeedStep, place: Place) -> Iterator[Due]:
    """The parts of a commit from a place on."""
    reached = not place.part
    for part in step.parts:
        if part.name == place.part:
            reached = True
            if place.rows > part.count:
                raise WholeTable("the bookmark has more rows than the file that was sent in part")
            yield Due(step.at, part, place.rows)
        elif reached:
            yield Due(step.at, part)
    if not reached:
        raise WholeTable("the file that was sent in part is in the table no more")
