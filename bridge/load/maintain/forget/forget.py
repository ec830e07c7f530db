"""Takes the rows of some keys out of a pipeline's part of a bucket.

```
lease -> recover -> search -> commit n, of kind `forget`: tables, views, half loaded tables and rejects without them
      -> commit n + 1, so that no recovery publishes n again -> delete files of no table that have them -> receipt
```
Whatever dies on the way: the next call searches again, finds what is left, and writes a receipt when all is done. A
rollback to a commit before n is refused from then on where it would need a file that was deleted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.compute as pc

from bridge.errors import CommitLost, SettingsError
from bridge.lake.commit.committer import FILES_CHANGED, Committer
from bridge.lake.commit.open import open_pipeline
from bridge.lake.file_records import FileAdd, RejectFile
from bridge.lake.log import Log, Snapshot
from bridge.lake.ownership import owners_of
from bridge.lake.records import TableChange
from bridge.lake.storage import Storage
from bridge.lake.stream_files import StreamFiles
from bridge.load.maintain.forget.keys import read_keys
from bridge.load.maintain.forget.receipt import Receipt, keep
from bridge.load.maintain.forget.survey import Occurrences, Survey
from bridge.load.maintain.pieces import Piece, columns_of_table, lacking_columns, merge
from bridge.load.maintain.rejects.rewrite import rewritten
from bridge.load.maintain.rejects.survey import read
from bridge.load.run.checks.forgotten import columns_in, has_table, related_to
from bridge.load.run.scratch import Scratch
from bridge.load.run.streams import Streams
from bridge.load.run.tables.table_plan import TablePlanner
from bridge.load.run.tables.views import ViewTables
from bridge.load.spark.at_need import SparkAtNeed
from bridge.load.tap.source import Source
from bridge.load.write.context import WriteContext
from bridge.load.write.layout import TableLayout
from bridge.load.write.task import write_empty
from bridge.settings.options import Pipeline

_NO_KEY = "the receipt has codes of the keys: make one with `openssl rand -hex 32`, and write mask_key: ${MASK_KEY}"


def outlook(
    storage: Storage, pipeline: Pipeline, home: Path, stream: str, texts: Sequence[str], *, required: bool = True
) -> dict[str, Any] | None:
    """The receipt that `forget` would write; nothing is changed. None, unless `required`, if nothing is of the stream.

    Raises `SettingsError` if rows cannot be found by such a key.
    """
    log = Log(storage, pipeline.name)
    snapshot = log.snapshot(log.latest())
    related = [stream, *(other for other, _ in related_to(pipeline, stream))]
    if not required and not any(has_table(pipeline, snapshot, one) for one in related):
        return None
    receipt, survey = _begun(log, pipeline, home, stream, texts, snapshot)
    _note(receipt, survey.occurrences())
    return receipt.to_json()


def forget(
    storage: Storage, pipeline: Pipeline, home: Path, stream: str, texts: Sequence[str]
) -> tuple[dict[str, Any], list[str]]:
    """Forget keys, as an operator writes them; returns the receipt, which is in the bucket, and what recovery did.

    Raises `PipelineHeld` while a run is alive, `SettingsError` if rows cannot be found by such a key.
    """
    with open_pipeline(storage, pipeline.name) as committer:
        receipt, survey = _begun(committer.log, pipeline, home, stream, texts, committer.snapshot)
        notes, occurrences = committer.notes, survey.occurrences()
        _note(receipt, occurrences)
        if occurrences.changes_tables:
            receipt.commits.append(_commit(committer, pipeline, home, survey, occurrences, receipt))
    # Opened again, as that deletes pending files of no half loaded table. What the commit removed is of no table now.
    with open_pipeline(storage, pipeline.name) as committer:
        occurrences = Survey(committer.log, pipeline, committer.snapshot, survey.columns, survey.keys).occurrences()
        if occurrences.changes_tables:
            hint = "run the same command again"
            raise CommitLost("a run brought rows of the key meanwhile", hint=hint, stream=stream)
        receipt.old_files = len(occurrences.old)
        if not occurrences.is_empty:
            _seal(committer, receipt)
        for key, rest in occurrences.old_rejects.items():
            if rest:
                storage.write(key, rest)
            else:
                storage.delete(key)
        for key in occurrences.old:
            storage.delete(key)
        scratch = Scratch(home, pipeline, committer.run)
        scratch.prepare(storage)  # deletes what dead runs left on this machine
        scratch.delete()
        keep(storage, receipt, committer.run)
    return receipt.to_json(), notes


def _begun(
    log: Log, pipeline: Pipeline, home: Path, stream: str, texts: Sequence[str], snapshot: Snapshot
) -> tuple[Receipt, Survey]:
    if not pipeline.mask_key:
        raise SettingsError("to forget needs mask_key", hint=_NO_KEY)
    catalog = Source(pipeline, home).catalogs.read()
    declared = Streams(pipeline, catalog, snapshot).expected(pipeline.names_of(stream)[0]).keys
    columns = columns_in(pipeline, snapshot, stream, declared)
    survey = Survey(log, pipeline, snapshot, columns, read_keys(texts, len(columns[0][1])))
    receipt = Receipt(pipeline.name, stream, sorted({survey.code_of(key) for key in survey.keys}))
    receipt.streams = sorted(survey.tables.keys() | survey.targets.keys())
    receipt.not_searched += survey.left
    return receipt, survey


def _note(receipt: Receipt, occurrences: Occurrences) -> None:
    receipt.searched = occurrences.searched
    for name, files in occurrences.tables.items():
        receipt.tables[name] = {"rows": sum(files.values()), "files": len(files)}
    receipt.rejects = sum(occurrences.rejects.values()) + len(occurrences.old_rejects)
    receipt.staged = sorted(occurrences.staged)
    receipt.old_files = len(occurrences.old)


def _commit(
    committer: Committer, pipeline: Pipeline, home: Path, survey: Survey, occurrences: Occurrences, receipt: Receipt
) -> int:
    """Commit tables, views, half loaded tables and rejects without the rows; returns the commit's number."""
    snapshot, storage = committer.snapshot, committer.storage
    planner = TablePlanner(storage, pipeline, snapshot, None, full=False, append=False)
    layouts = {name: _layout(pipeline, committer, name) for name in occurrences.tables}
    scratch = Scratch(home, pipeline, committer.run)
    run = committer.run, committer.generation, planner.layouts | layouts
    context = WriteContext.of(pipeline, storage.uri, *run, str(scratch.spool))
    changes = {name: _without(committer, context, survey, name, files) for name, files in occurrences.tables.items()}
    scratch.prepare(storage)
    try:
        with SparkAtNeed(pipeline, scratch.spark, context) as spark:
            views = ViewTables(pipeline, committer, context, planner, spark.in_spark) if pipeline.views else None
            context.layouts.update(planner.layouts | layouts)
            for change in _changed_views(views, changes, len(changes)) if views else ():
                receipt.tables.setdefault(change.stream, {"rows": 0, "files": len(change.removes)})
            remaining, consumed = _rejects(committer, survey, occurrences)
            record = committer.commit(
                snapshot.pipeline_state.without(occurrences.staged.keys()),
                list(changes.values()),
                kind="forget",
                staged={name: one for name, one in snapshot.staged.items() if name not in occurrences.staged},
                rejects=remaining,
                consumed=consumed,
                reason=f"{len(receipt.keys)} key(s) of {receipt.stream} were forgotten",
            )
            if views:
                views.committed(list(changes.values()))
    finally:
        scratch.delete()
    StreamFiles(committer.log, snapshot).follow(committer.snapshot)
    return record.n


