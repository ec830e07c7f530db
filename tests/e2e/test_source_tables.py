"""What MySQL and MariaDB say of their tables where the tap is not asked: the real tap, and its driver."""

from __future__ import annotations

import json
import re
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from bridge.load.tap.database.columns import columns_with_nulls
from bridge.load.tap.database.connection import NotAsked
from bridge.load.tap.database.source_database import SourceDatabase
from bridge.settings.options import Pipeline

from .realtaps import BINLOG, MariaDb, Project, installed, mariadb

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]
TAP = "pipelinewise-tap-mysql"
ODD = "Odd.T `%x"
TABLES = """
create database shop; create database other;
create user 'reader'@'127.0.0.1' identified by 'secret';
grant select, replication client, replication slave on *.* to 'reader'@'127.0.0.1';
use shop; set sql_mode = '';
create table users (id int primary key, note text, updated_at datetime);
create table old (id int primary key, at date);
create table gone (id int primary key);
insert into users values (1, 'a', now()), (2, 'b', now());
insert into old values (1, now());
"""
STAMPED = """
use shop; set sql_mode = '';
create table `Odd.T ``%x` (id int primary key, updated_at datetime);
create table zeros (id int primary key, modified_at datetime not null);
insert into `Odd.T ``%x` values (1, now()), (2, null);
insert into zeros values (1, 0), (2, now());
"""
CHANGES = """
use shop;
alter table users drop column note, add column more int;
insert into users values (3, now(), 3);
rename table old to fresh;
drop table gone;
create table late (id int primary key, other int);
create table other.late (id int primary key);
"""


@pytest.fixture(scope="module")
def server() -> Iterator[MariaDb]:
    with mariadb(*BINLOG) as server:
        yield server


@pytest.fixture
def shop(server: MariaDb) -> MariaDb:
    """The server with new tables."""
    for name in ("shop", "other"):
        server.sql(f"drop database if exists {name}")
    server.sql("drop user if exists 'reader'@'127.0.0.1';" + TABLES)
    return server


def login(server: MariaDb) -> dict[str, Any]:
    user = {"user": "reader", "password": "secret", "engine": "mariadb", "filter_dbs": "shop"}
    return {"host": "127.0.0.1", "port": str(server.port), **user}


def project(server: MariaDb, folder: Path, streams: dict[str, Any], **source: Any) -> Project:
    made = Project(folder, installed(TAP, "tap-mysql"), login(server))
    source |= {"tap": str(made.tap), "config": made.config, "select": ["*"]}
    pipeline = {"source": source, "destination": {"bucket": "lake"}, "streams": streams}
    (folder / "bridge.yaml").write_text(yaml.safe_dump({"pipelines": {"p": pipeline}}))
    return made


def differences(made: Project) -> dict[tuple[str, str], str]:
    """Run; return what it says of tables, by their name and the kind."""
    done = made.command("run", "p", "--json")
    assert done.code == 0, done.err
    return {(one["stream"], one["kind"]): one["text"] for one in json.loads(done.out)["differences"]}


@pytest.mark.parametrize("method", ["FULL_TABLE", "LOG_BASED"])
def test_a_run_that_does_not_ask_the_tap(method: str, shop: MariaDb, tmp_path: Path) -> None:
    """It names new, dropped and renamed tables and columns; of the log's new columns, the tap sends the values."""
    keys = {"replication_method": method} | ({"load_method": "upsert"} if method == "LOG_BASED" else {})
    made = project(shop, tmp_path, {"*": keys}, discover="never")
    assert made.command("discover", "p").code == 0
    assert differences(made) == {}
    shop.sql(CHANGES)
    texts = differences(made)
    assert texts.keys() == {
        ("shop-gone", "dropped_table"),
        ("shop-old", "dropped_table"),
        ("shop-fresh", "new_table"),
        ("shop-late", "new_table"),
        ("shop-users", "new_column"),
        ("shop-users", "dropped_column"),
    }
    assert "The new table shop-fresh has the same columns" in texts["shop-old", "dropped_table"]
    if method == "LOG_BASED":
        assert "more, which is loaded as rows change" in texts["shop-users", "new_column"]
        assert made.rows("shop-users", "id, more") == [(1, None), (2, None), (3, 3)]
    assert made.command("discover", "p").code == 0
    assert made.command("run", "p", "--full").code == 0
    assert differences(made) == {}


