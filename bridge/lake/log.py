"""The commit log of one pipeline: numbered records, the only truth about files and STATE.

The numbers of `commits/<20 digits>.json` have no gaps. Records are created by put-if-absent and never changed. Every
100th carries a snapshot of the lake, so reading the present lake costs at most a hundred small reads, however long the
history is. When old records have been deleted (`retention.commits`), the log begins at a snapshot; `begins.json` says
at which.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from msgspec import ValidationError, structs

from bridge.errors import CommitExpired, CorruptLake, LakeError
from bridge.exact_json import NotJson, as_number, dumps, loads
from bridge.lake.file_records import FileAdd, PendingFile, RejectFile
from bridge.lake.paths import pipeline_key, removed_key, trash_of
from bridge.lake.pipeline_state import PipelineState
from bridge.lake.record_json import commit_bytes, read_commit
from bridge.lake.record_keys import foreign_key
from bridge.lake.records import FORMAT, CommitRecord, StagedTable, TableChange, TableState
from bridge.lake.storage import Add, Change, Remove, Rewrite, Storage
from bridge.lake.storage.parallel import parallel_map
from bridge.lake.times import read_time
from bridge.protocol.singer.state import bookmark, resume_points

SNAPSHOT_EVERY = 100
_STEPS = 100
"""Up to so many records after a known one are looked for one by one; beyond that, listing all is cheaper."""
_RESTORE = "restore this file from a backup of the bucket; nothing was read past it and nothing was changed"
_RECORD = re.compile(r"[0-9]{20}\.json")


def bookmarks(state: Any) -> dict[str, Any]:
    """The bookmarks of a STATE by stream; of a flat STATE, its values by key."""
    if not isinstance(state, dict):
        return {}
    inner = state.get("bookmarks")
    return inner if isinstance(inner, dict) else {k: v for k, v in state.items() if k != "currently_syncing"}


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The lake after commit `n`: STATE, tables, and the staged files of a full table that its tap can resume.

    `bookmark_changed_at` is by stream, in ISO 8601. `last_change` is the last commit that is no fence. `rejects` are
    the reject files that count, by key: without those of a table that was replaced since, and those replayed or purged.
    """

    n: int = 0
    pipeline_state: PipelineState = field(default_factory=PipelineState)
    tables: dict[str, TableState] = field(default_factory=dict)
    staged: dict[str, StagedTable] = field(default_factory=dict)
    bookmark_changed_at: dict[str, str] = field(default_factory=dict)
    last_change: int = 0
    rejects: dict[str, RejectFile] = field(default_factory=dict)

    @property
    def state(self) -> Any:
        """The one STATE that stands for all processes of the tap."""
        return self.pipeline_state.shown

    @property
    def stream_tables(self) -> dict[str, TableState]:
        """The tables that hold a stream's rows."""
        return {name: table for name, table in self.tables.items() if not table.is_of_view}

    def table(self, names: Iterable[str]) -> TableState | None:
        """The table of a stream that has these names, None if it has none yet."""
        return next((self.tables[name] for name in names if name in self.tables), None)

    def version(self, stream: str) -> int | None:
        """The `version` of a stream's rows: of the staged ones if there are any, else of its table."""
        if stage := self.staged.get(stream):
            return stage.version
        return self.tables[stream].version if stream in self.tables else None

    def given(self, state: Any) -> Snapshot:
        """The lake after an operator gave `state`."""
        return replace(self, pipeline_state=self.pipeline_state.given(state), staged=self.still_staged(state))

    def still_staged(self, state: Any) -> dict[str, StagedTable]:
        """The tables that stay staged after a change of STATE: those whose bookmark is the same in both.

        From another bookmark the tap would not continue after their rows.
        """
        before, still = self.state, dict[str, StagedTable]()
        elsewhere = resume_points(before) != resume_points(state)
        for stream, stage in self.staged.items():
            now, then = bookmark(state, stream), bookmark(before, stream)
            # Without a bookmark under this name, any bookmark that moved may be the stream's, under another name.
            if now == then and not (then is None and elsewhere):
                still[stream] = stage
        return still

    def after(self, record: CommitRecord) -> Snapshot:
        """The view after one more record."""
        tables = dict(self.tables)
        for change in record.tables:
            table = tables.get(change.stream) or TableState(change.folder, None)
            tables[change.stream] = table.after(change)
        last = self.last_change if record.kind == "fence" else record.n
        state = PipelineState(record.state, record.groups)
        moved, rejects = self._moved(record), self._rejects(record)
        return Snapshot(record.n, state, tables, record.staged, moved, last, rejects)

    def _rejects(self, record: CommitRecord) -> dict[str, RejectFile]:
        replaced = {change.stream for change in record.tables if change.replaces}
        if not (record.rejects or record.consumed or (replaced and self.rejects)):
            return self.rejects
        removed = set(record.consumed)
        retained = {f: r for f, r in self.rejects.items() if f not in removed and r.stream not in replaced}
        new = (r if r.commit is not None else structs.replace(r, commit=record.n) for r in record.rejects)
        return retained | {reject.file: reject for reject in new}

    def rejects_again(self, then: Snapshot) -> tuple[list[RejectFile], list[str]]:
        """The `rejects` and `consumed` of a record that restores the rejects of an earlier view."""
        back = [reject for file, reject in then.rejects.items() if self.rejects.get(file) != reject]
        return back, [file for file in self.rejects if file not in then.rejects]

    def _moved(self, record: CommitRecord) -> dict[str, str]:
        if record.state == self.state:
            return self.bookmark_changed_at
        old, at = bookmarks(self.state), self.bookmark_changed_at
        return {
            stream: at.get(stream, record.at) if stream in old and old[stream] == bookmark else record.at
            for stream, bookmark in bookmarks(record.state).items()
        }


