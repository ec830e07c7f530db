"""Merges small files of a table into a few of the right size, by one commit of kind `compact`; rows and STATE stay.

Guarantee: the rows before and after are the same, counted file by file. The new files are sorted as the settings say.
They have all columns that the table has now, but for columns of its key which the old ones lack: a row that is older
than a column of its key has none. Files of another pipeline that shares the table stay. Old files go to the trash, as
with any commit, and a rollback brings them back.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone

from bridge.lake.commit.committer import Committer
from bridge.lake.commit.open import open_pipeline
from bridge.lake.file_records import FileAdd
from bridge.lake.log import Log, Snapshot
from bridge.lake.ownership import owners_of
from bridge.lake.records import TableChange, TableState
from bridge.lake.storage import Storage
from bridge.lake.storage.parallel import parallel_map
from bridge.lake.stream_files import StreamFiles
from bridge.lake.times import read_time
from bridge.load.maintain.pieces import Piece, columns_of_table, lacking_columns, merge
from bridge.load.write.context import WriteContext
from bridge.load.write.layout import TableLayout
from bridge.load.write.partition import NULL
from bridge.settings.options import Pipeline

_SMALL = 0.75
"""A file is small below this fraction of the requested size."""
_AT_ONCE = 8
"""One thread's work is the bytes of at most so many new files, of which the last may come out small."""
_TINY = 4
"""Files are tiny if this many or more fit into one."""


@dataclass(frozen=True, slots=True)
class CompactOptions:
    """A choice of files: some tables or all, files added long enough ago or all. `file_size` overrides the settings."""

    streams: frozenset[str] = frozenset()
    file_size: int | None = None
    older_than: timedelta | None = None


