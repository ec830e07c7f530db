"""`format("singer")` in a session of a user's own: batch, SQL, streams, a query that is killed, a cluster."""

from __future__ import annotations

import json
import math
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest
from pyspark.sql import SparkSession

from bridge.lake.commit.rollback import roll_back
from bridge.load.spark.session import Session
from bridge.read.spark_source import SingerSource, register
from tests.support.cluster import EXECUTORS_NEED, make_venv, running_cluster
from tests.support.spark_source import Row
from tests.support.tables import INTEGER, STRING, Shop, filled

pytestmark = pytest.mark.timeout(600)

KILLS = min(int(os.environ.get("KILLS", "5")), 20)
SECRET = "never-in-a-plan"
USERS = {"id": {"type": "integer"}, "name": STRING}


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    folder: Path = tmp_path_factory.mktemp("spark")
    conf = {"spark.sql.python.filterPushdown.enabled": "true", "spark.sql.shuffle.partitions": "2"}
    session = Session("local[2]", conf, folder / "scratch", folder / "log")
    session.spark.dataSource.register(SingerSource)
    yield session.spark
    session.close(hurry=True)


def upsert(shop: Shop, *rows: tuple[int, str]) -> None:
    shop.layout = {"keys": ("id",)}
    records = [{"id": n, "name": name} for n, name in rows]
    shop.load("users", USERS, records, mode="upsert", keys=("id",), hard_delete=True)
    shop.layout = {}


def read(spark: SparkSession, shop: Shop, **options: str) -> Any:
    return spark.read.format("singer").options(**options).load(str(shop.root))


def test_a_session_reads_what_duckdb_reads(tmp_path: Path, spark: SparkSession) -> None:
    """Every type and odd name; SQL with a join and filters that are pushed down; a commit of the past; many parts."""
    shop, rows = filled(tmp_path)
    for stream, expected in rows.items():
        got = [row.asDict(recursive=True) for row in read(spark, shop, table=stream).collect()]
        assert [sorted(row) for row in got] == [sorted(row) for row in expected]
        assert len(got) == len(expected)
    for n in range(4):
        shop.load("events", {"id": INTEGER, "day": INTEGER}, [{"id": n * 100 + k, "day": k % 7} for k in range(100)])
    read(spark, shop, table="events", pushFilters="true", MAXPARTITIONBYTES="500").createOrReplaceTempView("events")
    path, question = (
        f"{shop.root}/shop/events/*.parquet",
        "SELECT day, count(*), sum(id) FROM {} WHERE id >= 250 AND id < 399 GROUP BY day ORDER BY day",
    )
    got = [tuple(row) for row in spark.sql(question.format("events")).collect()]
    assert got == duckdb.sql(question.format(f"'{path}'")).fetchall()
    joined = spark.sql("SELECT count(*) FROM events a JOIN events b ON a.id = b.id AND b.day = 3").collect()[0][0]
    assert joined == duckdb.sql(f"SELECT count(*) FROM '{path}' WHERE day = 3").fetchall()[0][0]
    assert read(spark, shop, table="events", commit=str(shop._head - 2)).count() == 200
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW v USING singer OPTIONS (path '{shop.root}', table 'events')")
    assert spark.sql("SELECT max(id) FROM v").collect()[0][0] == 399
    spark.catalog.dropTempView("events")
    spark.catalog.dropTempView("v")


@pytest.mark.parametrize("values", [[1.0, 3.0, math.nan], [math.nan], [7.0, math.nan, 7.0, None]])
def test_nan_is_the_greatest_number(tmp_path: Path, spark: SparkSession, values: list[float]) -> None:
    """Spark finds as many rows of the files, and of the table with filters pushed down, as without any statistics."""
    shop = Shop(tmp_path)
    inner = {"type": "object", "properties": {"v": {"type": "number"}}}
    number = {"type": ["null", "number"]}
    shop.load("s", {"v": number, "in": inner}, [{"v": value, "in": {"v": value}} for value in values])
    frames = spark.read.parquet(f"{shop.root}/shop/s"), read(spark, shop, table="s", pushFilters="true")
    for condition in ("v > 5", "v <> 3", "v >= 7", "v < 5", "v = 7", "in.v > 5", "v = double('NaN')", "v is null"):
        expected = frames[0].cache().where(condition.replace("v", "v + 0", 1)).count()
        frames[0].unpersist()
        assert [frame.where(condition).count() for frame in frames] == [expected, expected], condition