@dataclass(frozen=True, slots=True)
class Beginning:
    """Where the log begins: at record `first`. Records below `swept` are deleted; those between may still exist."""

    first: int = 1
    swept: int = 1


class Log:
    """Reads the log and creates its next record. Raises `CorruptLake` rather than guess at an unreadable record."""

    def __init__(self, storage: Storage, pipeline: str) -> None:
        self.storage = storage
        self.pipeline = pipeline

    def key(self, n: int) -> str:
        return pipeline_key(self.pipeline, "commits", f"{n:020d}.json")

    def record(self, n: int) -> CommitRecord | None:
        """Record `n`, or None if it does not exist."""
        data = self.storage.read(self.key(n))
        if data is None:
            return None
        try:
            raw = loads(data)
            if raw["format"] > FORMAT:
                hint = "upgrade singer-bridge: a newer version wrote this bucket"
                raise CorruptLake("the commit log has a newer format", hint=hint, file=self.key(n))
            if raw["n"] != n or "state" not in raw:
                raise KeyError("n")
            record = read_commit(raw)
            for time in (record.at, *filter(None, (record.moved or {}).values())):
                read_time(time)
        except ValidationError as error:
            raise CorruptLake("a commit record is incomplete", hint=_RESTORE, file=self.key(n)) from error
        except (NotJson, KeyError, TypeError, ValueError) as error:  # UnicodeEncodeError: half of a character
            raise CorruptLake("a commit record is unreadable", hint=_RESTORE, file=self.key(n)) from error
        if (key := foreign_key(self.pipeline, record)) is not None:
            hint = "somebody else wrote it: see who may write to the bucket; nothing was changed"
            raise CorruptLake("a commit record names a file of another place", hint=hint, file=self.key(n), key=key)
        return record

    def head(self, hint: int | None = None) -> int:
        """The number of the last record, 0 for none. If record `hint` exists, no listing is needed."""
        if hint and self.exists(hint):
            for n in range(hint, hint + _STEPS):
                if not self.exists(n + 1):
                    return n
        names = self.storage.list(pipeline_key(self.pipeline, "commits"))
        n = int(max((name for name in names if _RECORD.fullmatch(name)), default="0")[:20])
        while self.exists(n + 1):
            n += 1
        return n

    def latest(self) -> int:
        """The head, for readers: counted on from the number in the lease, without a listing."""
        try:
            lease = loads(self.storage.read(pipeline_key(self.pipeline, "lease.json")) or b"{}")
        except NotJson:  # it is being written, or its writer died
            lease = {}
        try:
            return self.head(as_number(lease["head"]))
        except (KeyError, TypeError):  # none, or not ours
            return self.head()

    def exists(self, n: int) -> bool:
        """Whether record `n` is there."""
        return self.storage.size(self.key(n)) is not None

    def beginning(self) -> Beginning:
        """Where the log begins. Raises `CorruptLake` if the file that says it is unreadable."""
        key = pipeline_key(self.pipeline, "begins.json")
        data = self.storage.read(key)
        if data is None:
            return Beginning()
        try:
            document = loads(data)
            return Beginning(as_number(document["first"]), as_number(document["swept"]))
        except (NotJson, KeyError, TypeError, ValueError) as error:
            hint = "restore it, or write into `first` and `swept` the lowest multiple of 100 that has a record"
            raise CorruptLake("where the commit log begins is unreadable", hint=hint, file=key) from error

    def begin_at(self, beginning: Beginning) -> None:
        """Let the log begin at a snapshot; older records may be deleted only after this."""
        document = {"format": FORMAT, "first": beginning.first, "swept": beginning.swept}
        self.storage.write(pipeline_key(self.pipeline, "begins.json"), dumps(document))

    def snapshot(self, n: int) -> Snapshot:
        """The lake after commit `n`."""
        start = n - n % SNAPSHOT_EVERY
        snapshot = self._snapshot(self._existing(start, n)) if start else Snapshot()
        for record in parallel_map(self.storage, lambda number: self._existing(number, n), range(start + 1, n + 1)):
            snapshot = snapshot.after(record)
        return snapshot

    def _snapshot(self, record: CommitRecord) -> Snapshot:
        """The lake after a record that has a snapshot."""
        n, tables = record.n, record.snapshot
        if tables is None:
            raise CorruptLake("a commit record is incomplete", hint=_RESTORE, file=self.key(n))
        moved = dict.fromkeys(bookmarks(record.state), record.at) if record.moved is None else record.moved
        last_change = n if record.kind != "fence" or record.after is None else record.after
        state = PipelineState(record.state, record.groups)
        return Snapshot(n, state, tables, record.staged, moved, last_change, record.rejected or {})

    def _existing(self, n: int, asked: int) -> CommitRecord:
        """Record `n`, without which the lake at commit `asked` cannot be known."""
        record = self.record(n)
        if record is not None:
            return record
        first = self.beginning().first
        if n < first:
            hint = "records are kept for `retention.commits`, and as long as something needs them"
            raise CommitExpired("this commit is not in the log any more", hint=hint, commit=asked, first=first)
        hint = "restore it from a backup of the bucket; without it the state cannot be known"
        raise CorruptLake("a commit record is missing", hint=hint, file=self.key(n))

    def history(self, head: int, *, fences: bool = True) -> Iterator[CommitRecord]:
        """Yield the records from `head` back to the first. Without `fences`, a row of them is skipped in one step."""
        n, first = head, self.beginning().first
        while n >= first:
            record = self.record(n)
            if record is None and n < self.beginning().first:
                return  # a run that ended meanwhile has deleted the oldest records
            record = record or self._existing(n, n)
            if fences or record.kind != "fence":
                yield record
                n -= 1
            else:
                n = n - 1 if record.after is None else min(record.after, n - 1)

    def _existing_rejects(self, rejects: dict[str, RejectFile]) -> dict[str, RejectFile]:
        """The reject files that retention has not deleted; without this, snapshots would grow for ever."""
        folders = {file.rpartition("/")[0] for file in rejects}
        existing = {f"{folder}/{name}" for folder in folders for name in self.storage.list(folder)}
        return {file: reject for file, reject in rejects.items() if file in existing}

    def create(self, snapshot: Snapshot, record: CommitRecord) -> tuple[bool, Snapshot]:
        """Put record `view.n + 1` if it is absent; return whether we created it, and the view after it."""
        if (key := foreign_key(self.pipeline, record)) is not None:  # nobody could read the record
            raise LakeError("a file's name cannot be kept in the commit log", hint="rename or remove the file", key=key)
        after = snapshot.after(record)
        if after.n % SNAPSHOT_EVERY == 0:
            after = replace(after, rejects=self._existing_rejects(after.rejects))
            moved = after.bookmark_changed_at
            record = structs.replace(record, snapshot=after.tables, moved=moved, rejected=after.rejects)
        return self.storage.put_if_absent(self.key(after.n), commit_bytes(record)), after


