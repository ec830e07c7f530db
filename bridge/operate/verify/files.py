"""The tables' folders: every file that counts is there, whole, and no other file is visible."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain

from bridge.errors import BridgeError, LakeError
from bridge.findings import Finding, Mend
from bridge.lake.file_records import LiveFile
from bridge.lake.formats.registry import OWN_LOGS
from bridge.lake.log import Snapshot
from bridge.lake.ownership import Owner, owners_of, tables_of
from bridge.lake.paths import generation_of, pipeline_key
from bridge.lake.presence import ABSENT, wrong_size
from bridge.lake.records import TableState
from bridge.lake.storage import Storage
from bridge.lake.storage.parallel import parallel_map
from bridge.operate.verify.history import History
from bridge.operate.verify.report import error, warning
from bridge.operate.verify.unpublished import UnpublishedCommit

_AT_ONCE = 1000
_OLD = "not rewritten yet"
_ADOPT = "move it out of the table's folder; or make it part of the table: singer-bridge run NAME --adopt"
_LOST = (
    "restore it from a backup of the bucket; or go back: singer-bridge rollback {before} NAME; "
    "or load the table again, if it is append-only after load_method: auto: singer-bridge run NAME --full -s {stream}"
)
_LOST_VIEW = "singer-bridge views verify {stream} --repair fills it again"
_LOST_CLOSED = "restore it from a backup of the bucket; or go back: singer-bridge rollback {before} NAME"


@dataclass
class CheckedFiles:
    """The files of all tables after the history's last commit. `whole` are those that were read and are right.

    `unfinished`: the last commit may be visible in part, as the run that made it is alive, or died.
    """

    history: History
    snapshot: Snapshot
    unfinished: bool
    whole: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.storage: Storage = self.history.log.storage
        self._last = UnpublishedCommit(self.history.log, self.history.last)
        self._trash: dict[str, dict[str, str]] = {}

    def findings(self, *, running: bool) -> Iterator[Finding]:
        """Yield what is wrong; not what a `running` run is about to publish."""
        hidden = 0
        for stream, table in sorted(self.snapshot.tables.items()):
            for finding in chain(self._live(stream, table), self._others(stream, table)):
                if finding is None:
                    hidden += 1
                else:
                    yield finding
        if hidden and not (running and self.unfinished):
            problem = f"commit {self._last.n} has {hidden:,} file(s) still to publish or to remove: its run died"
            fix = "singer-bridge recover NAME finishes it, and so does the next run"
            yield error("commits", self.history.log.key(self._last.n), problem, fix, Mend("publish"))

    # files that count

    def _live(self, stream: str, table: TableState) -> Iterator[Finding | None]:
        """Yield the problems of a table's files; None for one that the last commit has not published yet."""
        files = {f"{table.folder}/{name}": facts for name, facts in table.files.items()}
        keys = [key for key, facts in sorted(files.items()) if _version(key, facts) not in self.whole]
        for start in range(0, len(keys), _AT_ONCE):
            part = keys[start : start + _AT_ONCE]

            def look(key: str) -> str | None:
                if key in self._last.rewritten and self._last.is_pending(key):
                    return _OLD
                return self._problem(key, files[key])

            for key, problem in zip(part, parallel_map(self.storage, look, part), strict=True):
                if problem is None:
                    self.whole.add(_version(key, files[key]))
                elif problem == _OLD or (problem == ABSENT and self._last.is_pending(key)):
                    yield None
                else:
                    yield self._lost(stream, table, key, problem)

    def _problem(self, key: str, file: LiveFile) -> str | None:
        """The problem of a file; None if it has none."""
        if problem := wrong_size(self.storage, key, file.size):
            return problem
        try:
            rows = _rows(self.storage, key)
        except LakeError as failure:
            return ABSENT if self.storage.size(key) is None else f"cannot be read: {failure.message}"
        except (OSError, ValueError) as failure:
            return f"is no longer a Parquet file: {str(failure).splitlines()[0]}"
        return None if rows == file.rows else f"{rows:,} rows, and the log says {file.rows:,}"

    def _lost(self, stream: str, table: TableState, key: str, problem: str) -> Finding:
        name = key.removeprefix(f"{table.folder}/")
        file, n = table.files[name], self.history.added.get(key)
        since = (n or 0) if key in self.history.rewritten else 0  # older trash has it as it was before the rewrite
        if problem == ABSENT and (place := self._in_trash(table.folder, name, file.size, since)):
            return error("files", key, "is in the trash, and should be visible", mend=Mend("back", stream, place))
        by = f"commit {n}" if n else f"a commit before {self.history.first}"
        lost = _LOST_VIEW if table.view else _LOST_CLOSED if table.closes else _LOST
        fix = lost.format(before=n - 1 if n and n > 1 else "COMMIT", stream=shlex.quote(stream))
        return error("files", key, f"{problem}; it holds {file.rows:,} rows of {by}", fix)

    def _in_trash(self, folder: str, name: str, size: int, since: int) -> str | None:
        """Where in the trash a file is that a commit after `since` brought there."""
        if folder not in self._trash:
            trash, contents = pipeline_key(self.history.log.pipeline, "trash"), dict[str, str]()
            for place in (f"{trash}/{commit}/{folder}" for commit in sorted(self.storage.list(trash))):
                contents |= {file: f"{place}/{file}" for file in self.storage.walk(place)}
            self._trash[folder] = contents
        places = [self._trash[folder].get(file, "") for file in (f"{name}.removed", name)]
        later = pipeline_key(self.history.log.pipeline, "trash", f"{since + 1:020d}")
        return next((place for place in places if place >= later and self.storage.size(place) == size), None)

    # other files

    def _others(self, stream: str, table: TableState) -> Iterator[Finding | None]:
        """Yield what else is visible; None for a file that the last commit is about to remove."""
        names = sorted(set(self.storage.walk(table.folder)) - set(table.files))
        if table.has_own_log:
            yield from self._beside(table, names)
            return
        if not names:
            return
        try:
            owners, shared = owners_of(self.storage, table.folder)
            me = Owner(self.history.log.pipeline, stream)
            others = tables_of(self.storage, [owner for owner in owners if owner != me]).values()
            foreign = {name for other in others for name in other.files}
            alone = owners == [me] and not shared
        except BridgeError:  # an unreadable owner is a finding of its own; nothing is ours for certain
            foreign, alone = set(), False
        for name in (name for name in names if name not in foreign):
            yield self._ghost(stream, f"{table.folder}/{name}", alone=alone)

    def _beside(self, table: TableState, names: list[str]) -> Iterator[Finding]:
        """Yield what is in the folder of a table with a log of its own, and was never part of the table."""
        for key in (f"{table.folder}/{name}" for name in names if not name.startswith(OWN_LOGS)):
            if key not in self.history.removed and self.history.complete:
                problem = "is not part of the table: its readers leave it out, and it takes up space"
                yield warning("files", key, problem, "delete it, unless somebody else needs it")

    def _ghost(self, stream: str, key: str, *, alone: bool) -> Finding | None:
        removal = self.history.removed.get(key)
        if removal and removal.commit == self._last.n and self.unfinished:
            return None
        if removal:
            problem = f"was removed by commit {removal.commit}, but is still visible: its rows are read as well"
            return error("files", key, problem, mend=Mend("again", stream, removal.trash))
        name = key.rpartition("/")[2]
        own = generation_of(name) is not None
        if own and alone and self.history.complete:
            problem = "is of no commit; a run that had lost its pipeline left it, and its rows are read as well"
            return error("files", key, problem, mend=Mend("trash", stream))
        if own and not alone:
            problem = "is in no log; another pipeline that shares the table may be about to publish or remove it"
            return warning("files", key, problem, "verify the other pipelines of the table, too")
        if name.endswith(".parquet"):
            return error("files", key, "is not ours; its rows are read as well, and no run starts beside it", _ADOPT)
        fix = "move it out of the table's folder: some readers read any file there"
        return warning("files", key, "is not ours", fix)


def _version(key: str, file: LiveFile) -> str:
    """Tells a file from the one that had its name before it was rewritten."""
    return f"{key} {file.size} {file.rows}"


def _rows(storage: Storage, key: str) -> int:
    """The number of rows that a Parquet file's footer says."""
    import pyarrow.parquet as pq  # here: `recover` imports this room, and must start fast

    with storage.open(key) as file:
        return int(pq.read_metadata(file).num_rows)
