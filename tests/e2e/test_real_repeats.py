"""Real taps of real databases run again and again, as a new user does: nothing is doubled, mixed or ignored in silence.

`make taps` runs all of them.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from bridge.operate.demo.database import DemoServer, private_postgres

from .realtaps import MariaDb, Project, installed, mariadb

psycopg = pytest.importorskip("psycopg", reason="needs the extra [demo]")
pytestmark = [pytest.mark.timeout(1200), pytest.mark.slow]


def settle(project: Project, select: list[str], **streams: Any) -> None:
    """Write bridge.yaml as `add` and `select` leave it, with these keys under `streams`."""
    source = {"tap": str(project.tap), "config": project.config, "select": select}
    pipeline = {"source": source, "destination": {"bucket": "lake"}, "streams": streams}
    (project.folder / "bridge.yaml").write_text(yaml.safe_dump({"pipelines": {"p": pipeline}}))


def load(project: Project, *arguments: str) -> dict[str, Any]:
    done = project.command("run", "p", "--json", *arguments)
    assert done.code == 0, done.err
    return dict(json.loads(done.out))


@pytest.fixture(scope="module")
def server() -> Iterator[DemoServer]:
    with tempfile.TemporaryDirectory(prefix="bridge-test-") as folder, private_postgres(Path(folder) / "pg") as server:
        yield server


@pytest.fixture
def sql(server: DemoServer) -> Iterator[Callable[..., Any]]:
    """A database with nothing in it, as SQL."""
    with psycopg.connect(server.conninfo("postgres"), autocommit=True) as connection:
        connection.execute("drop schema public cascade; create schema public")
        yield connection.execute


@pytest.fixture
def meltano(server: DemoServer, tmp_path: Path) -> Project:
    url = server.url("postgres", user="postgres", password="none")
    tap = installed("meltanolabs-tap-postgres", "tap-postgres")
    return Project(tmp_path, tap, {"sqlalchemy_url": url, "filter_schemas": ["public"]})


_ORDERS = (
    "create table orders (id bigint primary key, note text); "
    "insert into orders select n, 'first' from generate_series(1, 300) n"
)


def test_what_nobody_said_is_merged_by_key(meltano: Project, sql: Any) -> None:
    """README's own tap, run three times with no replication method: each row once, with its last values."""
    sql(_ORDERS)
    settle(meltano, ["public-*"])
    discovered = meltano.command("discover", "p").out
    assert "all rows again, merged by id" in discovered
    first = load(meltano)
    assert first["streams"]["public-orders"]["load_method"] == "upsert"
    [warning] = first["warnings"]
    assert "merges them by key: public-orders. Rows that are deleted in the source stay" in warning
    sql("update orders set note = 'second' where id <= 100; delete from orders where id = 300")
    sql("insert into orders values (301, 'second')")
    second = load(meltano)
    assert second["warnings"] == []  # said once
    wanted = [(n, "second" if n <= 100 or n == 301 else "first") for n in range(1, 302)]
    assert meltano.rows("public-orders", "id, note") == wanted
    load(meltano)
    assert meltano.rows("public-orders", "id, note") == wanted


def test_a_table_that_an_older_version_doubled_is_mended(meltano: Project, sql: Any) -> None:
    """Two appended loads of one table; the next one, merged by key, leaves each key once."""
    sql(_ORDERS)
    settle(meltano, ["public-*"], **{"public-orders": {"load_method": "append-only"}})
    load(meltano)
    load(meltano)
    assert len(meltano.rows("public-orders", "id")) == 600  # as it was asked for
    settle(meltano, ["public-*"])
    load(meltano)
    assert meltano.rows("public-orders", "id") == [(n,) for n in range(1, 301)]


def test_without_a_key_the_second_run_is_refused(meltano: Project, sql: Any) -> None:
    """Before the tap starts, with lines that work when they are pasted; what the first run loaded stays."""
    sql("create table events (what text); insert into events select 'e' || n from generate_series(1, 20) n")
    settle(meltano, ["public-*"])
    assert "a second run is refused: no key" in meltano.command("discover", "p").out
    [warning] = load(meltano)["warnings"]
    assert "they have no key: public-events. A second run would add the same rows again" in warning
    planned = meltano.command("run", "p", "--dry-run")
    assert (planned.code, "this run would add the same rows once more" in planned.err) == (2, True)
    refused = meltano.command("run", "p")
    assert refused.code == 2
    assert "this run would add the same rows once more streams=public-events" in refused.err
    lines = [line for line in refused.err.splitlines() if line.startswith("  ") or line.strip() == "streams:"]
    pasted = yaml.safe_load("\n".join(line for line in lines if "#" not in line))
    assert pasted == {"streams": {"public-events": {"replication_method": "FULL_TABLE"}}}
    assert len(meltano.rows("public-events", "what", "what")) == 20
    settle(meltano, ["public-*"], **pasted["streams"])
    sql("delete from events where what = 'e1'")
    assert load(meltano)["streams"]["public-events"]["load_method"] == "overwrite"
    assert len(meltano.rows("public-events", "what", "what")) == 19
    settle(meltano, ["public-*"], **{"public-events": {"load_method": "append-only"}})
    load(meltano)
    assert len(meltano.rows("public-events", "what", "what")) == 38


