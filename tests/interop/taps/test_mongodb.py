"""The three taps of MongoDB over a server of its protocol: what is in the lake is what pymongo reads, or a reject.

What a tap itself leaves out or changes is said where it is expected; docs/mongodb.md has it for users.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pytest

from tests.e2e.realtaps import Project, installed
from tests.interop.taps.documents import MELTANO, SINGER, WISE, Documents, documents

pytestmark = pytest.mark.timeout(900)
_OID = "bson.ObjectId('65{:022x}')"
_NASTY = """
dec=bson.Decimal128('12345678901234567890.123456789')|dec=bson.Decimal128('1E+20')|n=bson.Int64(9223372036854775807)|n=1
n=1.5|n='text'|n=None|n=True|n=[1, 'a', None, {'x': 1}]|n={'a': {'b': [1, 2]}}|f=-0.0|f=5e-324|f=2.0|o=[]|o={}
day=datetime.datetime(1969, 12, 31, 23, 59, 59, 999000)|day=datetime.datetime(1, 1, 1)|day='not a day'
day=datetime.datetime(9999, 12, 31, 23, 59, 59, 999000)|Name=1, name=2|ключ='значение 😀'|obj=bson.ObjectId('65' * 12)
r=bson.Regex('^a', 'i')|t='nul' + chr(0) + 'in'|t='long' * 20000|arr=[[1, 2], [3]]|_sdc_x=1|ts=bson.Timestamp(5, 6)
o={'x': 's', 'y': datetime.datetime(2020, 1, 1)}|arr=[datetime.datetime(2020, 1, 1), 1.5]|**{'a.b': 1, '$x': 2, '': 3}
b=bytes([0, 255])|f=float('nan')|f=float('inf')|f=float('-inf')|dec=bson.Decimal128('NaN')
""".strip().replace("\n", "|")
_NOT_JSON = 4


@pytest.fixture(scope="module")
def running() -> Iterator[Documents]:
    with documents() as server:
        yield server


@pytest.fixture
def server(running: Documents) -> Documents:
    """A server whose `shop` has a collection `every` of nasty documents."""
    running.ask("shop.client.drop_database('shop')")
    fields = _NASTY.split("|")
    nasty = ", ".join(f"dict(_id={_OID.format(n + 1)}, no={n}, {field})" for n, field in enumerate(fields))
    running.ask(f"shop.every.insert_many([{nasty}])")
    return running


@pytest.fixture
def singer(server: Documents, tmp_path: Path) -> Project:
    tap = installed(SINGER, "tap-mongodb")
    return Project(tmp_path, tap, server.login | {"database": "admin"})


@pytest.fixture
def wise(server: Documents, tmp_path: Path) -> Project:
    tap = installed(WISE, "tap-mongodb")
    return Project(tmp_path, tap, server.login | {"database": "shop", "auth_database": "admin"})


@pytest.fixture
def meltano(server: Documents, tmp_path: Path) -> Project:
    tap = installed(MELTANO, "tap-mongodb")
    settings = {"mongodb_connection_string": server.url, "database": "shop", "datetime_conversion": "datetime_auto"}
    return Project(tmp_path, tap, settings, "INCREMENTAL")


def numbered(first: int, end: int) -> str:
    """Documents with a time by which they can be replicated."""
    at = "datetime.datetime(2024, 1, 1) + datetime.timedelta(hours=n)"
    return f"[{{'_id': bson.ObjectId('65%022x' % n), 'at': {at}, 'v': n}} for n in range({first}, {end})]"


def plain(value: Any) -> Any:
    """A value of extended JSON, as singer-io's tap spells it."""
    match value:
        case {"$oid": text} | {"$binary": {"base64": text}}:
            return text
        case {"$numberDecimal": text} | {"$numberDouble": text} | {"$numberLong": text}:
            return Decimal(text)
        case {"$date": {"$numberLong": text}}:
            return (datetime(1970, 1, 1) + timedelta(milliseconds=int(text))).isoformat(timespec="microseconds") + "Z"
        case {"$date": str(text)}:
            return (datetime.fromisoformat(text).replace(tzinfo=None)).isoformat(timespec="microseconds") + "Z"
        case {"$timestamp": {"t": seconds}}:
            return (datetime(1970, 1, 1) + timedelta(seconds=seconds)).isoformat(timespec="microseconds") + "Z"
        case {"$regularExpression": {"pattern": pattern}}:
            return {"pattern": pattern, "flags": 2}
        case dict():
            return {name: plain(one) for name, one in value.items()}
        case list():
            return [plain(one) for one in value]
    return Decimal(str(value)) if isinstance(value, float) else value