def test_an_error_comes_before_any_task(tmp_path: Path, spark: SparkSession) -> None:
    """Wrong options name the right ones when the frame is made; no plan shows a secret."""
    shop = Shop(tmp_path)
    shop.load("orders", {"id": INTEGER}, [{"id": 1}])
    tracker, before = spark.sparkContext.statusTracker(), len(spark.sparkContext.statusTracker().getJobIdsForGroup())
    for options, message, hint in (
        ({"table": "order"}, "no such table", 'did you mean "orders"?'),
        ({"table": "orders", "pipeline": "shp"}, "no such pipeline", 'did you mean "shop"?'),
        ({"table": "orders", "commit": "9"}, "no such commit", "the last one is 1"),
        ({"tabel": "orders"}, "tabel: no such option", 'did you mean "table"?'),
        ({"table": "orders", "to": "1"}, "to: not of a table", "changes"),
    ):
        with pytest.raises(Exception, match=message) as raised:
            read(spark, shop, **options)
        assert hint in str(raised.value)
    assert len(tracker.getJobIdsForGroup()) == before
    frame = read(spark, shop, table="orders", aws_secret_access_key=SECRET)
    plans = frame._jdf.queryExecution().toString() + frame._jdf.queryExecution().logical().toJSON()
    assert "singer" in plans
    assert SECRET not in plans
    with pytest.raises(Exception, match="only reads a lake"):
        frame.write.format("singer").mode("append").save(str(shop.root))


def stream(spark: SparkSession, shop: Shop, folder: Path, **options: str) -> Any:
    """A query that is read until all is there, into Parquet files."""
    frame = spark.readStream.format("singer").options(changes="true", **options).load(str(shop.root))
    query = (
        frame.writeStream.format("parquet")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(folder / "sink"))
    )
    query.awaitTermination()
    return query


def committed(folder: Path, columns: str) -> list[tuple[Any, ...]]:
    """The rows in the files that Spark's sink has committed, as DuckDB reads them."""
    logs = sorted((folder / "sink" / "_spark_metadata").glob("[0-9]*"))
    entries = [json.loads(line) for log in logs for line in log.read_text().splitlines()[1:]]
    names = sorted({entry["path"].removeprefix("file://") for entry in entries})
    return duckdb.sql(f"SELECT {columns} FROM read_parquet({names}) ORDER BY ALL").fetchall()


def test_a_stream_gives_each_change_once(tmp_path: Path, spark: SparkSession) -> None:
    """The table, then changes, over restarts and with few commits a batch; a rollback ends it with what to do."""
    shop = Shop(tmp_path)
    upsert(shop, (1, "a"), (2, "a"))
    stream(spark, shop, tmp_path, table="users")
    for n in range(3, 8):
        upsert(shop, (n, "a"), (2, f"b{n}"))
    stream(spark, shop, tmp_path, table="users", maxCommitsPerTrigger="2")
    offsets = [(tmp_path / "checkpoint" / "offsets" / str(batch)).read_text() for batch in (1, 2, 3)]
    assert [json.loads(text.splitlines()[-1])["commit"] for text in offsets] == [3, 5, 6]
    stream(spark, shop, tmp_path, table="users")
    assert committed(tmp_path, "_commit, _change, id, name") == [
        (1, "insert", 1, "a"),
        (1, "insert", 2, "a"),
        *((n - 1, *row) for n in range(3, 8) for row in (("insert", n, "a"), ("update", 2, f"b{n}"))),
    ]
    roll_back(shop.storage, "shop", 3)
    with pytest.raises(Exception, match=r"(?s)it was rolled back commit=\d+.*a new checkpoint"):
        stream(spark, shop, tmp_path, table="users")


