"""Streams whose rows go through Spark SQL: real Spark, rows read by DuckDB, and what is refused before a row is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import datetime
from decimal import Decimal
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from bridge.errors import SettingsError
from bridge.load.spark.transform import analysed
from bridge.protocol.schema.json_schema import TIMESTAMP
from bridge.protocol.schema.table_schema import TableSchema
from bridge.settings.sql.transform import read_transform
from tests.crash.orchestrator import Strike
from tests.e2e.conftest import Project, wait_until_gone
from tests.support.lookups import NO_LOOKUPS

RECORDS = 60
PROPERTIES = {
    "id": {"type": "integer"},
    "Email": {"type": ["null", "string"]},
    "amount": {"type": ["null", "number"], "multipleOf": 0.01},
    "at": {"type": ["null", "string"], "format": "date-time"},
    "place": {"type": ["null", "object"], "properties": {"x": {"type": ["null", "integer"]}}},
    "tags": {"type": ["null", "array"], "items": {"type": "string"}},
    "payload": {},
}
SETTINGS = """\
pipelines:
  smoke:
    source: {tap: [%s, tap.py]}
    destination: {bucket: lake, add_record_metadata: true}
    streams:
      orders:
        transform: >
          SELECT id, lower(Email) AS email, amount * 2 AS twice, at, place, tags, payload, id %% 10 = 0 AS tenth
          FROM stream WHERE id <> 7
      none: {transform: "SELECT * FROM stream WHERE id IS NULL AND id IS NOT NULL"}
      latest:
        load_method: upsert
        transform: SELECT *, upper(Email) AS loud FROM stream
      plain: {columns: ["!amount"], rename: {Email: mail}, add_record_metadata: false}
      wrong: {transform: SELECT nope FROM stream}