def source_rows(server: Documents, collection: str) -> list[dict[str, Any]]:
    """The documents, without those of which JSON has no value, and without fields that are null."""
    [found] = server.ask(f"shop['{collection}'].find().sort('_id', 1)")
    rows = [{name: value for name, value in plain(one).items() if value is not None} for one in found]
    return [row for row in rows if all(not isinstance(v, Decimal) or v.is_finite() for v in row.values())]


def table(project: Project, stream: str, query: str) -> list[tuple[Any, ...]]:
    """The rows of a query of `t`, the table of a stream."""
    with duckdb.connect() as engine:
        engine.execute("set TimeZone='UTC'")
        files = project.folder / "lake" / "p" / stream / "*.parquet"
        engine.execute(f"create view t as from read_parquet('{files}', union_by_name=true)")
        rows: list[tuple[Any, ...]] = engine.execute(query).fetchall()
    return rows


def lake_rows(project: Project, stream: str) -> list[dict[str, Any]]:
    """The rows of a table of singer-io's tap, as documents: times and numbers are JSON there, and so is the rest."""
    rows = []
    for (text,) in table(project, stream, "select to_json(t) from t order by _id"):
        row = {name: value for name, value in json.loads(text).items() if value is not None}
        row.pop("_sdc_table_version", None)
        extra = json.loads(row.pop("_sdc_extra", "{}"), parse_float=Decimal)
        own = {name: value if name == "_id" else json.loads(value, parse_float=Decimal) for name, value in row.items()}
        rows.append({name: value for name, value in {**own, **extra}.items() if value is not None})
    return rows


def test_every_value_of_singer_io(singer: Project, server: Documents) -> None:
    """FULL_TABLE twice: the SCHEMA declares no key and few columns, and each value is there; NaN is a reject."""
    assert singer.run()["streams"]["every"]["rejected"] == _NOT_JSON
    assert lake_rows(singer, "every") == source_rows(server, "every")
    server.ask("shop.every.delete_one({'no': 4})", f"shop.every.insert_one({{'_id': {_OID.format(500)}, 'new': 1}})")
    assert singer.run()["streams"]["every"]["rejected"] == _NOT_JSON
    assert lake_rows(singer, "every") == source_rows(server, "every")
    assert {reject["reason"] for reject in singer.rejects()} == {"NaN and Infinity are not JSON"}


def test_every_value_of_pipelinewise(wise: Project, server: Documents) -> None:
    """A document is JSON in one column; an Int64 is a text, as the tap sends it."""
    assert wise.run()["streams"]["every"]["rejected"] == _NOT_JSON
    rows = [json.loads(text, parse_float=Decimal) for (text,) in wise.rows("every", "document", "_id")]
    there = source_rows(server, "every")
    there[2]["n"] = str(there[2]["n"])
    assert [{name: value for name, value in row.items() if value is not None} for row in rows] == there


def test_incremental(singer: Project, server: Documents) -> None:
    """A second run brings what changed, merged by a key that no SCHEMA declares."""
    server.ask(f"shop.moving.insert_many({numbered(1, 1501)})", "shop.every.drop()", "shop.moving.create_index('at')")
    singer.method, singer.key = "INCREMENTAL", "at"
    singer.run(load_method="upsert")
    later = "{'$set': {'v': -1, 'at': datetime.datetime(2026, 1, 1)}}"
    server.ask(f"shop.moving.update_one({{'v': 7}}, {later})", f"shop.moving.insert_many({numbered(1501, 1511)})")
    assert singer.run(load_method="upsert")["streams"]["moving"]["records"] == 12
    assert lake_rows(singer, "moving") == source_rows(server, "moving")


