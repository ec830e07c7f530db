"""Real taps of a real database: a stream that is held back, and all or nothing where a run is killed.

`make taps` runs all of them. A table that somebody has locked stops a tap in the middle of a run, at a known place.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from bridge.operate.demo.database import DemoServer, private_postgres

from .realtaps import Project, installed

psycopg = pytest.importorskip("psycopg", reason="needs the extra [demo]")
pytestmark = [pytest.mark.timeout(900), pytest.mark.slow]

_PATIENCE = 90
"""Seconds until a tap waits for a locked table, or a commit is there."""
_TABLES = """
drop schema public cascade; create schema public;
create table customers (id int primary key, name text);
insert into customers select n, 'customer ' || n from generate_series(1, 50) n;
create table lines (id int primary key, qty int, updated_at timestamptz not null);
insert into lines select n, n % 7, timestamptz '2026-01-01 00:00+00' + n * interval '1 minute'
  from generate_series(1, 300) n;
create table orders (id int primary key, qty int, updated_at timestamptz not null);
insert into orders select * from lines;
"""
_MARKS = ("public-lines", "public-orders")


class Shop:
    """A database of three tables, and a pipeline that loads them: customers whole, lines and orders by increments.

    Both taps read them in this order.
    """

    def __init__(self, project: Project, database: str) -> None:
        self.project, self._database = project, database

    def settle(self, streams: dict[str, dict[str, Any]] | None = None, **pipeline: Any) -> None:
        """Write bridge.yaml; `streams` are further keys of streams."""
        grows = {"replication_method": "INCREMENTAL", "replication_key": "updated_at", "load_method": "upsert"}
        keys = {"public-customers": {"replication_method": "FULL_TABLE", "load_method": "overwrite"}}
        keys |= {stream: dict(grows) for stream in _MARKS}
        for stream, more in (streams or {}).items():
            keys[stream] |= more
        source = {"tap": str(self.project.tap), "config": self.project.config, "select": ["public-*"]}
        settings = {"source": source, "destination": {"bucket": "lake"}, "streams": keys, **pipeline}
        (self.project.folder / "bridge.yaml").write_text(yaml.safe_dump({"pipelines": {"p": settings}}))

    def sql(self, text: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self._database, autocommit=True) as connection:
            cursor = connection.execute(text)
            return list(cursor.fetchall()) if cursor.description else []

    def run(self, *arguments: str) -> tuple[int, dict[str, Any]]:
        """The exit code, and what `run --json` says."""
        done = self.project.command("run", "p", "--json", *arguments)
        assert done.out, done.err
        return done.code, json.loads(done.out)

    def shown(self, *words: str) -> Any:
        return json.loads(self.project.command(*words, "--json").out)

    @property
    def marks(self) -> dict[str, str]:
        """The bookmarks of the streams that have a replication key."""
        values = {row["stream"]: row["bookmark"].get("replication_key_value") for row in self.shown("state", "list")}
        return {stream: value for stream, value in values.items() if value}

    def has(self, *tables: str) -> bool:
        """Whether each of these tables of the lake has the rows of the source, value by value."""
        for table in tables:
            columns = "id, name" if table == "customers" else "id, qty::text, extract(epoch from updated_at)::bigint"
            here = columns.replace("extract(epoch from updated_at)", "epoch(updated_at)").replace("text", "varchar")
            if self.project.rows(f"public-{table}", here) != self.sql(f"select {columns} from {table} order by id"):
                return False
        return True

    def files(self) -> list[Path]:
        return sorted((self.project.folder / "lake" / "p").rglob("*.parquet"))

    @contextmanager
    def stopped_at(self, table: str) -> Iterator[subprocess.Popen[bytes]]:
        """Start a run whose tap waits at this table, which is locked until the block has ended."""
        with psycopg.connect(self._database) as lock:
            lock.execute(f"lock table {table} in access exclusive mode")
            argv = [sys.executable, "-m", "bridge", "run", "p", "-q"]
            run = subprocess.Popen(argv, cwd=self.project.folder, stderr=subprocess.DEVNULL)
            try:
                waits = "select count(*) from pg_stat_activity where wait_event_type = 'Lock'"
                until(lambda: self.sql(waits) != [(0,)], run)
                yield run
            finally:
                run.kill()
                run.wait(60)


def until(is_so: Callable[[], bool], run: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + _PATIENCE
    while not is_so():
        assert run.poll() is None
        assert time.monotonic() < end
        time.sleep(0.2)


def tap_of(run: subprocess.Popen[bytes]) -> int:
    """The process of a run's tap."""
    children = psutil.Process(run.pid).children(recursive=True)
    return next(child.pid for child in children if "--catalog" in " ".join(child.cmdline()))