"""


def record(number: int) -> dict[str, Any]:
    found: dict[str, Any] = {"id": number, "Email": f"U{number}@X.COM", "amount": number / 4}
    found |= {"at": "2024-01-01T00:00:00+02:00", "place": {"x": number}, "tags": ["a", str(number)]}
    return found | {"payload": {"k": [number]}}


def messages(*streams: str) -> list[dict[str, Any]]:
    """What the tap says: each stream has a record that is a reject and one with a field too many; a key comes twice."""
    schema = {"type": "object", "properties": PROPERTIES}
    said: list[dict[str, Any]] = []
    for name in streams:
        keys = {"key_properties": ["id"], "bookmark_properties": ["id"]}
        said.append({"type": "SCHEMA", "stream": name, "schema": schema, **keys})
        records = [record(number) for number in range(1, RECORDS + 1)]
        records += [record(1) | {"id": "none"}, record(2) | {"extra": 1, "Email": "again@x.com"}]
        taken = {"time_extracted": "2024-05-05T00:00:00Z"}
        said += [{"type": "RECORD", "stream": name, "record": each} | taken for each in records]
    bookmarks = {name: {"replication_key": "id", "replication_key_value": RECORDS} for name in streams}
    return [*said, {"type": "STATE", "value": {"bookmarks": bookmarks}}]


def prepare(project: Project, *streams: str) -> None:
    (project.folder / "bridge.yaml").write_text(SETTINGS % json.dumps(sys.executable))
    lines = [json.dumps(message) for message in messages(*streams)]
    (project.folder / "messages.singer").write_text("\n".join(lines) + "\n")
    (project.folder / "tap.py").write_text("print(open('messages.singer').read(), end='')\n")


def table(project: Project, stream: str, columns: str = "*") -> list[tuple[Any, ...]]:
    folder = project.lake / "smoke" / stream
    query = f"select {columns} from read_parquet('{folder}/*.parquet', union_by_name=true) order by id, email"
    return duckdb.sql(query).fetchall()


def test_rows_go_through_the_statement(project: Project) -> None:
    """Each record is a row, a reject or filtered; streams without a statement, with one, and an upsert in one run.

    A Python worker is killed when its rows are decoded and counted, before it tells: what Spark runs again counts once.
    """
    prepare(project, "orders", "none", "latest", "plain")
    struck = project.folder / "struck"
    strike = Strike(r"os.scandir .*/singer-bridge-\d+", 1, None, "pyspark.worker")
    project.environ |= strike.environment(struck)
    done = project.command("run", "smoke", "--json", timeout=500)
    assert done.code == 0, done.err
    assert struck.exists()
    figures = {name: (s["records"], s["rejected"], s["filtered"]) for name, s in done.json["streams"].items()}
    every = RECORDS + 1
    assert figures == {
        "orders": (every - 1, 1, 1),
        "none": (0, 1, every),
        "latest": (every, 1, 0),
        "plain": (every, 1, 0),
    }
    rows = table(project, "orders", "id, email, twice, place, tags, payload, tenth, _sdc_extra")
    ids = [1, 2, 2, *range(3, 7), *range(8, RECORDS + 1)]
    assert [row[0] for row in rows] == ids
    assert rows[2] == (2, "u2@x.com", Decimal("1.00"), {"x": 2}, ["a", "2"], '{"k":[2]}', False, None)
    assert rows[1][1:2] + rows[1][7:] == ("again@x.com", '{"extra":1}')
    times = (
        "id, email, \"at\" at time zone 'UTC', _sdc_extracted_at at time zone 'UTC', _sdc_received_at = _sdc_batched_at"
    )
    assert table(project, "orders", times)[0][2:] == (datetime(2023, 12, 31, 22), datetime(2024, 5, 5), True)
    assert table(project, "none") == []
    latest = table(project, "latest", "id, email, loud")
    assert [row[0] for row in latest] == list(range(1, RECORDS + 1))
    assert latest[1] == (2, "again@x.com", "AGAIN@X.COM")
    plain = duckdb.sql(
        f"describe from read_parquet('{project.lake}/smoke/plain/*.parquet', union_by_name=true)"
    ).fetchall()
    assert [column[0] for column in plain] == ["id", "mail", "at", "place", "tags", "payload", "_sdc_extra"]
    assert not list(project.lake.glob(".bridge/smoke/pending/*"))


PACED = """\
import json, pathlib, time

def say(*messages):
    print(*map(json.dumps, messages), sep="\\n", flush=True)

def orders(*amounts):
    return [{"type": "RECORD", "stream": "orders", "record": {"id": n, "amount": n}} for n in amounts]

def state(reached):
    bookmark = {"replication_key": "id", "replication_key_value": reached}
    return {"type": "STATE", "value": {"bookmarks": {"orders": bookmark}}}

schema = {"properties": {"id": {"type": "integer"}, "amount": {"type": "integer"}}}
say({"type": "SCHEMA", "stream": "orders", "schema": schema, "key_properties": []})
say(*orders(1, 2, 3))
time.sleep(1.2)
say(state(3))
while not pathlib.Path("lake/.bridge/smoke/state.json").exists():
    time.sleep(0.05)
