"""The last commit of this run, and the files of the bucket that show it: manifests, `state.json`, `published.json`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bridge.errors import CommitLost
from bridge.lake.log import Log, Snapshot
from bridge.lake.storage.parallel import parallel_map
from bridge.lake.storage.protocol import Swap

_OVERTAKEN = "two runs of this pipeline were alive; this one ends, and the other goes on from what it committed"


class Head:
    """The last commit of this run: `view` is the lake after it. Files that show it are swapped by their version.

    A version is noted first, then the log is checked for a newer commit. So if another run takes over after that check,
    it changes the file later than the noted version, and our swap fails: a run that was suspended while another one
    replaced it changes nothing.
    """

    def __init__(self, log: Log, snapshot: Snapshot) -> None:
        self.log, self.storage, self.snapshot = log, log.storage, snapshot
        self._versions: dict[str, str | None] = {}

    def check(self) -> None:
        """Raise `CommitLost` if another writer has made a commit after ours."""
        if self.storage.size(self.log.key(self.snapshot.n + 1)) is not None:
            raise CommitLost("another run took over", hint=_OVERTAKEN, commit=self.snapshot.n + 1)

    def look(self, key: str) -> bytes | None:
        """Read a file that shows the head, and note its version. Raises `CommitLost` if another run took over."""
        return self.look_all([key])[0]

    def look_all(self, keys: Sequence[str]) -> list[bytes | None]:
        """The same for many files."""
        files = parallel_map(self.storage, self.storage.read_versioned, keys)
        self.check()
        self._versions |= {key: file.etag if file else None for key, file in zip(keys, files, strict=True)}
        return [file.data if file else None for file in files]

    def swap(self, key: str, data: bytes) -> bool:
        """Write a file that shows the head; False if somebody changed it since `look`."""
        return not self.swap_all({key: data})

    def swap_all(self, files: Mapping[str, bytes]) -> list[str]:
        """Write many files that show the head; return the keys that somebody changed since `look`."""
        if unseen := [key for key in files if key not in self._versions]:
            self.look_all(unseen)
        versions = self.storage.swap_all([Swap(key, data, self._versions[key]) for key, data in files.items()])
        self._versions |= {key: version for key, version in zip(files, versions, strict=True) if version}
        return [key for key, version in zip(files, versions, strict=True) if version is None]

    def put_back(self, key: str, data: bytes) -> None:
        """Undo a swap that this run made after another one had taken over, unless somebody changed the file since."""
        self.storage.compare_and_swap(key, data, self._versions.get(key))
