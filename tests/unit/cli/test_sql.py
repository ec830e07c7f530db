"""`sql`: what one types, what is printed, and how a wrong question ends."""

from __future__ import annotations

import csv
import io
import json
import math
import sys
from pathlib import Path

import duckdb
import pyarrow.parquet as pq
import pytest
from click import unstyle

from tests.golden.make import unpack_to
from tests.support.shell import Typed
from tests.support.tables import Shop, filled


@pytest.fixture
def golden(tmp_path: Path) -> str:
    """A bucket with two pipelines, that an earlier version wrote."""
    return str(unpack_to("parquet", tmp_path))


def test_a_question_is_answered(golden: str, typed: Typed) -> None:
    """With the pipeline's name before the table's, and without it where there is one pipeline."""
    done = typed(f"sql 'SELECT count(*) AS rows, max(id) AS newest FROM p.orders' --to {golden}")
    assert (done.code, [line.split() for line in done.out.splitlines()]) == (0, [["rows", "newest"], ["10", "10"]])
    done = typed(f"sql 'SELECT id FROM people WHERE id > 2 ORDER BY id' --to {golden} --name p --json")
    assert [json.loads(line) for line in done.out.splitlines()] == [{"id": 3}, {"id": 4}]


def test_tables_of_an_earlier_commit(golden: str, typed: Typed) -> None:
    """--at reads one pipeline as it was; of several, it asks which."""
    done = typed(f"sql 'SELECT count(*) AS n FROM orders' --to {golden} --name p --at 1 --json")
    assert done.json == {"n": 5}
    done = typed(f"sql 'SELECT 1' --to {golden} --at 1")
    assert done.code == 2
    assert "give its NAME after QUERY" in done.err


def test_a_pipeline_is_named_as_in_other_verbs(golden: str, typed: Typed) -> None:
    """Behind the question, or before it; `--name` is the same, and another name there is refused."""
    question = "'SELECT count(*) AS n FROM orders'"
    for words in (f"{question} p", f"p {question}", f"{question} --name p", f"{question} p --name p"):
        assert typed(f"sql {words} --to {golden} --at 1 --json").json == {"n": 5}, words
    done = typed(f"sql {question} p --name q --to {golden}")
    assert (done.code, "two names for one pipeline" in done.err) == (2, True)


def test_the_system_tables(golden: str, typed: Typed) -> None:
    """Runs, commits, bookmarks, streams, files and rejects, over all pipelines."""

    def ask(query: str) -> list[dict[str, object]]:
        return [json.loads(line) for line in typed(f'sql "{query}" --to {golden} --json').out.splitlines()]

    assert ask("SELECT pipeline, count(*) AS n FROM bridge.runs GROUP BY 1 ORDER BY 1") == [
        {"pipeline": "p", "n": 5},
        {"pipeline": "par", "n": 1},
    ]
    assert ask("SELECT sum(rows_added - rows_removed) AS n FROM bridge.commits WHERE stream = 'orders'") == [{"n": 10}]
    assert ask("SELECT bookmark->>'replication_key_value' AS id FROM bridge.bookmarks WHERE stream = 'people'") == [
        {"id": "4"}
    ]
    assert ask("SELECT stream, rows, format FROM bridge.streams WHERE pipeline = 'par' ORDER BY 1") == [
        {"stream": "a", "rows": 4, "format": "parquet"},
        {"stream": "b", "rows": 6, "format": "parquet"},
    ]
    assert ask("SELECT sum(rows) AS n, count(*) AS files FROM bridge.files") == [{"n": 26, "files": 8}]
    assert ask("SELECT reason, rejects FROM bridge.rejects") == [{"reason": "not an integer", "rejects": 1}]


