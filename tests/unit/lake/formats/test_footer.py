"""A footer has no bounds of a chunk with NaN, and says all else as Arrow's writer does."""

from __future__ import annotations

import io
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from bridge.lake.commit.rollback import roll_back
from bridge.lake.formats.file_notes import MissingStats
from bridge.lake.formats.footer import FooterSink
from bridge.lake.log import Log
from bridge.load.maintain.compact import CompactOptions, compact
from bridge.settings.options import Pipeline
from tests.support.iceberg_lake import catalog_of
from tests.support.tables import INTEGER, STRING, Shop

NAN = math.nan
NUMBER = {"type": ["null", "number"]}
FLOATS = st.sampled_from([None, NAN, NAN, 0.0, -0.0, 1.0, 3.0, math.inf, -math.inf])
PAIR = pa.struct([("f", pa.float32()), ("d", pa.float64())])
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("d", pa.float64()),
        ("text", pa.string()),
        ("f", pa.float32()),
        ("a.b", pa.float64()),
        ("pair", PAIR),
        ("some", pa.list_(pa.float64())),
        ("pairs", pa.list_(PAIR)),
        ("deep", pa.struct([("lists", pa.list_(pa.list_(pa.float32()))), ("open", pa.bool_())])),
        ("map", pa.map_(pa.string(), pa.float64())),
        ("half", pa.float16()),
    ]
)
PAIRS = st.none() | st.fixed_dictionaries({"f": FLOATS, "d": FLOATS})
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "id": st.integers(0, 9),
            "d": FLOATS,
            "text": st.sampled_from([None, "", "a", "x" * 5000]),
            "f": FLOATS,
            "a.b": FLOATS,
            "pair": PAIRS,
            "some": st.none() | st.lists(FLOATS, max_size=3),
            "pairs": st.none() | st.lists(PAIRS, max_size=3),
            "deep": st.none()
            | st.fixed_dictionaries(
                {"lists": st.lists(st.lists(FLOATS, max_size=2), max_size=2), "open": st.booleans()}
            ),
            "map": st.none() | st.dictionaries(st.sampled_from("kl"), FLOATS, max_size=2),
            "half": FLOATS,
        }
    ),
    max_size=5,
)


def written(tables: list[pa.Table], *, ours: bool, **options: Any) -> bytes:
    """A file with a row group for each table."""
    file = io.BytesIO()
    sink = FooterSink(file)
    writer = pq.ParquetWriter(sink if ours else file, SCHEMA, **options)
    for table in tables:
        writer.write_table(table, row_group_size=max(len(table), 1))
        sink.add_row_group(MissingStats().observe(table))
    writer.add_key_value_metadata({b"key": b"\x00\xff" * 200})
    sink.finish(writer.close) if ours else writer.close()
    return file.getvalue()


def facts(statistics: Any) -> Any:
    """What a chunk's statistics say; there are none of no row."""
    if statistics is None:
        return None
    bounds = (statistics.min, statistics.max) if statistics.has_min_max else None
    return repr((statistics.null_count, statistics.distinct_count, bounds))