def add_of(folder: str, file: FileAdd | PendingFile) -> Add:
    """The `Add` by which a file that a record or a report names gets into its table's folder."""
    return Add(file.source, f"{folder}/{file.name}", file.size, file.upload)


def storage_changes(pipeline: str, record: CommitRecord) -> list[Change]:
    """The changes that this record makes to the table folders. A file removed and added under one name is rewritten."""
    changes = []
    for table in record.tables:
        folder = table.folder
        trash = trash_of(pipeline, record.n, folder)
        # In a table with a log of its own a removed file stays where it is, for time travel.
        removes = [] if table.has_own_log else table.removes
        removed = {f"{folder}/{name}": removed_key(trash, name) for name in removes}
        # Adopted files are in place already: there is nothing to move, and no source to delete.
        adds = [add for file in table.adds if (add := add_of(folder, file)).source != add.key]
        new = {add.key for add in adds}
        changes.append(
            Change(
                folder,
                tuple(add for add in adds if add.key not in removed),
                tuple(Remove(key, place) for key, place in removed.items() if key not in new),
                replace=table.replaces and not table.has_own_log,
                trash=trash,
                aborts=tuple(add_of(folder, add) for add in table.aborts),
                rewrites=tuple(Rewrite(add, removed[add.key]) for add in adds if add.key in removed),
            )
        )
    return changes


