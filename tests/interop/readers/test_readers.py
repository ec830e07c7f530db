"""Every reader on this machine has the rows of every table, with the statement that we print for it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog
from pyiceberg.table import Table

from tests.interop.catalogs.reference import Reference
from tests.interop.maven import maven_files
from tests.interop.readers import venvs
from tests.interop.readers.lakes import FilledLake, Rows, filled
from tests.interop.readers.trino import Trino
from tests.interop.readers.venvs import answers
from tests.interop.readers.worker import plain

pytestmark = pytest.mark.timeout(900)
FORMATS = ["parquet", "delta", "iceberg"]
SCANS = {
    ("partitioned", "code = '01'"): (1, 1, 3),
    ("partitioned", "code IS NULL"): (1, 1, 3),
    ("partitioned", "at >= TIMESTAMP '2025-01-01 00:00:00 UTC'"): (1, 1, 3),
    ("upserted", "code = 'c'"): (2, 2, 5),
    ("upserted", "code = 'b' AND n > 0"): (1, 1, 5),
    ("respread", "at < TIMESTAMP '1970-01-01 00:00:00 UTC'"): (1, 1, 3),
    ("respread", "flag = true"): (1, 1, 3),
    ("emptied", "code = 'x'"): (1, 1, 4),
    ("emptied", "code = ''"): (2, 2, 4),
}
"""Tables and filters on columns of partitions: the rows that fit, the files that are opened, and all files."""


@pytest.fixture(scope="module")
def catalog() -> Iterator[Reference]:
    with Reference() as server:
        yield server


@pytest.fixture(scope="module")
def lakes(catalog: Reference, tmp_path_factory: pytest.TempPathFactory) -> dict[str, FilledLake]:
    return {kind: filled(tmp_path_factory.mktemp(kind), kind, catalog.properties) for kind in FORMATS}


def check(lake: FilledLake, found: dict[str, Any]) -> None:
    """Each table has its rows: all of them, once, each value as it was sent."""
    assert {table: _plain(rows) for table, rows in found.items()} == {
        table: _plain(rows) for table, rows in lake.rows.items()
    }


def _plain(rows: Any) -> Any:
    """Rows in the order of their ids, a decimal as text; an engine's error stays as it is."""
    if isinstance(rows, str):
        return rows
    texts = [
        {name: f"{value:g}" if name == "price" and isinstance(value, float) else value for name, value in row.items()}
        for row in rows
    ]
    return sorted((plain(row) for row in texts), key=lambda row: row["id"])


def _asked(engine: str, lake: FilledLake, settings: dict[str, Any], folder: Path, *, named: bool, **flags: Any) -> None:
    """Ask one engine for all tables; `named`: its statement makes a table instead of reading one."""
    questions = [
        {"statement": lake.statement(table, engine, **flags)} | ({"name": table} if named else {})
        for table in lake.rows
    ]
    check(lake, dict(zip(lake.rows, answers(engine, questions, settings, folder), strict=True)))


@pytest.mark.parametrize("kind", FORMATS)
def test_duckdb(kind: str, lakes: dict[str, FilledLake], catalog: Reference, tmp_path: Path) -> None:
    """DuckDB: by the folder, by `delta_scan`, and through the REST catalog; each by the manifest, too."""
    extensions = {"parquet": [], "delta": ["delta"], "iceberg": ["avro", "httpfs", "iceberg"]}[kind]
    attach = f"ATTACH '' AS lake (TYPE iceberg, ENDPOINT '{catalog.uri}', AUTHORIZATION_TYPE 'none')"
    settings = {"extensions": extensions, "first": [attach] if kind == "iceberg" else []}
    _asked("duckdb", lakes[kind], settings, tmp_path, named=False)
    _asked("duckdb", lakes[kind], {}, tmp_path, named=False, manifest=True)