def has_nan(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return any(map(has_nan, value))
    return has_nan(list(value.values())) if isinstance(value, dict) else value != value


def below(rows: list[Any], path: list[str]) -> Iterator[Any]:
    """Yield the values of one of Parquet's columns."""
    for row in rows:
        if row is None or not path:
            yield row
        elif path[0] == "key_value":
            yield from below([dict(zip(("key", "value"), one, strict=True)) for one in row], path[1:])
        elif path[0] == "list":
            yield from below(row, path[2:])
        else:
            yield from below([row[path[0]]], path[1:])


@settings(max_examples=60, deadline=None, derandomize=True, phases=[Phase.generate])
@given(groups=st.lists(ROWS, min_size=1, max_size=20), options=st.sampled_from([{}, {"use_dictionary": False}]))
def test_only_bounds_beside_nan_go(groups: list[list[dict[str, Any]]], options: dict[str, Any]) -> None:
    """All rows are read; each chunk with NaN has its null count and no bounds; all else is as Arrow has it."""
    tables = [pa.Table.from_pylist(rows, SCHEMA) for rows in groups]
    arrow, own = (written(tables, ours=ours, **options) for ours in (False, True))
    assert repr(pq.read_table(pa.BufferReader(own)).to_pylist()) == repr([row for t in tables for row in t.to_pylist()])
    theirs, ours = (pq.read_metadata(pa.BufferReader(data)) for data in (arrow, own))
    assert ours.metadata == theirs.metadata
    lost = 0
    for number, table in enumerate(tables):
        for at in range(ours.num_columns):
            chunk, same = ours.row_group(number).column(at), theirs.row_group(number).column(at)
            path = ["a.b"] if chunk.path_in_schema == "a.b" else chunk.path_in_schema.split(".")
            if any(map(has_nan, below(table.to_pylist(), path))):
                lost += 1
                assert not chunk.statistics.has_min_max
                assert chunk.statistics.null_count == same.statistics.null_count
            else:
                assert facts(chunk.statistics) == facts(same.statistics)
            assert chunk.data_page_offset == same.data_page_offset
            assert chunk.total_compressed_size == same.total_compressed_size
    assert lost or own == arrow


VALUES = [1.0, 3.0, NAN, None]
PROPERTIES = {"id": {"type": "integer"}, "v": NUMBER, "in": {"type": ["null", "object"], "properties": {"v": NUMBER}}}
RECORDS = [{"id": number, "v": value, "in": {"v": value}} for number, value in enumerate(VALUES)]


def pipeline_of(shop: Shop, format_: str) -> Pipeline:
    destination = {"bucket": str(shop.root), "format": format_}
    return Pipeline.model_validate({"name": "shop", "source": {"tap": "tap"}, "destination": destination})


def append(shop: Shop, _: str) -> None:
    shop.load("s", PROPERTIES, RECORDS)


def upsert(shop: Shop, _: str) -> None:
    """NaN comes into a file that exists."""
    shop.load("s", PROPERTIES, [one | {"v": 2.0, "in": {"v": 2.0}} for one in RECORDS], keys=("id",))
    shop.load("s", PROPERTIES, RECORDS[1:], keys=("id",))


def change_type(shop: Shop, _: str) -> None:
    """The file is rewritten, as a whole number may have digits after the point from now on."""
    shop.load("s", PROPERTIES | {"n": INTEGER}, [one | {"n": 1} for one in RECORDS])
    shop.load("s", PROPERTIES | {"n": NUMBER}, [{"id": 9, "n": 1.5}])


def join(shop: Shop, format_: str) -> None:
    """Compaction reads NaN from files that have no bounds, beside others that have some."""
    for record in RECORDS:
        shop.load("s", PROPERTIES, [record])
    compact(shop.storage, pipeline_of(shop, format_), CompactOptions())


def go_back(shop: Shop, _: str) -> None:
    append(shop, "")
    shop.load("s", PROPERTIES, [{"id": 9, "v": 7.0}])
    roll_back(shop.storage, "shop", 1)


WRITERS = [append, upsert, change_type, join, go_back]
FILTERS = ["v > 5", "v <> 3", "v >= 3.5", "v < 1.5", "v = 1", "isnan(v)", "v is null", "v = 'nan'::double", "v <> 1"]


@pytest.mark.parametrize("write", WRITERS, ids=lambda write: write.__name__)
@pytest.mark.parametrize("format_", ["parquet", "delta", "iceberg"])
def test_each_writer_leaves_nan_to_be_found(tmp_path: Path, format_: str, write: Any) -> None:
    """DuckDB, pyarrow and Polars answer as they do for the same rows in memory, whoever wrote the file."""
    shop = Shop(tmp_path, format=format_, keys=("id",) if write is upsert else ())
    write(shop, format_)
    log = Log(shop.storage, "shop")
    table = log.snapshot(log.head()).tables["s"]
    files = [str(shop.root / table.folder / name) for name in table.files]
    rows = pa.concat_tables((pq.ParquetFile(file).read() for file in files), promote_options="permissive")
    assert any(map(has_nan, rows["v"].to_pylist()))
    for file in files:
        assert all(map(is_honest, chunks(file, "v"))) and all(map(is_honest, chunks(file, "in.v")))
    connection = duckdb.connect()
    connection.execute("create table memory as from rows")  # not a view: before 2.0 pyarrow would filter, its own way
    connection.from_parquet(files, union_by_name=True).create_view("stored")
    for text in [*FILTERS, *(text.replace("v", '"in".v', 1) for text in FILTERS if "isnan" not in text)]:
        expected, result = (
            connection.execute(f"select count(*) from {where} where {text}").fetchone()
            for where in ("memory", "stored")
        )
        assert result == expected, text
    field, stored = pc.field("v"), ds.dataset(files, rows.schema)
    for filter_ in (field > 5, field != 3, field >= 3.5, field < 1.5, pc.is_nan(field), field.is_null(), field != 1):
        assert stored.to_table(filter=filter_).num_rows == rows.filter(filter_).num_rows, filter_
    frame: Any = pl.from_arrow(rows)
    scan = pl.scan_parquet(files, schema=frame.schema, missing_columns="insert")
    for asked in (pl.col("v") > 5, pl.col("v") != 3, pl.col("v") < 1.5, pl.col("v").is_nan(), pl.col("v").is_null()):
        assert len(scan.filter(asked).collect()) == len(frame.filter(asked)), asked


def chunks(file: str, path: str) -> list[tuple[Any, list[Any]]]:
    """The statistics and the values of a column, by row group."""
    opened, result = pq.ParquetFile(file), []
    for number in range(opened.num_row_groups):
        group = opened.metadata.row_group(number)
        columns = {group.column(at).path_in_schema: group.column(at) for at in range(opened.metadata.num_columns)}
        values = list(below(opened.read_row_group(number).to_pylist(), path.split(".")))
        result += [(columns[path].statistics, values)] if path in columns else []
    return result


def is_honest(chunk: tuple[Any, list[Any]]) -> bool:
    """Whether the statistics have bounds if, and only if, there are values and none of them is NaN."""
    statistics, values = chunk
    has_values = any(value is not None for value in values)
    bounded = has_values and not any(map(has_nan, values))
    return bool(statistics.has_min_max == bounded and statistics.null_count == values.count(None))


@pytest.mark.parametrize("texts", [["x", None], [None, "x" * 64, None], ["", None, ""]])
@pytest.mark.parametrize("name", ["name", "a.b c"])
def test_one_text_and_nulls(tmp_path: Path, texts: list[str | None], name: str) -> None:
    """DuckDB 2.0 took a text that is the same in all rows for one without nulls, where the column had no dictionary."""
    shop = Shop(tmp_path)
    inner = {"type": ["null", "object"], "properties": {"t": STRING}}
    shop.load("s", {name: STRING, "in": inner}, [{name: text, "in": {"t": text}} for text in texts])
    files = [str(path) for path in (tmp_path / "lake/shop/s").glob("*.parquet")]
    for column in (f'"{name}"', '"in".t'):
        query = f"select count(*) from read_parquet({files}) where {column} is null"
        assert duckdb.connect().execute(query).fetchone() == (texts.count(None),)


def test_iceberg_has_no_bounds_that_mislead(tmp_path: Path) -> None:
    """Its metadata has bounds of a column only where each row group has; by a note also of files of older versions."""
    shop = Shop(tmp_path, format="iceberg")
    properties = {"id": {"type": "integer"}, "v": NUMBER, "w": NUMBER, "name": STRING, "in": PROPERTIES["in"]}
    shop.load("s", properties, [{"id": 1, "v": NAN, "w": 1.0, "name": "a", "in": {"v": NAN}}, {"id": 2, "v": 1.0}])
    shop.load("s", properties, [{"id": 3, "name": "b"}, {"id": 4, "name": "x" * 5000}])
    with catalog_of(shop.storage) as catalog:
        table = catalog.load_table("shop.s")
        files = sorted(table.inspect.files().to_pylist(), key=lambda one: one["readable_metrics"]["id"]["lower_bound"])
    names = {field: table.schema().find_column_name(field) for field in table.schema().field_ids}
    for side in ("lower_bounds", "upper_bounds"):
        bounded = [{names[field] for field, _ in one[side]} for one in files]
        assert bounded == [{"id", "w", "name"}, {"id"}]
    nulls = [{names[field]: count for field, count in one["null_value_counts"]} for one in files]
    assert [(one["v"], one["name"]) for one in nulls] == [(0, 1), (2, 0)]
    assert [one["nan_value_counts"] for one in files] == [[], []]