say(*orders(4, 0, 5), state(5))
"""


@pytest.mark.usefixtures("in_process")
def test_a_record_that_the_statement_cannot_take(project: Project) -> None:
    """The run says which stream and what Spark says; what was committed stays, and no bookmark passes the record."""
    text = "SELECT id, 60 div amount AS share FROM stream"
    settings = {
        "source": {"tap": [sys.executable, "tap.py"]},
        "destination": {"bucket": "lake"},
        "commit": {"every": "1s"},
        "streams": {"orders": {"transform": text}},
    }
    (project.folder / "bridge.yaml").write_text(json.dumps({"pipelines": {"smoke": settings}}))
    (project.folder / "tap.py").write_text(PACED)
    done = project.command("run", "smoke", "--json", timeout=500)
    assert done.code == 1, done.err
    error = done.json["error"]
    assert (error["type"], "orders" in error["message"]) == ("DataError", True), error
    assert error["message"].startswith("the transform failed on a record")
    assert "DIVIDE_BY_ZERO" in error["hint"]
    assert project.rows("orders", "id, share") == [(1, 60), (2, 30), (3, 20)]
    assert project.state()["bookmarks"]["orders"]["replication_key_value"] == 3


@pytest.mark.usefixtures("in_process")
def test_a_column_that_is_not_there_is_told_before_a_row_is_stored(project: Project) -> None:
    """Spark's words, exit code 2, no commit; the streams before it are not stored either."""
    prepare(project, "plain", "wrong")
    done = project.command("run", "smoke", "--json", timeout=500)
    assert done.code == 2
    assert done.json["error"]["message"].startswith("the transform does not fit the stream")
    assert "nope" in done.json["error"]["hint"]
    assert "Email" in done.json["error"]["hint"]
    assert "Logger" not in done.err  # pyspark's own report, with Java's stack
    assert done.json["commits"] == 0
    assert not list(project.lake.glob("smoke/**/*.parquet"))


_STRUCK = """
import os, psutil, signal, sys
import bridge.load.spark.transform as transform
from bridge.cli import main
analysed = transform.analysed
def struck(*asked, **more):
    for child in psutil.Process().children(recursive=True):
        if child.name() == "java":
            os.kill(child.pid, signal.Signals[sys.argv[1]])
    return analysed(*asked, **more)
transform.analysed = struck
sys.exit(main(["run", "smoke", "--timeout", "40s", "--no-progress"]))
"""


@pytest.mark.usefixtures("in_process")
@pytest.mark.parametrize(
    ("struck", "reason"),
    [("SIGKILL", "Spark's JVM is gone"), ("SIGSTOP", "the run took longer than its time-out")],
)
def test_a_jvm_that_dies_or_hangs_while_it_looks_at_a_transform(project: Project, struck: str, reason: str) -> None:
    """The run ends with what to do, within its time; nothing is committed, no Java is left, the next run loads all."""
    prepare(project, "orders")
    environ = project.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    argv = [sys.executable, "-c", _STRUCK, struck]
    done = subprocess.run(
        argv, cwd=project.folder, env=environ, capture_output=True, text=True, timeout=110, check=False
    )
    assert done.returncode == 1, done.stderr
    assert reason in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(project.lake.glob("smoke/**/*.parquet"))
    wait_until_gone(project.folder, 20)
    assert project.command("run", "smoke").code == 0
    assert {row[0] for row in table(project, "orders", "id")} == {*range(1, RECORDS + 1)} - {7}


READ = TableSchema(
    pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False),
            pa.field("name", pa.string(), metadata={b"singer": b"Name"}),
            pa.field("payload", pa.string(), metadata={b"kind": b"json"}),
            pa.field("price", pa.decimal128(10, 2)),
            pa.field("at", TIMESTAMP),
            pa.field("place", pa.struct([pa.field("x", pa.int64())])),
            pa.field("tags", pa.list_(pa.string())),
        ]
    )
)


def test_what_spark_makes_becomes_columns(spark: SparkSession) -> None:
    """Types, JSON, keys that are never null, and the tap's name of a column that keeps its own."""
    text = (
        "SELECT *, CAST(id AS smallint) AS small, price * 2 AS twice, date(at) AS day, place.x, size(tags) AS n, "
        "id / 2 AS half, id > 1 AS more, payload AS again, struct(id, name) AS pair, array(price) AS prices FROM stream"
    )
    made = analysed(spark, read_transform(text), READ, "s", metadata=False, lookups=NO_LOOKUPS)
    assert pa.schema(list(made)[:7]).equals(READ.arrow, check_metadata=True)
    types = {field.name: field.type for field in list(made)[7:]}
    assert types == {
        "small": pa.int64(),
        "twice": pa.decimal128(12, 2),
        "day": pa.date32(),
        "x": pa.int64(),
        "n": pa.int64(),
        "half": pa.float64(),
        "more": pa.bool_(),
        "again": pa.string(),
        "pair": pa.struct([("id", pa.int64()), ("name", pa.string())]),
        "prices": pa.list_(pa.decimal128(10, 2)),
    }
    assert made.field("again").metadata == {b"kind": b"json"}


