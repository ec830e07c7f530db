"""`run --adopt`: makes Parquet files that were in a table's folder before us part of the table.

The files stay where they are. A commit of its own names them before the tap starts, with the STATE unchanged.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import structs

from bridge.errors import DataError, LakeError, SettingsError
from bridge.lake.commit.committer import Committer
from bridge.lake.file_records import FileAdd
from bridge.lake.ownership import Owner, claim, strangers
from bridge.lake.paths import folder_name
from bridge.lake.records import TableChange, TableState
from bridge.lake.schemas import keep_schema, read_schema
from bridge.lake.storage import Storage
from bridge.lake.storage.parallel import parallel_map
from bridge.load.run.streams import StreamPlan, Streams
from bridge.protocol.schema.merging import Evolution
from bridge.protocol.schema.table_schema import TableSchema, merge
from bridge.protocol.schema.widening import stands_beside
from bridge.settings.options import Pipeline

_PLAIN = {pa.large_string(): pa.string(), pa.string_view(): pa.string()}
_READABLE = "the file's columns must have types that singer-bridge writes itself: write it anew, or load the rows again"


def adopt(committer: Committer, pipeline: Pipeline) -> None:
    """Adopt the unknown Parquet files below the pipeline's folder; a note says how many.

    Raises `LakeError` or `DataError`, before anything is committed, for a file that does not fit its table.
    """
    storage, snapshot, changes = committer.storage, committer.snapshot, []
    streams = Streams(pipeline, None, snapshot)
    tables = {table.folder: stream for stream, table in snapshot.tables.items()}
    for name in sorted(storage.list(pipeline.table_root)):
        folder = f"{pipeline.table_root}/{name}"
        stream = tables.get(folder, name)
        if stream in snapshot.tables and snapshot.tables[stream].is_of_view:
            continue
        table = snapshot.tables.get(stream) or TableState(folder, None, format=pipeline.destination.format)
        unknown = folder not in tables and folder_name(name, ()) != name  # nobody knows for which stream it would be
        # The table's own log names its files; any other file there has been removed from the table.
        own_log = stream in snapshot.tables and table.has_own_log
        if table.folder != folder or unknown or own_log or not strangers(storage, table, []):
            continue
        others = claim(storage, folder, Owner(pipeline.name, stream), shared=pipeline.destination.shared)
        if strange := strangers(storage, table, others):
            changes.append(_change(storage, pipeline, streams[stream], table, strange))
    if not changes:
        raise SettingsError("there is nothing to adopt", hint="run without --adopt", folder=pipeline.table_root)
    reason = "files were adopted"
    # Views do not have these rows: they are filled anew by the run's first commit.
    stale = [structs.replace(table, view="").change(name) for name, table in snapshot.tables.items() if table.view]
    committer.commit(
        snapshot.pipeline_state,
        [*changes, *stale],
        staged=snapshot.staged,
        merged=False,
        through=0,
        rejects=[],
        reason=reason,
    )
    files = sum(len(change.adds) for change in changes)
    rows = sum(add.rows for change in changes for add in change.adds)
    committer.notes.append(f"{files} file(s) with {rows:,} rows were adopted, as commit {committer.snapshot.n}")


def _change(storage: Storage, pipeline: Pipeline, plan: StreamPlan, table: TableState, names: list[str]) -> TableChange:
    """One table's entry in the commit. Its columns are those it has, and then those of the files."""
    merged = plan.is_merged(table)
    if merged is None:
        hint = (
            "an older version loaded the table and did not note whether it merges rows: run the pipeline once, "
            f"or set load_method for {plan.name} under streams"
        )
        raise LakeError("a file cannot be adopted: its table may be an upsert table", hint=hint, stream=plan.name)
    if merged:
        hint = "move it away: whether its keys are in the table is not known; a tap can load its rows"
        raise LakeError("a file cannot be adopted into an upsert table", hint=hint, file=f"{table.folder}/{names[0]}")
    if folders := [name for name in names if "/" in name or table.partition_by]:
        hint = "move it away: what a partition's folder says of its rows is not checked; a tap can load them"
        raise LakeError("a file cannot be adopted into partitions", hint=hint, file=f"{table.folder}/{folders[0]}")
    columns = read_schema(storage, pipeline.name, table.schema) if table.schema else None
    adds = []
    for name, (add, schema) in zip(
        names, parallel_map(storage, lambda name: _file(storage, table, name), names), strict=True
    ):
        try:
            columns = merge(columns, schema, Evolution("fail"))
        except DataError as error:
            raise LakeError(f"a file does not go with its table: {error.message}", hint=_READABLE, file=name) from error
        for field in schema.arrow:
            if not stands_beside(field.type, columns.arrow.field(field.name).type):
                facts = {"file": name, "column": field.name, "type": field.type}
                raise LakeError("a file does not go with its table", hint=_READABLE, **facts)
        adds.append(add)
    assert columns
    table = structs.replace(table, schema=keep_schema(storage, pipeline.name, columns), upserts=False, key=())
    return table.change(plan.name, adds, shared=pipeline.destination.shared)


def _file(storage: Storage, table: TableState, name: str) -> tuple[FileAdd, TableSchema]:
    key = f"{table.folder}/{name}"
    try:
        with storage.open(key) as file:
            footer = pq.ParquetFile(file)
            rows, arrow = footer.metadata.num_rows, footer.schema_arrow
    except (pa.ArrowInvalid, OSError) as error:
        raise LakeError("a file in the table's folder is no Parquet file", hint="move it away", file=key) from error
    fields = [pa.field(field.name, _PLAIN.get(field.type, field.type)) for field in arrow]
    schema = TableSchema(pa.schema(fields))
    try:
        schema.to_json()
    except KeyError as error:
        raise LakeError("a file has a column of another type", hint=_READABLE, file=key, type=error.args[0]) from error
    return FileAdd(name=name, source=key, size=storage.size(key) or 0, rows=rows), schema