def undo(
    pipeline: str, record: CommitRecord, before: Snapshot, rewritten: Mapping[str, str] | None = None
) -> list[TableChange]:
    """The changes that take `record` back. Files that it wanted to restore from the trash stay there.

    `rewritten` are the keys of files that are rewritten already (`Storage.settle_rewrites`), each with the new name
    under which its old bytes come back. It is new because a store may finish a copy late, and that must not undo a
    later commit. The other files that the record rewrites keep their old bytes.
    """
    names, pending = rewritten or {}, pipeline_key(pipeline, "pending", "")
    return [
        _undone(table, change, before.tables.get(table.stream), names, pending)
        for table, change in zip(record.tables, storage_changes(pipeline, record), strict=True)
    ]


def _undone(
    table: TableChange, change: Change, before: TableState | None, names: Mapping[str, str], pending: str
) -> TableChange:
    old, folder = before or TableState(table.folder, None), table.folder
    trash = {remove.key: remove.trash for remove in change.removes}
    trash |= {one.add.key: one.trash for one in change.rewrites if one.add.key in names}
    same = {one.add.key for one in change.rewrites} - trash.keys()
    back = [
        FileAdd.of(names.get(key := f"{folder}/{name}", name), trash.get(key, key), old.files[name])
        for name in table.removes
    ]
    return structs.replace(old, folder=folder, format=table.format).change(
        table.stream,
        back,
        [add.name for add in table.adds if f"{folder}/{add.name}" not in same],
        aborts=[add for add in table.adds if add.source.startswith(pending)],
        shared=table.shared,
        partition_by=None if table.partition_by is None else old.partition_by,
    )
