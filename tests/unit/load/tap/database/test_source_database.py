"""One connection for the questions of a run, and what happens without one."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bridge.load.tap.database.connection import NotAsked
from bridge.load.tap.database.mysql import MySqlConnection
from bridge.load.tap.database.source_database import SourceDatabase
from bridge.operate.demo.database import DemoServer, private_postgres
from bridge.settings.options import Pipeline

psycopg = pytest.importorskip("psycopg", reason="needs the extra [demo]")
PID = "select pg_backend_pid()"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DemoServer]:
    with private_postgres(tmp_path_factory.mktemp("pg") / "data") as server:
        yield server


def database(url: str, tap: str = "meltanolabs-tap-postgres") -> SourceDatabase:
    source = {"tap": "cat", "pip_url": tap, "config": {"sqlalchemy_url": url}}
    pipeline = Pipeline.model_validate({"name": "p", "source": source, "destination": {"bucket": "lake"}})
    return SourceDatabase(pipeline, ["cat"])


def of(server: DemoServer) -> SourceDatabase:
    return database(server.url("postgres", user="postgres", password="hush-hush"))


def pid(one: SourceDatabase) -> int:
    return int(one.rows(PID, [], seconds=5)[0][0])


def test_one_connection_until_the_outermost_block_ends(server: DemoServer) -> None:
    """Blocks inside it share its connection; without a block, each question has its own."""
    one = of(server)
    with one:
        first = pid(one)
        with one:
            assert pid(one) == first
        assert pid(one) == first
    assert len({first, pid(one), pid(one)}) == 3


def test_a_connection_that_was_idle_for_long_is_not_used_again(
    server: DemoServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What lies between may have dropped it without a word."""
    monkeypatch.setattr("bridge.load.tap.database.source_database._IDLE", -1)
    with of(server) as one:
        assert pid(one) != pid(one)


def test_statements_that_fail_or_take_too_long_have_no_answer(server: DemoServer) -> None:
    """The others have; after the whole time no other one is begun. Times are in UTC."""
    queries = [(sql, []) for sql in ("select pg_sleep(9)", "select 1 / 0", "select 'a%%'", "show timezone")]
    with of(server) as one:
        assert one.ask(queries, each=0.2, whole=9) == [None, None, [("a%",)], [("UTC",)]]
        assert one.ask([("select pg_sleep(9)", []), (PID, [])], each=0.2, whole=0.1) == [None, None]
        assert one.rows("select %s = current_date", ["today"], seconds=5) == [(True,)]


def test_a_connection_that_is_lost(server: DemoServer) -> None:
    """Is a reason, not an error; it is not tried again in the same minute of the block, and later it is."""
    with of(server) as one:
        with pytest.raises(NotAsked, match="terminating connection"):
            one.ask([("select pg_terminate_backend(pg_backend_pid())", [])], each=5, whole=5)
        with pytest.raises(NotAsked, match="terminating connection"):
            pid(one)
    assert pid(one)


def test_a_server_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is tried once, however many questions there are."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"postgresql://u:p@127.0.0.1:{silent.getsockname()[1]}/d"
        monkeypatch.setattr("bridge.load.tap.database.postgres._CONNECT", 2)
        with database(url) as one:
            for _ in range(3):
                with pytest.raises(NotAsked, match="timeout expired"):
                    pid(one)
        silent.settimeout(5)
        silent.accept()[0].close()
        silent.settimeout(0.1)
        with pytest.raises(TimeoutError):
            silent.accept()


def test_other_taps_are_not_asked() -> None:
    """Nothing is started for them; a tap that another program starts has no database that we know."""
    for one in (database("postgresql://h/d", "tap-github"), SourceDatabase(None, ["tap-mysql"])):
        assert (one.kind, one.name if one.kind else "") == (None, "")
        with pytest.raises(NotAsked, match="only PostgreSQL, MySQL and MariaDB are asked"):
            pid(one)


def test_a_python_without_the_driver(tmp_path: Path) -> None:
    """The reason names what it lacks; a program beside which no Python is has ours."""
    connection = MySqlConnection(str(tmp_path / "tap-mysql"), {"host": "127.0.0.1"})
    try:
        with pytest.raises(NotAsked, match="pymysql"):
            connection.ask([("select 1", [])], 1, 1)
    finally:
        connection.close()
    assert sys.executable
