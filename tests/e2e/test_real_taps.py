"""Taps as people have them, against real databases: what is in the lake is what the database says, value by value.

`make taps` runs all of them. What a tap itself loses or spells oddly is said where it is expected.
"""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Callable, Iterator
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from bridge.operate.demo.database import DemoServer, private_postgres

from .realtaps import MariaDb, Project, installed, mariadb

psycopg = pytest.importorskip("psycopg", reason="needs the extra [demo]")
pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def server() -> Iterator[DemoServer]:
    with tempfile.TemporaryDirectory(prefix="bridge-test-") as folder, private_postgres(Path(folder) / "pg") as server:
        yield server


@pytest.fixture
def sql(server: DemoServer) -> Iterator[Callable[..., list[tuple[Any, ...]]]]:
    """A database with nothing in it, as SQL."""
    with psycopg.connect(server.conninfo("postgres"), autocommit=True) as connection:

        def run(text: str) -> list[tuple[Any, ...]]:
            cursor = connection.execute(text)
            return list(cursor.fetchall()) if cursor.description else []

        run("set timezone='UTC'; set intervalstyle='postgres'; drop schema public cascade; create schema public")
        run("drop type if exists mood")
        yield run


MELTANO, WISE = "meltanolabs-tap-postgres", "pipelinewise-tap-postgres"


@pytest.fixture
def meltano(server: DemoServer, tmp_path: Path) -> Project:
    tap = installed(MELTANO, "tap-postgres")
    url = server.url("postgres", user="postgres", password="none")
    return Project(tmp_path, tap, {"sqlalchemy_url": url, "filter_schemas": ["public"]})


@pytest.fixture
def wise(server: DemoServer, tmp_path: Path) -> Project:
    tap = installed(WISE, "tap-postgres")
    login = {"user": "postgres", "password": "none", "dbname": "postgres"}
    return Project(
        tmp_path, tap, {"host": str(server.socket_folder), "port": 5432, "filter_schemas": "public", **login}
    )


_EVERY = """
create type mood as enum ('sad', 'ok', 'happy');
create table every (
  id bigint primary key, small smallint, int_ integer, big bigint, plain numeric, exact numeric(38, 9), cash money,
  single real, twice double precision, flag boolean, words text, short varchar(10), fixed char(5), bytes bytea,
  js json, jb jsonb, uid uuid, day date, clock time, zoned_clock time with time zone, moment timestamp,
  zoned timestamptz, span interval, ints integer[], texts text[], feeling mood, ip inet, net cidr, mac macaddr,
  bits bit(4), more_bits bit varying(8), range_ int4range, numbers numrange, times tstzrange, spot point,
  search tsvector, number_ oid);
insert into every values
  (1, 32767, 2147483647, 9223372036854775807, 1234567.125, 12345678901234567890123456789.123456789, '$1,234.56',
   1.5, 0.1, true, 'Zoë 😀', 'abc', 'ab', '\\x00ff10', '{"a": [1, 2.50]}', '{"a": [1, 2.50]}',
   'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', '2024-02-29', '12:34:56.789012', '12:34:56+02',
   '2024-01-01 12:34:56.123456', '2024-01-01 12:34:56.123456+02', '3 days 04:05:06.7', '{1,2,NULL}',
   '{a,"b,c",NULL}', 'happy', '192.168.0.1/24', '10.0.0.0/8', '08:00:2b:01:02:03', B'1010', B'101', '[1,5)',
   '[1.5,2.5]', '[2024-01-01 00:00+00,)', '(1,2)', 'fat cat', 42),
  (2, -32768, -2147483648, -9223372036854775808, -0.5, -0.000000001, '-$0.01', -0.25, -1e308, false, '', '', '', '',
   'null', 'null', null, '0001-01-01', '00:00:00', '00:00:00+00', '0001-01-01', '0001-01-01 00:00+00', '-1 day',
   '{}', '{}', 'sad', '::1', '::/0', null, B'0000', B'', 'empty', null, null, null, null, 0),
  (3, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null,
   null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null),
  (4, 0, 0, 0, 0, 0, 0, 0, 5e-324, true, E'tab\\t"quote"\\n', 'x', 'x', '\\xff', '"text"', '[]',
   'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', '9999-12-31', '23:59:59.999999', '23:59:59-12',
   '9999-12-31 23:59:59.999999', '9999-12-31 23:59:59.999999+00', '0', '{2147483647}', '{""}', 'ok', '1.2.3.4',
   '1.2.3.0/24', '08:00:2b:01:02:03', B'1111', B'11111111', '(,)', '(,1]', 'empty', '(0.1,-0.2)', '', 4294967295);
"""

