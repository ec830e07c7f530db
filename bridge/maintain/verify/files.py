"""The tables' folders: every file that counts is there, whole, and nothing else is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from bridge.commit.committer import FILES_CHANGED
from bridge.errors import BridgeError, LakeError
from bridge.lake.folder_names import generation_of, table_and_name
from bridge.lake.formats.registry import OWN_LOGS
from bridge.lake.log import View, add_of, changes_of, meta
from bridge.lake.ownership import Owner, owners_of, tables_of
from bridge.lake.presence import wrong_size
from bridge.lake.records import LiveFile, TableState
from bridge.maintain.verify.finding import Finding, Mend, error, warning
from bridge.maintain.verify.history import History
from bridge.storage import Storage
from bridge.storage.parallel import parallel_map

_AT_ONCE = 1000
_OLD = "not rewritten yet"
_ADOPT = "move it out of the table's folder; or have it be of the table: singer-bridge run NAME --adopt"
_LOST = (
    "restore it from a backup of the bucket; or go back: singer-bridge rollback {before} NAME; "
    "or load the table anew: singer-bridge run NAME --full -s {stream}"
)


@dataclass
class Files:
    """The files of all tables after the history's last commit. `whole` are those that were looked at and are right.

    `unfinished`: the last commit may be visible in part, as the run that made it is alive, or died.
    """

    history: History
    view: View
    unfinished: bool
    whole: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.storage: Storage = self.history.log.storage
        last = self.history.last
        changing = last if last and last.kind in FILES_CHANGED else None
        adds = [add_of(table.folder, add) for table in (changing.tables if changing else ()) for add in table.adds]
        self._waiting = {add.key: add for add in adds}
        changes = changes_of(self.history.log.pipeline, changing) if changing else []
        self._rewritten = {one.add.key for change in changes for one in change.rewrites}
        self._last = changing.n if changing else 0
        self._trash: dict[str, dict[str, str]] = {}

    def findings(self, *, running: bool) -> Iterator[Finding]:
        """Yield what is wrong. While a run is `running`, what it is about to publish is not."""
        hidden = 0
        for stream, table in sorted(self.view.tables.items()):
            for finding in chain(self._live(stream, table), self._others(stream, table)):
                if finding is None:
                    hidden += 1
                else:
                    yield finding
        if hidden and not (running and self.unfinished):
            found = f"files that commit {self._last} has not made visible, or gone, yet: {hidden:,}; its run died"
            fix = "singer-bridge recover NAME finishes it, and so does the next run"
            yield error("commits", self.history.log.key(self._last), found, fix, Mend("publish"))

    # files that count

    def _live(self, stream: str, table: TableState) -> Iterator[Finding | None]:
        """Yield what is wrong with a table's files; None for one that the last commit has not published yet."""
        files = {f"{table.folder}/{name}": facts for name, facts in table.files.items()}
        keys = [key for key, facts in sorted(files.items()) if _version(key, facts) not in self.whole]
        for start in range(0, len(keys), _AT_ONCE):
            part = keys[start : start + _AT_ONCE]

            def look(key: str) -> str | None:
                if key in self._rewritten and self._is_on_its_way(key):
                    return _OLD
                return self._wrong(key, files[key])

            for key, wrong in zip(part, parallel_map(self.storage, look, part), strict=True):
                if wrong is None:
                    self.whole.add(_version(key, files[key]))
                elif wrong == _OLD or (wrong == "gone" and self._is_on_its_way(key)):
                    yield None
                else:
                    yield self._lost(stream, table, key, wrong)

    def _is_on_its_way(self, key: str) -> bool:
        """Return whether the last commit has a file that it did not make visible yet."""
        add = self._waiting.get(key)
        if add is None:
            return False
        folder, name = table_and_name(key)
        # Where a folder is exchanged whole, its files are gathered first.
        gathered = meta(self.history.log.pipeline, "trash", f"{self._last:020d}", f"{folder}.new", name)
        return not self.storage.missing_pending([add]) or self.storage.size(gathered) == add.size

    def _wrong(self, key: str, file: LiveFile) -> str | None:
        """Return what is wrong with a file, None if nothing is."""
        if wrong := wrong_size(self.storage, key, file.size):
            return wrong
        try:
            rows = _rows(self.storage, key)
        except LakeError as problem:
            return "gone" if self.storage.size(key) is None else f"cannot be read: {problem.message}"
        except (OSError, ValueError) as problem:
            return f"is no Parquet file any more: {str(problem).splitlines()[0]}"
        return None if rows == file.rows else f"{rows:,} rows, and the log says {file.rows:,}"

    def _lost(self, stream: str, table: TableState, key: str, wrong: str) -> Finding:
        name = key.removeprefix(f"{table.folder}/")
        file, n = table.files[name], self.history.added.get(key)
        since = (n or 0) if key in self.history.rewritten else 0  # before that the trash has it as it was
        if wrong == "gone" and (place := self._in_trash(table.folder, name, file.size, since)):
            return error("files", key, "is in the trash, and should be visible", mend=Mend("back", stream, place))
        by = f"commit {n}" if n else f"a commit before {self.history.first}"
        fix = _LOST.format(before=n - 1 if n and n > 1 else "COMMIT", stream=stream)
        return error("files", key, f"{wrong}; it holds {file.rows:,} rows of {by}", fix)

    def _in_trash(self, folder: str, name: str, size: int, since: int) -> str | None:
        """Return where in the trash a file is, whatever brought it there after the commit `since`."""
        if folder not in self._trash:
            trash, found = meta(self.history.log.pipeline, "trash"), dict[str, str]()
            for place in (f"{trash}/{commit}/{folder}" for commit in sorted(self.storage.list(trash))):
                found |= {each: f"{place}/{each}" for each in self.storage.walk(place)}
            self._trash[folder] = found
        places = [self._trash[folder].get(each, "") for each in (f"{name}.removed", name)]
        later = meta(self.history.log.pipeline, "trash", f"{since + 1:020d}")
        return next((place for place in places if place >= later and self.storage.size(place) == size), None)

    # files that do not

    def _others(self, stream: str, table: TableState) -> Iterator[Finding | None]:
        """Yield what is visible beside the files that count; None for one that the last commit is about to remove."""
        names = sorted(set(self.storage.walk(table.folder)) - set(table.files))
        if table.has_own_log:
            yield from self._beside(table, names)
            return
        if not names:
            return
        try:
            owners, shared = owners_of(self.storage, table.folder)
            me = Owner(self.history.log.pipeline, stream)
            of_others = {
                name
                for other in tables_of(self.storage, [o for o in owners if o != me]).values()
                for name in other.files
            }
            alone = owners == [me] and not shared
        except BridgeError:  # an unreadable owner is a finding of its own; nothing is ours for certain
            of_others, alone = set(), False
        for name in (name for name in names if name not in of_others):
            yield self._ghost(stream, f"{table.folder}/{name}", alone=alone)

    def _beside(self, table: TableState, names: list[str]) -> Iterator[Finding]:
        """Yield what is in the folder of a table whose own log says what is read, and was never removed from it."""
        for key in (f"{table.folder}/{name}" for name in names if not name.startswith(OWN_LOGS)):
            if key not in self.history.removed and self.history.complete:
                found = "is not of the table: its readers leave it out, and it takes up space"
                yield warning("files", key, found, "delete it, unless somebody else needs it")

    def _ghost(self, stream: str, key: str, *, alone: bool) -> Finding | None:
        gone = self.history.removed.get(key)
        if gone and gone.commit == self._last and self.unfinished:
            return None
        if gone:
            found = f"was removed by commit {gone.commit}, and is visible still: its rows are read as well"
            return error("files", key, found, mend=Mend("again", stream, gone.trash))
        name = key.rpartition("/")[2]
        if generation_of(name) is not None and alone and self.history.complete:
            found = "is of no commit; a run that had lost its pipeline left it, and its rows are read as well"
            return error("files", key, found, mend=Mend("trash", stream))
        if generation_of(name) is not None and not alone:
            found = "is in no log; another pipeline that shares the table may be about to publish or remove it"
            return warning("files", key, found, "verify the other pipelines of the table, too")
        if name.endswith(".parquet"):
            found = "is not ours, its rows are read as well, and no run starts beside it"
            return error("files", key, found, _ADOPT)
        return warning(
            "files", key, "is not ours", "move it out of the table's folder: some readers take any file there"
        )


def _version(key: str, file: LiveFile) -> str:
    """Return what tells a file from the one that had its name before it was rewritten."""
    return f"{key} {file.size} {file.rows}"


def _rows(storage: Storage, key: str) -> int:
    """Return the number of rows that a Parquet file's footer says."""
    import pyarrow.parquet as pq  # here: `recover` shares this room, and has to be quick

    with storage.open(key) as file:
        rows: Any = pq.read_metadata(file).num_rows
    return int(rows)
