"""`spark.read.format("singer")` over a table: the rows of a commit, whatever becomes of its files."""

from __future__ import annotations

import subprocess
import sys
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pytest
from pyspark.sql import datasource

from bridge.errors import CommitExpired, LakeError, SettingsError
from bridge.lake.commit.rollback import roll_back
from bridge.lake.paths import pipeline_key
from bridge.load.maintain.compact import CompactOptions, compact
from bridge.load.write.partition import Partition
from bridge.protocol.schema.merging import Evolution
from tests.support.spark_source import frame, parts_read, rows_of, sent, source
from tests.support.tables import INTEGER, ODD, STRING, Shop, filled
from tests.unit.load.maintain.test_compact import pipeline_of

FORMATS = ["parquet", "delta", "iceberg"]


@pytest.mark.parametrize("format_", FORMATS)
def test_every_row_with_every_type(format_: str, tmp_path: Path) -> None:
    """Columns added later are null in older rows, widened ones have the wider type; nested, JSON, odd and no rows."""
    _, rows = filled(tmp_path, format=format_)
    for stream, expected in rows.items():
        got = frame(tmp_path, table=stream, pipeline="shop")
        assert sorted(got, key=repr) == sorted(expected, key=repr), stream


def test_the_schema_is_the_tables(tmp_path: Path) -> None:
    """Spark's types for each column, in the table's order, all nullable; `columns` chooses and orders."""
    filled(tmp_path)
    schema = source(tmp_path, table="wide").schema()
    assert {field.name: field.dataType.simpleString() for field in schema} == {
        "n": "decimal(38,0)",
        "at": "timestamp",
        "day": "date",
        "place": "struct<x:bigint,y z:string,new:string>",
        "lines": "array<struct<sku:string,count:bigint>>",
        "payload": "string",
        "price": "decimal(38,2)",
        "open": "boolean",
        "ratio": "double",
        "grid": "array<array<bigint>>",
    }
    assert all(field.nullable and not field.metadata for field in schema)
    assert [set(row) for row in frame(tmp_path, table="wide", columns="day, n")] == [{"day", "n"}] * 2
    assert list(frame(tmp_path, table=ODD, columns='["select", "ID"]')[0]) == ["select", "ID"]


def test_a_commit_of_the_past(tmp_path: Path) -> None:
    """`commit` reads the table as it was: before rows were added, and before it was replaced, out of the trash."""
    shop = Shop(tmp_path)
    shop.load("t", {"id": INTEGER}, [{"id": 1}])
    shop.load("t", {"id": INTEGER, "name": STRING}, [{"id": 2, "name": "b"}])
    shop.load("t", {"id": INTEGER}, [{"id": 3}], mode="overwrite")
    assert [frame(tmp_path, table="t", commit=n) for n in (1, 2, 3)] == [
        [{"id": 1}],
        [{"id": 1, "name": None}, {"id": 2, "name": "b"}],
        [{"id": 3}],
    ]


@pytest.mark.parametrize("format_", FORMATS)
def test_a_frame_stays_at_its_commit(format_: str, tmp_path: Path) -> None:
    """An append, a compaction and an overwrite between planning and reading change nothing; a later frame sees them."""
    shop = Shop(tmp_path, format=format_)
    for n in (1, 2, 3):
        shop.load("t", {"id": INTEGER}, [{"id": n}])
    made = source(tmp_path, table="t")
    schema = made.schema()
    shop.load("t", {"id": INTEGER}, [{"id": 4}])
    reader = sent(made).reader(schema)
    parts = reader.partitions()
    shop._head = compact(shop.storage, pipeline_of(shop), CompactOptions()).head
    shop.load("t", {"id": INTEGER}, [{"id": 9}], mode="overwrite")
    assert rows_of(parts_read(reader, parts)) == [{"id": n} for n in (1, 2, 3)]
    assert frame(tmp_path, table="t") == [{"id": 9}]


def test_files_that_are_kept_no_more(tmp_path: Path) -> None:
    """Retention emptied the trash while a job read: an error that says so, never fewer rows."""
    shop = Shop(tmp_path)
    shop.load("t", {"id": INTEGER}, [{"id": 1}])
    made = source(tmp_path, table="t")
    reader = made.reader(made.schema())
    parts = reader.partitions()
    shop.load("t", {"id": INTEGER}, [{"id": 2}], mode="overwrite")
    for file in (shop.root / pipeline_key("shop", "trash")).rglob("*.parquet*"):
        file.unlink()
    with pytest.raises(CommitExpired, match=r"(?s)a file of this commit is gone.*retention\.trash"):
        parts_read(reader, parts)