@pytest.fixture(scope="module")
def server() -> Iterator[DemoServer]:
    with tempfile.TemporaryDirectory(prefix="bridge-test-") as folder, private_postgres(Path(folder) / "pg") as server:
        yield server


@pytest.fixture(params=["meltanolabs-tap-postgres", "pipelinewise-tap-postgres"])
def shop(request: pytest.FixtureRequest, server: DemoServer, tmp_path: Path) -> Shop:
    package, database = str(request.param), server.conninfo("postgres")
    config: dict[str, Any] = {"host": str(server.socket_folder), "port": 5432, "user": "postgres", "password": "none"}
    config |= {"dbname": "postgres", "filter_schemas": "public"}
    if package.startswith("meltanolabs"):
        url = server.url("postgres", user="postgres", password="none")
        config = {"sqlalchemy_url": url, "filter_schemas": ["public"]}
    made = Shop(Project(tmp_path, installed(package, "tap-postgres"), config), database)
    made.sql(_TABLES)
    return made


def test_a_column_that_changes_its_type_holds_one_stream_back(shop: Shop) -> None:
    """Exit 5; the others are committed, its rows and bookmark stay; once it may change, one run brings all of it."""
    shop.settle({"public-orders": {"on_error": "hold", "on_type_change": "fail"}})
    assert shop.run()[0] == 0
    before = shop.marks
    shop.sql("alter table orders alter qty type text using 'n' || qty")
    shop.sql("update orders set updated_at = '2026-02-01' where id <= 20; delete from customers where id = 1")
    shop.sql("insert into lines values (301, 1, '2026-02-01')")
    assert shop.project.command("discover", "p").code == 0
    code, result = shop.run()
    assert (code, result["status"]) == (5, "failed")
    assert result["error"]["message"] == "held back: public-orders; all else is committed"
    assert "on_type_change" in result["error"]["hint"]
    assert shop.has("customers", "lines")
    assert len(shop.project.rows("public-orders", "id", "id")) == 300
    assert shop.marks["public-lines"].startswith("2026-02-01")
    assert shop.marks["public-orders"] == before["public-orders"]
    (status,) = shop.shown("status")
    assert (list(status["held_back"]), status["failures"]["count"]) == (["public-orders"], 1)
    shop.settle({"public-orders": {"on_error": "hold", "on_type_change": "rewrite"}})
    shop.sql("update orders set updated_at = '2026-02-02' where id > 20")  # what was stored as a number is text anew
    assert shop.run()[0] == 0
    assert shop.has("customers", "lines", "orders")
    assert shop.marks["public-orders"].startswith("2026-02-02")


def test_all_or_nothing(shop: Shop) -> None:
    """A run that is killed, or whose tap is, leaves tables, files and STATE as they were; the next is one commit."""
    is_bridge = "sqlalchemy_url" in shop.project.config
    shop.settle(commit={"at": "end"})
    assert shop.run()[1]["commits"] == 1
    before, state, commits = shop.files(), shop.shown("state", "get"), len(shop.shown("commits", "list"))
    shop.sql("update lines set qty = 99, updated_at = '2026-02-01' where id <= 20; delete from customers where id = 1")
    shop.sql("update orders set qty = 99, updated_at = '2026-02-01' where id <= 20")
    with shop.stopped_at("orders") as run:
        os.kill(run.pid if is_bridge else tap_of(run), signal.SIGKILL)
        assert run.wait(60) == (-signal.SIGKILL if is_bridge else 1)
    assert (shop.files(), shop.shown("state", "get")) == (before, state)
    record = shop.shown("runs", "show")
    assert (record["status"], record["commits"]) == ("died" if is_bridge else "failed", 0)
    code, result = shop.run()
    assert (code, result["commits"]) == (0, 1)
    assert len(shop.shown("commits", "list")) == commits + 1
    assert shop.has("customers", "lines", "orders")