COMPARED: dict[str, tuple[str, str]] = {
    # column: how the database says it, how the lake does
    **{name: (name, name) for name in ("small", "int_", "big", "single", "twice", "flag", "words", "short", "fixed")},
    "cash": ("cash::text", "cash"),
    "bytes": ("encode(bytes, 'hex')", "bytes"),
    "js": ("js::jsonb", "js"),
    "jb": ("jb", "jb"),
    "uid": ("uid::text", "uid"),
    "day": ("day", "day"),
    "clock": ("clock::text", "clock"),
    "moment": (
        "to_char(moment, 'YYYY-MM-DD HH24:MI:SS.US')",
        "strftime(moment at time zone 'UTC', '%Y-%m-%d %H:%M:%S.%f')",
    ),
    "zoned": (
        "to_char(zoned at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS.US')",
        "strftime(zoned at time zone 'UTC', '%Y-%m-%d %H:%M:%S.%f')",
    ),
    "ints": ("ints", "ints"),
    "texts": ("texts", "texts"),
    "feeling": ("feeling::text", "feeling"),
    "ip": ("case when masklen(ip) in (32, 128) then host(ip) else ip::text end", "ip"),
    "net": ("net::text", "net"),
    "mac": ("mac::text", "mac"),
    "bits": ("bits::text", "bits"),
    "more_bits": ("more_bits::text", "more_bits"),
    "range_": ("range_::text", "range_"),
    "numbers": ("numbers::text", "numbers"),
    "spot": ("spot::text", "spot"),
    "search": ("search::text", "search"),
    "number_": ("number_::text", "number_"),
}


_EXACT = "select id, exact from every order by id"


def differing(project: Project, stream: str, sql: Any, compared: dict[str, tuple[str, str]]) -> list[Any]:
    """Return what is not the same in database and lake: column, row, both values."""
    found = []
    for column, (there, here) in compared.items():
        wanted, got = sql(f"select id, {there} from every order by id"), project.rows(stream, f"id, {here}")
        found += [(column, one, other) for one, other in zip(wanted, got, strict=True) if not same(one[1], other[1])]
    return found


def same(there: Any, here: Any) -> bool:
    """Return whether two values are one; JSON is compared as what it means."""
    if there == here:
        return True
    try:
        if isinstance(here, list):
            return [one and json.loads(one) for one in here] == there
        return isinstance(here, str) and bool(json.loads(here) == there)
    except (TypeError, json.JSONDecodeError):
        return False


def test_every_type_of_postgres(meltano: Project, sql: Any) -> None:
    """A full table with every type: no value is another one, and none is missing."""
    sql(_EVERY)
    done = meltano.run()
    assert done["streams"]["public-every"]["rejected"] == 0
    assert differing(meltano, "public-every", sql, COMPARED) == []
    # The tap declares `numeric` as a number. The database says the digits of `exact`; `plain` has none to say.
    assert [n for _, n in meltano.rows("public-every", "id, exact")] == [n for _, n in sql(_EXACT)]
    wanted = [None if n is None else float(n) for _, n in sql("select id, plain from every order by id")]
    assert [n for _, n in meltano.rows("public-every", "id, plain")] == wanted
    assert done["differences"] == []
    # It adds an interval to the first second of 1970.
    wanted = [s and float(s) for _, s in sql("select id, extract(epoch from span) from every order by id")]
    spans = [s and datetime.fromisoformat(s).timestamp() for _, s in meltano.rows("public-every", "id, span")]
    assert spans == wanted