def test_csv_and_a_file(tmp_path: Path, typed: Typed) -> None:
    """All rows, nested values as JSON in CSV and as they are in Parquet; a file that exists is replaced whole."""
    shop, _ = filled(tmp_path)
    done = typed(f"sql 'SELECT n, place, day FROM wide ORDER BY n' --to {shop.root} --csv")
    first, second = list(csv.DictReader(io.StringIO(done.out)))
    assert (first["n"], json.loads(first["place"]), first["day"]) == (
        "1",
        {"x": 1, "y z": "q", "new": None},
        "2024-02-29",
    )
    assert second["n"] == str(10**25)
    file = tmp_path / "answer.parquet"
    file.write_text("old")
    done = typed(f"sql 'SELECT n, place FROM wide' --to {shop.root} -o {file}")
    assert (done.code, done.out) == (0, "")
    assert "2 rows written" in done.err
    assert pq.read_table(file).num_rows == 2
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_nan_in_a_file_is_found(tmp_path: Path, typed: Typed) -> None:
    """The file of an answer has no bounds that leave NaN out: DuckDB takes NaN for the greatest number."""
    shop, file = Shop(tmp_path), tmp_path / "answer.parquet"
    shop.load("s", {"v": {"type": "number"}}, [{"v": value} for value in (1.0, 3.0, math.nan)])
    typed(f"sql 'SELECT v, map {{1: v}} AS m, v::float AS f FROM s' --to {shop.root} -o {file}")
    for condition in ("v > 5", "f > 5", "m[1] > 5"):
        query = f"SELECT count(*) FROM '{file}' WHERE {condition}"
        assert duckdb.connect().execute(query).fetchone() == (1,), condition


def test_a_long_answer_is_cut(tmp_path: Path, typed: Typed) -> None:
    """A table shows as many rows as asked for, and says that there are more."""
    shop = Shop(tmp_path)
    shop.load("s", {"id": {"type": "integer"}}, [{"id": number} for number in range(30)])
    done = typed(f"sql 'FROM s ORDER BY id' --to {shop.root} -n 3")
    assert done.out.split()[:4] == ["id", "0", "1", "2"]
    assert "--csv and --json all" in done.out + done.err
    assert len(typed(f"sql 'FROM s' --to {shop.root} --csv").out.splitlines()) == 31


def test_from_stdin(golden: str, typed: Typed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("SELECT count(*) AS n\nFROM a;\n"))
    assert typed(f"sql --to {golden} --name par --json").json == {"n": 4}


@pytest.mark.parametrize(
    ("query", "code", "words"),
    [
        ("SELECT * FROM p.ordrs", 2, "tables: p.full, p.orders, p.people, par.a, par.b; and bridge.runs"),
        ("SELEC 1", 2, "syntax error"),
        ("SELECT 1; SELECT 2", 2, "not one SQL statement"),
        ("", 2, "the question is empty"),
        ("DROP VIEW p.orders", 2, "the lake is only read here"),
        ("CREATE TABLE t AS SELECT 1", 2, "the lake is only read here"),
        ("COPY p.orders TO 'x.csv'", 2, "the lake is only read here"),
        ("SELECT * FROM read_csv('/etc/hosts')", 2, "no files and no extensions"),
        ("SELECT CAST(name AS integer) FROM p.people", 1, "try_cast"),
    ],
)
def test_a_wrong_question(query: str, code: int, words: str, golden: str, typed: Typed) -> None:
    """DuckDB's words, then what to do; nothing is read or written but the lake's tables."""
    done = typed(f'sql "{query}" --to {golden}')
    assert done.code == code, done
    assert words in done.err
    assert done.out == ""


def test_two_forms_at_once(golden: str, typed: Typed) -> None:
    done = typed(f"sql 'SELECT 1' --to {golden} --json --csv")
    assert (done.code, "exclude each other" in done.err) == (2, True)


def test_on_a_terminal(tmp_path: Path, typed: Typed, monkeypatch: pytest.MonkeyPatch) -> None:
    """At 80 columns long values take several lines; numbers and headings stay whole, and nothing is cut."""
    for name, value in {"FORCE_COLOR": "1", "TERM": "xterm", "COLUMNS": "80"}.items():
        monkeypatch.setenv(name, value)
    shop, note, key = Shop(tmp_path), "a note of some length " * 4, "k" * 24
    columns = {"id": {"type": "integer"}, "note": {"type": "string"}, "key": {"type": "string"}}
    shop.load("s", columns, [{"id": 10**12, "note": note, "key": key}])
    done = typed(f"sql 'SELECT id, note, key FROM s' --to {shop.root}")
    lines = [line.rstrip() for line in unstyle(done.out).splitlines()]
    assert max(map(len, lines)) <= 80
    assert lines[0].split() == ["id", "note", "key"]
    assert str(10**12) in lines[1]
    words = " ".join(lines[1:]).split()
    assert (words.count("length"), "".join(words).count("k")) == (4, 24)
