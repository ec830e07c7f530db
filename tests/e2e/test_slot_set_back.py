"""A PostgreSQL that was taken back, by a restore or by a failover to a standby that lagged: said, never passed over."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

psycopg = pytest.importorskip("psycopg", reason="needs the extra [postgres]")

from .test_slot import Replica, found, replica  # noqa: E402
from .walserver import TABLES, WalServer, wal_server  # noqa: E402

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]


@pytest.fixture
def server() -> Iterator[WalServer]:
    """A server of its own, as its files are replaced."""
    with wal_server(max_replication_slots="4", max_wal_senders="4") as server:
        server.sql("create role reader login replication; grant pg_read_all_stats to reader")
        server.sql("grant all on schema public to reader")
        for table in TABLES:
            server.sql(f"create table {table} (id bigserial primary key, v text, n int)")
            server.sql(f"grant select on {table} to reader")
            server.sql(f"insert into {table} (v, n) select 'v' || i, i from generate_series(1, 20) i")
        yield server


def loaded(one: Replica, *arguments: str) -> str:
    code, out = one.run(*arguments)
    assert code == 0, out
    return out


def test_a_standby_that_lagged_is_promoted(server: WalServer, tmp_path: Path) -> None:
    """Once its log has passed the bookmark only the timeline tells; a full run that dies leaves the refusal as it was.

    The way out is what the refusal prints.
    """
    one = replica(tmp_path, server, "meltano")
    loaded(one)
    server.save("standby")
    server.pad()
    server.sql("insert into a (v, n) select 'lost', i from generate_series(1, 5) i")
    loaded(one)
    assert len(one.rows("a")) == 25
    server.set_back("standby", promoted=True)
    server.sql("insert into a (v, n) select 'new', i from generate_series(1, 7) i")
    code, out = one.run()
    assert (code, "was set back by a restore or a failover" in out) == (1, True), out
    for _ in range(3):
        server.pad()
    code, out = one.run()
    assert (code, "its timeline left that of the bookmark" in out) == (1, True), out
    assert "run p --full -s public-a -s public-b" in out
    process = one.command("run", "p", "--full")
    assert found(process, "tap-postgres", 240)
    process.kill()
    process.communicate(timeout=60)
    code, out = one.run()
    assert (code, "may have lost rows" in out, "--full -s public-a -s public-b" in out) == (1, True, True), out
    code, out = one.run("--full", "-s", "public-a")
    assert code == 0, out
    code, out = one.run()
    assert (code, "streams=public-b" in out) == (1, True), out
    loaded(one, "--full", "-s", "public-b")
    loaded(one)
    one.expect_equal()
    assert list(one.note()["server"]["timelines"]) == ["1", "2"]


def test_files_that_were_restored(server: WalServer, tmp_path: Path) -> None:
    """While its log ends before the bookmark a run is refused; afterwards the slot tells, and the run says it."""
    one = replica(tmp_path, server, "meltano")
    loaded(one)
    server.save("backup")
    server.pad()
    server.sql("insert into a (v, n) select 'lost', i from generate_series(1, 5) i")
    assert "slot stands before" not in loaded(one)
    server.set_back("backup", promoted=False)
    server.sql("insert into a (v, n) select 'new', i from generate_series(1, 7) i")
    code, out = one.run()
    assert (code, "its log ends before the bookmark" in out) == (1, True), out
    for _ in range(3):
        server.pad()
    out = loaded(one)
    assert "stands before where the last run left it" in out, out
    loaded(one, "--full")
    one.expect_equal()
    assert "stands before" not in loaded(one)


def test_another_server_and_a_slot_that_was_made_again(server: WalServer, tmp_path: Path) -> None:
    """A restored server has no slots; one that is made again does not hide that rows are missing."""
    one = replica(tmp_path, server, "meltano")
    loaded(one)
    server.save("backup")
    for _ in range(2):
        server.pad()
    server.sql("insert into a (v, n) select 'lost', i from generate_series(1, 5) i")
    loaded(one)
    server.pad()
    server.sql("checkpoint")  # it saves the slot
    loaded(one)
    server.set_back("backup", promoted=False)
    server.sql("select pg_drop_replication_slot(%s)", one.slot)
    server.pad()
    server.sql("select pg_create_logical_replication_slot(%s, 'wal2json')", one.slot)
    for _ in range(5):
        server.pad()
    code, out = one.run()
    assert (code, "or was made again before the bookmark" in out) == (1, True), out
    file = one.folder / "lake" / ".bridge" / "p" / "slot.json"
    note = one.note()
    note["server"]["system"] = "1"
    file.write_text(json.dumps(note))
    code, out = one.run()
    assert (code, "it is another server" in out) == (1, True), out
    loaded(one, "--full")
    one.expect_equal()


def hinted(out: str, flag: str) -> list[str]:
    """The arguments of the command in a text that has this flag, as somebody would copy it from there."""
    commands = [line.partition("singer-bridge ")[2] for line in out.splitlines() if "singer-bridge " in line]
    return shlex.split(next(command for command in commands if flag in command))


def typed(one: Replica, words: list[str]) -> tuple[int, str]:
    process = one.command(*words)
    out, _ = process.communicate(timeout=500)
    return process.returncode, out


def test_the_way_out_of_a_rollback(server: WalServer, tmp_path: Path) -> None:
    """Each command that is printed does what it says: of `rollback`, of the refused run, and of the guard.

    Another stream is append-only, of which `--full` would be refused.
    """
    keys = {"load_method": "append-only", "replication_method": "INCREMENTAL", "replication_key": "id"}
    one = replica(tmp_path, server, "meltano", streams={"public-b": keys})
    first = json.loads(loaded(one, "--json", "-q"))["commit"]
    server.sql("delete from a where id > 1; insert into b (v) values ('more')")
    loaded(one)
    code, out = typed(one, ["rollback", str(first), "p", "--yes"])
    assert (code, hinted(out, "--full")) == (0, ["run", "p", "--full", "-s", "public-a"]), out
    code, refusal = one.run()
    assert (code, hinted(refusal, "--full")) == (1, hinted(out, "--full")), refusal
    code, out = typed(one, hinted(refusal, "--full"))
    if code:
        code, out = typed(one, hinted(out, "--no-guard"))
    assert code == 0, out
    loaded(one)
    assert one.rows("a") == server.sql("select id, v, n from a order by id")


def test_a_long_name_of_a_database(server: WalServer, tmp_path: Path) -> None:
    """The copy's name fits, is noted before it is made, and the next run drops what a killed one left."""
    name = "a_database_with_a_name_of_many_letters"
    server.sql(f"create database {name} template postgres")
    one = replica(tmp_path, server, "wise", slot=False, config={"dbname": name})
    one.slot = f"pipelinewise_{name}_shop"
    with psycopg.connect(
        f"host=127.0.0.1 port={server.port} user=postgres dbname={name}", autocommit=True
    ) as connection:
        connection.execute("select pg_create_logical_replication_slot(%s, 'wal2json')", [one.slot])
    loaded(one)
    process = one.command("run", "p")
    assert found(process, "tap-postgres", 240)
    process.kill()
    process.communicate(timeout=60)
    [copy] = set(server.slots()) - {one.slot}
    assert (copy in one.note()["copies"], len(copy) <= 63) == (True, True)
    loaded(one)
    assert list(server.slots()) == [one.slot]