@pytest.mark.parametrize("kind", FORMATS)
def test_python(kind: str, lakes: dict[str, FilledLake], monkeypatch: pytest.MonkeyPatch) -> None:
    """Polars and pyarrow, by the format and by the manifest."""
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")
    lake = lakes[kind]
    for dialect in ("polars", "pyarrow"):
        for manifest in (False, True):
            check(lake, {table: _run(lake.statement(table, dialect, manifest=manifest), table) for table in lake.rows})


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_files_are_skipped(kind: str, lakes: dict[str, FilledLake], catalog: Reference) -> None:
    """A filter on the column of a partition opens that one file of three, by Delta's log or Iceberg's plan."""
    lake, at = lakes[kind], datetime(2025, 1, 1, tzinfo=timezone.utc)
    if kind == "iceberg":
        table = load_catalog("lake", **catalog.properties).load_table("shop.partitioned")
        filters = [f"at >= '{at.isoformat()}'", "code = '01'", "code is null", "id > 0"]
        counts = [len(list(table.scan(one).plan_files())) for one in filters]
        assert not any(task.delete_files for task in table.scan().plan_files())
    else:
        own = DeltaTable(f"{lake.shop.root}/shop/partitioned").to_pyarrow_dataset()
        code, stamp = ds.field("code"), ds.field("at")
        counts = [len(list(own.get_fragments(one))) for one in (stamp >= at, code == "01", code.is_null(), None)]
    assert counts == [1, 1, 1, 3]


def test_iceberg_says_how_files_lie(lakes: dict[str, FilledLake], catalog: Reference) -> None:
    """The catalog has partitions, by which a filter opens the right files alone, and the order in which files are."""

    def table(name: str) -> Table:
        return load_catalog("lake", **catalog.properties).load_table(f"shop.{name}")

    def partitions(name: str, filter_: str) -> list[str]:
        return sorted(str(task.file.partition) for task in table(name).scan(filter_).plan_files())

    assert lakes["iceberg"].rows
    assert [str(one.transform) for one in table("partitioned").spec().fields] == ["identity", "day"]
    assert partitions("partitioned", "code = '01'") == ["Record[01, 20089]"]
    assert partitions("upserted", "code = 'c'") == ["Record[c]", "Record[c]"]
    assert partitions("respread", "at < '1970-01-01T00:00:00+00:00'") == ["Record[-1, False]"]
    assert partitions("emptied", "code = 'x'") == ["Record[x]"]
    assert partitions("emptied", "code = ''") == ["Record[]", "Record[]"]
    assert [task.file.spec_id for task in table("emptied").scan("code is null").plan_files()] == [0]
    order = table("upserted").sort_order()
    assert [(one.source_id, str(one)) for one in order.fields] == [(3, "3 DESC NULLS LAST")]
    assert {task.file.sort_order_id for task in table("upserted").scan().plan_files()} == {order.order_id}


def _run(code: str, name: str) -> Rows:
    names: dict[str, Any] = {}
    exec(compile(code, "code", "exec"), names)
    found = names[name]
    if hasattr(found, "collect"):
        return list(found.collect().to_dicts())
    return list((found.to_table() if hasattr(found, "to_table") else found).to_pylist())


def _spark(catalog: Reference) -> dict[str, str]:
    """The settings of a session with the connectors of the formats."""
    iceberg = f"org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:{venvs.ICEBERG}"
    delta = [f"io.delta:delta-spark_4.1_2.13:{venvs.DELTA}", f"io.delta:delta-storage:{venvs.DELTA}"]
    jars = maven_files(f"spark-connectors-{venvs.SPARK}", iceberg, *delta, alone=True).glob("*.jar")
    return {
        "spark.jars": ",".join(map(str, jars)),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.type": "rest",
        "spark.sql.catalog.lake.uri": catalog.uri,
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "1",
        "spark.ui.enabled": "false",
        "spark.driver.memory": "1g",
    }


