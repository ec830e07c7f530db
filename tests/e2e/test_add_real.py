"""A new user adds a real database: what is answered, and what is pasted, leads to a right lake, twice."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bridge.operate.demo.database import DemoServer, private_postgres
from bridge.settings.load import check, load
from tests.support.terminal import talk, talked

from .realtaps import BINLOG, MariaDb, Project, installed, mariadb
from .walserver import WalServer, wal_server

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
def server() -> Iterator[DemoServer]:
    with tempfile.TemporaryDirectory(prefix="bridge-test-") as folder, private_postgres(Path(folder) / "pg") as server:
        yield server


@pytest.fixture
def sql(server: DemoServer) -> Iterator[Callable[[str], object]]:
    with psycopg.connect(server.conninfo("postgres"), autocommit=True) as connection:
        connection.execute("drop schema public cascade; create schema public")
        connection.execute(TABLES)
        yield connection.execute


@pytest.fixture
def project(server: DemoServer, tmp_path: Path) -> Project:
    """A new project beside the tap that the README names."""
    tap = installed("meltanolabs-tap-postgres", "tap-postgres")
    made = Project(tmp_path, tap, {})
    (tmp_path / "bridge.yaml").write_text("# ours\npipelines:\n")
    return made


def counts(project: Project) -> dict[str, int]:
    """The rows of the lake's tables."""
    return {name: int(project.rows(f"public-{name}", "count(*)", "1")[0][0]) for name in ("users", "orders", "logs")}


def answers(server: DemoServer) -> list[tuple[str, str]]:
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
    server: DemoServer, sql: Callable[[str], object], project: Project
) -> None:
    """Two runs, rows changed between them: no table is doubled, and `commits` says what each run did."""
    streams = [("now? [Y/n]: ", "y"), ("excludes [public-*]: ", ""), ("(yes, each, no) [yes]: ", "")]
    said = talk(f"add p --tap {project.tap}", [*answers(server), *streams], project.folder)
    assert "3 streams, and" in said
    assert "LOG_BASED is not proposed: the server's wal_level is replica" in said
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
    server: DemoServer, sql: Callable[[str], object], project: Project
) -> None:
    """Without a terminal: the settings are comments, `select` writes behind them, `discover` prints lines to paste."""
    file, url = project.folder / "bridge.yaml", server.url("postgres", user="postgres", password="none")
    assert project.command("add", "p", "--tap", str(project.tap)).code == 0
    text = file.read_text()
    assert "..." not in text
    assert sum(line.lstrip().startswith("#") for line in text.splitlines()) < 15
    assert "singer-bridge config tap p" in text
    printed = project.command("config", "tap", "p").out
    line = re.sub(
        r".*# (sqlalchemy_url: ).*", rf'        \1"{url}"', printed[printed.index("# sqlalchemy_url") :].split("\n")[0]
    )
    file.write_text(text.replace("config:\n", f"config:\n{line}\n"))
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


def test_a_replication_key_with_nulls(server: DemoServer, sql: Callable[[str], object], project: Project) -> None:
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


def proposed(project: Project) -> str:
    """What `discover` proposes, pasted below the pipeline, and into its tap's settings; returns what it printed."""
    done = project.command("discover", "p")
    assert done.code == 0, done.err
    lines = done.out.splitlines(keepends=True)
    start = lines.index("    streams:\n")
    pasted = [line for line in lines[start:] if line.startswith("    ")]
    settings = [line.split("source.config: ")[1] for line in lines if line.startswith("for LOG_BASED: ")]
    file = project.folder / "bridge.yaml"
    text = file.read_text().replace(
        "      config:\n", f"      config:\n{''.join(f'        {one}' for one in settings)}"
    )
    file.write_text(text + "".join(pasted))
    return done.out


@pytest.fixture(scope="module")
def wal() -> Iterator[WalServer]:
    with wal_server() as server:
        yield server


@pytest.fixture
def logged(wal: WalServer) -> WalServer:
    """A server whose log LOG_BASED can read, with the tables."""
    with wal.connect(autocommit=True) as connection:
        connection.execute("drop schema public cascade; create schema public")
        connection.execute(TABLES)
        connection.execute("create view totals as select count(*) from users")
        connection.execute("select pg_drop_replication_slot(slot_name) from pg_replication_slots")
    return wal


def statement(said: str) -> str:
    """What it says that has to be typed in the database."""
    [first] = re.findall(r"^first: (.*)$", said, re.MULTILINE)
    return str(first)


def follows(project: Project, change: Callable[[str], object]) -> None:
    """Two runs, rows changed and deleted between them: the lake has what the tables have."""
    for _ in range(2):
        done = project.command("run", "p")
        assert done.code == 0, done.err
        assert counts(project)["logs"] == 100
        there = project.rows("public-users", "count(*) filter (_sdc_deleted_at is null)", "1")
        change("delete from users where id = 300; update users set name = 'new' where id = 1")
        change("insert into users values (301, 'last') on conflict do nothing")
    assert there == [(300,)]
    assert project.rows("public-users", "name")[:1] == [("new",)]
    assert project.rows("public-users", "id, _sdc_deleted_at is null")[-2:] == [(300, False), (301, True)]


