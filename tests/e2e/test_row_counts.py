"""What a run says of rows that no replication brings, with real taps: a TRUNCATE, deletions, rows with an older key."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from .postgresql import PostgreSql, postgresql, reader
from .realtaps import BINLOG, MariaDb, Project, installed, mariadb

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]
_LOGGED = ("emptied", "moved", "shrunk")
_NAMES = ("same", "emptied", "shrunk", "late", "moved")


@pytest.fixture
def server() -> Iterator[PostgreSql]:
    with postgresql() as server:
        yield server


@pytest.fixture
def shop() -> Iterator[MariaDb]:
    with mariadb() as server:
        server.sql(
            "create user 'reader'@'127.0.0.1' identified by 'secret'; create database shop;"
            "grant select on *.* to 'reader'@'127.0.0.1'"
        )
        yield server


def settled(project: Project, stream: dict[str, Any], **source: Any) -> Project:
    source |= {"tap": str(project.tap), "config": project.config, "select": ["*"]}
    pipeline = {"source": source, "destination": {"bucket": "lake"}, "streams": {"*": stream}}
    (project.folder / "bridge.yaml").write_text(yaml.safe_dump({"pipelines": {"p": pipeline}}))
    return project


def differing(project: Project, *arguments: str) -> dict[str, str]:
    """Run; return what it says of rows, by the table's name."""
    done = project.command("run", "p", "--json", *arguments)
    assert done.code == 0, done.err
    differences = yaml.safe_load(done.out)["differences"]
    return {one["stream"].rpartition("-")[2]: one["text"] for one in differences if one["kind"] == "row_count"}


BY_KEY = {"replication_method": "INCREMENTAL", "replication_key": "at", "load_method": "upsert"}
STEPS = [
    "delete from {0}emptied",
    "delete from {0}shrunk where id = 2; insert into {0}late values (9, '2020-01-01 00:00:00')",
    "delete from {0}moved; insert into {0}moved select id + 10, '2020-01-01 00:00:00' from {0}same",
]


def changed_by_key(project: Project, sql: Any, prefix: str) -> None:
    assert differing(project) == {}
    assert differing(project) == {}
    for step in STEPS:
        sql(step.format(prefix))
    texts = differing(project)
    assert texts.keys() == {*_NAMES} - {"same"}
    assert "it has 5 rows, and its source 0: rows were deleted" in texts["emptied"]
    assert "it has 5 rows, and its source 4: rows were deleted" in texts["shrunk"]
    assert "it has 5 rows, and its source 6 up to the bookmark of at: rows came with an older at" in texts["late"]
    assert "the greatest at of its source is before the bookmark" in texts["moved"]
    command = texts["late"].rpartition("load again: singer-bridge ")[2].split()
    assert differing(project, *command[2:]) == {}
    assert differing(project).keys() == {"emptied", "shrunk", "moved"}


@pytest.mark.parametrize("tap", ["pipelinewise-tap-postgres", "meltanolabs-tap-postgres"])
def test_tables_with_a_bookmark(tap: str, server: PostgreSql, tmp_path: Path) -> None:
    """Each table that differs is named with what to type, and no other; what is typed ends it."""
    for name in _NAMES:
        server.sql(f"create table {name} (id int primary key, at timestamp)")
        server.sql(
            f"insert into {name} select n, timestamp '2024-01-01' + n * interval '1 hour 1 ms'"
            " from generate_series(1, 5) n"
        )
    project = settled(reader(tap, server, tmp_path), BY_KEY)
    changed_by_key(project, server.sql, "")
    settled(project, BY_KEY, check_counts="never")
    assert differing(project) == {}


def test_tables_of_mariadb(shop: MariaDb, tmp_path: Path) -> None:
    """The tap's own Python asks the server."""
    for name in _NAMES:
        shop.sql(f"create table shop.{name} (id int primary key, at datetime(6))")
        shop.sql(f"use shop; insert into {name} select seq, '2024-01-01' + interval seq hour from seq_1_to_5")
    login = {"host": "127.0.0.1", "port": str(shop.port), "user": "reader", "password": "secret", "filter_dbs": "shop"}
    tap = installed("pipelinewise-tap-mysql", "tap-mysql")
    changed_by_key(settled(Project(tmp_path, tap, {**login, "engine": "mariadb"}), BY_KEY), shop.sql, "shop.")


