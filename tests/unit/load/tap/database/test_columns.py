"""What a PostgreSQL of our own says of its tables and columns, before a run."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bridge.cli.setup.propose import ask_proposals
from bridge.load.run.checks.not_extracted import not_extracted
from bridge.load.tap.database.columns import columns_with_nulls
from bridge.load.tap.database.source_database import SourceDatabase
from bridge.load.tap.digits import with_digits
from bridge.load.tap.source import Source
from bridge.operate.demo.database import DemoServer, private_postgres
from bridge.protocol.singer.catalog import column_facts
from bridge.settings.options import Pipeline
from tests.support.catalogs import catalog as catalog_of
from tests.support.catalogs import stream
from tests.unit.load.tap.test_source import Scripted, source, tap

__all__ = ["source", "tap"]

psycopg = pytest.importorskip("psycopg", reason="needs the extra [demo]")
TIME, NUMBER = {"type": ["null", "string"], "format": "date-time"}, {"type": "integer"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DemoServer]:
    with private_postgres(tmp_path_factory.mktemp("pg") / "data") as server:
        with psycopg.connect(server.conninfo("postgres"), autocommit=True) as connection:
            connection.execute(
                'create table "Odd.T" (id int primary key, "at;""x" timestamptz, updated_at timestamptz)'
            )
            connection.execute('insert into "Odd.T" select n, now(), now() from generate_series(1, 300) n')
            connection.execute('update "Odd.T" set updated_at = null where id > 100')
            connection.execute("create table busy (id int primary key, updated_at timestamptz)")
            columns = "a numeric, b numeric(20,6), c numeric(10,2), d float8, e numeric(30,2)[]"
            connection.execute(f"create table digits (id int primary key, {columns})")
        yield server


def pipeline(server: DemoServer, tap: str = "meltanolabs-tap-postgres") -> Pipeline:
    url = server.url("postgres", user="postgres", password="hush-hush")
    source = {"tap": "cat", "pip_url": tap, "config": {"sqlalchemy_url": url}}
    return Pipeline.model_validate({"name": "p", "source": source, "destination": {"bucket": "lake"}})


def database(server: DemoServer, tap: str = "meltanolabs-tap-postgres") -> SourceDatabase:
    return SourceDatabase(pipeline(server, tap), ["cat"])


def entry(table: str, **columns: Any) -> dict[str, Any]:
    facts = {"table-key-properties": ["id"], "schema-name": "public"}
    return {
        "tap_stream_id": f"public-{table}",
        "stream": table,
        "table_name": table,
        "schema": {"properties": {"id": NUMBER, **columns}},
        "metadata": [{"breadcrumb": [], "metadata": facts}],
    }


def test_columns_with_nulls(server: DemoServer) -> None:
    """By names of any letters; a column without any is not among them."""
    catalog = {"streams": [entry("Odd.T")]}
    asked = {"public-Odd.T": ["updated_at", 'at;"x']}
    assert columns_with_nulls(database(server), catalog, asked) == ({"public-Odd.T": {"updated_at"}}, [])
    assert columns_with_nulls(database(server, "tap-github"), catalog, asked) == ({}, [])


def test_numbers_that_the_log_rounds_whatever_the_tap_calls_them(server: DemoServer) -> None:
    """Of a tap that declares each of them as a number: PostgreSQL says which are numeric, and of how many digits."""
    number = {"type": ["null", "number"]}
    numbers = {name: dict(number) for name in "abcd"} | {"e": {"type": ["null", "array"], "items": dict(number)}}
    given = entry("digits", **numbers)
    given["metadata"][0]["metadata"]["replication-method"] = "LOG_BASED"
    catalog, notes = with_digits(database(server), {"streams": [given]})
    [stream] = catalog["streams"]
    kinds = {path[0]: facts.get("sql-datatype") for path, facts in column_facts(stream).items()}
    types = {"a": "numeric", "b": "numeric(20,6)", "c": "numeric(10,2)", "e": "numeric(30,2)[]"}
    assert (kinds, notes) == ({"id": None, "d": None, **types}, [])
    steps = {name: str(schema.get("multipleOf")) for name, schema in stream["schema"]["properties"].items()}
    assert steps == {"id": "None", "a": "None", "b": "0.000001", "c": "0.01", "d": "None", "e": "None"}
    assert str(stream["schema"]["properties"]["e"]["items"]["multipleOf"]) == "0.01"
    [difference] = not_extracted(catalog, {"digits"})
    assert (difference.kind, "so a, b may have other digits" in difference.text) == ("log_digits", True)


def test_a_table_that_does_not_answer_is_named(server: DemoServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is locked costs as long as a question may take, and one that is missing nothing; the others answer."""
    monkeypatch.setattr("bridge.load.tap.database.columns._SECONDS", 0.3)
    catalog = {"streams": [entry("busy"), entry("gone"), entry("Odd.T")]}
    with psycopg.connect(server.conninfo("postgres")) as connection:
        connection.execute("lock table busy")
        asked = {f"public-{table}": ["updated_at"] for table in ("busy", "gone", "Odd.T")}
        nulls, [text] = columns_with_nulls(database(server), catalog, asked)
    assert nulls == {"public-Odd.T": {"updated_at"}}
    assert text.endswith(": public-busy.updated_at, public-gone.updated_at")


