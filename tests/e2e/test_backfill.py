"""`run --backfill` on real databases with their taps: a window once more, and neither more nor less than it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from .postgresql import PostgreSql, postgresql, reader
from .realtaps import Project, installed, mariadb
from .test_reconcile import settled

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

BY_TIME = {"replication_method": "INCREMENTAL", "replication_key": "at"}
TABLES = """
create table orders (id int primary key, at timestamptz, amount numeric(20, 6), note text);
insert into orders select n, timestamptz '2024-03-01 00:00:00.123456+02' + n * interval '1 hour', n * 1.10,
  E'line\\n"' || n from generate_series(1, 1000) n;
create table logs (at timestamptz, line text);
insert into logs select timestamptz '2024-03-01 00:00:00+00' + n * interval '1 hour', 'row ' || n
  from generate_series(0, 999) n;
insert into logs values (null, 'no time');
"""
CHANGES = """
update orders set amount = amount + 0.000001 where id in (5, 40, 400);
insert into orders values (2001, '2024-03-02 12:00', 1.5, 'late'), (2002, '2024-03-12', 2.5, 'late, later');
delete from orders where id = 30;
update logs set line = line || ', changed' where line in ('row 24', 'row 47', 'row 23', 'row 48');
delete from logs where line = 'row 25';
insert into logs values ('2024-03-02 12:00', 'late'), ('2024-03-02 12:00', 'late');
"""
DAY = "2024-03-02..2024-03-03"


@pytest.fixture
def server() -> Iterator[PostgreSql]:
    with postgresql() as server:
        server.sql(TABLES)
        yield server


def rows(project: Project, table: str, columns: str) -> list[dict[str, Any]]:
    name = next(n for n in _names(project) if n.endswith(table))
    out = project.command("sql", "p", "--json", f'select {columns} from "{name}" order by all').out
    return [json.loads(line) for line in out.splitlines()]


def _names(project: Project) -> list[str]:
    return [one["stream"] for one in json.loads(project.command("tables", "list", "p", "--json").out)]


def named(project: Project, table: str) -> str:
    return next(n for n in _names(project) if n.endswith(table))


@pytest.mark.parametrize("table_format", ["parquet", "delta", "iceberg"])
@pytest.mark.parametrize("tap", ["pipelinewise-tap-postgres", "meltanolabs-tap-postgres"])
def test_a_window_of_a_database(tap: str, table_format: str, server: PostgreSql, tmp_path: Path) -> None:
    """Rows with a key are merged; of others the window's rows are replaced. The STATE stays, a rollback undoes it."""
    streams = {"*orders": BY_TIME | {"load_method": "upsert"}, "*logs": BY_TIME | {"load_method": "append-only"}}
    project = settled(reader(tap, server, tmp_path), BY_TIME, format=table_format)
    path = project.folder / "bridge.yaml"
    settings = yaml.safe_load(path.read_text())
    settings["pipelines"]["p"]["streams"] = streams
    path.write_text(yaml.safe_dump(settings))
    assert project.command("run", "p").code == 0
    logs, orders = rows(project, "logs", "line"), rows(project, "orders", "id, amount, note")
    assert (len(logs), len(orders)) == (1001, 1000)
    server.sql(CHANGES)
    state = project.command("state", "get", "p").out

    done = project.command("run", "p", "-s", named(project, "orders"), "--backfill", DAY)
    assert done.code == 0, done.err
    wanted = {row["id"]: row for row in orders} | {2001: {"id": 2001, "amount": "1.500000", "note": "late"}}
    got = {row["id"]: row for row in rows(project, "orders", "id, cast(amount as varchar) as amount, note")}
    assert got.keys() == wanted.keys()
    assert got[2001] == wanted[2001]
    assert [got[id_]["amount"] for id_ in (5, 40, 400)] == ["5.500000", "44.000001", "440.000000"]

    done = project.command("run", "p", "-s", named(project, "logs"), "--backfill", DAY)
    assert done.code == 0, done.err
    now = [row["line"] for row in rows(project, "logs", "line")]
    changed = {"row 24": "row 24, changed", "row 47": "row 47, changed"}
    kept = [changed.get(row["line"], row["line"]) for row in logs if row["line"] != "row 25"]
    assert now == sorted([*kept, "late", "late"])

    assert project.command("state", "get", "p").out == state
    commits = json.loads(project.command("commits", "list", "p", "--json").out)
    assert [one.get("reason") for one in commits[:2]] == [f"backfill {DAY}"] * 2
    assert project.command("verify", "p").code == 0
    assert project.command("rollback", str(commits[1]["commit"]), "p", "--yes").code == 0
    assert rows(project, "logs", "line") == logs
    again = project.command("run", "p", "--json")
    assert again.code == 0, again.err
    assert {counts["records"] for counts in json.loads(again.out)["streams"].values()} <= {0, 1}


