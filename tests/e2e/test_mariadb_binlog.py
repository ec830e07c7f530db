"""MariaDB's log, read by pipelinewise-tap-mysql: what is killed costs a repetition; the table ends as the lake."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from .realtaps import BINLOG, MariaDb, Project, installed, mariadb

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]
_TABLES = ("people", "orders")
_KILLS = 3
_SEED = 20260115


@pytest.fixture
def shop() -> Iterator[MariaDb]:
    with mariadb(*BINLOG) as server:
        server.sql(
            "create user 'reader'@'127.0.0.1' identified by 'secret'; create database shop character set utf8mb4;"
            "grant select, replication client, replication slave on *.* to 'reader'@'127.0.0.1'"
        )
        for table in _TABLES:
            server.sql(f"create table shop.{table} (id int primary key, n int, words varchar(50))")
            server.sql(f"use shop; insert into {table} select seq, seq, concat('row ', seq) from seq_1_to_200")
        yield server


@pytest.fixture
def project(shop: MariaDb, tmp_path: Path) -> Project:
    tap = installed("pipelinewise-tap-mysql", "tap-mysql")
    login = {"host": "127.0.0.1", "port": str(shop.port), "user": "reader", "password": "secret", "filter_dbs": "shop"}
    source = {"tap": str(tap), "config": {**login, "engine": "mariadb"}, "select": ["*"]}
    keys = {"replication_method": "LOG_BASED", "load_method": "upsert", "hard_delete": True}
    pipeline = {"source": source, "destination": {"bucket": "lake"}, "streams": {"*": keys}, "commit": {"every": "1s"}}
    (tmp_path / "bridge.yaml").write_text(yaml.safe_dump({"pipelines": {"p": pipeline}}))
    return Project(tmp_path, tap, {})


@contextmanager
def changing(server: MariaDb, luck: random.Random) -> Iterator[None]:
    """Insert, update and delete in both tables until the block ends."""
    over = threading.Event()

    def change() -> None:
        number = luck.randrange(10**6, 10**9)
        while not over.is_set():
            for table in _TABLES:
                number += 1
                server.sql(
                    f"insert into shop.{table} values ({number}, 1, 'new');"
                    f"update shop.{table} set n = n + 1, words = 'zoë' where id % 7 = {luck.randrange(7)};"
                    f"delete from shop.{table} where id % 97 = {luck.randrange(97)}"
                )
            time.sleep(0.2)

    thread = threading.Thread(target=change)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def killed(project: Project, seconds: float) -> None:
    """Start a run, and kill all of its processes after so long, wherever it is."""
    argv = [sys.executable, "-m", "bridge", "run", "p"]
    run = subprocess.Popen(
        argv, cwd=project.folder, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        run.wait(seconds)
    except subprocess.TimeoutExpired:
        os.killpg(run.pid, signal.SIGKILL)
        run.wait(60)


def differing(project: Project, server: MariaDb) -> dict[str, tuple[set[object], set[object]]]:
    """Return, by table, the rows that only the database has and those that only the lake has."""
    result: dict[str, tuple[set[object], set[object]]] = {}
    for table in _TABLES:
        there = [tuple(row) for row in server.sql(f"select id, n, words from shop.{table}")]
        here = project.rows(f"shop-{table}", "id::varchar, n::varchar, words")
        assert len(set(here)) == len(here), table
        if set(there) != set(here):
            result[table] = (set(there) - set(here), set(here) - set(there))
    return result


def loaded(project: Project) -> None:
    done = project.command("run", "p")
    assert done.code == 0, done.err
    assert "not in their SCHEMA" not in done.err


def test_kills_under_load_cost_no_row(project: Project, shop: MariaDb) -> None:
    """Kills while rows change: after the next run both tables are in the lake, row by row, deletions too."""
    luck = random.Random(_SEED)
    loaded(project)
    assert differing(project, shop) == {}
    for _ in range(_KILLS):
        with changing(shop, luck):
            killed(project, luck.uniform(4, 40))
    loaded(project)
    assert differing(project, shop) == {}
    [[moved]] = shop.sql("select max(id) from shop.orders where id <= 200")
    shop.sql(f"delete from shop.people limit 5; update shop.orders set id = -id where id = {moved}")
    loaded(project)
    # An UPDATE of a key comes as a row with the new one; of the old one the tap says nothing.
    [(table, (missing, more))] = differing(project, shop).items()
    assert (table, missing, [row[0] for row in more]) == ("orders", set(), [moved])  # type: ignore[index]


def test_the_tap_goes_on_from_a_position_of_olake(project: Project, shop: MariaDb) -> None:
    """What changed since OLake's position arrives, once; what OLake had loaded before does not come again."""
    [(file, place, *_)] = shop.sql("show master status")
    shop.sql("insert into shop.orders values (1000, 1, 'new'); delete from shop.orders where id = 7")
    state = {"server_id": 8000, "state": {"position": {"Name": file, "Pos": int(place)}}}
    common = {"state": state, "streams": ["shop.people", "shop.orders"]}
    entries = [{"stream": table, "namespace": "shop", "sync_mode": "", "state": {"chunks": []}} for table in _TABLES]
    olake = {"type": "STREAM", "version": 7, "global": common, "streams": entries}
    (project.folder / "olake.json").write_text(json.dumps(olake))
    words = "--format", "olake", "--as", "pipelinewise-tap-mysql"
    imported = project.command("state", "import", "p", "olake.json", *words, "--yes")
    assert imported.code == 0, imported.err
    loaded(project)
    assert project.rows("shop-orders", "id, n, words") == [(1000, 1, "new")]
    shop.sql("insert into shop.people values (1001, 2, 'newer')")
    loaded(project)
    assert project.rows("shop-orders", "id, n, words") == [(1000, 1, "new")]
    assert project.rows("shop-people", "id, n, words") == [(1001, 2, "newer")]
    exported = project.command("state", "export", "p", *words)
    assert exported.code == 0, exported.err
    position = json.loads(exported.out)["global"]["state"]["state"]["position"]
    assert (position["Name"], position["Pos"] > int(place)) == (file, True)


