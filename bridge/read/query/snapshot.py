"""One pipeline as a reader sees it: its tables at one commit, each an Arrow dataset."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import Future
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.dataset as ds

from bridge.errors import LakeError, SettingsError, did_you_mean
from bridge.lake.commit.state_file import read_state_file
from bridge.lake.log import Log, Snapshot, storage_changes
from bridge.lake.paths import folder_name
from bridge.lake.records import TableState
from bridge.lake.runs import RunRecord, any_run
from bridge.lake.schemas import columns_of
from bridge.lake.storage.parallel import parallel_map
from bridge.read.query.dataset import PythonDataset
from bridge.read.query.files import CommitFiles


@dataclass(frozen=True, slots=True)
class TablesAt:
    """The tables of one pipeline after one commit."""

    log: Log
    snapshot: Snapshot
    opened: dict[str, CommitFiles] = field(default_factory=dict)
    """The files of the tables that were asked for, by stream."""
    records: dict[str, Future[RunRecord | None]] = field(default_factory=dict)
    """The records of runs that were asked for, by id."""

    @classmethod
    def of(cls, log: Log, at: int | None) -> TablesAt:
        """The tables at commit `at`, or at the last one whose files are all visible.

        Raises `SettingsError` for a number that the log does not have yet, `LakeError` for one that it no longer has,
        and for one whose files are not all visible yet.
        """
        head = log.latest()
        if at is not None and not 0 <= at <= head:
            hint = f"the last one is {head}" if head else "nothing was loaded yet"
            raise SettingsError("there is no such commit", hint=hint, pipeline=log.pipeline, commit=at)
        if at is not None and at < _last_change(log, head):
            return cls(log, log.snapshot(at))
        shown = visible(log, log.snapshot(head))
        if at is not None and at > shown.n:
            hint = f"a run is about to publish it; if none is, `singer-bridge recover {log.pipeline}` finishes it"
            raise LakeError("this commit is not visible yet", hint=hint, pipeline=log.pipeline, commit=at)
        return cls(log, shown if at in (None, shown.n) else log.snapshot(at))

    def run(self, run_id: str) -> RunRecord | None:
        """The record of a run, which is read once, whichever thread asks; None if there is none any more."""
        mine = Future[RunRecord | None]()
        if (first := self.records.setdefault(run_id, mine)) is mine:
            try:
                mine.set_result(any_run(self.log.storage, self.log.pipeline, run_id))
            except BaseException as error:  # noqa: BLE001 - whatever it was, whoever asked gets it
                mine.set_exception(error)
        return first.result()

    @property
    def names(self) -> dict[str, str]:
        """Streams by their tables' names in SQL. If two differ only in case, each is named by its folder."""
        same = Counter(stream.casefold() for stream in self.snapshot.tables)
        names = {stream: stream for stream in sorted(self.snapshot.tables) if same[stream.casefold()] == 1}
        for stream in sorted(self.snapshot.tables.keys() - names.keys()):
            folder = self.snapshot.tables[stream].folder.rpartition("/")[2]
            names[folder_name(folder, names)] = stream
        return names

    def table(self, stream: str) -> TableState:
        """A table by its stream, or a view by its name. Raises `SettingsError` if there is no such one."""
        tables = self.snapshot.tables
        if stream not in tables:
            hint = did_you_mean(stream, tables) or f"there are: {', '.join(sorted(tables)) or 'none'}"
            raise SettingsError("no such table", hint=hint, pipeline=self.log.pipeline, stream=stream)
        return tables[stream]

    def dataset(self, stream: str) -> ds.Dataset:
        """The rows of a table, with the columns that it has now; a column that older files lack is null."""
        table = self.table(stream)
        schema = self.columns(table)
        if not table.files:
            return ds.dataset(pa.table([pa.array([], one.type) for one in schema], schema=schema))
        files = self.opened[stream] = CommitFiles(self.log, self.snapshot.n, table)
        return PythonDataset.of(sorted(table.files), schema, files)

    def columns(self, table: TableState) -> pa.Schema:
        """See `columns_of`."""
        return columns_of(self.log.storage, self.log.pipeline, table)

    def raise_failed(self) -> None:
        """Raise what kept a file of a dataset from being opened, if anything did."""
        for files in self.opened.values():
            # Kept, it would be part of a cycle with its own traceback, and so keep the engine alive at the end.
            failed, files.failed = files.failed, None
            if failed is not None:
                raise failed


def _last_change(log: Log, head: int) -> int:
    """The last commit that is no fence, of which alone files may not be visible yet."""
    record = log.record(head) if head else None
    return record.after if record is not None and record.after is not None else head


def visible(log: Log, snapshot: Snapshot, before: Snapshot | None = None) -> Snapshot:
    """The lake after the last commit whose files are all visible. `snapshot`: after the last; `before`: an older one.

    Only the last commit that is no fence may be unfinished: under way, or left by a run that died. A reader does not
    wait for it, but takes the commit before it, because half of its files may be missing.
    """
    record = log.record(snapshot.last_change) if snapshot.last_change else None
    if record is None or not record.tables:
        return snapshot
    changes = storage_changes(log.pipeline, record)
    rewrites = [one.add for change in changes for one in change.rewrites]
    adds = [*(add for change in changes for add in change.adds), *rewrites]
    sizes = parallel_map(log.storage, lambda add: log.storage.size(add.key), adds)
    hidden = [add for add, size in zip(adds, sizes, strict=True) if size != add.size]
    # Of a commit that was published whole, a hidden file was deleted by somebody: reading it says so.
    if not (hidden or rewrites) or read_state_file(log.storage, log.pipeline).published()[0] >= record.n:
        return snapshot
    # A file that is rewritten under its name may have as many bytes as before: is the new one still pending?
    if not hidden and len(log.storage.missing_pending(rewrites)) == len(rewrites):
        return snapshot
    last = (record.voids or record.n) - 1
    return before if before is not None and before.n == last else log.snapshot(last)
