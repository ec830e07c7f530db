"""History tables over a PostgreSQL with its taps: the versions are those that its own trigger wrote down."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from .postgresql import PostgreSql, postgresql
from .realtaps import Project
from .test_postgres_log import configured

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

TABLES = """
create table people (id int primary key, name text, city text, long text, seen timestamptz default now());
create table kept (n bigserial, id int, name text, city text, long int, op text);
create function keep() returns trigger language plpgsql as $$ begin
  insert into kept (id, name, city, long, op)
    select (r).id, (r).name, (r).city, length((r).long), tg_op from (select coalesce(new, old) as r) x;
  return null; end $$;
create trigger keep after insert or update or delete on people for each row execute function keep();
insert into people select n, 'PERSON ' || n || ' "ü" \\ ', 'Rome', repeat(md5(n::text), 300)
  from generate_series(1, 200) n;
insert into people (id) values (201);
"""
ROUNDS = [
    "update people set city = 'Oslo', seen = now() where id % 3 = 0",
    "update people set city = 'Oslo', seen = now() where id % 2 = 0; update people set seen = now() where id % 5 = 0",
    "delete from people where id % 10 = 1; insert into people (id, name, seen) values (300, 'new', now())",
    "insert into people (id, name, seen) values (11, 'again', now()); update people set name = null where id = 300",
]


def versions(project: Project, columns: str) -> list[tuple[Any, ...]]:
    done = project.command("sql", "p", "--json", f'SELECT {columns} FROM "public-people" ORDER BY id, __START_AT')
    assert done.code == 0, done.err
    return [tuple(json.loads(line).values()) for line in done.out.splitlines()]


def set_up(project: Project, people: dict[str, Any]) -> None:
    """Have the tap read the one table, into one that keeps versions."""
    settings = yaml.safe_load((project.folder / "bridge.yaml").read_text())
    pipeline = settings["pipelines"]["p"]
    pipeline["source"]["select"] = ["public-people"]
    pipeline["streams"] = {"*": {"load_method": "history", "partition_by": ["__CURRENT"], **people}}
    (project.folder / "bridge.yaml").write_text(yaml.safe_dump(settings))


def load(project: Project) -> None:
    done = project.command("run", "p")
    assert done.code == 0, done.err


def current(project: Project, server: PostgreSql) -> None:
    """Assert that the current rows are those of the database."""
    there = server.sql("select id, coalesce(name, '-'), coalesce(city, '-'), coalesce(length(long), 0) from people")
    shown = "id::text, coalesce(name, '-'), coalesce(city, '-'), coalesce(length(long), 0)::text, __CURRENT"
    here = [row[:4] for row in versions(project, shown) if row[4]]
    assert sorted(here) == sorted(tuple(row) for row in there)


@pytest.mark.parametrize("tap", ["meltanolabs-tap-postgres", "pipelinewise-tap-postgres"])
def test_a_log_has_every_change(tap: str, tmp_path: Path) -> None:
    """Each UPDATE that changes a value is a version, each DELETE an end; long values that it did not touch stay."""
    with postgresql() as server:
        server.sql(TABLES)
        project = configured(tap, server, tmp_path)
        set_up(project, {"replication_method": "LOG_BASED", "ignore": ["seen"]})
        load(project)
        for changes in ROUNDS:
            server.sql(changes)
            load(project)
            current(project, server)
        server.sql("update people set city = 'a' where id = 2; update people set city = 'b' where id = 2")
        load(project)
        current(project, server)
        expected = list[tuple[Any, ...]]()
        for number, *values, op in server.sql(
            "select id, coalesce(name, '-'), coalesce(city, '-'), coalesce(long, 0), op from kept order by id, n"
        ):
            before = expected[-1] if expected and expected[-1][0] == number else None
            if op != "DELETE" and before != (number, *values):
                expected.append((number, *values))
        names = "id::text, coalesce(name, '-'), coalesce(city, '-'), coalesce(length(long), 0)::text"
        assert versions(project, names) == sorted(expected, key=lambda row: int(row[0]))
        assert project.command("verify", "p").code == 0


@pytest.mark.parametrize("tap", ["meltanolabs-tap-postgres", "pipelinewise-tap-postgres"])
def test_queries_see_what_is_there(tap: str, tmp_path: Path) -> None:
    """By `seen`: rows come as they are at each run, and a comparison ends those that are gone."""
    with postgresql() as server:
        server.sql(TABLES)
        project = configured(tap, server, tmp_path)
        set_up(project, {"replication_method": "INCREMENTAL", "replication_key": "seen", "sequence": "seen"})
        load(project)
        count = 201
        for changes in ROUNDS[:2]:
            before = server.sql("select city, name, id from people order by id")
            server.sql(changes)
            after = server.sql("select city, name, id from people order by id")
            count += sum(one != other for one, other in zip(before, after, strict=True))
            load(project)
            current(project, server)
            assert len(versions(project, "id")) == count
        server.sql(ROUNDS[2])
        load(project)
        compared = project.command("reconcile", "p", "--apply", "--no-guard")
        assert compared.code == 0, compared.out + compared.err
        current(project, server)
        server.sql(ROUNDS[3])
        server.sql("update people set seen = now() where id = 300")
        load(project)
        current(project, server)
        assert [row[1] for row in versions(project, "id, name, __CURRENT") if row[0] == 11 and row[2]] == ["again"]
        compared = project.command("reconcile", "p")
        assert compared.code == 0, compared.out + compared.err
        assert project.command("verify", "p").code == 0
