"""Views made by hand: tables that the log calls views, sorted by key, written and committed by the real parts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
from msgspec import structs

from bridge.lake.commit.open import open_committer
from bridge.lake.ownership import Owner, claim
from bridge.lake.pipeline_state import PipelineState
from bridge.lake.records import CommitRecord, TableState
from bridge.lake.schemas import keep_schema
from bridge.lake.storage import Storage
from bridge.lake.storage.local.storage import LocalStorage
from bridge.load.write.context import WriteContext
from bridge.load.write.file import File
from bridge.load.write.layout import TableLayout
from bridge.protocol.schema.table_schema import TableSchema
from bridge.settings.sql.view import read_view

COUNTS = "SELECT id, count(*) AS n FROM s GROUP BY id"


class Views:
    """A pipeline over the bucket `lake` in a folder; each `put` is a commit that changes one view."""

    def __init__(
        self, root: Path, bucket: Storage | None = None, table_format: str = "parquet", pipeline: str = "shop"
    ) -> None:
        self.pipeline = pipeline
        self.root = root / "lake"
        self.storage = bucket or LocalStorage(self.root)
        self.format = table_format
        self.n = 0

    def put(
        self,
        rows: pa.Table,
        name: str = "counts",
        sql: str = COUNTS,
        *,
        files: int = 1,
        group: int = 65_536,
        replaces: list[str] | None = None,
        storage: Any = None,
        is_sorted: bool = True,
    ) -> CommitRecord:
        """Commit sorted rows as a view, in so many files of row groups of so many rows, instead of its files so far.

        `replaces`: instead of these files only. `is_sorted`: whether footers say that the rows are.
        """
        committer = open_committer(storage or self.storage, self.pipeline, "run", last={"closed": self.n})
        table = committer.snapshot.tables.get(name) or TableState(f"{self.pipeline}/{name}", None, format=self.format)
        claim(self.storage, table.folder, Owner(self.pipeline, name), shared=False)
        layouts = {
            name: TableLayout(table.folder, table.format, sort_by=read_view(name, sql).keys if is_sorted else ())
        }
        context = WriteContext(self.storage.uri, self.pipeline, "run", committer.generation, "", "zstd", layouts)
        step = -(-rows.num_rows // files) or 1
        parts = [rows.slice(start, step) for start in range(0, rows.num_rows, step)]
        adds = [self._file(context, name, part, group) for part in parts]
        schema = keep_schema(self.storage, self.pipeline, TableSchema(rows.schema))
        removes = sorted(table.files) if replaces is None else replaces
        table = structs.replace(table, schema=schema, view=sql)
        record = committer.commit(PipelineState({"n": committer.snapshot.n + 1}), [table.change(name, adds, removes)])
        self.n = committer.snapshot.n
        return record

    def _file(self, context: WriteContext, name: str, rows: pa.Table, group: int) -> Any:
        file = File(self.storage, context, 1, name, rows.schema)
        for start in range(0, rows.num_rows, group):
            file.write(rows.slice(start, group))
        file.finish()
        return file.close().add()


def counts(**numbers: int) -> pa.Table:
    """Rows of the view `counts`: `counts(a=1)` has the key `a`."""
    ids = sorted(numbers)
    amounts = [numbers[one] for one in ids]
    return pa.table({"id": ids, "n": amounts, "_view_rows": amounts})
