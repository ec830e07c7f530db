"""The commits, read from the log's beginning: none is missing, each can be read, every snapshot is right."""

from __future__ import annotations

from dataclasses import dataclass

from bridge.errors import CorruptLake, LakeError
from bridge.findings import Finding
from bridge.lake.log import SNAPSHOT_EVERY, Log, Snapshot, storage_changes
from bridge.lake.records import CommitRecord
from bridge.lake.storage.parallel import parallel_map
from bridge.operate.verify.report import error

_AT_ONCE = 500
"""How many records are held in memory."""
_RESTORE = "restore it from a backup of the bucket; nothing but its bytes can mend it"


@dataclass(frozen=True, slots=True)
class RemovedFile:
    """Which commit removed a file, and where the file is now."""

    commit: int
    trash: str


class History:
    """The log of one pipeline; `advance` reads what was committed since the last call.

    `view` is the lake after commit `head`, None if nobody can know it. `complete`: no record is missing, so no commit
    wrote a file that none of them names.
    """

    def __init__(self, log: Log) -> None:
        self.log = log
        self._begin(log.beginning().first)

    def _begin(self, first: int) -> None:
        self.first, self.head, self.commits = first, first - 1, 0
        self.snapshot: Snapshot | None = Snapshot() if first == 1 else None
        self.complete = True
        self.added: dict[str, int] = {}
        self.rewritten: set[str] = set()
        self.removed: dict[str, RemovedFile] = {}
        self.findings: list[Finding] = []
        self.last: CommitRecord | None = None

    def advance(self, head: int) -> None:
        """Read up to commit `head`."""
        while self.head < head:
            numbers = range(self.head + 1, min(self.head + _AT_ONCE, head) + 1)
            for n, record in zip(numbers, parallel_map(self.log.storage, self._read, numbers), strict=True):
                if record is None and n < (first := self.log.beginning().first):
                    self._begin(first)  # a run that ended meanwhile has shortened the log
                    break
                self._take(n, record)

    def _read(self, n: int) -> CommitRecord | LakeError | None:
        try:
            return self.log.record(n)
        except LakeError as failure:
            return failure

    def _take(self, n: int, record: CommitRecord | LakeError | None) -> None:
        self.head = n
        if isinstance(record, CommitRecord):
            self._fold(record)
            self.commits += 1
            return
        if record is None:
            finding = error("commits", self.log.key(n), f"commit {n} is missing, but later ones exist", _RESTORE)
        else:
            finding = error("commits", self.log.key(n), f"commit {n}: {record.message}", record.hint)
        self.findings.append(finding)
        self.snapshot, self.complete = None, False

    def _fold(self, record: CommitRecord) -> None:
        n = record.n
        after = self.snapshot.after(record) if self.snapshot is not None else None
        if n % SNAPSHOT_EVERY == 0:
            after = self._snapshot(n, record, after)
        changes = list(storage_changes(self.log.pipeline, record))
        for change in changes:
            self.removed |= {remove.key: RemovedFile(n, remove.trash) for remove in change.removes}
        for table in record.tables:
            if table.has_own_log:  # files that such a log removes stay where they are
                keys = [f"{table.folder}/{name}" for name in table.removes]
                self.removed |= {key: RemovedFile(n, key) for key in keys}
        for change in changes:
            self.rewritten |= {one.add.key for one in change.rewrites}
            for add in (*change.adds, *(one.add for one in change.rewrites)):
                self.added[add.key] = n
                self.removed.pop(add.key, None)
        if record.kind != "fence":
            self.last = record
        self.snapshot = after

    def _snapshot(self, n: int, record: CommitRecord, after: Snapshot | None) -> Snapshot | None:
        """Compare the record's snapshot with the sum of the commits before it, and go on from the snapshot."""
        try:
            snapshot = self.log.snapshot(n)
        except CorruptLake as failure:
            self.findings.append(error("commits", self.log.key(n), f"its snapshot: {failure.message}", failure.hint))
            return after
        moved = {} if after is None else after.bookmark_changed_at
        if after is not None and (after.tables, record.moved or moved) != (snapshot.tables, moved):
            problem = "its snapshot does not agree with the commits before it, and nobody can know which is right"
            self.findings.append(error("commits", self.log.key(n), problem, _RESTORE))
        return snapshot
