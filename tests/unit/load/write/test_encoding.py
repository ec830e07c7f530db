"""How files keep numbers and times: small, and readable by every engine."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from pathlib import Path
from random import Random

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bridge.lake.storage.local.storage import LocalStorage
from bridge.load.spark.session import Session
from bridge.load.write.context import WriteContext
from bridge.load.write.file import File
from bridge.load.write.layout import TableLayout

ROWS = 20_000
DAY = datetime(2025, 1, 1, tzinfo=timezone.utc)
DIFFERENCES = "DELTA_BINARY_PACKED"


def rows(*, dotted: bool = False) -> pa.Table:
    """Rising keys and times, one number of few values, each with nulls, and columns that are no numbers."""
    numbers = range(ROWS)
    columns = {
        "id": pa.array([None if n % 100 == 7 else n * 3 for n in numbers], pa.int64()),
        "at": pa.array([DAY + timedelta(milliseconds=n * 700) for n in numbers], pa.timestamp("us", "UTC")),
        "day": pa.array([(DAY + timedelta(days=n // 5)).date() for n in numbers], pa.date32()),
        "kind": pa.array(Random(1).choices(range(5), k=ROWS), pa.int64()),
        "a.b" if dotted else "name": pa.array([f"name {n % 50}" for n in numbers]),
        "deep": pa.array([{"city": f"city {n % 9}", "tags": [{"tag": "x"}]} for n in numbers]),
    }
    return pa.table(columns)


def written(root: Path, table: pa.Table, table_format: str = "parquet") -> Path:
    """One file of two row groups, as a run leaves it."""
    layouts = {"s": TableLayout("p/s", table_format)}
    file = File(LocalStorage(root), WriteContext(str(root), "p", "run", 1, "", "zstd", layouts), 1, "s", table.schema)
    for part in (table.slice(0, ROWS // 2), table.slice(ROWS // 2)):
        file.write(part)
    file.finish()
    (root / "file.parquet").write_bytes((root / file.close().source).read_bytes())
    return root / "file.parquet"


def encodings(path: Path) -> dict[str, set[str]]:
    group = pq.read_metadata(path).row_group(0)
    columns = (group.column(place) for place in range(group.num_columns))
    return {column.path_in_schema: set(column.encodings) for column in columns}


def test_what_rises_is_kept_as_differences(tmp_path: Path) -> None:
    """Keys and times take less than a third of what a dictionary takes; few values and texts keep theirs."""
    table = rows()
    path = written(tmp_path, table)
    found = encodings(path)
    assert {name for name, used in found.items() if DIFFERENCES in used} == {"id", "at", "day"}
    assert all("RLE_DICTIONARY" in used for used in found.values() if DIFFERENCES not in used)
    numbers = table.select(["id", "at", "day"])
    pq.write_table(numbers, tmp_path / "plain.parquet", compression="zstd")
    groups = pq.read_metadata(path)
    size = sum(groups.row_group(group).column(place).total_compressed_size for group in range(2) for place in range(3))
    assert size * 3 < (tmp_path / "plain.parquet").stat().st_size
    statistics = groups.row_group(0).column(0).statistics
    assert (statistics.min, statistics.max, statistics.null_count) == (0, (ROWS // 2 - 1) * 3, ROWS // 200)


def test_engines_read_differences(tmp_path: Path) -> None:
    """pyarrow, DuckDB and Polars read each value and each null back."""
    table = rows()
    path = written(tmp_path, table)
    assert pq.read_table(path).equals(table)
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        read = connection.sql(f"from read_parquet('{path}')").to_arrow_table()
    assert read.select(["id", "at", "day", "kind"]).to_pydict() == table.select(["id", "at", "day", "kind"]).to_pydict()
    assert pl.read_parquet(path).select("id", "at", "day").to_arrow().to_pydict() == table.select([0, 1, 2]).to_pydict()


@pytest.mark.heavy
def test_spark_reads_differences(tmp_path: Path) -> None:
    """Spark's vectorised reader gives the same rows."""
    table = rows()
    path = written(tmp_path, table)
    session = Session("local[1]", {"spark.sql.session.timeZone": "UTC"}, tmp_path / "scratch", tmp_path / "log")
    try:
        read = session.spark.read.parquet(str(path)).select("id", "at", "day", "kind").toArrow()
    finally:
        session.close(hurry=True)
    assert read.to_pydict() == table.select(["id", "at", "day", "kind"]).to_pydict()


