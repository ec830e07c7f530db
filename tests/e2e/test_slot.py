"""LOG_BASED replication from a real PostgreSQL by real taps: whatever is killed, the lake holds what the tables hold.

`ROUNDS` (3), `SEED` (1): so many runs under load, of each one process is killed: the orchestrator, the tap, the JVM or
PostgreSQL itself. `ROUNDS=20 SEED=7 python -m pytest tests/e2e/test_slot.py -k killed -s` is the long one.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import duckdb
import psutil
import pytest
import yaml

psycopg = pytest.importorskip("psycopg", reason="needs the extra [postgres]")

from bridge.errors import SlotError  # noqa: E402
from bridge.load.slots.database import opened  # noqa: E402
from bridge.load.tap.slot_source import SlotSource  # noqa: E402

from .realtaps import installed  # noqa: E402
from .walserver import TABLES, Load, WalServer, wal_server  # noqa: E402

ROUNDS, SEED = int(os.environ.get("ROUNDS", "3")), int(os.environ.get("SEED", "1"))
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600 + 240 * ROUNDS)]
MELTANO, WISE = "meltanolabs-tap-postgres==0.10.0", "pipelinewise-tap-postgres==1.8.4"
VICTIMS = ("orchestrator", "tap", "jvm", "postgres", "nobody")


@pytest.fixture(scope="module")
def shared_server() -> Iterator[WalServer]:
    with wal_server(max_replication_slots="4", max_wal_senders="4") as server:
        server.sql("create role reader login replication; grant pg_read_all_stats to reader")
        yield server


@pytest.fixture
def server(shared_server: WalServer) -> WalServer:
    """A server with two tables and no slot."""
    for (name,) in shared_server.sql("select slot_name from pg_replication_slots"):
        shared_server.sql("select pg_drop_replication_slot(%s)", name)
    shared_server.sql("drop schema public cascade; create schema public; grant all on schema public to reader")
    for table in TABLES:
        shared_server.sql(f"create table {table} (id bigserial primary key, v text, n int)")
        shared_server.sql(f"grant select on {table} to reader")
        shared_server.sql(f"insert into {table} (v, n) select 'v' || i, i from generate_series(1, 200) i")
    return shared_server


@dataclass
class Replica:
    """A pipeline `p` that replicates both tables, run by the real command."""

    folder: Path
    server: WalServer
    slot: str

    def command(self, *arguments: str) -> subprocess.Popen[str]:
        argv = [sys.executable, "-m", "bridge", *arguments]
        given = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        return subprocess.Popen(argv, cwd=self.folder, start_new_session=True, **given)  # type: ignore[call-overload,no-any-return]

    def run(self, *arguments: str) -> tuple[int, str]:
        return self.ended("run", "p", *arguments)

    def ended(self, *arguments: str) -> tuple[int, str]:
        process = self.command(*arguments)
        out, _ = process.communicate(timeout=500)
        return process.returncode, out

    def rows(self, table: str) -> list[tuple[Any, ...]]:
        files = self.folder / "lake" / "p" / f"public-{table}" / "*.parquet"
        sql = f"select id, v, n from read_parquet('{files}', union_by_name=true) order by id"
        return duckdb.sql(sql).fetchall()

    def expect_equal(self) -> None:
        """Each row of the tables is in the lake once, as it is, and no other is."""
        for table in TABLES:
            there, here = self.server.sql(f"select id, v, n from {table} order by id"), self.rows(table)
            keys, found = {row[0] for row in there}, {row[0] for row in here}
            counts = len(keys - found), len(found - keys), len(set(there) - set(here)), len(here)
            some = sorted(set(there) ^ set(here))[:10]
            assert counts == (0, 0, 0, len(there)), (table, "lost, extra, stale, rows", some)

    def note(self) -> Any:
        return json.loads((self.folder / "lake" / ".bridge" / "p" / "slot.json").read_text())


def replica(folder: Path, server: WalServer, kind: str, *, slot: bool = True, **more: Any) -> Replica:
    config: dict[str, Any] = {"host": "127.0.0.1", "port": server.port, "user": "reader", "password": "none"}
    if kind == "meltano":
        name, config["database"], config["filter_schemas"] = "tappostgres", "postgres", ["public"]
        config |= {"replication_idle_exit_seconds": 5, "replication_max_run_seconds": 40}
        tap = installed(MELTANO, "tap-postgres")
    else:
        name, config["dbname"], config["filter_schemas"] = "pipelinewise_postgres_shop", "postgres", "public"
        config |= {"tap_id": "shop", "logical_poll_total_seconds": 5, "max_run_seconds": 300}
        tap = installed(WISE, "tap-postgres")
    streams = {"replication_method": "LOG_BASED", "load_method": "upsert", "hard_delete": True}
    source = {"tap": str(tap), "config": {**config, **more.pop("config", {})}, "select": ["public-a", "public-b"]}
    own = more.pop("streams", {})
    pipeline = {"source": {**source, **more}, "destination": {"bucket": "lake"}, "streams": {"*": streams, **own}}
    pipeline["commit"] = {"every": "1s"}
    (folder / "bridge.yaml").write_text(yaml.safe_dump({"pipelines": {"p": pipeline}}))
    if slot:
        server.sql("select pg_create_logical_replication_slot(%s, 'wal2json')", name)
    return Replica(folder, server, name)


@pytest.mark.parametrize("kind", ["meltano", "wise"])
def test_a_column_added_between_runs_loses_no_change(server: WalServer, tmp_path: Path, kind: str) -> None:
    """The run after it loads the column's changes and says so; the slot does not pass them without it."""
    one = replica(tmp_path, server, kind)
    code, out = one.run()
    assert code == 0, out
    server.sql("alter table a add column more text")
    server.sql("update a set more = 'm' || id where id <= 5")
    code, out = one.run()
    assert code == 0, out
    assert "the source has a new column more, which is loaded from this run on" in out
    files = tmp_path / "lake" / "p" / "public-a" / "*.parquet"
    sql = f"select id, more from read_parquet('{files}', union_by_name=true) where more is not null order by id"
    assert duckdb.sql(sql).fetchall() == [(n, f"m{n}") for n in range(1, 6)]
    one.expect_equal()


