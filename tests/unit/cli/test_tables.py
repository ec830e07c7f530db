"""`tables`: which table is meant, what its schema was, and how engines read it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bridge.cli import main
from bridge.cli.look.tables import _DIALECTS
from bridge.operate.readers.ddl import DIALECTS
from tests.support.tables import INTEGER, ODD, STRING, Shop, filled, typing

Tables = Any


@pytest.fixture
def tables(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Tables:
    """Type `singer-bridge tables ...` about the pipeline in `tmp_path` and return what it printed."""
    return typing(tmp_path, capsys)


def test_the_only_table_needs_no_name(tmp_path: Path, tables: Tables) -> None:
    """With one table --stream is needless for every verb; with two it is asked for, and both are named."""
    shop = Shop(tmp_path)
    shop.load("orders", {"id": INTEGER}, [{"id": 1}, {"id": 2}])
    assert json.loads(tables("show", "--json"))["stream"] == "orders"
    assert tables("head", "--limit", "1", "--json") == '{"id": 2}\n'
    assert "first schema" in tables("history")
    assert "read_parquet" in tables("ddl", "--dialect", "duckdb")
    shop.load("users", {"id": INTEGER}, [])
    said = tables("head", code=2)
    assert "which table? there are several" in said
    assert "give --stream; there are: orders, users" in said


def test_a_wrong_name(tmp_path: Path, tables: Tables) -> None:
    """A name that is nearly right is put right; of one that is not, the list is shown."""
    Shop(tmp_path).load("orders", {"id": INTEGER}, [])
    assert 'did you mean "orders"?' in tables("show", "-s", "order", code=2)
    assert "there are: orders" in tables("ddl", "-s", "xyz", "--dialect", "spark", code=2)


def test_no_table_yet(tmp_path: Path, tables: Tables) -> None:
    """Without any commit the operator is told to run, whichever verb it was."""
    for words in (["head"], ["history"], ["ddl", "--dialect", "spark"]):
        assert "this pipeline has no commit yet" in tables(*words, code=2)


def test_head_shows_all_columns(tmp_path: Path, tables: Tables) -> None:
    """Rows of files that are older than a column are shown beside newer ones; nested values are JSON."""
    filled(tmp_path)
    lines = tables("head", "-s", "orders").splitlines()
    assert lines[0].split() == ["id", "name", "note"]
    assert [line.split()[0] for line in lines[1:]] == ["3", "2", "1"]
    assert '{"x": 2, "y z": "r", "new": "N"}' in tables("head", "-s", "wide")
    assert "the table has no rows" in tables("head", "-s", "none")


def test_history(tmp_path: Path, tables: Tables) -> None:
    """Each schema has its commit, its time, the rows then and what changed; a commit without a change has none."""
    shop = Shop(tmp_path)
    shop.load("other", {"id": INTEGER}, [])
    shop.load("t", {"id": INTEGER, "name": STRING}, [{"id": 1}])
    shop.load("t", {"id": INTEGER, "name": STRING}, [{"id": 2}])
    shop.load("t", {"id": INTEGER | {"maximum": 10**30}, "note": STRING}, [{"id": 3}])
    shop.load("t", {"id": INTEGER}, [{"id": 4}], mode="overwrite")
    first, second, third = json.loads(tables("history", "-s", "t", "--json"))
    assert [first["commit"], second["commit"], third["commit"]] == [2, 4, 5]
    assert [first["rows"], second["rows"], third["rows"]] == [1, 3, 1]
    assert first["added"] == first["columns"] == {"id": "int64", "name": "string"}
    assert (second["added"], second["changed"]) == ({"note": "string"}, {"id": ["int64", "decimal128(38, 0)"]})
    assert second["gone"] == {}  # a column that leaves the SCHEMA stays
    assert third["gone"] == {"name": "string", "note": "string"}
    assert third["at"].startswith("20")
    lines = [line.split() for line in tables("history", "-s", "t").splitlines()]
    assert [line[0] for line in lines] == ["commit", "2", "4", "5"]
    assert " ".join(lines[2]).endswith("3 3 +note, id: int64 -> decimal128(38, 0)")


def test_history_diff(tmp_path: Path, tables: Tables) -> None:
    """--diff names each column, and each field inside one, that came, changed or went."""
    filled(tmp_path)
    text = tables("history", "-s", "wide", "--diff")
    _, first, second = text.split("commit ")
    assert "  + place.y z  string\n" in first and "  + lines[]  struct\n" in first and "  + payload  json\n" in first
    assert second.splitlines()[1:] == [
        "  ~ n  int64 -> decimal128(38, 0)",
        "  + place.new  string",
        "  + lines[].count  int64",
    ]


def test_history_of_a_table_that_was_taken_back(tmp_path: Path, tables: Tables) -> None:
    """A schema whose commit was taken back is followed by the one before."""
    shop = Shop(tmp_path)
    shop.load("t", {"id": INTEGER}, [{"id": 1}])
    shop.lose("t", {"id": INTEGER, "note": STRING}, [{"id": 2}])
    found = json.loads(tables("history", "--json"))
    assert [(version["kind"], version["rows"]) for version in found] == [("data", 1), ("data", 2), ("void", 1)]
    assert found[2]["gone"] == {"note": "string"}


def test_history_begins_at_a_snapshot(tmp_path: Path, tables: Tables) -> None:
    """If the oldest commits were deleted, the history begins with the schema that their snapshot kept."""
    from bridge.lake.log import SNAPSHOT_EVERY, Beginning, Log

    shop = Shop(tmp_path)
    shop.load("t", {"id": INTEGER}, [{"id": 1}])
    for n in range(SNAPSHOT_EVERY):
        shop.load("u", {"id": INTEGER}, [{"id": n}])
    shop.load("t", {"id": INTEGER, "note": STRING}, [{"id": 2}])
    log = Log(shop.storage, "shop")
    log.begin_at(Beginning(SNAPSHOT_EVERY, SNAPSHOT_EVERY))
    for n in range(1, SNAPSHOT_EVERY):
        shop.storage.delete(log.key(n))
    found = json.loads(tables("history", "-s", "t", "--json"))
    assert [(version["commit"], version["rows"]) for version in found] == [(100, 1), (102, 2)]


def test_ddl(tmp_path: Path, tables: Tables) -> None:
    """Every dialect of the library is one of the command; --location is where that engine finds the bucket."""
    filled(tmp_path)
    assert set(_DIALECTS) == set(DIALECTS)
    for dialect in DIALECTS:
        assert tables("ddl", "-s", ODD, "--dialect", dialect).strip()
    text = tables("ddl", "-s", "orders", "--dialect", "athena", "--manifest", "--location", "s3://lake/team/")
    assert "LOCATION 's3://lake/team/.bridge/tables/shop/orders.symlinks/'" in text
    assert "'duckdb'" in tables("ddl", "-s", "orders", "--dialect", "mysql", code=2)


def test_ddl_of_a_table_without_columns(tmp_path: Path, tables: Tables) -> None:
    """A table whose only commit was taken back has nothing to read."""
    Shop(tmp_path).lose("t", {"id": INTEGER}, [{"id": 1}])
    assert "the table was taken back" in tables("ddl", "-s", "t", "--dialect", "spark", code=2)


def test_a_stream_in_the_place_of_a_pipeline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`tables show orders` is told how streams are named."""
    Shop(tmp_path).load("orders", {"id": INTEGER}, [])
    entry = "{source: {tap: x, config: {p: '${NOT_SET}'}}, destination: {bucket: lake}}"
    for more, hint in (("", "give -s orders"), (f", other: {entry}", "give shop -s orders")):
        (tmp_path / "bridge.yaml").write_text(f"pipelines: {{shop: {entry}{more}}}")
        monkeypatch.chdir(tmp_path)
        with pytest.raises(SystemExit):
            main(["tables", "show", "orders"])
        err = capsys.readouterr().err
        assert err == f"error: unknown pipeline name=orders\nhint: orders is a stream: {hint}\n"


def test_show_prints_the_key(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As the log has it; where older rows may be there twice by it, what to type."""
    shop, type_in = Shop(tmp_path, keys=("id",)), typing(tmp_path, capsys)
    shop.load("t", {"id": INTEGER, "n": INTEGER}, [{"id": 1, "n": 1}], mode="upsert")
    assert "key: id" in type_in("show")
    shop.layout = {}
    shop.load("t", {"id": INTEGER, "n": INTEGER}, [{"id": 1, "n": 1}])
    assert "key:" not in type_in("show")
    shop.layout = {"keys": ("id",)}
    shop.load("t", {"id": INTEGER, "n": INTEGER}, [{"id": 2, "n": 1}], mode="upsert")
    assert "run --full" in type_in("show")
    facts = json.loads(type_in("show", "--json"))
    assert (facts["key"], facts["upserts"]) == ([], True)