def test_a_truncate_that_the_log_does_not_bring(server: PostgreSql, tmp_path: Path) -> None:
    """The tap passes over it; rows that were deleted as the log says are no difference, marked or removed."""
    for name in ("emptied", "shrunk"):
        server.sql(f"create table {name} (id int primary key); insert into {name} select generate_series(1, 5)")
    server.sql("select pg_create_logical_replication_slot('pipelinewise_postgres_live', 'wal2json')")
    project = reader("pipelinewise-tap-postgres", server, tmp_path)
    project.config |= {"tap_id": "live", "logical_poll_total_seconds": 4, "break_at_end_lsn": True}
    settled(project, {"replication_method": "LOG_BASED", "load_method": "upsert", "hard_delete": False})
    assert differing(project) == {}
    server.sql("delete from shrunk where id = 2")
    assert differing(project) == {}
    assert differing(project) == {}
    server.sql("truncate emptied")
    text = differing(project)["emptied"]
    assert "it has 5 rows, and its source 0" in text
    assert differing(project, *text.rpartition("load again: singer-bridge ")[2].split()[2:]) == {}
    assert differing(project) == {}


BUSY = ["truncate {0}emptied", "update {0}moved set id = 50 where id = 5", "delete from {0}shrunk where id = 2"]


def changed_in_a_busy_log(project: Project, sql: Any, prefix: str) -> None:
    """`same` has news in each run, so the log is never quiet; the last change of the log may be said by a later run."""
    settled(project, {"replication_method": "LOG_BASED", "load_method": "upsert", "hard_delete": True})
    assert differing(project) == {}
    for step in BUSY:
        sql(step.format(prefix))
    sql(f"insert into {prefix}same values (101)")
    texts = differing(project)
    assert texts.keys() == {"emptied", "moved"}
    assert "it has 5 rows, and its source 0: rows were deleted there, or their key was changed" in texts["emptied"]
    assert "it has 6 rows, and its source 5" in texts["moved"]
    command = texts["emptied"].rpartition("load again: singer-bridge ")[2].split()
    assert differing(project, *command[2:]) == {}
    sql(f"insert into {prefix}same values (102)")
    assert differing(project).keys() == {"moved"}


@pytest.mark.parametrize("tap", ["pipelinewise-tap-postgres", "meltanolabs-tap-postgres"])
def test_a_busy_log(tap: str, server: PostgreSql, tmp_path: Path) -> None:
    """What the log does not bring is said although it brings other changes."""
    for name in ("same", *_LOGGED):
        server.sql(f"create table {name} (id int primary key); insert into {name} select generate_series(1, 5)")
    project = reader(tap, server, tmp_path)
    if tap.startswith("meltanolabs"):
        server.sql("select pg_create_logical_replication_slot('tappostgres', 'wal2json')")
        project.config |= {"replication_idle_exit_seconds": 5, "replication_max_run_seconds": 60}
    else:
        server.sql("select pg_create_logical_replication_slot('pipelinewise_postgres_live', 'wal2json')")
        project.config |= {"tap_id": "live", "logical_poll_total_seconds": 4, "break_at_end_lsn": True}
    changed_in_a_busy_log(project, server.sql, "")


def test_a_busy_binlog(tmp_path: Path) -> None:
    """The same of MariaDB."""
    with mariadb(*BINLOG) as server:
        server.sql(
            "create user 'reader'@'127.0.0.1' identified by 'secret'; create database shop;"
            "grant select, replication client, replication slave on *.* to 'reader'@'127.0.0.1'"
        )
        for name in ("same", *_LOGGED):
            server.sql(
                f"use shop; create table {name} (id int primary key); insert into {name} select seq from seq_1_to_5"
            )
        login = {"host": "127.0.0.1", "port": str(server.port), "user": "reader", "password": "secret"}
        config = {**login, "engine": "mariadb", "filter_dbs": "shop"}
        project = Project(tmp_path, installed("pipelinewise-tap-mysql", "tap-mysql"), config)
        changed_in_a_busy_log(project, server.sql, "shop.")


def test_deletions_from_a_copied_table(server: PostgreSql, tmp_path: Path) -> None:
    """A tap without versions deletes nothing from a table that is merged by key; one that is replaced is equal."""
    server.sql("create table shrunk (id int primary key); insert into shrunk select generate_series(1, 5)")
    project = reader("meltanolabs-tap-postgres", server, tmp_path)
    settled(project, {"replication_method": "FULL_TABLE", "load_method": "upsert"})
    assert differing(project) == {}
    server.sql("delete from shrunk where id = 2")
    assert "it has 5 rows, and its source 4" in differing(project)["shrunk"]
    settled(project, {"replication_method": "FULL_TABLE", "load_method": "overwrite"})
    assert differing(project) == {}