def test_spark(lakes: dict[str, FilledLake], catalog: Reference, tmp_path: Path) -> None:
    """Spark with Iceberg's and Delta's own connectors: a table of its catalog, of a folder, and of the REST catalog.

    Of a table in Iceberg a filter on the column of a partition opens the files that have it, and no other.
    """
    tables = [(kind, table) for kind, lake in lakes.items() for table in lake.rows]
    questions = [
        {"statement": lakes[kind].statement(table, "spark")} | ({} if kind == "iceberg" else {"name": table})
        for kind, table in tables
    ]
    for table, filter_ in SCANS:
        questions.append({"statement": f"SELECT * FROM lake.shop.{table} WHERE {filter_}", "scan": "yes"})
        questions.append({"statement": f"SELECT count(*) AS files FROM lake.shop.{table}.files"})
    asked = answers("spark", questions, {"spark": _spark(catalog)}, tmp_path)
    found = dict(zip(tables, asked, strict=False))
    rest = iter(asked[len(tables) :])
    assert {scan: [*next(rest), *next(rest)] for scan in SCANS} == {
        scan: [{"rows": rows, "opened": opened}, {"files": files}] for scan, (rows, opened, files) in SCANS.items()
    }
    for kind, lake in lakes.items():
        check(lake, {table: found[kind, table] for table in lake.rows})


def test_trino(lakes: dict[str, FilledLake], catalog: Reference) -> None:
    """Trino: a table of Hive's connector, one that its Delta connector registers, and the REST catalog's."""
    with Trino(catalog.uri) as trino:
        for kind, lake in lakes.items():
            where, found = {"parquet": "hive", "delta": "delta", "iceberg": "lake"}[kind], {}
            if kind != "iceberg":
                trino.query("CREATE SCHEMA IF NOT EXISTS default", where)
            for table in lake.rows:
                location = f"file://{lake.shop.root}" if kind == "parquet" else None
                said = lake.statement(table, "trino", location=location).rstrip().rstrip(";")
                rows = trino.query(said, where)
                found[table] = rows if kind == "iceberg" else trino.query(f'SELECT * FROM "{table}"', where)
            check(lake, {table: [_without_zone(row) for row in rows] for table, rows in found.items()})
        for (table, filter_), (rows_, _, files) in SCANS.items():
            assert len(trino.query(f'SELECT * FROM shop."{table}" WHERE {filter_}', "lake")) == rows_
            if table != "respread":  # Trino cannot list files where the column of an earlier partition is no more
                assert trino.query(f'SELECT count(*) AS files FROM shop."{table}$files"', "lake") == [{"files": files}]


def _without_zone(row: dict[str, Any]) -> dict[str, Any]:
    """Trino's times, as text, as the other engines have them."""
    at = row.get("at")
    return row if at is None else row | {"at": str(at).removesuffix(" UTC").replace(" ", "T").rstrip("0").rstrip(".")}


@pytest.mark.parametrize("kind", FORMATS)
def test_clickhouse(kind: str, lakes: dict[str, FilledLake], tmp_path: Path) -> None:
    """ClickHouse has the same rows, by its functions for files, Delta and Iceberg in a folder."""
    lake = lakes[kind]
    read = {"parquet": "file('{}/**/*.parquet')", "delta": "deltaLakeLocal('{}')", "iceberg": "icebergLocal('{}')"}[
        kind
    ]
    facts = {"schema_inference_mode": "'union'", "use_hive_partitioning": 0, "session_timezone": "'UTC'"}
    facts |= {"output_format_json_quote_64bit_integers": 0, "date_time_output_format": "'iso'"}
    end = f"SETTINGS {', '.join(f'{name} = {value}' for name, value in facts.items())}"
    # Files are read below the folder where ClickHouse was started; Delta's library wants the whole path.
    root = f"{lake.shop.root}/shop" if kind == "delta" else "shop"
    questions = [{"statement": f"SELECT * FROM {read.format(f'{root}/{table}')} {end}"} for table in lake.rows]
    found = answers("clickhouse", questions, {}, lake.shop.root)
    for row in (row for rows in found for row in rows if "at" in row):
        row["at"] = row["at"] and str(row["at"]).partition(".")[0]
    check(lake, dict(zip(lake.rows, found, strict=True)))