@dataclass(slots=True)
class Compacted:
    """The result of a compaction: the files joined, and those written, by stream. `head` is the last commit."""

    head: int
    pieces: list[Piece]
    written: dict[str, list[FileAdd]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def pieces(log: Log, snapshot: Snapshot, pipeline: Pipeline, options: CompactOptions) -> list[Piece]:
    """The pieces that are worth compacting; each has fewer files afterwards."""
    fresh = _fresh(log, snapshot.n, datetime.now(timezone.utc) - options.older_than) if options.older_than else set()
    result: list[Piece] = []
    for stream, table in sorted(snapshot.tables.items()):
        if table.view:
            continue  # each change rewrites its files
        if not options.streams or stream in options.streams:
            file_size = _layout(pipeline, stream, table, options).file_size
            small = [name for name, file in table.files.items() if file.size < _SMALL * file_size]
            names = [name for name in small if f"{table.folder}/{name}" not in fresh]
            result += _pieces(stream, table, lacking_columns(log, table, names), file_size)
    return result


def by_table(pieces: Sequence[Piece]) -> dict[str, dict[str, int]]:
    """Sum up, by stream, the files that are replaced."""
    tables: dict[str, dict[str, int]] = {}
    for one in pieces:
        facts = tables.setdefault(one.stream, {"partitions": 0, "files": 0, "bytes": 0, "rows": 0})
        facts["partitions"] += 1
        facts["files"] += len(one.names)
        facts["bytes"] += one.size
        facts["rows"] += one.rows
    for stream, facts in tables.items():
        facts["partitions"] = len({one.folder for one in pieces if one.stream == stream})
    return tables


def _fresh(log: Log, head: int, since: datetime) -> set[str]:
    """The keys of files added by commits after this moment."""
    keys: set[str] = set()
    for record in log.history(head, fences=False):
        if read_time(record.at) <= since:
            break
        keys |= {f"{change.folder}/{add.name}" for change in record.tables for add in change.adds}
    return keys


def _pieces(stream: str, table: TableState, names: Mapping[str, tuple[str, ...]], file_size: int) -> Iterator[Piece]:
    """Divide files, each with the columns that it lacks, into pieces."""
    alike: dict[tuple[str, int | None, int, int, tuple[str, ...]], list[str]] = {}
    for name in sorted(names, key=lambda name: name.rpartition("/")[2]):  # the order in which they were written
        file = table.files[name]
        kind = (name.rpartition("/")[0], file.version, file.deleted, file.stale, names[name])
        alike.setdefault(kind, []).append(name)
    for kind in sorted(alike, key=lambda kind: (kind[0], kind[1] is not None, kind[1] or 0, *kind[2:])):
        folder, version, deleted, stale, lacking = kind
        for share in _shares(alike[kind], table, file_size):
            size = sum(table.files[name].size for name in share)
            rows = sum(table.files[name].rows for name in share)
            if -(-size // file_size) + _values(table, folder) - 1 < len(share):
                yield Piece(stream, folder, tuple(share), size, rows, version, deleted, stale, lacking)


def _values(table: TableState, folder: str) -> int:
    """How many values the rows of a folder may have that do not share a file."""
    return 2 ** folder.count(f"={NULL}") if table.format == "iceberg" else 1


def _shares(names: Sequence[str], table: TableState, file_size: int) -> list[list[str]]:
    """Divide files into shares, one for each thread: a few new files each, or one share a core if files are tiny."""
    sizes = [table.files[name].size for name in names]
    total = sum(sizes)
    count = -(-total // file_size)
    each = min(-(-count // _cores()) if len(names) >= _TINY * count else _AT_ONCE, _AT_ONCE)
    threads = -(-count // each)
    if threads * -(-(total / threads + max(sizes)) // file_size) <= count:  # as few files as otherwise
        return _even(names, sizes, threads)
    limit = each * file_size
    shares: list[list[str]] = [[]]
    filled = 0
    for name, size in zip(names, sizes, strict=True):
        if filled and filled + size > limit:
            shares.append([])
            filled = 0
        shares[-1].append(name)
        filled += size
    if len(shares) > 1 and len(shares[-1]) == 1:
        last = shares.pop()
        shares[-1] += last
    return shares


def _even(names: Sequence[str], sizes: Sequence[int], count: int) -> list[list[str]]:
    """Divide files into shares of about the same size, so that no thread works while another has nothing to do."""
    shares: list[list[str]] = [[] for _ in range(count)]
    before, total = 0, sum(sizes)
    for name, size in zip(names, sizes, strict=True):
        shares[before * count // total].append(name)
        before += size
    return shares


def _cores() -> int:
    return os.cpu_count() or 1


def _layout(pipeline: Pipeline, stream: str, table: TableState, options: CompactOptions) -> TableLayout:
    layout = TableLayout.of(pipeline, stream, table.folder, table.format, table.partition_by)
    return replace(layout, file_size=options.file_size) if options.file_size else layout


def compact(
    storage: Storage,
    pipeline: Pipeline,
    options: CompactOptions,
    progress: Callable[[int, int], None] = lambda _finished, _all: None,
) -> Compacted:
    """Compact what is worth it, under the lease; `progress` is called with the finished and the total number of pieces.

    Raises `PipelineHeld` while a run is alive. Whatever crashes, readers see the old files of a commit or the new ones.
    """
    with open_pipeline(storage, pipeline.name) as committer:
        todo = pieces(committer.log, committer.snapshot, pipeline, options)
        result = Compacted(committer.snapshot.n, todo, notes=committer.notes)
        if todo:
            result.written = _rewritten(committer, pipeline, options, todo, progress)
            _commit(committer, result)
    return result


def _rewritten(
    committer: Committer,
    pipeline: Pipeline,
    options: CompactOptions,
    todo: list[Piece],
    progress: Callable[[int, int], None],
) -> dict[str, list[FileAdd]]:
    snapshot, run, generation = committer.snapshot, committer.run, committer.generation
    layouts = {one.stream: _layout(pipeline, one.stream, snapshot.tables[one.stream], options) for one in todo}
    columns = {stream: columns_of_table(committer, snapshot.tables[stream]) for stream in layouts}
    context = WriteContext.of(pipeline, committer.storage.uri, run, generation, layouts)
    written: dict[str, list[FileAdd]] = {}
    with ThreadPoolExecutor(_cores(), thread_name_prefix="compact") as threads:
        futures = [threads.submit(merge, context, seq, one, columns[one.stream]) for seq, one in enumerate(todo, 1)]
        try:
            for number, (one, future) in enumerate(zip(todo, futures, strict=True), 1):
                written.setdefault(one.stream, []).extend(future.result())
                progress(number, len(todo))
        finally:
            threads.shutdown(cancel_futures=True)
    return written


def _commit(committer: Committer, result: Compacted) -> None:
    storage, snapshot = committer.storage, committer.snapshot
    changes = parallel_map(storage, lambda stream: _change(storage, snapshot, result, stream), list(result.written))
    committer.commit(
        snapshot.pipeline_state, list(changes), kind="compact", staged=snapshot.staged, reason="small files were joined"
    )
    StreamFiles(committer.log, snapshot).follow(committer.snapshot)
    result.head = committer.snapshot.n


def _change(storage: Storage, snapshot: Snapshot, result: Compacted, stream: str) -> TableChange:
    table = snapshot.tables[stream]
    removes = [name for one in result.pieces if one.stream == stream for name in one.names]
    return table.change(stream, result.written[stream], removes, shared=owners_of(storage, table.folder)[1])