def test_log(singer: Project, server: Documents) -> None:
    """The oplog: an update, an insert and a deletion, whose mark is a time though the SCHEMA says time or anything."""
    server.ask(f"shop.moving.insert_many({numbered(1, 1201)})", "shop.every.drop()")
    singer.method = "LOG_BASED"
    singer.run()
    server.ask("shop.moving.update_one({'v': 7}, {'$set': {'v': -1}})", "shop.moving.delete_one({'v': 8})")
    server.ask(f"shop.moving.insert_many({numbered(1201, 1203)})")
    assert singer.run()["warnings"] == ["moving: fields outside its SCHEMA are kept in the column _sdc_extra: v"]
    marks = table(singer, "moving", "select _id, typeof(_sdc_deleted_at) from t where _sdc_deleted_at is not null")
    assert [(key[-2:], kind) for key, kind in marks] == [("08", "TIMESTAMP WITH TIME ZONE")]
    keys = [key for (key,) in table(singer, "moving", "select _id from t where _sdc_deleted_at is null order by 1")]
    assert keys == [row["_id"] for row in source_rows(server, "moving")]


def test_kill(singer: Project, server: Documents) -> None:
    """kill -9 of all within a full table, once the tap has begun: the next run has each document once."""
    server.ask(f"shop.moving.insert_many({numbered(1, 20001)})", "shop.every.drop()")
    singer.set_up()
    argv = [sys.executable, "-m", "bridge", "run", "p"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "start_new_session": True}
    with subprocess.Popen(argv, cwd=singer.folder, **quiet) as killed:  # type: ignore[call-overload]
        while killed.poll() is None and not any(singer.folder.glob("lake/**/*.parquet*")):
            pass
        os.killpg(killed.pid, signal.SIGKILL)
    singer.run()
    assert lake_rows(singer, "moving") == source_rows(server, "moving")


def test_meltano(meltano: Project, server: Documents) -> None:
    """Only documents with an ObjectId come, and a changed one does not come again: the tap asks for a greater `_id`."""
    server.ask(
        "shop.every.drop()", f"shop.moving.insert_many({numbered(1, 51)})", "shop.moving.insert_one({'_id': 'x'})"
    )
    meltano.run()
    server.ask("shop.moving.update_one({'v': 7}, {'$set': {'v': -1}})", f"shop.moving.insert_many({numbered(51, 61)})")
    assert meltano.run()["streams"]["moving"]["records"] == 10
    values = [json.loads(text)["v"] for (text,) in meltano.rows("moving", "document", "object_id")]
    assert values == list(range(1, 61))


@pytest.mark.parametrize("name", ["singer", "wise"])
def test_ids_of_several_types(name: str, server: Documents, request: pytest.FixtureRequest) -> None:
    """A full table lacks those of other types than the greatest, and says so with what loads all of them."""
    project: Project = request.getfixturevalue(name)
    server.ask("shop.every.drop()", f"shop.mixed.insert_many({numbered(1, 3)})")
    server.ask("shop.mixed.insert_many([{'_id': key} for key in (1, 2.5, 'a', 'b')])")
    [difference] = project.run()["differences"]
    assert (difference["stream"], difference["kind"], difference["rows"]) == ("mixed", "row_count", 4)
    assert "Set `replication_method: INCREMENTAL, replication_key: _id`" in difference["text"]
    project.method, project.key = "INCREMENTAL", "_id"
    project.run("--full", "-s", "mixed")
    keys = [key for (key,) in table(project, "mixed", "select _id from t")]
    assert sorted(key[-2:] for key in keys) == [".5", "01", "02", "1", "a", "b"]