def test_partition_columns_have_their_own_types(tmp_path: Path) -> None:
    """As the rows had them, not as the folders' names: no text for numbers, no day for an instant."""
    shop = Shop(tmp_path)
    columns = {"_id": {"type": "integer"}, "code": STRING, "at": {"type": ["null", "string"], "format": "date-time"}}
    records = [{"_id": 1, "code": "01", "at": "2025-01-01T23:59:59Z"}, {"_id": 2, "code": "a/b=%", "at": None}]
    shop.load("v", columns, records, partition_by=(Partition("_id"), Partition("code"), Partition("at", "day")))
    assert sorted(frame(tmp_path, table="v"), key=lambda row: row["_id"]) == [
        {"_id": 1, "code": "01", "at": datetime(2025, 1, 1, 23, 59, 59, tzinfo=timezone.utc)},
        {"_id": 2, "code": "a/b=%", "at": None},
    ]


def test_parts_are_of_about_one_size(tmp_path: Path) -> None:
    """Small files share a task, a large one is cut at its row groups; each row is read once whatever the size."""
    shop = Shop(tmp_path)
    for n in range(6):
        shop.load("t", {"id": INTEGER, "text": STRING}, [{"id": n * 10 + k, "text": "x" * 50} for k in range(10)])
    numbers = []
    for size in (1, 100, 2000, "32MiB"):
        made = source(tmp_path, table="t", maxPartitionBytes=size)
        reader = made.reader(made.schema())
        parts = reader.partitions()
        numbers.append(len(parts))
        assert sorted(row["id"] for row in rows_of(parts_read(reader, parts))) == list(range(60))
    assert numbers == sorted(numbers, reverse=True)
    assert numbers[0] > 1000
    assert numbers[-1] == 1


def test_executors_need_no_settings(tmp_path: Path) -> None:
    """A task runs with what docs/cluster.md asks of executors: without pydantic, click, sqlglot or PyYAML."""
    shop = Shop(tmp_path)
    shop.load("t", {"id": {"type": "integer"}}, [{"id": n} for n in range(3)], keys=("id",))
    made = source(tmp_path, table="t")
    reader = made.reader(made.schema())
    changes = source(tmp_path, table="t", changes="true")
    feed = changes.reader(changes.schema())
    from pyspark.serializers import CloudPickleSerializer

    task = tmp_path / "task"
    pairs = [(reader, reader.partitions()), (feed, feed.partitions())]
    task.write_bytes(CloudPickleSerializer().dumps(pairs))
    code = """
import sys
for name in ("pydantic", "click", "sqlglot", "yaml", "rich", "jsonschema", "singer_sdk"):
    sys.modules[name] = None
from pyspark.serializers import CloudPickleSerializer
pairs = CloudPickleSerializer().loads(open(sys.argv[1], "rb").read())
print([batch.num_rows for reader, parts in pairs for part in parts for batch in reader.read(part)])
"""
    done = subprocess.run([sys.executable, "-c", code, str(task)], capture_output=True, text=True, check=False)
    assert (done.stdout.strip(), done.returncode) == ("[3, 3]", 0), done.stderr