def test_what_only_spark_can_tell_is_refused_too(spark: SparkSession) -> None:
    """Whatever name a function has, its analysed plan says whether it is row by row."""
    wrong = {
        "SELECT nope FROM stream": "does not fit the stream",
        "SELECT id + 1 FROM stream": "a column of the transform has no name",
        "SELECT id, name AS ID FROM stream": "two columns of one name",
        "SELECT id AS _sdc_extra FROM stream": "is taken",
        "SELECT id AS _sdc_sequence FROM stream": "is taken",
        "SELECT CAST(id AS float) AS a FROM stream": "tables have no such type",
        "SELECT map(name, id) AS a FROM stream": "tables have no such type",
        "SELECT NULL AS a FROM stream": "tables have no such type",
        'SELECT "name" AS a FROM stream': "name of a column in double quotes",
        "SELECT id FROM stream WHERE 1 = 2": "WHERE names no column",
        "SELECT regr_count(id, id) AS a FROM stream": "not in a transform",
        "SELECT posexplode_outer(tags) FROM stream": "not in a transform",
        "SELECT session_user() AS a FROM stream": "not in a transform",
        "SELECT try_reflect('java.util.UUID', 'randomUUID') AS a FROM stream": "not in a transform",
    }
    for text, message in wrong.items():
        with pytest.raises(SettingsError) as caught:
            analysed(spark, read_transform(text), READ, "s", metadata=True, lookups=NO_LOOKUPS)
        assert message in caught.value.message, text


def test_a_text_that_spark_takes_for_the_time_of_the_run_is_refused(spark: SparkSession) -> None:
    """However it becomes a time; texts of the rows, and constant times, do not depend on the clock."""
    clock = [
        "to_date('today')",
        "to_timestamp('now')",
        "try_to_timestamp('now')",
        "to_timestamp_ltz(' Now')",
        "CAST(to_timestamp_ntz('yesterday UTC') AS timestamp)",
        "TRY_CAST('tomorrow' AS date)",
        "CAST(concat('no', 'w') AS timestamp)",
        "CAST(lower('TODAY') AS timestamp_ntz)",
        "date_add('today', 1)",
        "at > 'now'",
        "coalesce(to_date(name), to_date('today'))",
        "transform(tags, x -> to_date('today'))[0]",
    ]
    for text in clock:
        with pytest.raises(SettingsError) as caught:
            analysed(
                spark, read_transform(f"SELECT {text} AS a FROM stream"), READ, "s", metadata=True, lookups=NO_LOOKUPS
            )
        assert "is the time of the run" in caught.value.message, text
    for text in (
        "to_date(name)",
        "try_to_timestamp(name)",
        "to_date('2024-01-31')",
        "CAST(concat('2024', '-01-31') AS timestamp)",
        "CAST('nowhere' AS string)",
        "at > '2024-01-01'",
        "coalesce(at, CAST(NULL AS timestamp))",
        "to_timestamp('today', 'yyyy')",
        "nvl(nullif(name, left(name, 2)), split_part(right(name, 3), 'x', 1))",
        "contains(name, 'now') OR startswith(name, 'today') OR try_add(id, 1) > try_divide(id, 2)",
        "extract(YEAR FROM at) + date_part('day', at) + regexp_count(name, 'x') + len(btrim(name))",
        "CAST(try_to_number(name, '999') AS decimal(10, 2)) + try_element_at(array(price), 1)",
        "date_format(to_utc_timestamp(at, 'Europe/Berlin'), 'yyyy') || url_encode(get_json_object(payload, '$.a'))",
    ):
        analysed(spark, read_transform(f"SELECT {text} AS a FROM stream"), READ, "s", metadata=True, lookups=NO_LOOKUPS)
