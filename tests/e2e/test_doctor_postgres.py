"""`doctor` on a real PostgreSQL, with the taps from PyPI: each thing that LOG_BASED would stumble over is named."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .postgresql import PostgreSql, postgresql
from .realtaps import Project, installed

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

_TABLES = """
create role reader login password 'reads-only';
create table fine (id int primary key, price numeric(10, 2), rate numeric, ratio float8);
create table keyless (a int);
create table whole (a int); alter table whole replica identity full;
create table parts (id int primary key) partition by range (id);
create table parts_1 partition of parts for values from (0) to (10);
create unlogged table passing (id int primary key);
grant select on all tables in schema public to reader;
"""


@pytest.fixture(scope="module")
def server() -> Iterator[PostgreSql]:
    with postgresql() as server:
        server.sql(_TABLES)
        yield server


def meltano(server: PostgreSql, folder: Path) -> Project:
    login = {"host": "127.0.0.1", "port": server.port, "user": "reader", "password": "reads-only"}
    config = {**login, "database": "postgres", "filter_schemas": ["public"]}
    return Project(folder, installed("meltanolabs-tap-postgres", "tap-postgres"), config, "LOG_BASED")


def wise(server: PostgreSql, folder: Path) -> Project:
    login = {"host": "127.0.0.1", "port": server.port, "user": "reader", "password": "reads-only"}
    config = {**login, "dbname": "postgres", "tap_id": "shop", "filter_schemas": "public"}
    return Project(folder, installed("pipelinewise-tap-postgres", "tap-postgres"), config, "LOG_BASED")


def examined(project: Project, code: int) -> dict[str, list[dict[str, Any]]]:
    """Return what `doctor` finds, by check, other than that all is well; those that are well have none."""
    project.set_up()
    done = project.command("doctor", "p", "--no-spark", "--json")
    assert done.code == code, done.out + done.err
    found: dict[str, list[dict[str, Any]]] = {}
    for check in json.loads(done.out)["checks"]:
        found.setdefault(check["check"], []).extend([check] if check["status"] != "ok" else [])
    return found


def test_what_the_server_lacks_is_an_error_with_its_statement(server: PostgreSql, tmp_path: Path) -> None:
    """No right to replicate, no slot: exit code 1, and the fix is what to type; with both done, the checks are well."""
    for folder, make, slot in (("m", meltano, "tappostgres"), ("w", wise, "pipelinewise_postgres_shop")):
        (tmp_path / folder).mkdir()
        project = make(server, tmp_path / folder)
        server.sql("alter role reader noreplication")
        found = examined(project, 1)
        assert [check["status"] for check in found["replication"] + found["slot"]] == ["error", "error"]
        server.sql(found["replication"][0]["fix"])
        assert slot in found["slot"][0]["fix"]
        server.sql(found["slot"][0]["fix"])
        found = examined(project, 0)
        assert found["replication"] == found["slot"] == found["wal_level"] == found["free slots"] == []
        assert ("numeric" in found) == (make is meltano)  # the other tap declares its digits
        server.sql(f"select pg_drop_replication_slot('{slot}')")


def test_a_server_that_does_not_trust_the_plugin(server: PostgreSql, tmp_path: Path) -> None:
    """PostgreSQL may let only listed plugins read its log: doctor says so, and its fix makes the slot usable."""
    if not server.sql("select 1 from pg_settings where name = 'output_plugin_libraries'"):
        pytest.skip("this PostgreSQL has no list of plugins")
    server.sql("alter role reader replication; select pg_create_logical_replication_slot('tappostgres', 'wal2json')")
    server.trust()
    project = meltano(server, tmp_path)
    [slot] = examined(project, 1)["slot"]
    assert "may not be used as an output plugin" in slot["found"]
    server.sql(f"{slot['fix']}; select pg_sleep(0.2)")
    assert examined(project, 0)["slot"] == []
    server.sql("select pg_drop_replication_slot('tappostgres')")


def test_tables_of_which_the_log_tells_less_are_named(server: PostgreSql, tmp_path: Path) -> None:
    """Partitioned, unlogged, without REPLICA IDENTITY, without a key: each by its name, no other."""
    server.sql("alter role reader replication; select pg_create_logical_replication_slot('tappostgres', 'wal2json')")
    found = examined(meltano(server, tmp_path), 0)
    named = {check["found"].partition(": ")[0]: check["found"].partition(": ")[2] for check in found["source tables"]}
    assert named == {
        "no change of a partitioned table comes under its name": "public-parts",
        "the log has nothing of views and unlogged tables": "public-passing",
        "UPDATE and DELETE do not come, without REPLICA IDENTITY": "public-keyless",
        "without a key each change is one more row": "public-keyless, public-whole",
    }
    [numeric] = found["numeric"]
    assert numeric["found"].endswith(": public-fine.rate")
    server.sql("select pg_drop_replication_slot('tappostgres')")


def test_a_slot_that_cannot_serve_is_named(server: PostgreSql, tmp_path: Path) -> None:
    """One of another plugin, one of another database, one that has lost log: an error, not a run without rows."""
    server.sql("alter role reader replication")
    project = meltano(server, tmp_path)
    server.sql("select pg_create_logical_replication_slot('tappostgres', 'test_decoding')")
    assert "test_decoding" in examined(project, 1)["slot"][0]["found"]
    server.sql("select pg_drop_replication_slot('tappostgres')")
    server.sql("select pg_create_logical_replication_slot('tappostgres', 'wal2json')")
    server.sql("alter system set max_slot_wal_keep_size = '1MB'; ")
    server.sql("select pg_reload_conf()")
    for _ in range(4):
        server.sql("create table filler as select repeat('x', 1000) from generate_series(1, 10000)")
        server.sql("drop table filler")
        server.sql("select pg_switch_wal()")
    server.sql("checkpoint")
    [lost] = examined(project, 1)["slot"]
    assert "has lost log" in lost["found"]
    assert "run --full" in lost["fix"]
    server.sql("select pg_drop_replication_slot('tappostgres')")
    server.sql("alter system reset max_slot_wal_keep_size")
    server.sql("select pg_reload_conf()")


def test_without_log_based_streams_no_slot_is_asked_for(server: PostgreSql, tmp_path: Path) -> None:
    """A full table needs no right and no slot; only NUMERIC is told."""
    project = meltano(server, tmp_path)
    project.method = "FULL_TABLE"
    found = examined(project, 0)
    assert {"slot", "source tables", "wal_level"} & set(found) == set()
    assert [check["status"] for check in found["numeric"]] == ["warning"]
