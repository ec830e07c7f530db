"""Masks and `forget` over a PostgreSQL with its tap: what the database has, no file of the lake has."""

from __future__ import annotations

import hmac
import json
import os
from contextlib import suppress
from pathlib import Path

import pytest
import yaml

from .postgresql import postgresql, reader
from .realtaps import Project

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

KEY = "the key of this test, and of no other"
TABLES = """
create table people (
  id bigint primary key, email text, phone varchar(30), iban text, birth date, salary numeric(12, 2), note text,
  tags text[], more jsonb, seen timestamptz);
insert into people select n, 'PERSON' || n || '@x.de', '+49 PERSON' || n, 'DEPERSON' || lpad(n::text, 8, '0'),
  date '1950-01-01' + n * 37, 1234.50 + n, 'PERSON' || n || ' "quoted" ü \\ ' || chr(10), array['PERSON' || n, null],
  jsonb_build_object('email', 'PERSON' || n, 'deep', jsonb_build_array(jsonb_build_object('EMail', 'PERSON' || n))),
  timestamptz '2024-01-01 00:00+00' + n * interval '1 hour'
  from generate_series(1, 200) n;
insert into people (id, seen) values (201, '2024-02-01 00:00+00');
create table calls (id int primary key, person bigint, what text, at timestamptz);
insert into calls select n, nullif(n % 50, 0), 'call of ' || n,
  timestamptz '2024-01-01 00:00+00' + n * interval '1 minute' from generate_series(1, 500) n;
"""
CHANGES = """
update people set email = 'PERSON-new-' || id || '@x.de', seen = '2024-03-01 00:00+00' where id % 10 = 2;
insert into calls values (501, 42, 'call of 501', '2024-03-01 00:00+00');
insert into calls values (502, 43, 'call of 502', '2024-03-01 00:01+00');
"""


def code(text: str) -> str:
    return hmac.new(KEY.encode(), text.encode(), "sha256").hexdigest()


def leaks(project: Project, mark: bytes) -> list[str]:
    """The files of the project with a text; the tap's own venv is elsewhere."""
    found = []
    for path in (Path(at, name) for at, _, names in os.walk(project.folder) for name in names):
        with suppress(OSError):
            if mark in path.read_bytes():
                found.append(str(path.relative_to(project.folder)))
    return found


def ask(project: Project, query: str) -> list[list[object]]:
    done = project.command("sql", "p", "--json", query)
    assert done.code == 0, done.err
    return [list(json.loads(line).values()) for line in done.out.splitlines()]


@pytest.mark.parametrize("tap", ["meltanolabs-tap-postgres", "pipelinewise-tap-postgres"])
def test_people_of_a_database(tap: str, tmp_path: Path) -> None:
    """Masked by each kind of mask, merged by a hashed key, compared with the source, and one of them forgotten."""
    with postgresql() as server:
        server.sql(TABLES)
        project = reader(tap, server, tmp_path)
        masks = {
            "*.email": "hash",
            "*people.phone": "redact",
            "*people.iban": "last4",
            "*.birth": "year",
            "*people.note": "drop",
            "*people.tags": "redact",
            "*people.salary": "redact",
            "*people.id": "hash",
            "*calls.person": "hash",
        }
        incremental = {"replication_method": "INCREMENTAL", "load_method": "upsert"}
        pipeline = {
            "source": {"tap": str(project.tap), "config": project.config, "select": ["public-*"]},
            "destination": {"bucket": "lake", "compression": "none"},
            "streams": {
                "public-people": incremental | {"replication_key": "seen"},
                "public-calls": incremental | {"replication_key": "at"},
            },
            "mask": masks,
            "mask_key": KEY,
            "forget": {"public-people": {"public-calls": "person"}},
        }
        (project.folder / "bridge.yaml").write_text(yaml.safe_dump({"pipelines": {"p": pipeline}}))

        def shown(number: int) -> list[object]:
            query = "SELECT email, phone, iban, birth, salary, tags[1] FROM \"public-people\" WHERE id = '{}'"
            (row,) = ask(project, query.format(code(str(number))))
            return row

        for changes, email in (("", "PERSON42@x.de"), (CHANGES, "PERSON-new-42@x.de")):
            server.sql(changes)
            done = project.command("run", "p")
            assert done.code == 0, done.err
            assert leaks(project, b"PERSON") == []
            born = server.sql("select extract(year from birth)::int from people where id = 42")[0][0]
            assert shown(42) == [code(email), "***", "***0042", int(born), "***", "***"]
        counts = 'SELECT (SELECT count(*) FROM "public-people"), (SELECT count(*) FROM "public-calls")'
        assert ask(project, counts) == [[201, 502]]
        assert shown(201)[:4] == [None, None, None, None]
        compared = project.command("reconcile", "p")
        assert compared.code == 0, compared.out + compared.err

        of_42 = int(server.sql("select count(*) from calls where person = 42")[0][0])
        done = project.command("forget", "p", "-s", "public-people", "--key", "42", "--yes", "--json")
        assert done.code == 0, done.err
        rows = {name: facts["rows"] for name, facts in json.loads(done.out)["tables"].items()}
        assert rows == {"public-people": 1, "public-calls": of_42}
        assert leaks(project, code("42").encode()) == [
            one for one in leaks(project, code("42").encode()) if "/forgotten/" in one
        ]
        assert ask(project, counts) == [[200, 502 - of_42]]
        assert project.command("verify", "p").code == 0

        server.sql("update people set seen = '2024-04-01 00:00+00' where id = 42")
        done = project.command("run", "p")
        assert done.code == 0
        assert "rows of 1 forgotten key(s) came again" in done.err + done.out
        server.sql("delete from calls where person = 42; delete from people where id = 42")
        assert project.command("forget", "p", "-s", "public-people", "--key", "42", "--yes").code == 0
        compared = project.command("reconcile", "p")
        assert compared.code == 0, compared.out + compared.err
