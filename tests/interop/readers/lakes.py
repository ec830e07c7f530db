"""The tables that every reader is asked for, in each format; and the statements that we print for them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bridge.lake.commit.rollback import roll_back
from bridge.lake.formats.iceberg.catalog import keep_catalog
from bridge.lake.log import Log
from bridge.load.maintain.compact import CompactOptions, compact
from bridge.load.write.partition import Partition
from bridge.operate.readers.choice import reading_statement
from bridge.settings.options import Pipeline
from tests.support.tables import INTEGER, STRING, Shop

Rows = list[dict[str, Any]]
_ID = {"id": {"type": "integer"}}
_AT = {"type": ["null", "string"], "format": "date-time"}


@dataclass(frozen=True)
class FilledLake:
    """A lake of one format, with the rows of each of its tables."""

    shop: Shop
    rows: dict[str, Rows]

    def statement(self, table: str, dialect: str, *, manifest: bool = False, location: str | None = None) -> str:
        """What `tables ddl` prints."""
        log = Log(self.shop.storage, "shop")
        live = log.snapshot(log.head()).tables[table]
        return reading_statement(log, table, live, dialect, None, manifest=manifest, location=location)


def filled(folder: Path, kind: str, catalog: dict[str, str]) -> FilledLake:
    """Make the tables in a folder; those of Iceberg are in that catalog."""
    shop = Shop(folder, format=kind)
    destination: dict[str, Any] = {"bucket": str(shop.root), "format": kind}
    if kind == "iceberg":
        destination["catalog"] = {"properties": catalog}
    settings = {"name": "shop", "source": {"tap": "tap"}, "destination": destination}
    pipeline = Pipeline.model_validate(settings)
    shop.storage.prepare()
    keep_catalog(shop.storage, pipeline)
    rows = {**_evolved(shop), **_partitioned(shop), **_replaced(shop), **_compacted(shop, pipeline), **_upserted(shop)}
    return FilledLake(shop, rows if kind == "parquet" else {**rows, **_respread(shop), **_emptied(shop)})


def _evolved(shop: Shop) -> dict[str, Rows]:
    """A new column, then a wider number."""
    small = {"n": INTEGER, "price": {"type": ["null", "number"], "multipleOf": 0.01}}
    shop.load("evolved", {**_ID, **small}, [{"id": 1, "n": 7, "price": 1.25}])
    shop.load("evolved", {**_ID, **small, "note": STRING}, [{"id": 2, "n": 8, "price": None, "note": "né'w"}])
    rows = [{"id": 1, "n": 7, "price": "1.25", "note": None}, {"id": 2, "n": 8, "price": None, "note": "né'w"}]
    return {"evolved": rows}


def _partitioned(shop: Shop) -> dict[str, Rows]:
    """Folders by a text and by a day, with null in both."""
    by = (Partition("code"), Partition("at", "day"))
    records = [
        {"id": 1, "code": "01", "at": "2025-01-01T23:59:59Z"},
        {"id": 2, "code": None, "at": None},
        {"id": 3, "code": "a/b=%", "at": "1969-12-31T00:00:00Z"},
    ]
    shop.load("partitioned", {**_ID, "code": STRING, "at": _AT}, records, partition_by=by)
    return {"partitioned": [record | {"at": record["at"] and str(record["at"])[:-1]} for record in records]}


def _replaced(shop: Shop) -> dict[str, Rows]:
    """An overwrite, whose old file is in the folder for readers that list it in Delta and Iceberg; and a rollback."""
    shop.load("replaced", _ID, [{"id": 1}])
    shop.load("replaced", _ID, [{"id": 2}, {"id": 3}], mode="overwrite")
    shop.load("back", _ID, [{"id": 5}])
    head = Log(shop.storage, "shop").head()
    shop.load("back", _ID, [{"id": 6}], mode="overwrite")
    roll_back(shop.storage, "shop", head)
    shop._head = Log(shop.storage, "shop").head()
    return {"replaced": [{"id": 2}, {"id": 3}], "back": [{"id": 5}]}


def _compacted(shop: Shop, pipeline: Pipeline) -> dict[str, Rows]:
    """Two files that became one."""
    for n in (1, 2):
        shop.load("compacted", {**_ID, "name": STRING}, [{"id": n, "name": f"n{n}"}])
    compact(shop.storage, pipeline, CompactOptions(streams=frozenset({"compacted"})))
    shop._head = Log(shop.storage, "shop").head()
    return {"compacted": [{"id": 1, "name": "n1"}, {"id": 2, "name": "n2"}]}


def _upserted(shop: Shop) -> dict[str, Rows]:
    """Merges by key, sorted: rows that change in their file, that move to another folder, that go, and that are new."""
    columns = {**_ID, "code": STRING, "n": INTEGER, "_sdc_deleted_at": _AT}
    layout = {"partition_by": (Partition("code"),), "sort_by": ("-n",)}
    first = [{"id": at, "code": code, "n": at} for at, code in enumerate(["a", "a", "b", None, "c", "c"], 1)]
    second = [{"id": 2, "code": "a", "n": 22}, {"id": 1, "code": "b", "n": 11}, {"id": 7, "code": "a/b=%", "n": 7}]
    deleted = [{"id": at, "code": code, "_sdc_deleted_at": "2025-01-01T00:00:00Z"} for at, code in ((3, "b"), (5, "c"))]
    with _merging(shop):
        for records in (first, second, deleted, [{"id": 4, "code": "c", "n": 44}, {"id": 6, "code": "c", "n": None}]):
            shop.load("upserted", columns, records, keys=("id",), **layout)
    rows = [(1, "b", 11), (2, "a", 22), (4, "c", 44), (6, "c", None), (7, "a/b=%", 7)]
    return {"upserted": [{"id": id_, "code": code, "n": n, "_sdc_deleted_at": None} for id_, code, n in rows]}


def _respread(shop: Shop) -> dict[str, Rows]:
    """Other partitions since an overwrite, which also dropped the column of the first ones."""
    shop.load("respread", {**_ID, "code": STRING}, [{"id": 1, "code": "a"}], partition_by=(Partition("code"),))
    columns = {**_ID, "at": _AT, "flag": {"type": ["null", "boolean"]}}
    by = (Partition("at", "month"), Partition("flag"))
    rows = [{"id": 2, "at": "2024-02-29T00:00:00Z", "flag": True}, {"id": 3, "at": None, "flag": None}]
    shop.load("respread", columns, rows, mode="overwrite", partition_by=by)
    shop.load("respread", columns, [{"id": 4, "at": "1969-12-31T23:59:59Z", "flag": False}], partition_by=by)
    rows.append({"id": 4, "at": "1969-12-31T23:59:59Z", "flag": False})
    return {"respread": [row | {"at": row["at"] and str(row["at"])[:-1]} for row in rows]}


def _emptied(shop: Shop) -> dict[str, Rows]:
    """Null and the empty text in a column of folders, also in one file. Readers of plain folders take both for null."""
    columns, by = {**_ID, "code": STRING}, {"partition_by": (Partition("code"),)}
    with _merging(shop):
        for codes in ({1: None, 2: None, 3: "x"}, {1: "", 4: "", 5: "y"}):
            shop.load("emptied", columns, [{"id": at, "code": code} for at, code in codes.items()], keys=("id",), **by)
    return {"emptied": [{"id": at, "code": code} for at, code in enumerate(["", None, "x", "", "y"], 1)]}


@contextmanager
def _merging(shop: Shop) -> Iterator[None]:
    before = shop.layout
    shop.layout = {**before, "keys": ("id",), "hard_delete": True}
    yield
    shop.layout = before
