"""Data and STATE as they were after an earlier commit, by one new commit of kind `rollback`.

Files that were removed since then come back from the trash, under new names: a name is never used twice. What was
added since goes into the trash, so that a rollback can be rolled back. Nothing of the log is taken away.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from msgspec import structs

from bridge.errors import BridgeError, CommitLost, LakeError, SettingsError
from bridge.lake.commit.committer import Committer, Facts
from bridge.lake.commit.open import open_pipeline
from bridge.lake.commit.trail import File, Trail
from bridge.lake.file_records import FileAdd
from bridge.lake.log import Log, Snapshot, bookmarks
from bridge.lake.ownership import owners_of
from bridge.lake.paths import file_name, pipeline_key, table_and_name
from bridge.lake.pipeline_state import PipelineState
from bridge.lake.records import CommitRecord, StagedTable, TableChange, TableState
from bridge.lake.storage import Storage
from bridge.lake.storage.parallel import parallel_map
from bridge.lake.stream_files import StreamFiles
from bridge.protocol.singer.state_edits import same

if TYPE_CHECKING:
    from typing_extensions import Unpack

_POSITIONS = {
    *("lsn", "_sdc_lsn", "xmin"),  # PostgreSQL
    *("log_file", "log_pos", "gtid"),  # MySQL, MariaDB
    *("scn", "oplog_ts_time", "oplog_ts_inc", "current_log_version"),  # Oracle, MongoDB, SQL Server
}
"""Keys of bookmarks by which taps note a position in a database's log."""


@dataclass(frozen=True, slots=True)
class Back:
    """A file that comes back: from `source` in the trash, under a new name. `name` is the one it had."""

    name: str
    source: str
    size: int
    rows: int


@dataclass(frozen=True, slots=True)
class TableRollback:
    """The change that a rollback makes to one table. `then` is the table afterwards, but for its files' names."""

    stream: str
    now: TableState
    then: TableState
    back: tuple[Back, ...]
    removed: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RollbackPlan:
    """The effects of a rollback to commit `to`; two plans are equal if they do the same.

    `restarted` are streams that were half loaded then: of these the rows are gone, and the tap starts them again.
    `dropped` are those that are half loaded now and will not be, `staged` what stays so.
    """

    to: int
    before: Any
    after: PipelineState
    staged: dict[str, StagedTable]
    tables: tuple[TableRollback, ...]
    restarted: tuple[str, ...]
    dropped: tuple[str, ...]
    head: int = field(compare=False)

    @property
    def nothing_to_do(self) -> bool:
        return not self.tables and not self.dropped and same(self.before, self.after.shown)


class _Search:
    """Finds what a table of the past is made of now. `records` are those after `then`, oldest first."""

    def __init__(self, log: Log, then: Snapshot, now: Snapshot, records: list[CommitRecord]) -> None:
        self._storage, self._then, self._records = log.storage, then, records
        self._trash = pipeline_key(log.pipeline, "trash", "")
        self._live = {f"{table.folder}/{name}" for table in now.tables.values() for name in table.files}
        self._places: dict[File, str | None] = {}
        changes = [change for record in records for change in record.tables if change.has_own_log]
        self._stayed = {f"{change.folder}/{name}" for change in changes for name in change.removes}
        self._trail = Trail(then)
        for record in records:
            self._trail.follow(log.pipeline, record)

    def locate(self, snapshot: Snapshot) -> list[str]:
        """Find all files of the tables that were; return the keys of those that are nowhere any more."""
        tables = snapshot.tables.values()
        keys = {f"{t.folder}/{name}": file.size for t in tables for name, file in t.files.items()}
        files = [(self._trail.file(key, snapshot.n), size) for key, size in keys.items()]
        new = [one for one in files if one[0] not in self._places]
        self._places |= zip((file for file, _ in new), parallel_map(self._storage, self._look, new), strict=True)
        return [file[0] for file, _ in files if self._places[file] is None]

    def _look(self, expected: tuple[File, int]) -> str | None:
        file, size = expected
        places = self._trail.places(file)
        if places[0] in self._live:
            return places[0]
        # After a rollback that was taken back itself a file may not have come as far as the log says.
        trashed = (place for place in places if place.startswith(self._trash) or place in self._stayed)
        return next((place for place in trashed if self._storage.size(place) == size), None)

    def place(self, key: str) -> str:
        """Where a file of the past is that was located."""
        return self._places[self._trail.file(key, self._then.n)] or ""

    def earliest(self) -> int | None:
        """The first later commit of which nothing is gone, None if there is none before the last one."""
        snapshot, voided = self._then, {record.voids for record in self._records}
        for record in self._records[:-1]:
            snapshot = snapshot.after(record)
            if record.n not in voided and not self.locate(snapshot):
                return record.n
        return None


def plan(log: Log, now: Snapshot, to: int) -> RollbackPlan:
    """Plan a rollback from `now` to commit `to`; nothing is written.

    Raises `SettingsError` for a commit that there is none of, or that was taken back, and `LakeError` for one that is
    not in the log any more, or whose files are not in the trash any more.
    """
    if to > now.n:
        hint = "`singer-bridge commits list` shows the commits"
        raise SettingsError("there is no such commit", hint=hint, commit=to, last=now.n)
    if to < (first := log.beginning().first) and (to, first) != (0, 1):  # at 0 there was nothing, and that is known
        hint = "records are kept for `retention.commits`, and as long as something needs them"
        raise LakeError("this commit is not in the log any more", hint=hint, commit=to, first=first)
    then, records = log.snapshot(to), []
    for record in log.history(now.n, fences=False):
        if record.n <= to:
            break
        if record.voids == to:
            hint = f"it lost files before they were visible; roll back to {to - 1}, or to {record.n}"
            raise SettingsError("this commit was taken back", hint=hint, commit=to)
        records.append(record)
    search = _Search(log, then, now, records[::-1])
    if missing := search.locate(then):
        raise _too_late(to, missing, search.earliest())
    staged = {stream: stage for stream, stage in now.staged.items() if then.staged.get(stream) == stage}
    restarted = then.staged.keys() - staged.keys()
    changes = (_change(stream, now, then, search) for stream in sorted({*now.tables, *then.tables}))
    return RollbackPlan(
        to=to,
        before=now.state,
        after=then.pipeline_state.without(restarted),
        staged=staged,
        tables=tuple(change for change in changes if change),
        restarted=tuple(sorted(restarted)),
        dropped=tuple(sorted(now.staged.keys() - staged.keys())),
        head=now.n,
    )