@pytest.mark.parametrize(("kind", "case"), [("meltano", "own"), ("wise", "never"), ("wise", "unnoted")])
def test_the_slot_does_not_pass_a_column_that_the_tap_was_not_asked_for(
    server: WalServer, tmp_path: Path, kind: str, case: str
) -> None:
    """The database is asked instead; `discover`, as the hint says, takes the column in, and no change is lost."""
    one = replica(tmp_path, server, kind)
    code, out = one.run()
    assert code == 0, out
    settings = yaml.safe_load((tmp_path / "bridge.yaml").read_text())
    kept = tmp_path / ".singer-bridge" / "catalogs" / "p.json"
    if case == "own":
        (tmp_path / "own.json").write_bytes(kept.read_bytes())
        settings["pipelines"]["p"]["source"]["catalog"] = "own.json"
    elif case == "never":
        settings["pipelines"]["p"]["source"]["discover"] = "never"
    else:
        (kept.parent / "discovered" / "p.json").unlink()
    (tmp_path / "bridge.yaml").write_text(yaml.safe_dump(settings))
    kind_of, value = ("numeric(30, 10)", ".0000000001") if kind == "meltano" else ("text", "m")
    server.sql(f"alter table a add column more {kind_of}; alter table b drop column n")
    server.sql(f"update a set more = (id || '{value}')::{kind_of} where id <= 5")
    before = server.slots()[one.slot]
    code, out = one.run()
    assert (code, server.slots()[one.slot]) == (2, before), out
    assert "a new column is selected and not in the catalog" in out
    assert "column=more" in out
    assert one.ended("discover", "p")[0] == 0
    code, out = one.run()
    assert code == 0, out
    files = tmp_path / "lake" / "p" / "public-a" / "*.parquet"
    sql = f"select id, more::text from read_parquet('{files}', union_by_name=true) where more is not null order by id"
    assert duckdb.sql(sql).fetchall() == [(n, f"{n}{value}") for n in range(1, 6)]


