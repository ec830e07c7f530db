"""Does each file exist? For `verify` and `doctor`. A file that the last commit has yet to publish is not missing."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice

from bridge.lake.commit.committer import FILES_CHANGED
from bridge.lake.log import Log, Snapshot, add_of, storage_changes
from bridge.lake.presence import wrong_size
from bridge.lake.records import CommitRecord
from bridge.lake.storage.parallel import parallel_map


class UnpublishedCommit:
    """The last commit that changed files. Its files may not be visible yet: its run is alive, or died."""

    def __init__(self, log: Log, record: CommitRecord | None) -> None:
        self._log = log
        changing = record if record and record.kind in FILES_CHANGED else None
        tables = changing.tables if changing else ()
        changes = storage_changes(log.pipeline, changing) if changing else ()
        self.n = changing.n if changing else 0
        self.rewritten = {rewrite.add.key for change in changes for rewrite in change.rewrites}
        self._adds = {add.key: add for table in tables for add in (add_of(table.folder, one) for one in table.adds)}
        self._gathered = {add.key: change.gathered(add.key) for change in changes for add in change.adds}

    def is_pending(self, key: str) -> bool:
        """Whether the commit adds this file, which is whole but not visible yet."""
        add = self._adds.get(key)
        if add is None:
            return False
        gathered = self._gathered.get(key)
        return not self._log.storage.missing_pending([add]) or (
            gathered is not None and self._log.storage.size(gathered) == add.size
        )


def damaged_files(log: Log, snapshot: Snapshot, most: int) -> Mapping[str, list[str]]:
    """By stream, the keys of files that are missing or have another size than the log says. No file is read.

    At most `most` files are looked at, one request each.
    """
    tables = sorted(snapshot.tables.items())
    files = ((s, f"{t.folder}/{name}", file.size) for s, t in tables for name, file in sorted(t.files.items()))
    checked = list(islice(files, most))
    problems = parallel_map(log.storage, lambda one: wrong_size(log.storage, one[1], one[2]), checked)
    wrong = [one for one, problem in zip(checked, problems, strict=True) if problem]
    last = UnpublishedCommit(log, next(log.history(snapshot.n, fences=False), None) if wrong else None)
    damaged: dict[str, list[str]] = {}
    for stream, key, _ in wrong:
        if not last.is_pending(key):
            damaged.setdefault(stream, []).append(key)
    return damaged