def test_a_batch_of_changes_merges_into_a_copy(tmp_path: Path, spark: SparkSession) -> None:
    """`foreachBatch` keeps a copy: after an overwrite, too, it is what DuckDB reads in the lake."""
    shop = Shop(tmp_path)
    upsert(shop, (1, "a"), (2, "a"))
    upsert(shop, (2, "b"), (3, "a"))
    shop.load("users", USERS, [{"id": 7, "name": "x"}, {"id": 8, "name": "y"}], mode="overwrite", keys=("id",))
    copy: dict[int, str] = {}

    def apply(batch: Any, _number: int) -> None:
        for row in batch.orderBy("_commit").collect():
            if row["_change"] == "truncate":
                copy.clear()
            elif row["_change"] == "delete":
                del copy[row["id"]]
        for row in batch.where("_change in ('insert', 'update')").orderBy("_commit").collect():
            copy[row["id"]] = row["name"]

    frame = spark.readStream.format("singer").options(changes="true", table="users", startingCommit="1")
    query = (
        frame.option("maxCommitsPerTrigger", "1")
        .load(str(shop.root))
        .writeStream.foreachBatch(apply)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    rows = duckdb.sql(f"SELECT id, name FROM '{shop.root}/shop/users/*.parquet' ORDER BY id").fetchall()
    assert sorted(copy.items()) == rows == [(7, "x"), (8, "y")]


QUERY = """
import sys
from pyspark.sql import SparkSession
from bridge.read.spark_source import SingerSource

lake, folder = sys.argv[1:]
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
spark.dataSource.register(SingerSource)
frame = spark.readStream.format("singer").options(changes="true", table="log", maxCommitsPerTrigger="2").load(lake)
sink = frame.writeStream.format("parquet").option("checkpointLocation", folder + "/checkpoint")
query = sink.trigger(processingTime="0 seconds").start(folder + "/sink")
print("started", flush=True)
query.awaitTermination()
"""


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_query_killed_at_random(tmp_path: Path) -> None:
    """`kill -9` of driver and JVM at random moments, with commits meanwhile: each row of the lake once in the sink."""
    dice, shop, total = random.Random(int(os.environ.get("SEED", "1"))), Shop(tmp_path), 0
    for life in range(KILLS + 1):
        for _ in range(4):
            shop.load("log", {"id": INTEGER}, [{"id": total + n} for n in range(500)])
            total += 500
        words = [sys.executable, "-c", QUERY, str(shop.root), str(tmp_path)]
        environ = os.environ | {"PYSPARK_PYTHON": sys.executable}
        with (
            (tmp_path / "log").open("ab") as log,
            subprocess.Popen(words, stdout=subprocess.PIPE, stderr=log, env=environ, start_new_session=True) as process,
        ):
            assert process.stdout is not None
            assert process.stdout.readline() == b"started\n", (tmp_path / "log").read_text()[-3000:]
            deadline, before = time.monotonic() + 120, _batches(tmp_path)
            while not _has(tmp_path, total) and time.monotonic() < deadline:
                if life < KILLS and _batches(tmp_path) > before:
                    time.sleep(dice.uniform(0, 1.5))  # somewhere in a batch
                    break
                time.sleep(0.02)
            os.killpg(process.pid, signal.SIGKILL)
    assert committed(tmp_path, "id") == [(n,) for n in range(total)]


def _batches(folder: Path) -> int:
    """How many batches Spark has planned, of the last ones."""
    return max((int(path.name) for path in (folder / "checkpoint" / "offsets").glob("[0-9]*")), default=-1)


def _has(folder: Path, total: int) -> bool:
    try:
        return len(committed(folder, "id")) >= total
    except (duckdb.Error, ValueError, OSError):
        return False


@pytest.mark.slow
def test_a_cluster_without_bridge(tmp_path: Path) -> None:
    """Executors that have only what docs/cluster.md asks for read a table and changes by what is shipped to them."""
    shop = Shop(tmp_path)
    upsert(shop, *((n, "a") for n in range(100)))
    upsert(shop, *((n, "b") for n in range(50, 150)))
    python = make_venv(tmp_path / "venv", *EXECUTORS_NEED)
    with running_cluster(tmp_path, python=python) as cluster:
        cluster.grow(2)
        words = [sys.executable, "-c", CLUSTER, cluster.master, str(python), str(shop.root)]
        done = subprocess.run(words, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout.splitlines()[-1]) == [150, {"insert": 50, "update": 50}]


CLUSTER = """
import json, os, sys
from pyspark.sql import SparkSession
from bridge.read.spark_source import register

master, python, lake = sys.argv[1:]
os.environ["PYSPARK_PYTHON"] = sys.executable  # of the driver's own Python workers, which plan
builder = SparkSession.builder.master(master).config("spark.pyspark.python", python)
spark = builder.config("spark.driver.host", "127.0.0.1").config("spark.executor.memory", "512m").getOrCreate()
register(spark, ship=True)
read = spark.read.format("singer").option("table", "users")
count = read.load(lake).count()
changes = read.option("changes", "true").option("from", 2).load(lake).groupBy("_change").count().collect()
print(json.dumps([count, {row["_change"]: row["count"] for row in sorted(changes)}]))
"""


def test_a_session_registers_it_in_one_call(tmp_path: Path, spark: SparkSession) -> None:
    """`register(spark)` is the same as Spark's own call, and may be repeated."""
    register(spark)
    shop = Shop(tmp_path)
    shop.load("t", {"id": INTEGER}, [{"id": 1}])
    rows: list[Row] = [row.asDict() for row in read(spark, shop, table="t").collect()]
    assert rows == [{"id": 1}]
