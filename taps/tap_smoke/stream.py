"""One stream of this run: the lines it still has to send and the bookmark it stands at."""

from __future__ import annotations

from typing import Any

from tap_smoke.bookmarks import resume
from tap_smoke.catalog import Selection
from tap_smoke.messages import Dialect
from tap_smoke.records import REPLICATION_KEY, Recipe
from tap_smoke.wire import CHUNK_BYTES


class Stream:
    """Sends [first, records] in order; `sent` counts the records of this run."""

    def __init__(self, seed: int, selection: Selection, old_bookmark: Any, dialect: Dialect) -> None:
        self.settings = selection.stream
        self.name = self.settings.name
        self.sent = 0
        self._incremental = selection.method == "INCREMENTAL"
        self._bookmark = resume(self.settings, selection.method, old_bookmark)
        self._dialect = dialect
        self._recipe = Recipe(seed, self.settings, selection.columns, dialect, self._bookmark.version)
        self._next = self._bookmark.first
        # so many lines make about one chunk
        self.batch = CHUNK_BYTES // (300 + self.settings.wide) + 1

    @property
    def left(self) -> int:
        """How many records are still to be sent."""
        return max(0, self.settings.records + 1 - self._next)

    def opening(self) -> str:
        """The messages before the first record."""
        early = self._activate() if self.settings.activate_first else ""
        return early + self._schema(self._next)

    def take(self, count: int) -> str:
        """The lines of the next `count` records, with a new SCHEMA where it changes."""
        first, end = self._next, self._next + count
        self._next, self.sent = end, self.sent + count
        change = self.settings.schema_change
        # if a run begins at the change, its opening has the new SCHEMA
        if change and first <= change.at < end and change.at > self._bookmark.first:
            old, new = self._recipe.lines(first, change.at), self._recipe.lines(change.at, end)
            return old + self._schema(change.at) + new
        return self._recipe.lines(first, end)

    def peek(self) -> str:
        """The line that would come next, even past the stream's end."""
        return self._recipe.lines(self._next, self._next + 1)

    def closing(self) -> str:
        """The messages after the last record."""
        return self._activate()

    def bookmark(self, *, ended: bool) -> dict[str, Any]:
        """Where the stream stands; asked in the middle only after a record."""
        if ended:
            return self._bookmark.end(self._next - 1 if self.sent else 0)
        return self._bookmark.middle(self._next - 1)

    def _schema(self, number: int) -> str:
        keys = self.settings.key_properties
        announced = [REPLICATION_KEY] if self._incremental and self.settings.announce_bookmark else None
        schema = self._recipe.schema(number)
        return self._dialect.schema(self.name, schema, None if keys is None else list(keys), announced)

    def _activate(self) -> str:
        version = self._bookmark.version
        return "" if version is None else self._dialect.activate_version(self.name, version)
