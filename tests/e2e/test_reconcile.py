"""`reconcile` on real databases with their taps: what no replication brings is found, and nothing else."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from .postgresql import PostgreSql, postgresql, reader
from .realtaps import Project, installed, mariadb

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

BY_TIME = {"replication_method": "INCREMENTAL", "replication_key": "at", "load_method": "upsert"}
TABLES = """
create table orders (id int primary key, amount numeric(20, 6), at timestamptz, note text, data jsonb, ratio float8);
insert into orders select n, n * 1.10, timestamptz '2024-03-01 10:00:00.123456+02' + n * interval '1 hour 1 ms',
  E'line\\n"' || n, '{"b": [1, null], "a": "ü"}', case n when 7 then 'NaN' else n / 3.0 end
  from generate_series(1, 1000) n;
create table pairs (a text, b int, at timestamptz, v numeric, primary key (a, b));
insert into pairs select chr(64 + n % 26) || E'''~/ "', n, timestamptz '2024-03-01' + n * interval '1 hour', n / 7.0
  from generate_series(1, 100) n;
create table emptied (id int primary key, at timestamptz);
insert into emptied select n, timestamptz '2024-03-01' + n * interval '1 hour' from generate_series(1, 5) n;
create table same (id int primary key, at timestamptz, v text);
insert into same select n, timestamptz '2024-03-01' + n * interval '1 hour', 'x' from generate_series(1, 5) n;
"""
CHANGES = """
delete from orders where id in (2, 3);
update orders set amount = amount + 0.000001 where id = 5;
update orders set note = null, ratio = -0.5 where id = 6;
update orders set at = at + interval '1 year', note = 'later' where id = 10;
insert into orders values (2001, 1.5, '2020-01-01', 'late'), (2002, 1.5, null, 'no time'),
  (2003, 1, '2030-01-01', 'new');
delete from pairs where b = 30;
insert into pairs values ('', 7, '2020-01-01', 1);
truncate emptied;
"""


LAKE = """select id || ' ' || amount || ' ' || coalesce(replace(note, chr(10), ' '), '-') as row from "{}"
where _sdc_deleted_at is null order by id"""


@pytest.fixture
def server() -> Iterator[PostgreSql]:
    with postgresql() as server:
        yield server


def settled(project: Project, stream: dict[str, Any], **destination: Any) -> Project:
    source = {"tap": str(project.tap), "config": project.config, "select": ["*"]}
    pipeline = {"source": source, "destination": {"bucket": "lake"} | destination, "streams": {"*": stream}}
    (project.folder / "bridge.yaml").write_text(yaml.safe_dump({"pipelines": {"p": pipeline}}))
    return project


def reconciled(project: Project, *arguments: str) -> tuple[int, dict[str, Any]]:
    """The exit code, and what it says by table."""
    done = project.command("reconcile", "p", "--json", *arguments)
    assert done.code in (0, 1) and done.out, done.err
    found = json.loads(done.out)
    assert found["not_compared"] == {}
    assert found["differs"] == bool(done.code)
    return done.code, {name.rpartition("-")[2]: facts for name, facts in found["streams"].items()}


def counts(facts: dict[str, Any]) -> tuple[int, ...]:
    return tuple(facts[kind] for kind in ("missing", "extra", "stale", "in_flight"))


@pytest.mark.parametrize("table_format", ["parquet", "delta", "iceberg"])
@pytest.mark.parametrize("tap", ["pipelinewise-tap-postgres", "meltanolabs-tap-postgres"])
def test_what_a_bookmark_does_not_bring(tap: str, table_format: str, server: PostgreSql, tmp_path: Path) -> None:
    """Deleted, truncated, late and unmarked rows, odd keys, exact numbers; tables and STATE stay as they are."""
    server.sql(TABLES)
    project = settled(reader(tap, server, tmp_path), BY_TIME, format=table_format)
    assert project.command("run", "p").code == 0
    code, same = reconciled(project)
    assert (code, {name: counts(facts) for name, facts in same.items()}) == (
        0,
        dict.fromkeys(("orders", "pairs", "emptied", "same"), (0, 0, 0, 0)),
    )
    server.sql(CHANGES)
    state = project.command("state", "get", "p").out
    code, found = reconciled(project, "--sample", "10")
    assert code == 1
    orders = found["orders"]
    assert counts(orders) == (2, 2, 2, 2)
    assert orders["samples"]["missing"] == [{"id": 2001}, {"id": 2002}]
    assert orders["samples"]["extra"] == [{"id": 2}, {"id": 3}]
    assert orders["samples"]["stale"] == [{"id": 5}, {"id": 6}]
    assert orders["columns"] == {"amount": 1, "note": 1, "ratio": 1}
    assert orders["null_keys"] == 1
    assert counts(found["pairs"]) == (1, 1, 0, 0)
    assert found["pairs"]["samples"]["missing"] == [{"a": "", "b": 7}]
    assert counts(found["emptied"]) == (0, 5, 0, 0)
    assert counts(found["same"]) == (0, 0, 0, 0)
    code, keys = reconciled(project, "--keys", "-s", next(n for n in _names(project) if n.endswith("orders")))
    assert (code, list(keys), counts(keys["orders"])) == (1, ["orders"], (2, 2, 0, 2))
    assert project.command("state", "get", "p").out == state
    done = project.command("reconcile", "p", "--apply", "--no-guard", "--json")
    assert done.code == 0, done.out + done.err
    assert project.command("state", "get", "p").out == state
    code, found = reconciled(project)
    assert (code, {name: counts(facts) for name, facts in found.items()}) == (
        0,
        dict.fromkeys(("pairs", "emptied", "same"), (0, 0, 0, 0)) | {"orders": (0, 0, 0, 2)},
    )
    assert project.command("verify", "p").code == 0
    assert project.command("run", "p").code == 0
    assert reconciled(project)[0] == 0
    amounts = project.command(
        "sql", "p", "--json", LAKE.format(next(n for n in _names(project) if n.endswith("orders")))
    )
    wanted = server.sql(
        "select id || ' ' || amount || ' ' || coalesce(replace(note, chr(10), ' '), '-') from orders order by id"
    )
    assert [json.loads(line)["row"] for line in amounts.out.split("\n") if line] == [row[0] for row in wanted]


def _names(project: Project) -> list[str]:
    return [one["stream"] for one in json.loads(project.command("tables", "list", "p", "--json").out)]


def test_what_a_log_does_not_bring(server: PostgreSql, tmp_path: Path) -> None:
    """LOG_BASED: with writers under way nothing is made wrong; a TRUNCATE is found and mended, and the log goes on."""
    server.sql("create table orders (id int primary key, v text)")
    server.sql("insert into orders select n, 'x' from generate_series(1, 200) n")
    server.sql("select pg_create_logical_replication_slot('pipelinewise_postgres_live', 'wal2json')")
    project = reader("pipelinewise-tap-postgres", server, tmp_path)
    project.config |= {"tap_id": "live", "logical_poll_total_seconds": 4, "break_at_end_lsn": True}
    settled(project, {"replication_method": "LOG_BASED", "load_method": "upsert", "hard_delete": True})
    for _ in range(2):
        assert project.command("run", "p").code == 0
    stop = threading.Event()

    def write() -> None:
        number = 1000
        while not stop.is_set():
            number += 1
            server.sql(
                f"insert into orders values ({number}, 'new'); delete from orders where id = {number - 20};"
                f"update orders set v = 'u{number}' where id = {number % 200}"
            )

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for flags in ((), ("--apply",), ("--keys",)):
            assert project.command("reconcile", "p", *flags).code in (0, 1)
            assert project.command("run", "p").code == 0
    finally:
        stop.set()
        writer.join()
    slot = server.sql("select confirmed_flush_lsn from pg_replication_slots")
    for _ in range(2):
        assert project.command("run", "p").code == 0
    assert reconciled(project)[0] == 0
    assert server.sql("select confirmed_flush_lsn from pg_replication_slots") >= slot
    server.sql("truncate orders; insert into orders values (1, 'again')")
    for _ in range(2):
        assert project.command("run", "p").code == 0
    code, found = reconciled(project)
    assert (code, found["orders"]["extra"] > 100) == (1, True)
    assert project.command("reconcile", "p", "--apply", "--no-guard").code == 0
    server.sql("update orders set v = 'later'")
    for _ in range(2):
        assert project.command("run", "p").code == 0
    assert reconciled(project)[0] == 0


def test_mariadb(tmp_path: Path) -> None:
    """Odd values of another database, by its tap: found, mended, and equal for DuckDB, row by row."""
    with mariadb() as server:
        server.sql(
            "create user 'reader'@'127.0.0.1' identified by 'secret'; create database shop;"
            "grant select on *.* to 'reader'@'127.0.0.1'; use shop;"
            "create table orders (id bigint, part varchar(20), at datetime(6), amount decimal(20, 6), note text,"
            " j json, primary key (id, part)) character set utf8mb4;"
            "insert into orders select seq, char(64 + seq % 26), '2024-01-01' + interval seq hour, seq * 1.10,"
            " 'ü\\n\"', '{\"b\": [1, null]}' from seq_1_to_500"
        )
        login = {"host": "127.0.0.1", "port": str(server.port), "user": "reader", "password": "secret"}
        config = login | {"filter_dbs": "shop", "engine": "mariadb"}
        project = settled(Project(tmp_path, installed("pipelinewise-tap-mysql", "tap-mysql"), config), BY_TIME)
        assert project.command("run", "p").code == 0
        assert reconciled(project)[0] == 0
        server.sql(
            "use shop; delete from orders where id in (3, 4);"
            "update orders set amount = amount + 0.000001 where id = 5;"
            "insert into orders values (900, '', '2020-01-01', 0.5, null, null), (901, 'a', null, 1, 'no time', null)"
        )
        code, found = reconciled(project)
        assert (code, counts(found["orders"]), found["orders"]["null_keys"]) == (1, (2, 2, 1, 0), 1)
        assert found["orders"]["columns"] == {"amount": 1}
        assert project.command("reconcile", "p", "--keys", "--apply").code == 0
        assert reconciled(project)[0] == 0
        (name,) = _names(project)
        query = f'select id || part || amount as row from "{name}" where _sdc_deleted_at is null order by id, part'
        rows = project.command("sql", "p", "--json", query).out.split("\n")
        wanted = server.sql("select concat(id, part, amount) from shop.orders order by id, part")
        assert [json.loads(line)["row"] for line in rows if line] == [row[0] for row in wanted]