@pytest.mark.slow
def test_what_postgres_has_and_json_has_not(meltano: Project, sql: Any) -> None:
    """Infinite dates are the first and the last that there are; NaN is null: the tap says so. A matrix is a reject."""
    sql("create table every (id bigint primary key, day date, zoned timestamptz, n numeric, d real, grid integer[][])")
    sql("insert into every values (1, 'infinity', '-infinity', 'NaN', 'Infinity', null)")
    sql("insert into every values (2, null, null, null, null, '{{1,2},{3,4}}')")
    done = meltano.run()
    assert done["streams"]["public-every"]["rejected"] == 1
    [row] = meltano.rows("public-every", "id, day::text, zoned::text, n, d")
    assert (row[0], row[1], row[2][:4], row[3], row[4]) == (1, "9999-12-31", "0001", None, None)
    [reject] = meltano.rejects()
    assert (reject["pointer"], json.loads(reject["raw"])["record"]["grid"]) == ("/grid/0", [[1, 2], [3, 4]])


def _changing(sql: Any) -> None:
    sql("create table every (id bigint primary key, n numeric(20, 5), updated_at timestamptz not null)")
    row = "i, i * 1.5, '2024-01-01'::timestamptz + i * interval '1 h'"
    sql(f"insert into every select {row} from generate_series(1, 50) i")


@pytest.mark.slow
def test_incremental(meltano: Project, sql: Any) -> None:
    """The second run brings what is new, from the bookmark of the first; only the row at its edge may come twice."""
    _changing(sql)
    meltano.method, meltano.key = "INCREMENTAL", "updated_at"
    assert meltano.run()["streams"]["public-every"]["records"] == 50
    sql("insert into every values (51, 0.5, '2024-06-01'), (52, -0.5, '2024-06-02')")
    second = meltano.run()["streams"]["public-every"]
    assert second["records"] in (2, 3)
    ids = [number for (number,) in meltano.rows("public-every", "distinct id")]
    assert ids == [number for (number,) in sql("select id from every order by id")]


@pytest.mark.slow
def test_digits_of_numeric(meltano: Project, sql: Any) -> None:
    """Columns have those of the database, lists, too; where it says none, lost digits are counted."""
    sql("create domain price as numeric(12, 3)")
    sql("create table every (id numeric(30, 0) primary key, a numeric(38, 10), p price, l numeric(20, 5)[], n numeric)")
    sql(
        "insert into every values (9007199254740993, 1234567890123456789012345678.0123456789, 0.125, '{0.00001,NULL}',"
        " 0.12345678901234567890), (9007199254740994, null, null, null, 0.5)"
    )
    done = meltano.run()
    assert [text for (text,) in meltano.rows("public-every", "p")] == ["0.125", None]  # the tap has domains as text
    query = "id, a, l"
    assert meltano.rows("public-every", query) == sql(f"select {query} from every order by id")
    [difference] = done["differences"]
    assert (difference["kind"], difference["rows"], difference["text"][:20]) == (
        "lost_digits",
        1,
        "n: 1 value lost digi",
    )


@pytest.mark.slow
@pytest.mark.parametrize("compression", ["gzip", "none"])
def test_batch(meltano: Project, sql: Any, tmp_path: Path, compression: str) -> None:
    """The same table by BATCH messages is the same table."""
    _changing(sql)
    encoding = {"format": "jsonl", "compression": compression}
    meltano.config["batch_config"] = {"encoding": encoding, "storage": {"root": f"file://{tmp_path}/batches"}}
    (tmp_path / "batches").mkdir()
    assert meltano.run()["streams"]["public-every"]["records"] == 50
    columns = {"n": ("n::float8", "n"), "updated_at": ("to_char(updated_at, 'YYYY-MM-DD HH24:MI')", _MINUTES)}
    assert differing(meltano, "public-every", sql, columns) == []