def refused(project: Project, words: str) -> None:
    done = project.command("run", "p")
    assert (done.code, words in done.err, "run p --full -s " in done.err) == (1, True, True), done.err


def test_a_server_that_was_reset_or_is_another(project: Project, shop: MariaDb) -> None:
    """A log of the same name that lacks the bookmark, or has other transactions before it, is not followed."""
    loaded(project)
    shop.sql("insert into shop.orders values (1000, 1, 'new')")
    loaded(project)
    note = json.loads((project.folder / "lake" / ".bridge" / "p" / "binlog.json").read_text())
    assert note["streams"]["shop-orders"]["server"] == "mariadb 1 0"
    shop.sql("reset master; insert into shop.orders values (1001, 1, 'unseen')")
    refused(project, "ends before the bookmark")
    words = "x" * 50
    for number in range(2000, 2400, 4):
        shop.sql("".join(f"insert into shop.orders values ({n}, 1, '{words}');" for n in range(number, number + 4)))
    refused(project, "other transactions than the bookmark")
    shop.sql("flush binary logs; purge binary logs to 'binlog.000002'")
    refused(project, "no longer has the binary log")
    assert project.command("run", "p", "--full").code == 0
    loaded(project)
    assert differing(project, shop) == {}
    shop.sql("set global server_id = 2")
    refused(project, "from another server (mariadb 1 0, now mariadb 2 0)")
    assert project.command("run", "p", "--full", "-s", "shop-orders").code == 0
    refused(project, "from another server")
    assert project.command("run", "p", "--full", "-s", "shop-people").code == 0
    loaded(project)
