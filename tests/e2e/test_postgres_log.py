"""Rows from PostgreSQL's log, with the taps from PyPI: the lake has what the table has, whatever road a row took."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

from .postgresql import PostgreSql, postgresql
from .realtaps import Project, installed

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

_ROW = """
'{"a": [1, 2.50]}', '"text"', '{1,NULL,3}', '{a,"b,c",NULL}', '2024-02-29', '2024-01-01 12:34:56.123456',
'2024-01-01 12:34:56+02', true, repeat('long ', 2000)
"""
_TABLE = f"""
create table every (
  id int primary key, js json, jb jsonb, ints int[], texts text[], day date, moment timestamp, zoned timestamptz,
  flag boolean, body text, n int);
alter table every alter body set storage external;
insert into every select i, {_ROW}, i from generate_series(1, 5) i;
"""
_CHANGES = f"""
insert into every select i, {_ROW}, i from generate_series(6, 8) i;
update every set n = 100 where id in (1, 6);
update every set jb = null, n = null where id = 2;
update every set js = '[]', jb = '5', ints = '{{}}' where id = 3;
delete from every where id = 4;
"""
_THERE = """
select id, js::jsonb, jb, to_jsonb(ints), to_jsonb(texts), day, to_char(moment, 'YYYY-MM-DD HH24:MI:SS.US'),
  to_char(zoned at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS'), flag, length(body), n
from every order by id
"""
_HERE = """
id, js, jb, to_json(ints), to_json(texts), strftime(day, '%Y-%m-%d'),
strftime(moment at time zone 'UTC', '%Y-%m-%d %H:%M:%S.%f'), strftime(zoned at time zone 'UTC', '%Y-%m-%d %H:%M:%S'),
case flag when true then 't' else 'f' end, length(body), n
"""


@pytest.fixture
def server() -> Iterator[PostgreSql]:
    with postgresql() as server:
        server.sql(_TABLE)
        yield server


def configured(tap: str, server: PostgreSql, folder: Path) -> Project:
    """Return a project that reads `every` from the log, the rows that are there already first, and write it."""
    login = {"host": "127.0.0.1", "port": server.port, "user": "postgres", "password": server.environ["PGPASSWORD"]}
    if tap.startswith("meltanolabs"):
        config: dict[str, Any] = {**login, "database": "postgres", "filter_schemas": ["public"]}
        config |= {"replication_slot_name": "live", "replication_idle_exit_seconds": 4}
        config |= {"auto_bootstrap_log_based": True, "log_based_single_connection": True}
        slot = "live"
    else:
        config = {**login, "dbname": "postgres", "filter_schemas": "public", "tap_id": "live"}
        config |= {"logical_poll_total_seconds": 4, "break_at_end_lsn": True}
        slot = "pipelinewise_postgres_live"
    server.sql(f"select pg_create_logical_replication_slot('{slot}', 'wal2json')")
    program = installed(tap, "tap-postgres")
    streams = {"*": {"replication_method": "LOG_BASED", "load_method": "upsert", "hard_delete": True}}
    source = {"tap": str(program), "config": config, "select": ["*"]}
    pipeline = {"source": source, "destination": {"bucket": "lake"}, "streams": streams}
    (folder / "bridge.yaml").write_text(yaml.safe_dump({"pipelines": {"p": pipeline}}))
    return Project(folder, program, config)


def text(value: Any) -> str:
    """Return a value as `psql` writes it, JSON without its blanks.

    Items of one tap's arrays are JSON text each, as its SCHEMA allows arrays for items of arrays.
    """
    if isinstance(value, str) and value.startswith('["'):
        with suppress(json.JSONDecodeError):
            value = json.dumps([item and json.loads(item) for item in json.loads(value)])
    return "" if value is None else str(value).replace(" ", "")


def loaded(project: Project) -> int:
    """Run, and return how many records came."""
    done = project.command("run", "p", "--json")
    assert done.code == 0, done.err
    counts = json.loads(done.out)["streams"]["public-every"]
    assert counts["rejected"] == 0
    return int(counts["records"])


def same(project: Project, server: PostgreSql) -> None:
    there = [[text(value) for value in row] for row in server.sql(_THERE)]
    here = [[text(value) for value in row] for row in project.rows("public-every", _HERE)]
    # One tap reads JSON's numbers as doubles on its way.
    assert [[cell.replace("2.50", "2.5") for cell in row] for row in here] == [
        [cell.replace("2.50", "2.5") for cell in row] for row in there
    ]


@pytest.mark.parametrize("tap", ["meltanolabs-tap-postgres", "pipelinewise-tap-postgres"])
def test_a_row_is_the_same_by_a_query_and_by_the_log(tap: str, server: PostgreSql, tmp_path: Path) -> None:
    """JSON, arrays and dates by either road; what an UPDATE did not touch stays; a third run reads nothing again."""
    project = configured(tap, server, tmp_path)
    assert loaded(project) == 5
    same(project, server)
    server.sql(_CHANGES)
    if tap.startswith("meltanolabs"):  # the other tap fails at it
        server.sql("insert into every (id, day, moment, zoned) values (9, 'infinity', 'infinity', '-infinity')")
    assert loaded(project) >= 8
    rows = {row[0]: row[1:] for row in project.rows("public-every", "id, day::text, moment::text")}
    if 9 in rows:
        assert rows[9][0] == "9999-12-31"
        assert rows[9][1].startswith("9999-12-31 23:59:59.999999")
        server.sql("delete from every where id = 9")
        loaded(project)
    same(project, server)
    assert loaded(project) == 0