_MINUTES = "strftime(updated_at at time zone 'UTC', '%Y-%m-%d %H:%M')"


@pytest.mark.slow
def test_a_changed_column_type_never_empties_a_table(meltano: Project, sql: Any) -> None:
    """The guard keeps the table, with the value and what to type; what it says loads it; a quick tap is asked first."""
    sql("create table t (id int primary key, a int); insert into t select i, i from generate_series(1, 991) i")
    assert meltano.run()["streams"]["public-t"]["records"] == 991
    sql("alter table t alter a type text; update t set a = 'n' || a where id > 1")
    asked(meltano, seconds=60)  # a tap that is too slow to be asked before each run
    done = meltano.command("run", "p")
    assert done.code == 1, done.err
    assert "990 of 991 records of the overwrite were rejected; the table keeps its 991 rows column=a" in done.err
    for typed in ('value="n', "rejects show p -s public-t", "run p --refresh-catalog"):
        assert typed in done.err
    assert meltano.rows("public-t", "count(*), min(a), max(a)", "1") == [(991, 1, 991)]
    assert len(meltano.rejects()) == 990
    assert meltano.run("--refresh-catalog")["status"] == "success"
    assert meltano.rows("public-t", "count(*), count(a), max(a)", "1") == [(991, 991, "n991")]
    assert meltano.rejects() == []
    sql("alter table t alter a type int using substr(a, length(a), 1)::int")
    asked(meltano, seconds=1)
    done = meltano.run()
    assert any("type of a was string or null, is integer or null" in warning for warning in done["warnings"])
    assert meltano.rows("public-t", "count(*), sum(a)", "1") == [(991, sql("select sum(a) from t")[0][0])]


@pytest.mark.slow
def test_a_table_that_is_empty_now(meltano: Project, sql: Any) -> None:
    """An emptied source is refused once, and loaded by the flag that the error names."""
    sql("create table t (id int primary key); insert into t select generate_series(1, 20)")
    meltano.run()
    sql("delete from t")
    done = meltano.command("run", "p")
    assert (done.code, "--no-guard" in done.err) == (1, True), done.err
    assert len(meltano.rows("public-t", "id")) == 20
    assert meltano.run("--no-guard")["status"] == "success"
    assert meltano.rows("public-t", "id") == []


@pytest.mark.slow
def test_a_stream_of_rejects_only(meltano: Project, sql: Any) -> None:
    """INCREMENTAL, first load: the bookmark does not move past records that nobody stored."""
    sql("create table t (id int primary key, a int); insert into t values (1, 1)")
    meltano.method, meltano.key = "INCREMENTAL", "id"
    meltano.set_up()
    assert meltano.command("discover", "p").code == 0
    sql("alter table t alter a type text; update t set a = 'x'; insert into t values (2, 'y')")
    asked(meltano, seconds=60)
    done = meltano.command("run", "p")
    assert done.code == 1
    assert 'public-t: all of its records were rejected; nothing was committed column=a value="x"' in done.err
    assert meltano.run("--refresh-catalog")["streams"]["public-t"]["records"] == 2
    assert meltano.rows("public-t", "id, a") == [(1, "x"), (2, "y")]


def asked(project: Project, *, seconds: int) -> None:
    """Have the last discovery have taken so long, whatever the machine is busy with."""
    memory = project.folder / ".singer-bridge/catalogs/discovered/p.json"
    memory.write_text(json.dumps(json.loads(memory.read_text()) | {"seconds": seconds}))


