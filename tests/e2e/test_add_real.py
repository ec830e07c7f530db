"""A new user adds a real PostgreSQL: what is answered, and what is pasted, leads to a right lake, twice."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bridge.demo.database import Server, private_postgres
from bridge.settings.load import check, load
from tests.support.terminal import talk

from .realtaps import Project, installed

psycopg = pytest.importorskip("psycopg", reason="needs the extra [demo]")
pytestmark = [pytest.mark.timeout(900), pytest.mark.slow]

TABLES = """
create table users (id int primary key, name text, updated_at timestamptz default now());
create table orders (id int primary key, amount numeric(10, 2));
create table logs (line text);
insert into users select n, 'user ' || n from generate_series(1, 300) n;
insert into orders select n, n * 1.5 from generate_series(1, 200) n;
insert into logs select 'line ' || n from generate_series(1, 100) n;
"""


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with tempfile.TemporaryDirectory(prefix="bridge-test-") as folder, private_postgres(Path(folder) / "pg") as server:
        yield server


@pytest.fixture
def sql(server: Server) -> Iterator[Callable[[str], object]]:
    with psycopg.connect(server.conninfo("postgres"), autocommit=True) as connection:
        connection.execute("drop schema public cascade; create schema public")
        connection.execute(TABLES)
        yield connection.execute


@pytest.fixture
def project(server: Server, tmp_path: Path) -> Project:
    """A new project beside the tap that the README names."""
    tap = installed("meltanolabs-tap-postgres", "tap-postgres")
    made = Project(tmp_path, tap, {})
    (tmp_path / "bridge.yaml").write_text("# ours\npipelines:\n")
    return made


def counts(project: Project) -> dict[str, int]:
    """The rows of the lake's tables."""
    return {name: int(project.rows(f"public-{name}", "count(*)", "1")[0][0]) for name in ("users", "orders", "logs")}


def answers(server: Server) -> list[tuple[str, str]]:
    """To all that is asked before the streams: the source is found by a URL, which nobody sees."""
    return [
        ("host: ", ""),
        ("port [5432]: ", ""),
        ("user: ", ""),
        ("password: ", ""),
        ("database: ", ""),
        ("no more): ", "sqlalchemy_url"),
        ("sqlalchemy_url: ", server.url("postgres", user="postgres", password="hush-hush")),
        ("no more): ", ""),
    ]


def test_what_is_answered_leads_to_a_right_lake_twice(
    server: Server, sql: Callable[[str], object], project: Project
) -> None:
    """Two runs, rows changed between them: no table is doubled, and `commits` says what each run did."""
    streams = [("now? [Y/n]: ", "y"), ("excludes [public-*]: ", ""), ("(yes, each, no) [yes]: ", "")]
    said = talk(f"add p --tap {project.tap}", [*answers(server), *streams], project.folder)
    assert "3 streams, and" in said
    assert "INCREMENTAL by updated_at" in said
    assert "3 streams selected, 3 of them with a replication method" in said, said
    text = (project.folder / "bridge.yaml").read_text()
    assert text.startswith("# ours\n")
    assert "hush-hush" not in said + text
    assert project.command("run", "p").code == 0
    assert counts(project) == {"users": 300, "orders": 200, "logs": 100}
    sql("update users set name = 'new', updated_at = now() where id <= 10; insert into users values (301, 'last')")
    sql("insert into orders values (201, 7)")
    assert project.command("run", "p").code == 0
    assert counts(project) == {"users": 301, "orders": 201, "logs": 100}
    assert project.rows("public-users", "name")[:11] == [("new",)] * 10 + [("user 11",)]
    newest = project.command("commits", "list", "p", "-n", "1", "--json").json[0]
    rows = {table["stream"]: (table["rows_removed"], table["rows"]) for table in newest["tables"]}
    assert rows["public-orders"] == (200, 201)
    assert rows["public-users"][1] == 301


def test_what_is_pasted_and_uncommented_is_right(
    server: Server, sql: Callable[[str], object], project: Project
) -> None:
    """Without a terminal: the settings are comments, `select` writes behind them, `discover` prints lines to paste."""
    file, url = project.folder / "bridge.yaml", server.url("postgres", user="postgres", password="none")
    assert project.command("add", "p", "--tap", str(project.tap)).code == 0
    text = file.read_text()
    assert "..." not in text
    assert "next_page" not in text
    file.write_text(re.sub(r"# sqlalchemy_url: .*", f'sqlalchemy_url: "{url}"', text))
    doctor = project.command("doctor", "p", "--no-spark")
    assert (doctor.code, "nothing is selected, and there is no catalog" in doctor.out) == (0, True), doctor.out
    assert project.command("discover", "p").code == 0
    assert project.command("select", "p", "public-*").code == 0
    file.write_text(file.read_text().replace("# filter_schemas: []", 'filter_schemas: ["public"]'))
    assert check(file, {}) == []
    source = load(file, {}).pipeline("p").source
    assert (source.select, source.config["filter_schemas"]) == (["public-*"], ["public"])  # type: ignore[index]
    discovered = project.command("discover", "p").out.splitlines(keepends=True)
    pasted = [line for line in discovered[discovered.index("    streams:\n") :] if line.startswith("    ")]
    file.write_text(file.read_text() + "".join(pasted))
    for _ in range(2):
        done = project.command("run", "p")
        assert done.code == 0, done.err
    assert counts(project) == {"users": 300, "orders": 200, "logs": 100}
    _every_comment_may_be_uncommented(file)


def _every_comment_may_be_uncommented(file: Path) -> None:
    """Each line that the tap's settings left, alone: the file is right, and says that setting and no other."""
    lines = file.read_text().splitlines()
    before: Any = load(file, {}).pipeline("p").source.config
    variables = dict.fromkeys(re.findall(r"\$\{(\w+)\}", file.read_text()), "x")
    for number, line in enumerate(lines):
        if line == "# ours":
            continue
        name = re.match(r"\s+# (\w+):", line)
        changed = [*lines[:number], re.sub(r"^(\s*)# ?", r"\1", line), *lines[number + 1 :]]
        (file.parent / "one.yaml").write_text("\n".join(changed) + "\n")
        config: Any = load(file.parent / "one.yaml", variables).pipeline("p").source.config
        assert config.keys() - before.keys() == ({name[1]} if name else set()), line


def test_a_replication_key_with_nulls(server: Server, sql: Callable[[str], object], project: Project) -> None:
    """`add` and `discover` do not propose it, and the lake equals the source; who chooses it is told each time."""
    sql("update users set updated_at = null where id > 100")
    streams = [("now? [Y/n]: ", "y"), ("excludes [public-*]: ", "public-users"), ("(yes, each, no) [yes]: ", "yes")]
    said = talk(f"add p --tap {project.tap}", [*answers(server), *streams], project.folder)
    assert "INCREMENTAL" not in said
    file = project.folder / "bridge.yaml"
    assert "updated_at: NULL in some rows" in file.read_text()
    stale = ("public-users", "count(*) filter (where name is null or name != 'new')", "1")
    for name in ("old", "new"):
        sql(f"update users set name = '{name}'")
        assert project.command("run", "p").code == 0
    assert project.rows(*stale) == [(0,)]
    chosen = "{replication_method: INCREMENTAL, replication_key: updated_at, load_method: upsert}"
    file.write_text(re.sub(r"public-users: \{.*\}", f"public-users: {chosen}", file.read_text()))
    for count in (200, 200):
        done = project.command("run", "p", "--json")
        assert [(each["kind"], each["rows"]) for each in done.json["differences"]] == [("null_replication_key", count)]