@pytest.mark.parametrize("kind", ["meltano", "wise"])
def test_a_renamed_table_is_said_once_with_its_new_name(server: WalServer, tmp_path: Path, kind: str) -> None:
    """What the run says to type, and what the failure says, lets the other table go on."""
    server.sql("create table b_old (id bigserial primary key, other text)")
    one = replica(tmp_path, server, kind)
    code, out = one.run()
    assert code == 0, out
    server.sql("alter table b rename to sales; grant select on sales to reader")
    server.sql("insert into a (v, n) values ('new', 1)")
    code, out = one.run()
    assert "public-b: the source has no such table any more" in out
    assert "The new table public-sales has the same columns" in out
    assert "b_old" not in out
    if code:
        assert "singer-bridge select p '!public-b'" in out.partition("error")[2]
    code, out = one.run()
    assert "public-b: the source has no such table any more" not in out
    assert one.ended("select", "p", "!public-b")[0] == 0
    code, out = one.run()
    assert code == 0, out
    assert one.rows("a") == server.sql("select id, v, n from a order by id")


@pytest.mark.parametrize("kind", ["meltano", "wise"])
def test_killed_again_and_again(server: WalServer, tmp_path: Path, kind: str) -> None:
    """Under load, with kills of everything that can be killed: after a quiet run, table == lake, row by row."""
    one, chance, began = replica(tmp_path, server, kind), random.Random(SEED), time.monotonic()
    first, hits = server.slots()[one.slot], 0
    with Load(server, SEED) as load:
        for number in range(ROUNDS):
            victim = VICTIMS[number % len(VICTIMS)] if len(VICTIMS) <= ROUNDS else chance.choice(VICTIMS[:4])
            longest = 45 if kind == "meltano" else 5 if victim == "tap" else 25
            hit, code, seconds = strike(one, victim, chance.random() * longest)
            hits += hit
            done = f"{'killed' if hit else 'missed'} {victim}, exit {code}, {seconds:.0f} s"
            print(f"{kind} {number + 1}/{ROUNDS}: {done}, {load.changes} changes", flush=True)
            assert victim != "nobody" or code == 0
    code, out = one.run()
    assert code == 0, out
    one.expect_equal()
    assert list(server.slots()) == [one.slot], "a copy of the slot was left behind"
    tip = int(server.sql("select (pg_current_wal_lsn() - '0/0')::bigint")[0][0])
    at = server.slots()[one.slot]
    print(
        f"{kind}: {load.changes} changes, {len(one.rows('a')) + len(one.rows('b'))} rows, slot moved by {at - first} of"
    )
    print(f"{tip - first} bytes, {time.monotonic() - began:.0f} s", flush=True)
    assert at > first


def test_several_processes_of_the_tap(server: WalServer, tmp_path: Path) -> None:
    """Each reads a copy of its own, so the feedback of one moves nothing of the other; nothing is killed."""
    one = replica(tmp_path, server, "meltano", parallelism=2)
    assert one.run()[0] == 0
    with Load(server, SEED):
        process = one.command("run", "p")
        assert found(process, "tap-postgres", 240)
        assert len(server.slots()) == 3, "the original, and a copy for each process"
        out, _ = process.communicate(timeout=400)
        assert process.returncode == 0, out
    assert one.run()[0] == 0
    one.expect_equal()
    assert list(server.slots()) == [one.slot]


def test_a_slot_that_somebody_else_moved(server: WalServer, tmp_path: Path) -> None:
    """Changes that nobody can read any more are said, and `--full` takes a snapshot that is right."""
    one = replica(tmp_path, server, "meltano")
    assert one.run()[0] == 0
    for table in TABLES:
        server.sql(f"update {table} set v = 'new' where id < 50; delete from {table} where id > 190")
    server.sql("select pg_replication_slot_advance(%s, pg_current_wal_lsn())", one.slot)
    code, out = one.run()
    assert (code, "somebody else has moved the replication slot" in out, "--full -s public-a" in out) == (1, True, True)
    assert one.run("--full")[0] == 0
    one.expect_equal()
    server.sql("select pg_drop_replication_slot(%s)", one.slot)
    code, out = one.run()
    assert (code, "pg_create_logical_replication_slot" in out, "--full" in out) == (1, True, True)