@pytest.mark.slow
def test_activate_version(wise: Project, sql: Any) -> None:
    """pipelinewise's tap: exact decimals; a row that the database deleted is gone after the next full table."""
    sql(_EVERY)
    wise.run()
    lost = {"bytes", "bits", "more_bits", "range_", "numbers", "spot", "search", "number_"}  # it does not select these
    kept = {name: how for name, how in COMPARED.items() if name not in lost}
    kept["exact"] = ("exact", "exact")
    kept["ints"] = ("coalesce(to_jsonb(ints), '[]')", "ints")  # no array is an empty one for it, and any is JSON
    kept["texts"] = ("coalesce(to_jsonb(texts), '[]')", "texts")
    kept["day"] = ("day::text", "strftime(day at time zone 'UTC', '%Y-%m-%d')")
    for column in ("moment", "zoned"):  # it cuts the last second of time
        kept[column] = tuple(how.replace(".US", "").replace(".%f", "") for how in COMPARED[column])  # type: ignore[assignment]
    assert differing(wise, "public-every", sql, kept) == []
    sql("delete from every where id > 2; insert into every (id) values (9)")
    wise.run()
    assert [number for (number,) in wise.rows("public-every", "id")] == [1, 2, 9]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["meltano", "wise", "jsonl"])
def test_smoke_finds_nothing(name: str, request: pytest.FixtureRequest, sql: Any, tmp_path: Path) -> None:
    """Correct taps have no finding: as they are, as bridge.yaml sets them up, and through the engine."""
    _changing(sql)
    if name == "jsonl":
        (tmp_path / "a.jsonl").write_text("".join(json.dumps({"id": n, "n": n / 4}) + "\n" for n in range(50)))
        tap, stream = installed("tap-jsonl", "tap-jsonl"), "jsonl"
        project = Project(tmp_path, tap, {"path": f"{tmp_path}/*.jsonl"}, "INCREMENTAL")
    else:
        project, stream = request.getfixturevalue(name), "public-every"
        project.method, project.key = "INCREMENTAL", "updated_at"
    (tmp_path / "config.json").write_text(json.dumps(project.config))
    alone = project.command("smoke", "--tap", str(project.tap), "--tap-config", "config.json", "--json")
    project.set_up()
    whole = project.command("smoke", "p", "--static", "--load", "--json")
    for done in (alone, whole):
        assert done.code == 0, done.out + done.err
        report = json.loads(done.out)
        assert report["streams"][stream]["records"] == 50
        found = {check["check"]: check["status"] for check in report["checks"]}
        assert not {"failed", "warning"} & set(found.values()), done.out
    assert (found["resume"], found["repeat"], found["load"]) == ("passed",) * 3


@pytest.mark.slow
def test_partitioned_state(tmp_path: Path) -> None:
    """tap-jsonl: a bookmark for each file; the STATE has all of them, as the tap says it, and every row is there."""
    files = tmp_path / "files"
    files.mkdir()
    tap = installed("tap-jsonl", "tap-jsonl")
    for name, numbers in (("a", range(1, 4)), ("b", range(4, 7))):
        (files / f"{name}.jsonl").write_text("".join(json.dumps({"id": n, "n": n / 4}) + "\n" for n in numbers))
    project = Project(tmp_path, tap, {"path": f"{files}/*.jsonl"}, "INCREMENTAL")
    assert project.run()["streams"]["jsonl"]["records"] == 6
    (files / "c.jsonl").write_text('{"id": 7, "n": 0.5}\n')
    second = project.run()  # the tap asks each partition of its STATE for all files, and sends those again
    assert project.rows("jsonl", "distinct id, n::double") == [(n, n / 4) for n in range(1, 7)] + [(7, 0.5)]
    partitions = second["state"]["bookmarks"]["jsonl"]["partitions"]
    assert {Path(one["context"]["_sdc_filename"]).name for one in partitions} == {"a.jsonl", "b.jsonl", "c.jsonl"}


