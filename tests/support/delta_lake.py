"""A pipeline with one Delta table, committed in process; and the rows that readers of Delta find in it."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet as pq
from deltalake import DeltaTable, write_deltalake

from bridge.lake.commit.committer import Committer
from bridge.lake.commit.open import open_committer
from bridge.lake.formats.file_notes import order_note
from bridge.lake.log import Log
from bridge.lake.paths import file_name, pipeline_key
from bridge.lake.pipeline_state import PipelineState
from bridge.lake.records import TableChange
from bridge.lake.schemas import keep_schema
from bridge.lake.storage import Storage
from bridge.operate.verify.check import verify
from bridge.protocol.schema.table_schema import TableSchema
from bridge.settings.options import Pipeline
from tests.support.records import table_change


class DeltaLake:
    """The pipeline `p` whose stream `s` is a Delta table."""

    folder = "p/s"
    format = "delta"
    folders = ""
    """Hive's folders of its files."""
    sort_by: tuple[str, ...] = ()
    """The order that its files note."""
    not_checked: tuple[str, ...] = ("owner", "streams")

    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        self.log = Log(storage, "p")

    def open(self, last: dict[str, Any], storage: Storage | None = None) -> Committer:
        return open_committer(storage or self.storage, "p", "run", last=last)

    def pending(self, committer: Committer, ids: list[int], **columns: Any) -> dict[str, Any]:
        """Write a file with these ids and return it as a report names it; `columns` hold one text for all rows."""
        part = file_name(committer.generation, 1)
        name, source = f"{self.folders}{part}", pipeline_key("p", "pending", f"{part}.pending")
        table = pa.table(
            {"id": ids} | {column: pa.array([value] * len(ids), pa.string()) for column, value in columns.items()}
        )
        with closing(self.storage.open_pending(source, f"{self.folder}/{name}")) as file:
            pq.write_table(table.replace_schema_metadata(order_note(self.sort_by)), file)
            size = file.tell()
        facts = {"name": name, "source": source, "size": size, "rows": len(ids)}
        self.schema = keep_schema(self.storage, "p", TableSchema(table.schema))
        return facts | ({"upload": file.upload} if file.upload else {})

    def entry(self, *adds: dict[str, Any], removes: list[str] | None = None, mode: str = "append") -> TableChange:
        return table_change(adds, removes or (), folder=self.folder, schema=self.schema, mode=mode, format=self.format)

    def append(self, committer: Committer, ids: list[int], **columns: Any) -> None:
        """Commit rows, with the STATE that they are the last."""
        committer.commit(PipelineState({"last": ids[-1]}), [self.entry(self.pending(committer, ids, **columns))])

    def replace(self, committer: Committer, ids: list[int], **columns: Any) -> None:
        """Commit rows instead of all that the table has."""
        new, old = self.pending(committer, ids, **columns), list(committer.snapshot.tables["s"].files)
        committer.commit(PipelineState({"last": ids[-1]}), [self.entry(new, removes=old, mode="replace")])

    def rewrite(self, committer: Committer, ids: list[int], **columns: Any) -> None:
        """Commit one file anew, with other rows, and add another, as a merge by key does."""
        old = min(committer.snapshot.tables["s"].files)
        files = [self.pending(committer, part, **columns) for part in (ids[:-1], ids[-1:])]
        committer.commit(PipelineState({"last": ids[-1]}), [self.entry(*files, removes=[old])])

    def pipeline(self, **more: Any) -> Pipeline:
        """Settings of a pipeline that loads the table; `more` is said of its destination."""
        destination = {"bucket": self.storage.uri, "format": self.format} | more
        return Pipeline.model_validate({"name": "p", "source": {"tap": "tap"}, "destination": destination})

    def problems(self) -> list[str]:
        """What `verify` says of the table, and of its files."""
        found = verify(self.storage, "p").findings
        return [f"{f.check}: {f.text}" for f in found if f.check not in self.not_checked]

    def make_another(self) -> None:
        """Have somebody else make a table where ours would be."""
        write_deltalake(f"{self.storage.uri}/{self.folder}", pa.table({"id": [9]}))

    def append_otherwise(self, ids: list[int]) -> None:
        """Append rows as somebody else does."""
        write_deltalake(self.table(), pa.table({"id": ids}), mode="append")

    def delete_otherwise(self, rows: str) -> None:
        self.table().delete(rows)

    def lose_log(self) -> None:
        for file in (Path(self.storage.uri) / self.folder / "_delta_log").iterdir():
            file.unlink()

    def versions(self) -> int:
        """How many versions the table has."""
        return self.table().version() + 1

    def done(self) -> int | None:
        """The commit that the table says it has come to."""
        return self.table().transaction_version(self.folder)

    def columns(self) -> list[str]:
        return [field.name for field in self.table().schema().fields]

    def read_files(self, least: int) -> int:
        """How many files a reader of ids above this opens."""
        return len(list(self.table().to_pyarrow_dataset().get_fragments(filter=pa.compute.field("id") > least)))

    def table(self, version: int | None = None) -> DeltaTable:
        where = f"{self.storage.uri}/{self.folder}"
        return DeltaTable(where, version, storage_options=self.storage.for_libraries() or None)

    def ids(self, version: int | None = None) -> list[int]:
        return sorted(self.table(version).to_pyarrow_table(columns=["id"])["id"].to_pylist())

    @property
    def is_there(self) -> bool:
        return any(True for _ in self.storage.list(f"{self.folder}/_delta_log") if _.endswith(".json"))

    def listed(self) -> list[int]:
        """The ids in the files that the manifest lists."""
        lines = (self.storage.read(f".bridge/tables/{self.folder}.manifest") or b"").decode().splitlines()
        keys = [line.removeprefix(f"{self.storage.uri}/") for line in lines]
        return sorted(n for key in keys for n in _ids(self.storage, key))

    def bytes_of(self) -> dict[str, bytes]:
        """All of a folder's files."""
        root = Path(self.storage.uri)
        return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def _ids(storage: Storage, key: str) -> list[int]:
    with storage.open(key) as file:
        ids: list[int] = pq.read_table(file)["id"].to_pylist()
    return ids
