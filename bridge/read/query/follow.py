"""The last commit that a reader may see, followed from one question to the next."""

from __future__ import annotations

import threading

from bridge.lake.log import SNAPSHOT_EVERY, Log, Snapshot
from bridge.read.query.snapshot import visible


class LatestCommit:
    """The last commit of a pipeline whose files are all visible. Threads may share it.

    A look costs two small requests while nothing is committed. A new commit costs reading its record, and asking for
    the files that it adds.
    """

    def __init__(self, log: Log) -> None:
        self.log = log
        self._lock = threading.Lock()
        self._last: Snapshot | None = None
        self._visible: Snapshot | None = None

    def now(self) -> Snapshot:
        """The lake after that commit.

        What no commit changed since the last look is the same object: a table, and of a changed one each file.
        """
        with self._lock:
            self._last = last = self._followed()
            if self._visible is None or self._visible.n != last.n:
                self._visible = visible(self.log, last, self._visible)
            return self._visible

    def _followed(self) -> Snapshot:
        """The lake after the last record."""
        if self._last is None:
            return self.log.snapshot(self.log.latest())
        last, head = self._last, self.log.head(self._last.n)
        if not last.n <= head <= last.n + SNAPSHOT_EVERY:
            return self.log.snapshot(head)
        for n in range(last.n + 1, head + 1):
            record = self.log.record(n)
            if record is None:  # retention deleted it, or it is lost: this finds out
                return self.log.snapshot(head)
            last = last.after(record)
        return last