def test_a_column_that_is_never_null_is_not_read(server: DemoServer) -> None:
    """Its declaration says so: a locked table answers, too."""
    with psycopg.connect(server.conninfo("postgres")) as connection:
        connection.execute("create table strict (id int, updated_at timestamptz not null)")
        connection.commit()
        connection.execute("lock table strict")
        catalog, asked = {"streams": [entry("strict")]}, {"public-strict": ["updated_at"]}
        assert columns_with_nulls(database(server), catalog, asked) == ({}, [])


def test_a_proposal_asks_the_database(server: DemoServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`add` proposes the whole table instead of a column with NULLs, and says why."""
    monkeypatch.setattr("click.prompt", lambda *_, **__: "yes")
    source = Source(pipeline(server), tmp_path)
    catalog = {"streams": [entry("Odd.T", updated_at=TIME), entry("busy", updated_at=TIME)]}
    (odd, busy), _ = ask_proposals(source, catalog, {"public-Odd.T", "public-busy"})
    assert (odd.method, busy.method) == ("FULL_TABLE", "INCREMENTAL")
    assert "updated_at: NULL in some rows" in odd.reason
    assert json.dumps(odd.settings()) == '{"replication_method": "FULL_TABLE"}'


TABLES = """
create schema shop; create schema other;
create table shop.users (id int, note text); create table shop.old (id int, at date); create table shop.gone (id int);
create table shop.hidden (id int)
"""
CHANGES = """
alter table shop.users drop column note; alter table shop.users add column more text;
alter table shop.old rename to fresh; drop table shop.gone;
create table shop.secret (id int); create table other.late (id int)
"""


def listed(*names: str) -> dict[str, Any]:
    """The tap's streams; of each, what a real tap says of its place."""
    columns = {"users": "id note", "old": "id at"}
    return catalog_of(
        *(stream(f"shop-{name}", columns.get(name, "id"), selected=True, schema_name="shop") for name in names)
    )


@pytest.mark.parametrize("schemas", [[], ["shop"], "shop, absent"])
def test_tables_and_columns_below_a_slow_tap(
    server: DemoServer, tap: Scripted, source: Any, tmp_path: Path, schemas: Any
) -> None:
    """New, dropped and renamed ones of the schemas that the tap is to read, though no run asks the tap."""
    with psycopg.connect(server.conninfo("postgres"), autocommit=True) as connection:
        connection.execute("drop schema if exists shop cascade; drop schema if exists other cascade")
        connection.execute(TABLES)
        url = server.url("postgres", user="postgres", password="hush-hush")
        given = {"pip_url": "meltanolabs-tap-postgres", "config": {"sqlalchemy_url": url, "filter_schemas": schemas}}
        given["select"] = ["shop-*", "other-*", "!*-secret"]
        tap.says(listed("users", "old", "gone"))
        source(**given).discover()
        memory = tmp_path / "home/catalogs/discovered/shop.json"
        memory.write_text(json.dumps(json.loads(memory.read_text()) | {"seconds": 60}))
        source(**given).catalog([], refresh=False)
        connection.execute(CHANGES)
        asked, made = len(tap.asked), source(**given)
        made.catalog([], refresh=False)
    assert len(tap.asked) == asked
    late = [] if schemas else [("other-late", "new_table")]
    expected = [("shop-gone", "dropped_table"), ("shop-old", "dropped_table"), *late, ("shop-fresh", "new_table")]
    expected += [("shop-hidden", "new_table"), ("shop-users", "new_column"), ("shop-users", "dropped_column")]
    assert [(one.stream, one.kind) for one in made.news] == expected
    texts = {(one.stream, one.kind): one.text for one in made.news}
    assert "The new table shop-fresh has the same columns" in texts["shop-old", "dropped_table"]
    assert "The new table" not in texts["shop-gone", "dropped_table"]
    again = source(**given)
    again.catalog(["shop-users"], refresh=False)
    assert [one.kind for one in again.news] == ["new_column", "dropped_column"]