def _layout(pipeline: Pipeline, committer: Committer, name: str) -> TableLayout:
    table = committer.snapshot.tables[name]
    layout = TableLayout.of(pipeline, name, table.folder, table.format, table.partition_by)
    return replace(layout, readable=bool(pipeline.views))


def _without(
    committer: Committer, context: WriteContext, survey: Survey, name: str, files: dict[str, int]
) -> TableChange:
    """The change of a table whose files are written anew without the rows of the keys."""
    table, target = committer.snapshot.tables[name], survey.tables[name]
    columns, lacking = columns_of_table(committer, table), lacking_columns(committer.log, table, list(files))
    adds: list[FileAdd] = []
    for seq, (file, rows) in enumerate(files.items(), 1):
        live = table.files[file]
        piece = Piece(
            name,
            file.rpartition("/")[0],
            (file,),
            live.size,
            live.rows - rows,
            live.version,
            live.deleted,
            live.stale,
            lacking[file],
        )
        adds += merge(context, seq, piece, columns, lambda part: pc.invert(target.among(part)))
    if not adds and len(files) == len(table.files):
        adds = [write_empty(context, len(files) + 1, name, columns).add()]
    shared = owners_of(committer.storage, table.folder)[1]
    return table.change(name, adds, list(files), shared=shared)


def _changed_views(views: ViewTables, changes: dict[str, TableChange], seq: int) -> Iterator[TableChange]:
    """Change the views of tables that change, and yield what changes; closed windows of a view that we write anew stay
    so."""
    for view in views.views:
        source = views.feeds(view, changes)
        for change in views.build(view, source, seq + 1) if source else ():
            if change.stream not in changes:
                changes[change.stream] = change
                yield change


def _rejects(committer: Committer, survey: Survey, occurrences: Occurrences) -> tuple[list[RejectFile], list[str]]:
    """New reject files with what remains of those that have such records, and the keys of the old ones."""
    remaining: list[RejectFile] = []
    for key in occurrences.rejects:
        file = committer.snapshot.rejects[key]
        stay = [one for one in read(committer.storage, file) if not survey.is_of_key(file, one)]
        remaining += [rewritten(committer, file, stay)] if stay else []
    return remaining, list(occurrences.rejects)


def _seal(committer: Committer, receipt: Receipt) -> None:
    """Make a commit that changes no file the last one: its recovery needs none that is deleted now."""
    last = next(committer.log.history(committer.snapshot.n, fences=False), None)
    if last and last.kind in FILES_CHANGED:
        snapshot = committer.snapshot
        record = committer.create(
            "state", snapshot.pipeline_state, staged=snapshot.staged, reason="files with forgotten keys are deleted"
        )
        committer.write_state()
        receipt.commits.append(record.n)