def test_a_log_that_can_be_read_is_proposed(logged: WalServer, project: Project) -> None:
    """Tables with a key come from the log, the others whole; what it says is to be typed makes the slot."""
    login = [("host: ", "127.0.0.1"), ("port [5432]: ", str(logged.port)), ("user: ", "postgres")]
    login += [("password: ", "none"), ("database: ", "postgres"), ("no more): ", "")]
    streams = [("now? [Y/n]: ", "y"), ("excludes [public-*]: ", ""), ("(yes, each, no) [yes]: ", "each")]
    streams += [("public-orders: replicate by (id, log, full) [log]: ", "full")]
    streams += [("public-users: replicate by (updated_at, id, log, full) [log]: ", "")]
    done = talked(f"add p --tap {project.tap}", [*login, *streams], project.folder)
    assert (done.code, "LOG_BASED is not proposed" in done.out) == (0, False), done.out
    text = (project.folder / "bridge.yaml").read_text()
    assert "## the server's log has each insert, update and delete, merged by id\n" in text
    source = load(project.folder / "bridge.yaml", {}).pipeline("p")
    assert {name: keys.replication_method for name, keys in source.streams.items()} == {
        "public-users": "LOG_BASED",
        "public-orders": "FULL_TABLE",
        "public-logs": "FULL_TABLE",
        "public-totals": "FULL_TABLE",
    }
    assert statement(done.out) == "SELECT pg_create_logical_replication_slot('singer_p', 'wal2json');"
    assert logged.slots() == {}
    logged.sql(statement(done.out))
    follows(project, logged.sql)


def test_the_other_tap_and_a_role_without_rights(logged: WalServer, tmp_path: Path) -> None:
    """A role that may not replicate gets the reason in a line; once it may, what is pasted and typed is right."""
    tap = installed("pipelinewise-tap-postgres", "tap-postgres")
    project = Project(tmp_path, tap, {})
    logged.sql("drop role if exists reader")
    logged.sql("create role reader login; grant usage on schema public to reader")
    logged.sql("grant select on all tables in schema public to reader; grant pg_read_all_stats to reader")
    (tmp_path / "bridge.yaml").write_text(
        f"pipelines:\n  p:\n    source:\n      tap: {tap}\n      select: [public-*]\n      config:\n"
        f"        host: 127.0.0.1\n        port: {logged.port}\n        user: reader\n        password: none\n"
        "        dbname: postgres\n        filter_schemas: public\n        logical_poll_total_seconds: 4\n"
        "    destination: {bucket: lake}\n"
    )
    refused = project.command("discover", "p").out
    assert "LOG_BASED is not proposed: the tap's role may not replicate; ALTER ROLE reader REPLICATION" in refused
    assert "replication_method: LOG_BASED" not in refused
    logged.sql("alter role reader replication")
    said = proposed(project)
    assert "public-users: {replication_method: LOG_BASED, load_method: upsert}" in said
    assert "public-logs: {replication_method: FULL_TABLE}" in said
    logged.sql(statement(said))
    follows(project, logged.sql)
    logged.sql("drop owned by reader; drop role reader")


def mysql_project(folder: Path, server: MariaDb) -> Project:
    server.sql(
        "create user 'reader'@'127.0.0.1' identified by 'secret'; create database shop;"
        "grant select on shop.* to 'reader'@'127.0.0.1'; create table shop.users (id int primary key, name text);"
        "create table shop.logs (line text); insert into shop.logs values ('a');"
        "create view shop.names as select name from shop.users;"
        "use shop; insert into users select seq, concat('user ', seq) from seq_1_to_300"
    )
    tap = installed("pipelinewise-tap-mysql", "tap-mysql")
    (folder / "bridge.yaml").write_text(
        f"pipelines:\n  p:\n    source:\n      tap: {tap}\n      select: [shop-users, shop-logs]\n      config:\n"
        f"        host: 127.0.0.1\n        port: '{server.port}'\n        user: reader\n        password: secret\n"
        "        filter_dbs: shop\n    destination: {bucket: lake}\n"
    )
    return Project(folder, tap, {})


def test_mariadb_with_a_log_of_rows(tmp_path: Path) -> None:
    """Rights and format are asked for, each problem in a line; without one, what is pasted follows the table."""
    with mariadb(*BINLOG) as server:
        project = mysql_project(tmp_path, server)
        assert "not proposed: the user may not read the log: GRANT REPLICATION" in project.command("discover", "p").out
        server.sql("grant replication client, replication slave on *.* to 'reader'@'127.0.0.1'")
        server.sql("set global binlog_format = 'STATEMENT'")
        assert "not proposed: the server's binlog_format is STATEMENT" in project.command("discover", "p").out
        server.sql("set global binlog_format = 'ROW'")
        said = proposed(project)
        assert "shop-users: {replication_method: LOG_BASED, load_method: upsert}" in said
        assert "shop-logs: {replication_method: FULL_TABLE}" in said
        assert 'below source.config: engine: "mariadb"' in said
        for _ in range(2):
            done = project.command("run", "p")
            assert done.code == 0, done.err
            server.sql("delete from shop.users where id = 300; update shop.users set name = 'new' where id = 1")
        assert project.rows("shop-users", "name")[:1] == [("new",)]
        assert project.rows("shop-users", "count(*), count(*) filter (_sdc_deleted_at is null)", "1") == [(300, 299)]


def test_mariadb_without_a_log(tmp_path: Path) -> None:
    """It says what to set; the tables are proposed as before."""
    with mariadb() as server:
        said = mysql_project(tmp_path, server).command("discover", "p").out
    assert "LOG_BASED is not proposed: the server has no binary log: set log_bin" in said
    assert "shop-users: {replication_method: FULL_TABLE}" in said