@pytest.fixture
def shop() -> Iterator[MariaDb]:
    with mariadb() as server:
        server.sql(
            "create user 'reader'@'127.0.0.1' identified by 'secret'; create database shop character set utf8mb4;"
            "grant select on *.* to 'reader'@'127.0.0.1'"
        )
        yield server


_MYSQL = """
create table shop.every (
  id bigint primary key, tiny tinyint, flag tinyint(1), small smallint, medium mediumint, int_ int, big bigint,
  huge bigint unsigned, exact decimal(38, 9), single float, twice double, bit_ bit(1), fixed char(5), words varchar(20),
  kind enum('a', 'b'), day date, moment datetime(6), clock time(6), js json, bytes binary(4));
insert into shop.every values
  (1, 127, 1, 32767, 8388607, 2147483647, 9223372036854775807, 18446744073709551615,
   12345678901234567890123456789.123456789, 1.5, 0.1, b'1', 'ab', 'Zoë', 'a', '2024-02-29',
   '2024-01-01 12:34:56.123456', '12:34:56.789012', '{"a":[1,2.50]}', x'00ff1020'),
  (2, -128, 0, -32768, -8388608, -2147483648, -9223372036854775808, 0, -0.000000001, -1.5, 1e308, b'0', '', '', 'b',
   '1000-01-01', '1000-01-01', '23:59:59.999999', 'null', x'00000000'),
  (3, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null),
  (4, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, b'1', 'x', 'quote"\\'', 'a', '9999-12-31', '9999-12-31 23:59:59.999999',
   '10:00:01.000001', '"text"', x'ffffffff');
set sql_mode = '';
insert into shop.every (id, day, moment) values (5, '0000-00-00', '0000-00-00');
"""


@pytest.mark.slow
def test_mariadb(shop: MariaDb, tmp_path: Path) -> None:
    """pipelinewise-tap-mysql on MariaDB: every type exact, and the date that is none a reject, twice in a row."""
    shop.sql(_MYSQL)
    tap = installed("pipelinewise-tap-mysql", "tap-mysql")
    login = {"host": "127.0.0.1", "port": str(shop.port), "user": "reader", "password": "secret", "filter_dbs": "shop"}
    project = Project(tmp_path, tap, login)
    for _ in range(2):
        assert project.run()["streams"]["shop-every"]["rejected"] == 1
    columns = {name: (name, name) for name in ("tiny", "small", "medium", "int_", "big", "huge", "exact", "fixed")}
    columns |= {name: (name, name) for name in ("words", "kind", "js", "clock")}
    columns |= {"flag": ("flag", "flag::int"), "bit_": ("bit_ + 0", "bit_::int"), "bytes": ("hex(bytes)", "bytes")}
    columns["day"] = ("day", "strftime(day at time zone 'UTC', '%Y-%m-%d')")
    columns["moment"] = ("moment", "strftime(moment at time zone 'UTC', '%Y-%m-%d %H:%M:%S.%f')")
    for column, (there, here) in columns.items():
        wanted = shop.sql(f"select id, {there} from shop.every where id < 5 order by id")
        got = project.rows("shop-every", f"id::varchar, ({here})::varchar")
        assert [tuple(row) for row in wanted] == got, column
    for column in ("single", "twice"):
        numbers = [n for _, n in shop.sql(f"select id, {column} from shop.every where id < 5 order by id")]
        found = [n for (n,) in project.rows("shop-every", column)]
        assert all(
            (n is None and there is None) or (n is not None and there is not None and math.isclose(float(there), n))
            for there, n in zip(numbers, found, strict=True)
        )
    assert {(reject["offset"], reject["reason"]) for reject in project.rejects()} == {(5, "not a date-time")}
    assert Decimal(str(project.rows("shop-every", "exact")[0][0])) == Decimal("12345678901234567890123456789.123456789")
