"""BATCH of Arrow from real writers: the Singer SDK 0.55 with its own encoder, and ADBC from a real PostgreSQL."""

from __future__ import annotations

import json
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

from .postgresql import PostgreSql, postgresql
from .realtaps import Project, adbc_tap

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

TABLES = """
create table kinds (
  id bigint primary key, at timestamptz, naive timestamp, day date, clock time, exact numeric(30, 9), free numeric,
  amount double precision, small smallint, one real, yes boolean, code uuid, doc jsonb, text text, bytes bytea,
  many int[], words text[], span interval);
insert into kinds select n, timestamptz '2024-03-01 00:00:00.123456+02' + n * interval '1 minute',
  '2024-03-01'::timestamp + n * interval '1 day', date '0001-01-01' + n, time '00:00' + n * interval '1 second',
  n * 1.100000001, n / 8.0, n / 7.0::double precision, n % 100, n / 3.0, n % 2 = 0,
  ('00000000-0000-0000-0000-' || lpad(n::text, 12, '0'))::uuid, jsonb_build_object('n', n, 'x', n / 7.0, 'a', null),
  E'line\\n"' || n || 'é', decode(lpad(to_hex(n), 8, '0'), 'hex'), array[n, null, -n], array['a', '', null, E'"'],
  n * interval '1 day 1 second'
from generate_series(1, 20000) n;
insert into kinds (id) values (0), (-9223372036854775808), (9223372036854775807);
insert into kinds (id, exact, free, text) values (30001, -999999999999999999999.999999999, 1e-9, '');
create table empty (id int, name text);
create table "Odd ""name" (id int, "a b" text, "A B" text);
insert into "Odd ""name" values (1, 'x', 'y');
"""
BY_TIME = {"replication_method": "INCREMENTAL", "replication_key": "at"}


@pytest.fixture
def server() -> Iterator[PostgreSql]:
    with postgresql() as server:
        server.sql(TABLES)
        yield server


def project(server: PostgreSql, folder: Path, *, by: str = "arrow", form: str | None = "arrow", **more: Any) -> Project:
    """A project whose tap sends BATCHes in this form; None: RECORDs."""
    folder.mkdir(exist_ok=True)
    environ = server.environ
    uri = f"postgresql://postgres:{environ['PGPASSWORD']}@127.0.0.1:{environ['PGPORT']}/postgres"
    config: dict[str, Any] = {"uri": uri, "by": by}
    if form:
        encoding = {"format": form} | more
        config["batch_config"] = {"encoding": encoding, "storage": {"root": (folder / "files").as_uri()}}
        config["batch_config"]["batch_size"] = 3000
    return Project(folder, adbc_tap(folder), config)


SOURCE = """
select id, to_char(at at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS.US'), to_char(naive, 'YYYY-MM-DD HH24:MI:SS.US'),
  to_char(day, 'YYYY-MM-DD'), exact, amount, small, yes, code, text, encode(bytes, 'base64'), many, words, doc->>'n'
from kinds order by id
"""
LAKE = """
select id, strftime("at", '%Y-%m-%d %H:%M:%S.%f'), strftime(naive, '%Y-%m-%d %H:%M:%S.%f'),
  strftime("day", '%Y-%m-%d'), exact, amount, small, yes, code, "text", bytes, many, words, doc->>'n'
"""


def text_of(row: tuple[Any, ...]) -> list[str]:
    return [_text(value) for value in row]


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "t" if value else "f"
    if isinstance(value, list):
        return "{" + ",".join(_item(each) for each in value) + "}"
    if isinstance(value, float):
        return repr(value).removesuffix(".0")
    return str(value)


def _item(value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, str):
        return value if value.isalnum() else '"{}"'.format(value.replace("\\", "\\\\").replace('"', '\\"'))
    return str(value)


def source(server: PostgreSql) -> dict[int, list[str]]:
    """The rows as PostgreSQL writes them, but for the line end in a text."""
    query = SOURCE.strip().replace(" text,", " replace(text, E'\\n', '|'),")
    return {int(row[0]): row for row in server.sql(query + ";")}