@pytest.mark.skipif(not hasattr(datasource, "EqualTo"), reason="Spark 4.0 tells a source of no filter")
def test_filters_pass_over_row_groups(tmp_path: Path) -> None:
    """A filter that no row of a file can pass leaves the file out; rows that pass are all there, whatever the type."""
    shop = Shop(tmp_path)
    columns = {
        "id": INTEGER,
        "name": STRING,
        "ratio": {"type": ["null", "number"]},
        "price": {"type": ["null", "number"], "multipleOf": 0.01},
        "at": {"type": ["null", "string"], "format": "date-time"},
        "day": {"type": ["null", "string"], "format": "date"},
        "open": {"type": ["null", "boolean"]},
    }
    for n in range(1, 5):
        record = {"id": n, "name": f"n{n}", "ratio": n / 2, "price": n * 1.5, "open": n > 2}
        shop.load("t", columns, [record | {"at": f"2025-01-0{n}T00:00:00Z", "day": f"2025-01-0{n}"}])
    shop.load("t", {"id": INTEGER}, [{"id": None}])
    shop.load("t", columns | {"later": INTEGER}, [{"id": 6, "later": 1}])

    def read(*filters: Any) -> list[int | None]:
        made = source(tmp_path, table="t", pushFilters="true")
        reader = made.reader(made.schema())
        assert list(reader.pushFilters(list(filters))) == list(filters)  # Spark applies each again
        return [row["id"] for row in rows_of(parts_read(reader, reader.partitions()))]

    of, everything = datasource, [1, 2, 3, 4, None, 6]
    assert read(of.EqualTo(("id",), 3)) == [3]
    assert read(of.GreaterThan(("id",), 3)) == [4, 6]
    assert read(of.GreaterThanOrEqual(("id",), 3)) == [3, 4, 6]
    assert read(of.LessThan(("id",), 2)) == [1]
    assert read(of.LessThanOrEqual(("id",), 2)) == [1, 2]
    assert read(of.In(("id",), (1, 4, None))) == [1, 4]
    assert read(of.IsNull(("id",))) == read(of.EqualNullSafe(("id",), None)) == [None]
    assert read(of.IsNotNull(("later",))) == [6]
    assert read(of.StringStartsWith(("name",), "n2")) == read(of.EqualTo(("name",), "n2")) == [2]
    assert read(of.GreaterThan(("id",), 1), of.LessThan(("id",), 3)) == [2]
    assert read(of.EqualTo(("price",), Decimal("4.50"))) == [3]
    assert read(of.EqualTo(("at",), datetime(2025, 1, 2, tzinfo=timezone.utc))) == [2]
    assert read(of.LessThan(("day",), date(2025, 1, 2))) == [1]
    assert read(of.EqualTo(("open",), True)) == [3, 4]
    assert read(of.GreaterThan(("ratio",), 9.0)) == everything  # NaN is in no bounds
    assert read(of.Not(of.EqualTo(("id",), 1))) == read(of.EqualTo(("id",), "x")) == everything
    assert read(of.EqualTo(("at",), datetime(2025, 1, 2))) == everything


def test_a_schema_of_the_users_own(tmp_path: Path) -> None:
    """It chooses columns; one that is not there, or has another type, is named before anything is read."""
    filled(tmp_path)
    made = source(tmp_path, table="orders")
    whole = made.schema()
    assert rows_of(parts_read(made.reader(whole[1:2]), made.reader(whole[1:2]).partitions())) == [
        {"name": "a"},
        {"name": None},
        {"name": None},
    ]
    from pyspark.sql.types import IntegerType, LongType, StructType

    with pytest.raises(SettingsError, match=r"(?s)another type.*column=id.*it is bigint"):
        made.reader(StructType().add("id", IntegerType()))
    with pytest.raises(SettingsError, match=r'(?s)no such column.*did you mean "id"'):
        made.reader(StructType().add("idd", LongType()))


def test_a_commit_that_was_taken_back(tmp_path: Path) -> None:
    """After a rollback the last frame has the rows of before; the commit that it took back can still be asked for."""
    shop = Shop(tmp_path)
    shop.load("t", {"id": INTEGER}, [{"id": 1}])
    shop.load("t", {"id": INTEGER}, [{"id": 2}])
    roll_back(shop.storage, "shop", 1)
    assert frame(tmp_path, table="t") == [{"id": 1}]
    assert frame(tmp_path, table="t", commit=2) == [{"id": 1}, {"id": 2}]


def test_what_another_engine_reads(tmp_path: Path) -> None:
    """DuckDB over the files of the folder has the same rows, after a widening that wrote files again."""
    shop = Shop(tmp_path)
    shop.load("t", {"id": INTEGER, "v": INTEGER}, [{"id": n, "v": n} for n in range(50)])
    shop.load("t", {"id": INTEGER, "v": STRING}, [{"id": 50, "v": "x"}], evolution=Evolution())
    rows = duckdb.sql(f"SELECT id, v FROM '{shop.root}/shop/t/*.parquet'").fetchall()
    assert sorted(rows) == sorted((row["id"], row["v"]) for row in frame(tmp_path, table="t"))


def test_a_damaged_log_is_no_answer(tmp_path: Path) -> None:
    """A record that cannot be read is an error, before any task."""
    shop = Shop(tmp_path)
    shop.load("t", {"id": INTEGER}, [{"id": 1}])
    (shop.root / pipeline_key("shop", "commits", f"{1:020d}.json")).write_text("{")
    with pytest.raises(LakeError, match=r"(?s)unreadable.*backup"):
        source(tmp_path, table="t").schema()
