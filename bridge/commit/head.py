"""The last commit that is ours, and the files of the bucket that show it."""

from __future__ import annotations

from bridge.errors import CommitLost
from bridge.lake.log import Log, Snapshot

_OVERTAKEN = "two runs of this pipeline were alive; this one ends, what it committed is the other's to go on from"


class Head:
    """The last commit of this run: `view` is the lake after it. Files that show it are swapped by their version.

    A version is noted before the last look at the log's head. So whoever took over since then has changed the file
    after that, or will: a run that slept through its own replacement changes nothing.
    """

    def __init__(self, log: Log, view: Snapshot) -> None:
        self.log, self.storage, self.view = log, log.storage, view
        self._versions: dict[str, str | None] = {}

    def check(self) -> None:
        """Raise `CommitLost` if another writer has made a commit after ours."""
        if self.storage.size(self.log.key(self.view.n + 1)) is not None:
            raise CommitLost("another run took over", hint=_OVERTAKEN, commit=self.view.n + 1)

    def look(self, key: str) -> bytes | None:
        """Read a file that shows the head, and note its version. Raises `CommitLost` if another run took over."""
        stored = self.storage.read_versioned(key)
        self.check()
        self._versions[key] = stored.etag if stored else None
        return stored.data if stored else None

    def swap(self, key: str, data: bytes) -> bool:
        """Write a file that shows the head, unless somebody changed it since it was looked at: then False."""
        if key not in self._versions:
            self.look(key)
        version = self.storage.compare_and_swap(key, data, self._versions[key])
        self._versions[key] = version or self._versions[key]
        return version is not None

    def put_back(self, key: str, data: bytes) -> None:
        """Write a file that this run has swapped after it was replaced, unless somebody changed it since."""
        self.storage.compare_and_swap(key, data, self._versions.get(key))