def test_steps_that_are_killed(server: PostgreSql, tmp_path: Path) -> None:
    """Each step is a commit. After a kill the same command goes on where it was, and does all once it was done."""
    project = settled(reader("pipelinewise-tap-postgres", server, tmp_path), BY_TIME | {"load_method": "append-only"})
    assert project.command("run", "p").code == 0
    server.sql("update logs set line = line || ', changed'; delete from logs where at < '2024-03-05'")
    state, logs = project.command("state", "get", "p").out, named(project, "logs")
    command = ["run", "p", "-s", logs, "--backfill", "2024-03-01..2024-04-11", "--step", "9d"]
    before = len(_commits(project))
    process = subprocess.Popen([sys.executable, "-m", "bridge", *command], cwd=tmp_path, start_new_session=True)
    while len(_commits(project)) < before + 2:
        assert process.poll() is None
        time.sleep(0.1)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    reasons = {one.get("reason") for one in _commits(project)}
    assert "backfill 2024-03-01..2024-03-10" in reasons and "backfill 2024-04-06..2024-04-11" not in reasons
    done = project.command(*command)
    assert done.code == 0, done.err
    assert " of 5 steps are done: going on with 2024-03-" in done.err
    assert [row["line"] for row in rows(project, "logs", "line")] == [
        row[0]
        for row in server.sql(
            "select case when at < '2024-04-11 00:00+00' then line else replace(line, ', changed', '') end from logs"
            " where at is not null union all select 'no time' order by 1"
        )
    ]
    assert project.command("state", "get", "p").out == state
    again = project.command(*command, "--json")
    assert (again.code, len(json.loads(again.out))) == (0, 5), again.err


def _commits(project: Project) -> list[dict[str, Any]]:
    commits: list[dict[str, Any]] = json.loads(project.command("commits", "list", "p", "--json").out)
    return commits


@pytest.mark.parametrize("load_method", ["append-only", "upsert"])
def test_a_window_of_mariadb(load_method: str, tmp_path: Path) -> None:
    """By a number, too; a tap that keeps its bookmark under another name."""
    with mariadb() as server:
        server.sql(
            "create user 'reader'@'127.0.0.1' identified by 'secret'; create database shop;"
            "grant select on *.* to 'reader'@'127.0.0.1'; use shop;"
            "create table orders (id int primary key, v varchar(20));"
            "insert into orders select seq, 'old' from seq_1_to_100"
        )
        login = {"host": "127.0.0.1", "port": str(server.port), "user": "reader", "password": "secret"}
        config = login | {"filter_dbs": "shop", "engine": "mariadb"}
        project = settled(
            Project(tmp_path, installed("pipelinewise-tap-mysql", "tap-mysql"), config),
            {"replication_method": "INCREMENTAL", "replication_key": "id", "load_method": load_method},
        )
        assert project.command("run", "p").code == 0
        server.sql("update shop.orders set v = 'new'")
        done = project.command("run", "p", "-s", named(project, "orders"), "--backfill", "10..21")
        assert done.code == 0, done.err
        got = {row["id"]: row["v"] for row in rows(project, "orders", "id, v")}
        assert got == {n: "new" if 10 <= n < 21 else "old" for n in range(1, 101)}