@pytest.mark.parametrize("table_format", ["parquet", "delta"])
def test_names_with_dots(tmp_path: Path, table_format: str) -> None:
    """A path with dots cannot be named to pyarrow: such a table keeps its dictionaries, all of them."""
    table = rows(dotted=True)
    path = written(tmp_path, table, table_format)
    assert all(DIFFERENCES not in used for used in encodings(path).values())
    assert all("RLE_DICTIONARY" in used for used in encodings(path).values())
    assert pq.read_table(path).equals(table)


VALUES = ["a"] * 5 + [None] * 15


@pytest.mark.parametrize("table_format", ["parquet", "iceberg"])
@pytest.mark.parametrize(
    ("column", "condition"),
    [
        (pa.array(VALUES), "x IS NULL"),
        (pa.array([{"t": value} for value in VALUES]), "x.t IS NULL"),
        (pa.array([value and {"t": [value]} for value in VALUES]), "x.t[1] IS NULL"),
    ],
)
@pytest.mark.parametrize("other", ["id", "a.b"])
def test_a_text_with_nulls_and_one_value(
    tmp_path: Path, table_format: str, column: pa.Array, condition: str, other: str
) -> None:
    """In a small file, such as a table with rows that were deleted at one time: DuckDB 2.0.0 took all for null."""
    table = pa.table({"x": column, other: list(range(20)), "n": ["b", None] * 10})
    path = written(tmp_path, table, table_format)
    for column_, expected in ((condition, 15), ("n IS NULL", 10), ("n = 'b'", 10)):
        assert duckdb.sql(f"SELECT count(*) FROM '{path}' WHERE {column_}").fetchall() == [(expected,)]


def test_iceberg_keeps_dictionaries(tmp_path: Path) -> None:
    """Iceberg's vectorised reader in Spark refuses differences before 1.11."""
    assert all(DIFFERENCES not in used for used in encodings(written(tmp_path, rows(), "iceberg")).values())


def texts(different: int, count: int) -> pa.Array:
    """So many texts of some twenty letters, of so many different ones."""
    dice = Random(2)
    return pa.array([f"customer number {dice.randrange(different) if different < count else n}" for n in range(count)])


@pytest.mark.parametrize("table_format", ["parquet", "iceberg"])
def test_no_dictionary_that_would_outgrow_its_limit(tmp_path: Path, table_format: str) -> None:
    """Texts and floats that seldom repeat have none, which makes them smaller; all others keep theirs."""
    count, dice = 220_000, Random(3)
    columns = {
        "mail": texts(count, count),
        "few": texts(20_000, count),
        "sparse": pa.array([f"note {n}" if n % 50 == 0 else None for n in range(count)]),
        "rate": pa.array([dice.random() * 1e9 if n % 3 else None for n in range(2 * count)])[:count],
        "price": pa.array([dice.randrange(5000) / 100 for _ in range(2 * count)])[:count],
        "empty": pa.nulls(count, pa.float64()),
    }
    table = pa.table({**columns, "deep": pa.array([{"mail": mail} for mail in columns["mail"].to_pylist()])})
    file = File(
        LocalStorage(tmp_path),
        WriteContext(str(tmp_path), "p", "run", 1, "", "zstd", {"s": TableLayout("p/s", table_format)}),
        1,
        "s",
        table.schema,
    )
    file.write(table)
    file.finish()
    path = tmp_path / file.close().source
    found = encodings(path)
    assert {name for name, used in found.items() if "RLE_DICTIONARY" not in used} == {"mail", "rate"}
    assert pq.read_table(path).equals(table)
    pq.write_table(table, tmp_path / "all.parquet", compression="zstd")
    own, other = (pq.read_metadata(each).row_group(0) for each in (path, tmp_path / "all.parquet"))
    for place in (0, 3):
        assert own.column(place).total_compressed_size < other.column(place).total_compressed_size