def test_a_replication_key_with_nulls(shop: MariaDb, tmp_path: Path) -> None:
    """`discover` asks for NULLs before it proposes; a day of zero in a column that has none is no NULL."""
    shop.sql(STAMPED)
    done = project(shop, tmp_path, {}).command("discover", "p")
    assert done.code == 0, done.err
    shown = re.sub(r"\s+", " ", done.out + done.err)
    assert "shop-users: {replication_method: INCREMENTAL, replication_key: updated_at, load_method: upsert}" in shown
    assert "shop-zeros: {replication_method: INCREMENTAL, replication_key: modified_at, load_method: upsert}" in shown
    assert f'"shop-{ODD}": {{replication_method: FULL_TABLE}}' in shown
    assert "updated_at: NULL in some rows" in shown


@contextmanager
def locked(server: MariaDb, table: str) -> Iterator[None]:
    """A table that nobody else may read, for the block."""
    argv = ["mariadb", "--no-defaults", f"--socket={server.folder}/socket", "--user=root", "--unbuffered", "-N"]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdin
        assert other.stdout
        other.stdin.write(f"lock tables {table} write; select 'locked';\n")
        other.stdin.flush()
        assert other.stdout.readline() == "locked\n"
        yield
        other.stdin.close()


def database(config: dict[str, Any]) -> SourceDatabase:
    tap = str(installed(TAP, "tap-mysql"))
    settings = {"name": "p", "source": {"tap": tap, "config": config}, "destination": {"bucket": "lake"}}
    return SourceDatabase(Pipeline.model_validate(settings), [tap])


def entry(table: str) -> dict[str, Any]:
    facts = {"breadcrumb": [], "metadata": {"database-name": "shop"}}
    return {"tap_stream_id": f"shop-{table}", "table_name": table, "metadata": [facts], "schema": {"properties": {}}}


def test_a_table_that_is_locked_is_named(shop: MariaDb, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its question ends, although the lock does not; the others answer."""
    shop.sql(STAMPED)
    monkeypatch.setattr("bridge.load.tap.database.columns._SECONDS", 1)
    catalog = {"streams": [entry(ODD), entry("users"), entry("zeros")]}
    asked = {f"shop-{ODD}": ["updated_at"], "shop-users": ["updated_at"], "shop-zeros": ["modified_at"]}
    with locked(shop, "shop.users"):
        nulls, [text] = columns_with_nulls(database(login(shop)), catalog, asked)
    assert nulls == {f"shop-{ODD}": {"updated_at"}}
    assert text.endswith(": shop-users.updated_at")


def test_one_connection_sees_what_changes_meanwhile(shop: MariaDb) -> None:
    """Each question sees the rows of its time; a connection that the server ended is a reason."""
    with database(login(shop)) as one:
        count = "select count(*), connection_id() from shop.users"
        [(before, first)] = one.rows(count, [], seconds=5)
        shop.sql("insert into shop.users values (7, 'new', now())")
        [(after, second)] = one.rows(count, [], seconds=5)
        assert (after - before, second) == (1, first)
        assert one.rows("select '2024-01-01 01:00:00' = %s", ["2024-01-01T02:00:00+01:00"], seconds=5) == [[1]]
        shop.sql(f"kill {first}")
        with pytest.raises(NotAsked):
            one.rows(count, [], seconds=5)
    assert one.rows(count, [], seconds=5)[0][1] != first


def test_a_server_that_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The question has an end."""
    monkeypatch.setattr("bridge.load.tap.database.mysql._START", 1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        config = {"host": "127.0.0.1", "port": str(silent.getsockname()[1]), "user": "reader", "password": "secret"}
        with database(config) as one, pytest.raises(NotAsked, match="no answer came in 2 s"):
            one.ask([("select 1", [])], each=0.5, whole=0.5)