def test_without_the_guard(server: WalServer, tmp_path: Path) -> None:
    """Two streams are refused; of one, a run that was killed has the next one ask for `--full`, which is right."""
    one = replica(tmp_path, server, "meltano", replication_slot={"guard": "off"})
    code, out = one.run()
    assert (code, "share a replication slot" in out) == (1, True)
    one = replica(tmp_path, server, "meltano", slot=False, select=["public-a"], replication_slot={"guard": "off"})
    process = one.command("run", "p")
    assert found(process, "tap-postgres", 240)
    process.kill()
    process.communicate(timeout=60)
    code, out = one.run()
    assert (code, "may have lost rows" in out, "run p --full -s public-a" in out) == (1, True, True)


def test_what_stands_still_does_not_hold_the_log(server: WalServer, tmp_path: Path) -> None:
    """Where nothing changes the bookmark of pipelinewise' tap stays; the slot moves on, and nothing is lost for it."""
    one = replica(tmp_path, server, "wise")
    server.sql("select pg_create_logical_replication_slot('pipelinewise_postgres', 'wal2json')")
    code, out = one.run()
    assert (code, "named without tap_id" in out, "set tap_id: shop" in out) == (1, True, True)
    server.sql("select pg_drop_replication_slot('pipelinewise_postgres')")
    assert [one.run()[0], one.run()[0]] == [0, 0]
    server.sql("create table others (id int)")
    for number in range(3):
        server.sql("insert into others values (%s)", number)
        server.sql("select pg_switch_wal()")
    tip = int(server.sql("select (pg_current_wal_lsn() - '0/0')::bigint")[0][0])
    assert one.run()[0] == 0
    assert server.slots()[one.slot] >= tip
    server.sql("update a set v = 'later' where id = 7")
    assert one.run()[0] == 0
    one.expect_equal()


def strike(one: Replica, victim: str, after: float) -> tuple[bool, int | None, float]:
    """Run the pipeline and kill one of its processes so long after its tap was there; return whether it was alive."""
    began, process, hit = time.monotonic(), one.command("run", "p"), False
    found(process, "tap-postgres", 240)
    end = time.monotonic() + after
    while time.monotonic() < end and process.poll() is None and victim != "nobody":
        time.sleep(0.2)
    if process.poll() is None and victim == "postgres":
        one.server.stop("immediate")
        hit = process.poll() is None
        time.sleep(1)
        one.server.start()
    elif process.poll() is None and victim != "nobody":
        names = {"tap": ("tap-postgres", 1), "jvm": ("java", 60)}
        with suppress(psutil.NoSuchProcess):
            target = found(process, *names[victim]) if victim in names else psutil.Process(process.pid)
            if target:
                target.kill()
                hit = True
    out, _ = process.communicate(timeout=400)
    if process.returncode not in (0, 1, -9):
        print(out)
    return hit, process.returncode, time.monotonic() - began


def found(process: subprocess.Popen[str], name: str, wait: float) -> psutil.Process | None:
    """Return a run's child by a word of its command; None if the run ends before there is one."""
    end = time.monotonic() + wait
    while time.monotonic() < end and process.poll() is None:
        with suppress(psutil.NoSuchProcess):
            for child in psutil.Process(process.pid).children(recursive=True):
                with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                    command = child.cmdline()
                    if any(name in word for word in command[:3]) and (name != "tap-postgres" or "--catalog" in command):
                        return child
        time.sleep(0.1)
    return None


def test_a_statement_that_waits_is_ended(server: WalServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server ends a statement that takes too long, also after a move of the slot, which may take longer."""
    server.sql("select pg_create_logical_replication_slot('mine', 'pgoutput')")
    address = {"host": "127.0.0.1", "port": str(server.port), "user": "postgres", "dbname": "postgres"}
    monkeypatch.setattr("bridge.load.slots.database._ANSWER", timedelta(milliseconds=300))
    database = opened(SlotSource("other", "", "slot", "mine", address))
    with pytest.raises(SlotError, match="statement timeout"):
        database.query("select pg_sleep(60)")
    assert database.advance("mine", tip := database.tip()) >= tip
    with pytest.raises(SlotError, match="statement timeout"):
        database.query("select pg_sleep(60)")
    database.close()