def lake(project: Project) -> dict[int, list[str]]:
    with duckdb.connect() as engine:
        engine.execute("set TimeZone='UTC'")
        files = project.folder / "lake" / "p" / "kinds" / "*.parquet"
        rows = engine.execute(f"{LAKE} from read_parquet('{files}', union_by_name=true)").fetchall()
    texts = [[each.replace("\n", "|") for each in text_of(row)] for row in rows]
    assert len({row[0] for row in texts}) == len(texts), "a row is there twice"
    return {int(row[0]): row for row in texts}


@pytest.mark.parametrize("by", ["arrow", "rows"])
def test_the_lake_is_what_the_database_is(server: PostgreSql, tmp_path: Path, by: str) -> None:
    """Each type of PostgreSQL, by ADBC or as the SDK's encoder makes Arrow of records; RECORDs give the same table."""
    arrow = project(server, tmp_path / "arrow", by=by)
    told = arrow.run()
    assert told["status"] == "success"
    assert told["streams"]["kinds"]["rejected"] == 0
    as_sent = slice(None) if by == "arrow" else AS_TEXTS
    assert only(as_sent, lake(arrow)) == only(as_sent, source(server))
    assert list((tmp_path / "arrow/files").glob("*.arrow"))
    lines = project(server, tmp_path / "lines", by=by, form=None)
    lines.run()
    assert only(AS_TEXTS, lake(lines)) == only(AS_TEXTS, lake(arrow))


AS_TEXTS = slice(10)
"""The columns but bytes, lists and JSON: of bytes the SDK writes Python's own text, of JSON a text with JSON in it."""


def only(columns: slice, rows: dict[int, list[str]]) -> dict[int, list[str]]:
    return {key: row[columns] for key, row in rows.items()}


@pytest.mark.parametrize("table_format", ["delta", "iceberg"])
def test_in_the_other_formats_by_key(server: PostgreSql, tmp_path: Path, table_format: str) -> None:
    """An upsert of changed rows, in Delta and Iceberg: the table is what the source is."""
    ours = project(server, tmp_path / "p")
    streams = BY_TIME | {"load_method": "upsert"}
    ours.set_up(**streams)
    settings = (ours.folder / "bridge.yaml").read_text()
    (ours.folder / "bridge.yaml").write_text(
        settings.replace("bucket: lake", f"bucket: lake\n      format: {table_format}")
    )
    assert ours.command("run", "p", "-s", "kinds").code == 0
    server.sql(
        "update kinds set at = now(), amount = -1 where id % 1000 = 7; insert into kinds (id, at) values (77777, now())"
    )
    done = ours.command("run", "p", "-s", "kinds", "--json")
    assert done.code == 0, done.err
    assert json.loads(done.out)["streams"]["kinds"]["records"] < 100
    counted = ours.command(
        "sql", "p", "--json", "select count(*) as n, count(distinct id) as d, sum(amount) as s from kinds"
    )
    (row,) = [json.loads(line) for line in counted.out.splitlines()]
    (wanted,) = server.sql("select count(*), sum(amount) from kinds;")
    assert row["n"] == row["d"] == int(wanted[0])
    assert row["s"] == pytest.approx(float(wanted[1]))


def test_killed_anywhere(server: PostgreSql, tmp_path: Path) -> None:
    """`kill -9` of the run at any moment, again and again: in the end each row is there once."""
    ours = project(server, tmp_path / "p")
    ours.set_up(**BY_TIME, load_method="upsert")
    settings = ours.folder / "bridge.yaml"
    settings.write_text(settings.read_text().replace("'*'\n", "kinds\n"))
    server.sql("update kinds set at = '2020-01-01' where at is null")
    dice = random.Random(int(os.environ.get("SEED", "1")))
    for _ in range(int(os.environ.get("KILLS", "8"))):
        argv = [sys.executable, "-m", "bridge", "run", "p"]
        run = subprocess.Popen(argv, cwd=ours.folder, stderr=subprocess.DEVNULL, start_new_session=True)
        time.sleep(dice.uniform(0.5, 3.5))
        os.killpg(run.pid, signal.SIGKILL)
        run.wait()
        server.sql("update kinds set at = now(), small = small + 1 where id % 500 = 3")
    assert ours.command("run", "p").code == 0
    assert lake(ours) == source(server)
    assert ours.command("verify", "p").code == 0
