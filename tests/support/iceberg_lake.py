"""A pipeline with one Iceberg table, committed in process; and the rows that readers of Iceberg find in it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
from msgspec.structs import replace
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import LongType, NestedField

from bridge.lake.commit.committer import Committer
from bridge.lake.records import TableChange
from bridge.lake.storage import Storage
from tests.support.delta_lake import DeltaLake


def catalog_of(storage: Storage, uri: str | None = None, **properties: str) -> Catalog:
    """The catalog as a stranger opens it: by pyiceberg alone, with its own access to the files."""
    return load_catalog("lake", uri=uri or f"sqlite:///{storage.uri}/.bridge/catalog.db", **properties)


POLARS_READS = tuple(map(int, pl.__version__.split(".")[:2])) >= (2, 1)
"""Older ones, which Python 3.10 has, cannot read a table that pyiceberg 0.12 plans."""


def polars_scan(table: Table, snapshot_id: int | None = None, **options: Any) -> pl.LazyFrame:
    """What Polars reads of a table; where it cannot, what pyiceberg does."""
    if POLARS_READS:
        return pl.scan_iceberg(table, snapshot_id=snapshot_id, **options)
    return pl.DataFrame(table.scan(snapshot_id=snapshot_id).to_arrow()).lazy()


class IcebergLake(DeltaLake):
    """The pipeline `p` whose stream `s` is an Iceberg table."""

    format = "iceberg"
    not_checked = ("owner", "streams", "lake")

    def __init__(self, storage: Storage, uri: str | None = None, **properties: str) -> None:
        super().__init__(storage)
        self._catalog = uri, properties

    def iceberg(self) -> Table:
        """The table as its readers find it."""
        uri, properties = self._catalog
        with catalog_of(self.storage, uri, **properties) as catalog:
            return catalog.load_table("p.s")

    def snapshots(self) -> list[int]:
        return [entry.snapshot_id for entry in self.iceberg().history()]

    def make_another(self) -> None:
        Path(self.storage.uri, ".bridge").mkdir()
        with catalog_of(self.storage) as catalog:
            catalog.create_namespace("p")
            columns = Schema(NestedField(1, "id", LongType()))
            catalog.create_table("p.s", columns, location=f"file://{self.storage.uri}/p/s")

    def append_otherwise(self, ids: list[int]) -> None:
        self.iceberg().append(pa.table({"id": ids}))

    def delete_otherwise(self, rows: str) -> None:
        self.iceberg().delete(rows)

    def lose_log(self) -> None:
        Path(self.storage.uri, ".bridge/catalog.db").unlink()

    def versions(self) -> int:
        return len(self.snapshots())

    def columns(self) -> list[str]:
        return [field.name for field in self.iceberg().schema().fields]

    def read_files(self, least: int) -> int:
        return len(list(self.iceberg().scan(f"id > {least}").plan_files()))

    def done(self) -> int:
        return int(self.iceberg().metadata.properties["singer-bridge.commit"])

    def ids(self, version: int | None = None) -> list[int]:
        """The ids now, or as they were at the snapshot of that number, from 0."""
        table = self.iceberg()
        at = None if version is None else self.snapshots()[version]
        found = table.scan(selected_fields=("id",), snapshot_id=at).to_arrow()
        return sorted(found["id"].to_pylist())

    @property
    def is_there(self) -> bool:
        if not self._catalog[0] and self.storage.size(".bridge/catalog.db") is None:
            return False
        try:
            self.iceberg()
        except NoSuchTableError:
            return False
        return True

    def rows(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.iceberg().scan().to_arrow().to_pylist()
        return sorted(found, key=lambda row: row["id"])


class PartitionedLake(IcebergLake):
    """The same, sorted, with partitions by `part`; an overwrite makes them by `name`."""

    folders = "part=a/"
    sort_by = ("id",)

    def pending(self, committer: Committer, ids: list[int], **columns: Any) -> dict[str, Any]:
        return super().pending(committer, ids, part="a", **columns)

    def entry(self, *adds: dict[str, Any], removes: list[str] | None = None, mode: str = "append") -> TableChange:
        by = "name" if mode == "replace" else "part"
        return replace(super().entry(*adds, removes=removes, mode=mode), partition_by=(by,))