@pytest.fixture(scope="module")
def shop() -> Iterator[MariaDb]:
    with mariadb() as server:
        server.sql(
            "create user 'reader'@'127.0.0.1' identified by 'secret'; grant select on *.* to 'reader'@'127.0.0.1';"
            "create database shop; create database crm;"
            "create table shop.people (id bigint primary key, name varchar(20), updated_at datetime not null);"
            "insert into shop.people values (1, 'a', '2024-01-01'), (2, 'b', '2024-01-02'), (3, 'c', '2024-01-03');"
            "create table crm.people (id bigint primary key, phone varchar(20));"
            "insert into crm.people values (1, '555'), (7, '777')"
        )
        yield server


@pytest.fixture
def mysql(shop: MariaDb, tmp_path: Path) -> Callable[[str], Project]:
    login = {"host": "127.0.0.1", "port": str(shop.port), "user": "reader", "password": "secret"}

    def project(package: str) -> Project:
        return Project(tmp_path, installed(package, "tap-mysql"), login)

    return project


_BY_DATE = {"replication_method": "INCREMENTAL", "replication_key": "updated_at"}


@pytest.mark.parametrize("name", ["shop-people", "people", "shop-*"])
def test_settings_hold_by_either_name(mysql: Any, name: str) -> None:
    """tap-mysql: the catalog says shop-people, RECORDs say people. What the dry run shows is what the run does."""
    project = mysql("tap-mysql==1.17.7")
    settle(project, ["shop-people"], **{name: {**_BY_DATE, "load_method": "upsert"}})
    for rows in (0, 3):
        [planned] = json.loads(project.command("run", "p", "--dry-run", "--json").out)["streams"]
        assert (planned["load_method"], planned["rows_now"]) == ("upsert", rows)
        assert load(project)["streams"]["people"]["load_method"] == "upsert"
        assert project.rows("people", "id") == [(1,), (2,), (3,)]
    assert planned["bookmark"]["replication_key_value"].startswith("2024-01-03")


def test_bookmarks_are_found_by_either_name(mysql: Any, shop: MariaDb) -> None:
    """`--stream`, `--full` and `state` take the name of the RECORDs, too; the bookmark is the catalog's."""
    project = mysql("tap-mysql==1.17.7")
    settle(project, ["shop-people"], people={**_BY_DATE, "load_method": "upsert"})
    load(project)
    bookmark = json.loads(project.command("state", "get", "p", "-s", "people").out)
    assert bookmark["replication_key_value"].startswith("2024-01-03")
    assert load(project, "--full", "-s", "people")["streams"]["people"]["records"] == 3  # not from its bookmark
    assert project.rows("people", "id") == [(1,), (2,), (3,)]
    assert project.command("state", "clear", "p", "-s", "people", "--yes").code == 0
    assert json.loads(project.command("state", "get", "p").out)["bookmarks"] == {}


def test_a_row_that_is_sent_again_is_said(mysql: Any) -> None:
    """The tap repeats the row at its bookmark: appended, it is there twice, and the run says so."""
    project = mysql("tap-mysql==1.17.7")
    settle(project, ["shop-people"], **{"shop-people": _BY_DATE})
    load(project)
    again = load(project)
    assert len(project.rows("people", "id")) == 4
    assert any("people: 0 of 1 row(s) are newer than the bookmark" in text for text in again["warnings"])


def test_two_streams_of_one_name_are_refused(mysql: Any) -> None:
    """Tables of two databases that the tap calls by one name: nothing of them is mixed, and the error says the way."""
    project = mysql("tap-mysql==1.17.7")
    settle(project, ["shop-people", "crm-people"], **{"*": {"replication_method": "FULL_TABLE"}})
    refused = project.command("run", "p")
    assert refused.code == 2
    assert "by one name, so they would share a table name=people streams=crm-people, shop-people" in refused.err
    assert "select: [crm-people] and select: [shop-people]" in refused.err
    assert not list((project.folder / "lake").rglob("*.parquet"))
    settle(project, ["shop-people"], **{"*": {"replication_method": "FULL_TABLE"}})
    load(project)
    settle(project, ["shop-people", "crm-people"], **{"*": {"replication_method": "FULL_TABLE"}})
    refused = project.command("run", "p")  # the lake knows the name: before the tap starts
    assert (refused.code, "would share a table" in refused.err) == (2, True)
    assert project.rows("people", "id") == [(1,), (2,), (3,)]


def test_a_tap_that_tells_them_apart_loads_both(mysql: Any) -> None:
    """pipelinewise's tap has the same catalog, and calls RECORDs by the id: two tables, and nothing is refused."""
    project = mysql("pipelinewise-tap-mysql")
    settle(project, ["shop-people", "crm-people"], **{"*": {"replication_method": "FULL_TABLE"}})
    load(project)
    assert project.rows("shop-people", "id") == [(1,), (2,), (3,)]
    assert project.rows("crm-people", "id") == [(1,), (7,)]


def test_settings_of_no_stream_end_the_run(mysql: Any) -> None:
    """A glob that matches neither name is an error that says what may be meant; nothing is started."""
    project = mysql("tap-mysql==1.17.7")
    settle(project, ["shop-people"], **{"shop-poeple": {"load_method": "upsert"}})
    refused = project.command("run", "p")
    assert refused.code == 2
    assert "settings for a stream that the tap does not have glob=streams.shop-poeple" in refused.err
    assert 'did you mean "shop-people"?' in refused.err
    assert not (project.folder / "lake" / "p").exists()