def _too_late(to: int, missing: list[str], earliest: int | None) -> LakeError:
    possible = (
        f"the earliest commit that can be restored is {earliest}"
        if earliest
        else "only the last commit can be restored"
    )
    hint = f"removed files are kept for `retention.trash`; {possible}; or load again: singer-bridge run NAME --full"
    more = {"and_others": len(missing) - 1} if len(missing) > 1 else {}
    return LakeError("a file of that commit is gone", hint=hint, commit=to, file=missing[0], **more)


def _change(stream: str, now: Snapshot, then: Snapshot, search: _Search) -> TableRollback | None:
    here = now.tables.get(stream)
    earlier = then.tables.get(stream) or TableState(here.folder if here else "", None)
    here = here or TableState(earlier.folder, None)
    back, retained = [], set()
    for name, file in sorted(earlier.files.items()):
        place = search.place(f"{earlier.folder}/{name}")
        folder, last = table_and_name(place)
        if folder == here.folder and last in here.files:
            retained.add(last)
        else:
            back.append(Back(name, place, file.size, file.rows))
    removed = tuple(name for name in here.files if name not in retained)
    unchanged = _facts(here) == _facts(earlier)
    if not back and not removed and unchanged:
        return None
    return TableRollback(stream, here, earlier, tuple(back), removed)


def _facts(table: TableState) -> tuple[Any, ...]:
    return table.schema, table.version, table.view, table.upserts, table.key, table.watermark, table.closes, table.masks


def roll_back(
    storage: Storage, pipeline: str, to: int, confirmed: RollbackPlan | None = None
) -> tuple[RollbackPlan, int, list[str]]:
    """Roll a pipeline back; return what was done, the last commit now, and what recovery had to do before.

    `confirmed` is the plan that somebody saw and agreed to: `CommitLost` is raised if it would be another one now.
    Raises `PipelineHeld` while a run is alive.
    """
    with open_pipeline(storage, pipeline, brief=True) as committer:
        outcome = _planned(committer, to, confirmed)
        if isinstance(outcome, RollbackPlan) and not outcome.nothing_to_do:
            commit_plan(committer, outcome, reason=f"rollback to commit {outcome.to}")
    if not isinstance(outcome, RollbackPlan):
        raise outcome  # out here: nothing was begun, so the lease is left in good order
    return outcome, committer.snapshot.n, committer.notes


def _planned(committer: Committer, to: int, confirmed: RollbackPlan | None) -> RollbackPlan | BridgeError:
    try:
        fresh = plan(committer.log, committer.snapshot, to)
    except BridgeError as error:
        return error
    if confirmed is not None and fresh != confirmed:
        hint = "look at it again: --dry-run shows what it would do now"
        return CommitLost("the lake has changed since it was shown", hint=hint, commit=committer.snapshot.n)
    return fresh


def commit_plan(committer: Committer, plan: RollbackPlan, **more: Unpack[Facts]) -> None:
    """Do what a plan says, by one commit of kind `rollback`; `more` are further facts of its record."""
    before = committer.snapshot
    changes = [_table_change(committer, change) for change in plan.tables]
    rejects, consumed = committer.snapshot.rejects_again(committer.log.snapshot(plan.to))
    facts: Facts = {"rejects": rejects, "consumed": consumed, "to": plan.to, "staged": plan.staged}
    facts |= more
    committer.commit(plan.after, changes, kind="rollback", **facts)
    StreamFiles(committer.log, before).follow(committer.snapshot)


def _table_change(committer: Committer, change: TableRollback) -> TableChange:
    now, then = change.now, change.then
    adds = []
    for seq, file in enumerate(change.back, 1):
        name = file_name(committer.generation, seq, beside=file.name)
        if now.has_own_log:  # nothing was moved: versions of the table that readers may still ask for name these files
            name = file.source.removeprefix(f"{now.folder}/")
        adds.append(FileAdd.of(name, file.source, then.files[file.name]))
    return structs.replace(then, folder=now.folder, format=now.format).change(
        change.stream,
        adds,
        change.removed,
        shared=owners_of(committer.storage, now.folder)[1],
        partition_by=None if then.partition_by == now.partition_by else then.partition_by,
    )


def follows_a_log(before: Any, after: Any, log_based: Collection[str] = ()) -> list[str]:
    """The streams whose bookmark differs and is a position in a database's log.

    Those in `log_based` are replicated so by the catalog; of the others their bookmarks' keys tell.
    """
    old, new = bookmarks(before), bookmarks(after)
    moved = (s for s in {**old, **new} if (s in old) != (s in new) or not same(old[s], new[s]))
    return [s for s in moved if s in log_based or any(_is_position(s, side.get(s)) for side in (old, new))]


def _is_position(key: str, value: Any) -> bool:
    if not isinstance(value, dict):
        return key in _POSITIONS
    return bool(_POSITIONS & value.keys()) or value.get("replication_key") in _POSITIONS
