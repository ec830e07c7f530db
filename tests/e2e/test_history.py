"""`load_method: history`: each version of a row is there once, whatever comes in whatever order, in every format."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timezone
from itertools import pairwise
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import bridge
from tests.e2e.conftest import Project

pytestmark = [pytest.mark.timeout(1200)]
FORMATS = ["parquet", "delta", "iceberg"]
TEXT = {"type": ["null", "string"]}
TIME = TEXT | {"format": "date-time"}
TYPES = {"id": {"type": "integer"}, "name": TEXT, "city": TEXT, "at": TIME}
MARKS = TYPES | {"_sdc_deleted_at": TIME}


def schema(
    properties: dict[str, Any] = TYPES, keys: Sequence[str] = ("id",), mark: str | None = "at"
) -> dict[str, Any]:
    more = {"bookmark_properties": [mark]} if mark else {}
    return {"type": "SCHEMA", "stream": "people", "schema": {"properties": properties}, "key_properties": keys} | more


def day(number: int) -> str:
    return f"2025-01-{number:02d}T00:00:00Z"


def person(number: int, name: str, city: str, at: int, **more: Any) -> dict[str, Any]:
    record = {"id": number, "name": name, "city": city, "at": day(at)} | more
    return {"type": "RECORD", "stream": "people", "record": record}


def state(number: int) -> dict[str, Any]:
    mark = {"replication_key": "at", "replication_key_value": day(number)}
    return {"type": "STATE", "value": {"bookmarks": {"people": mark}}}


class Register:
    """A project of one pipeline, `register`, whose tap plays what it is told; its table `people` keeps versions."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.to: dict[str, Any] = {"bucket": "lake"}
        self.people: dict[str, Any] = {"load_method": "history", "sequence": "at"}
        self.more: dict[str, Any] = {"mask_key": "${MASK_KEY}"}
        project.environ["MASK_KEY"] = "the key of this test, and of no other"

    def play(self, *messages: Any, code: int = 0, words: tuple[str, ...] = ()) -> dict[str, Any]:
        self.write(*messages)
        done = self.command("run", "register", "--json", *words)
        assert done.code == code, done.err + done.out
        return dict(done.json)

    def write(self, *messages: Any) -> None:
        (self.project.folder / "tap.singer").write_text("".join(json.dumps(one) + "\n" for one in messages))
        source = {"tap": "tap-replay", "config": {"path": "tap.singer", "honour_state": False}}
        whole = {"source": source, "destination": self.to, "streams": {"people": self.people}} | self.more
        (self.project.folder / "bridge.yaml").write_text(json.dumps({"pipelines": {"register": whole}}))

    def command(self, *words: str) -> Any:
        return self.project.command(*words, timeout=300)

    def rows(self, table: str = "people") -> list[dict[str, Any]]:
        rows = bridge.Lake(str(self.project.lake)).table("register", table).to_table().to_pylist()
        return sorted(rows, key=repr)

    def versions(self, *names: str) -> list[tuple[Any, ...]]:
        """Return these columns, and from which day to which each version is; a current one has no end."""
        rows = [(*(row[name] for name in names), _day(row["__START_AT"]), _day(row["__END_AT"])) for row in self.rows()]
        assert [row["__CURRENT"] for row in self.rows()] == [row["__END_AT"] is None for row in self.rows()]
        return sorted(rows, key=lambda row: (row[0], row[-2]))


def _day(at: datetime | None) -> int | None:
    return at and (at - datetime(2024, 12, 31, tzinfo=timezone.utc)).days


@pytest.fixture
def register(project: Project) -> Register:
    return Register(project)


FIRST = [person(1, "Ann", "Rome", 1), person(2, "Bo", "Oslo", 1), person(3, "Cy", "Bonn", 2)]
SECOND = [person(1, "Ann", "Paris", 5), person(2, "Bo", "Oslo", 5), person(4, "Di", "Graz", 5)]
LATE = [person(1, "Ann", "Bern", 3), person(3, "Cy", "Bonn", 2)]


@pytest.mark.usefixtures("in_process")
@pytest.mark.parametrize("table_format", FORMATS)
def test_versions_in_every_format(register: Register, table_format: str) -> None:
    """Changes, equal rows, late rows and deletions; then what is done to tables keeps them."""
    register.to["format"] = table_format
    register.people["partition_by"] = ["__CURRENT"]
    first = register.play(schema(MARKS), *FIRST, state(2))
    assert first["streams"]["people"]["records"] == 3
    register.play(schema(MARKS), *SECOND, state(5))
    after_two = register.versions("id", "city")
    assert after_two == [
        (1, "Rome", 1, 5),
        (1, "Paris", 5, None),
        (2, "Oslo", 1, None),
        (3, "Bonn", 2, None),
        (4, "Graz", 5, None),
    ]
    assert [row["at"].day for row in register.rows() if row["id"] == 2] == [5], (
        "what is not tracked is as at the source"
    )
    files = sorted(path.name for path in register.project.lake.rglob("*.parquet"))
    register.play(schema(MARKS), *SECOND, state(5))
    assert sorted(path.name for path in register.project.lake.rglob("*.parquet")) == files, "equal rows change nothing"
    gone = {"type": "RECORD", "stream": "people", "record": {"id": 3, "_sdc_deleted_at": day(7)}}
    register.play(schema(MARKS), *LATE, gone, state(7))
    whole = register.versions("id", "city")
    assert whole == [
        (1, "Rome", 1, 3),
        (1, "Bern", 3, 5),
        (1, "Paris", 5, None),
        (2, "Oslo", 1, None),
        (3, "Bonn", 2, 7),
        (4, "Graz", 5, None),
    ]
    assert register.command("compact", "register", "--yes").code == 0
    assert register.versions("id", "city") == whole
    assert register.command("verify", "register").code == 0
    assert register.command("rollback", "2", "register", "--yes").code == 0
    assert register.versions("id", "city") == after_two
    register.play(schema(MARKS), *LATE, gone, state(7))
    assert register.versions("id", "city") == whole
    done = register.command("forget", "register", "-s", "people", "--key", "1", "--yes", "--json")
    assert done.code == 0, done.err
    assert json.loads(done.out)["tables"]["people"]["rows"] == 3
    assert register.versions("id", "city") == whole[3:]


@pytest.mark.usefixtures("in_process")
def test_the_view_of_current_rows(register: Register) -> None:
    """What `tables ddl` prints makes it, in another engine."""
    register.play(schema(), *FIRST, *SECOND, *LATE, state(5))
    done = register.command("tables", "ddl", "register", "-s", "people", "--dialect", "duckdb", "--view")
    engine = duckdb.connect()
    engine.execute(done.out)
    rows = engine.execute("SELECT id, city FROM people_current ORDER BY id").fetchall()
    assert rows == [(1, "Paris"), (2, "Oslo"), (3, "Bonn"), (4, "Graz")]
    at = "TIMESTAMPTZ '2025-01-04 00:00:00+00'"
    then = f"SELECT id, city FROM people WHERE __START_AT <= {at} AND (__END_AT > {at} OR __CURRENT) ORDER BY id"
    assert engine.execute(then).fetchall() == [(1, "Bern"), (2, "Oslo"), (3, "Bonn")]
    for dialect in ("spark", "athena", "trino", "bigquery", "snowflake"):
        text = register.command("tables", "ddl", "register", "-s", "people", "--dialect", dialect).out
        assert "people_current" in text, dialect


@pytest.mark.usefixtures("in_process")
def test_whole_tables_by_arrival(register: Register) -> None:
    """Rows that a complete version lacks end; one that comes back begins anew; equal ones stay as they are."""
    register.people = {"load_method": "history"}
    whole = schema({"id": {"type": "integer"}, "name": TEXT}, mark=None)

    def load(version: int, **names: str) -> list[tuple[Any, ...]]:
        rows = [
            {"type": "RECORD", "stream": "people", "version": version, "record": {"id": int(key[1:]), "name": name}}
            for key, name in names.items()
        ]
        began = datetime.now(timezone.utc)
        register.play(whole, *rows, {"type": "ACTIVATE_VERSION", "stream": "people", "version": version})
        times = [time for row in register.rows() for time in (row["__START_AT"], row["__END_AT"]) if time]
        assert max(times) <= datetime.now(timezone.utc)
        assert version == 4 or max(times) >= began
        return sorted((row["id"], row["name"], row["__CURRENT"]) for row in register.rows())

    assert load(1, k1="a", k2="b", k3="c") == [(1, "a", True), (2, "b", True), (3, "c", True)]
    assert load(2, k1="a", k2="B") == [(1, "a", True), (2, "B", True), (2, "b", False), (3, "c", False)]
    everything = [(1, "a", True), (2, "B", True), (2, "b", False), (3, "c", False), (3, "c", True)]
    assert load(3, k1="a", k2="B", k3="c") == everything
    before = register.rows()
    assert load(4, k1="a", k2="B", k3="c") == everything
    plain = [{name: value for name, value in row.items() if name != "_sdc_table_version"} for row in register.rows()]
    assert plain == [{name: value for name, value in row.items() if name != "_sdc_table_version"} for row in before]
    assert load(5) == [(row[0], row[1], False) for row in everything]
    register.play(whole, {"type": "RECORD", "stream": "people", "record": {"id": 1, "name": "z"}}, words=("--full",))
    assert [(row["id"], row["name"], row["__CURRENT"]) for row in register.rows()] == [(1, "z", True)]


@pytest.mark.usefixtures("in_process")
def test_changes_of_a_log(register: Register) -> None:
    """By arrival, each change is a version, also several of one commit; what a change lacks is as it was."""
    register.people = {"load_method": "history", "replication_method": "LOG_BASED"}
    catalog = {
        "streams": [
            {
                "tap_stream_id": "people",
                "stream": "people",
                "schema": {"type": "object", "properties": MARKS},
                "key_properties": ["id"],
                "metadata": [{"breadcrumb": [], "metadata": {"selected": True, "replication-method": "LOG_BASED"}}],
            }
        ]
    }
    (register.project.folder / "catalog.json").write_text(json.dumps(catalog))

    def change(number: int, **columns: Any) -> dict[str, Any]:
        return {"type": "RECORD", "stream": "people", "record": {"id": number} | columns}

    def load(*changes: dict[str, Any]) -> list[tuple[Any, ...]]:
        register.write()
        settings = json.loads((register.project.folder / "bridge.yaml").read_text())
        settings["pipelines"]["register"]["source"]["catalog"] = "catalog.json"
        lines = [json.dumps(one) + "\n" for one in (schema(MARKS, mark=None), *changes, state(len(changes)))]
        (register.project.folder / "tap.singer").write_text("".join(lines))
        (register.project.folder / "bridge.yaml").write_text(json.dumps(settings))
        done = register.command("run", "register", "--json")
        assert done.code == 0, done.err
        ordered = sorted(register.rows(), key=lambda row: (row["id"], row["__START_AT"]))
        for one, after in pairwise(ordered):
            assert one["id"] != after["id"] or one["__START_AT"] < one["__END_AT"] <= after["__START_AT"]
        return [(row["id"], row["name"], row["city"], row["__CURRENT"]) for row in ordered]

    changes = [
        change(1, name="Ann", city="Rome"),
        change(1, city="Paris"),
        change(1, name="Anna"),
        change(2, name="Bo"),
    ]
    first = [(1, "Ann", "Rome", False), (1, "Ann", "Paris", False), (1, "Anna", "Paris", True), (2, "Bo", None, True)]
    assert load(*changes) == first
    gone = change(2, _sdc_deleted_at=day(9))
    later = [*first[:2], (1, "Anna", "Paris", False), (1, "Anna", None, True), (2, "Bo", None, False)]
    assert load(change(1, city=None), gone) == later
    assert {row["_sdc_deleted_at"] for row in register.rows()} == {None}, "a copy of the lake would lose such a row"
    assert load(change(2, name="Bob")) == [*later, (2, "Bob", None, True)]


@pytest.mark.usefixtures("in_process")
def test_old_messages_come_again(register: Register) -> None:
    """Whole or in part, in one commit or in several: each version is there once, and no deletion is taken back."""
    gone = person(1, "", "", 5, _sdc_deleted_at=day(5))
    sent = [person(1, "Ann", "Rome", 1), gone, person(1, "Ann", "Oslo", 7), person(1, "Ann", "Oslo", 9)]
    register.play(schema(MARKS), *sent, state(9))
    expected = [(1, "Rome", 1, 5), (1, "Oslo", 7, None)]
    assert register.versions("id", "city") == expected
    for again in (sent, [gone], sent[:2], sent[1:3], [sent[2]], [sent[0]]):
        register.play(schema(MARKS), *again, state(9))
        assert register.versions("id", "city") == expected, again
    assert [row["at"].day for row in register.rows() if row["__CURRENT"]] == [9]
    register.play(schema(MARKS), person(1, "Ann", "Bonn", 8), state(9))
    assert register.versions("id", "city") == [
        *expected[:1],
        (1, "Oslo", 7, 8),
        (1, "Bonn", 8, 9),
        (1, "Oslo", 9, None),
    ]
    last = person(1, "", "", 9, _sdc_deleted_at=day(12))
    register.play(schema(MARKS), last, state(12))
    assert register.versions("id", "city")[-1] == (1, "Oslo", 9, 12)
    register.play(schema(MARKS), person(1, "Ann", "Oslo", 9), state(12))
    assert register.versions("id", "city")[-1] == (1, "Oslo", 9, None), "the latest row came again after it"


@pytest.mark.usefixtures("in_process")
def test_a_row_of_a_complete_table_stays(register: Register) -> None:
    """Also one whose sequence was set back; and deletions are read in whatever type they come."""
    version = {"type": "ACTIVATE_VERSION", "stream": "people", "version": 1}
    register.play(schema(), person(1, "Ann", "Rome", 5) | {"version": 1}, version, state(5))
    back = person(1, "Ann", "Oslo", 3) | {"version": 2}
    register.play(schema(), back, version | {"version": 2}, state(5))
    assert register.versions("id", "city") == [(1, "Oslo", 3, 5), (1, "Rome", 5, None)]
    texts = schema(TYPES | {"_sdc_deleted_at": TEXT})
    register.play(texts, person(1, "", "", 5, _sdc_deleted_at="2025-01-09T00:00:00Z"), state(9))
    assert register.versions("id", "city")[-1] == (1, "Rome", 5, 9)


@pytest.mark.usefixtures("in_process")
def test_keys_of_two_columns_and_a_sequence_that_widens(register: Register) -> None:
    """Keys do not run into one another; starts are as wide as the sequence."""
    register.people = {"load_method": "history", "sequence": "rev"}

    def load(kind: str, *rows: tuple[str, str, Any, str]) -> None:
        properties = {"a": TEXT, "b": TEXT, "rev": {"type": kind}, "name": TEXT}
        records = [dict(zip(properties, row, strict=True)) for row in rows]
        messages = [{"type": "RECORD", "stream": "people", "record": record} for record in records]
        register.play(schema(properties, ["a", "b"], None), *messages, state(1))

    load("integer", ("x", "y|z", 1, "one"), ("x|y", "z", 1, "two"), ("", "xyz", 1, "three"))
    load("number", ("x", "y|z", 1.5, "one and a half"))
    rows = {(row["a"], row["b"], row["name"], row["__START_AT"], row["__END_AT"]) for row in register.rows()}
    assert rows == {
        ("x", "y|z", "one", 1.0, 1.5),
        ("x", "y|z", "one and a half", 1.5, None),
        ("x|y", "z", "two", 1.0, None),
        ("", "xyz", "three", 1.0, None),
    }
    assert register.command("verify", "register").code == 0


@pytest.mark.usefixtures("in_process")
def test_what_is_tracked(register: Register) -> None:
    """Other columns change in the version as it is."""
    register.people |= {"track": ["name", "city"], "ignore": ["city"]}
    register.play(schema(), *FIRST, state(2))
    register.play(schema(), person(1, "Ann", "Paris", 4), person(2, "Bea", "Oslo", 4), state(4))
    expected = [(1, "Ann", "Paris", 1, None), (2, "Bo", "Oslo", 1, 4), (2, "Bea", "Oslo", 4, None)]
    assert register.versions("id", "name", "city") == [*expected, (3, "Cy", "Bonn", 2, None)]


@pytest.mark.usefixtures("in_process")
def test_what_is_refused(register: Register) -> None:
    """Nothing changes, and the message says what to do."""
    register.play(schema(), *FIRST, state(2))
    before = register.rows()
    for settings, text in (
        ({"load_method": "upsert", "sequence": None}, "a history table stays one"),
        ({"load_method": "append-only", "sequence": None}, "a history table stays one"),
        ({"load_method": "overwrite", "sequence": None}, "a history table stays one"),
        ({"load_method": "upsert"}, "or remove sequence"),
        ({"sequence": None}, "keep sequence: at"),
        ({"sequence": "id"}, "keep sequence: at"),
        ({"track": ["name", "citi"]}, 'did you mean "city"?'),
        ({"hard_delete": True}, "forget"),
        ({"key_properties": []}, "load_method: history needs a key"),
    ):
        usual, register.people = register.people, register.people | settings
        register.write(schema(), *SECOND, state(5))
        done = register.command("run", "register")
        assert done.code == 2, text
        assert text in done.err, done.err
        register.people = usual
    register.more["mask"] = {"people.at": "year"}
    register.write(schema(), *SECOND, state(5))
    done = register.command("run", "register")
    assert (done.code, "a sequence cannot be masked" in done.err) == (2, True), done.err
    del register.more["mask"]
    text = schema(TYPES | {"at": TEXT})
    register.write(text, *SECOND, state(5))
    done = register.command("run", "register")
    assert (done.code, "another order" in done.err) == (2, True), done.err
    own = schema(TYPES | {"__end_at": TEXT})
    register.write(own, *SECOND, state(5))
    done = register.command("run", "register")
    assert (done.code, "a name that history tables need" in done.err) == (2, True), done.err
    register.write(schema(), *SECOND, state(5))
    done = register.command("run", "register", "--backfill", "2025-01-01..2025-01-03", "-s", "people")
    assert (done.code, "cannot be backfilled" in done.err) == (2, True), done.err
    assert register.rows() == before


@pytest.mark.usefixtures("in_process")
def test_a_misspelt_sequence_and_a_table_without_history(register: Register) -> None:
    """Before the first row, and for a table that has rows, the message says what to write."""
    register.people["sequence"] = "att"
    register.write(schema(), *FIRST, state(2))
    done = register.command("run", "register")
    assert (done.code, 'did you mean "at"?' in done.err) == (2, True), done.err
    usual = {"load_method": "history", "sequence": "at"}
    register.people = {"load_method": "upsert"}
    register.play(schema(), *FIRST, state(2))
    before = register.rows()
    register.people = usual
    register.write(schema(), *SECOND, state(5))
    done = register.command("run", "register")
    assert (done.code, "loaded without history" in done.err) == (2, True), done.err
    assert register.rows() == before
    more = {"rev": {"type": "integer"}}, {"rev": TEXT}
    register.people = usual | {"sequence": "rev"}
    rows = [person(1, "Ann", "Rome", 1, rev=9), person(1, "Ann", "Oslo", 1, rev="10")]
    register.write(schema(TYPES | more[0]), rows[0], schema(TYPES | more[1]), rows[1], state(5))
    done = register.command("run", "register", "--full")
    assert (done.code, "another order" in done.err) == (2, True), done.err
    assert register.rows() == before


@pytest.mark.usefixtures("in_process")
def test_a_table_that_has_such_columns_itself(register: Register) -> None:
    """They are a tap's own where no versions are kept."""
    register.people = {"load_method": "upsert"}
    own = schema(TYPES | {"__START_AT": TIME, "__END_AT": TIME, "__CURRENT": {"type": ["null", "boolean"]}})
    row = person(1, "Ann", "Rome", 1, __START_AT=day(1), __END_AT=day(2), __CURRENT=False)
    register.play(own, row, state(1))
    assert [(_day(row["__START_AT"]), _day(row["__END_AT"]), row["__CURRENT"]) for row in register.rows()] == [
        (1, 2, False)
    ]
    register.people = {"load_method": "history", "sequence": "at"}
    register.write(own, row, state(1))
    assert register.command("run", "register").code == 2


@pytest.mark.usefixtures("in_process")
def test_views_over_versions(register: Register) -> None:
    """A view of current rows, and one of all versions, follow each commit."""
    current = "SELECT city, count(*) AS n FROM people WHERE __CURRENT GROUP BY city"
    cities = "SELECT id, count(DISTINCT city) AS n FROM people GROUP BY id"
    register.more |= {"views": {"per_city": current, "cities": cities}}
    for rows, last in ((FIRST, 2), (SECOND, 5), (LATE, 6)):
        register.play(schema(), *rows, state(last))
        now = [row["city"] for row in register.rows() if row["__CURRENT"]]
        assert {row["city"]: row["n"] for row in register.rows("per_city")} == {city: now.count(city) for city in now}
        homes = {(row["id"], row["city"]) for row in register.rows()}
        assert Counter(id_ for id_, _ in homes) == {row["id"]: row["n"] for row in register.rows("cities")}
    assert register.command("views", "verify", "register").code == 0


@pytest.mark.usefixtures("in_process")
def test_a_comparison_with_the_source(register: Register) -> None:
    """`reconcile` compares the current rows, and `--apply` ends, changes and adds versions."""
    register.play(schema(), *FIRST, *SECOND, state(5))
    source = [person(1, "Ann", "Lyon", 4), person(2, "Bo", "Oslo", 5), person(3, "Cy", "Bonn", 2)]
    register.write(schema(), *source, state(5))
    done = register.command("reconcile", "register", "--json")
    assert done.code != 0
    done = register.command("reconcile", "register", "--apply", "--no-guard", "--json")
    assert done.code == 0, done.err + done.out
    ends = {(row["id"], row["city"]): row["__CURRENT"] for row in register.rows()}
    assert ends == {
        (1, "Rome"): False,
        (1, "Lyon"): True,
        (2, "Oslo"): True,
        (3, "Bonn"): True,
        (4, "Graz"): False,
    }
    assert register.command("reconcile", "register", "--json").code == 0


@pytest.mark.parametrize(
    "table_format", ["parquet", *(pytest.param(one, marks=pytest.mark.slow) for one in FORMATS[1:])]
)
def test_kills(register: Register, table_format: str) -> None:
    """Killed at random moments and run again, the table has exactly the versions of what the tap sent: `KILLS`, `SEED`.

    Half of the keys have late rows, the others equal ones.
    """
    dice, kills = random.Random(int(os.environ.get("SEED", "1"))), int(os.environ.get("KILLS", "5"))
    register.more |= {"commit": {"every": "1s"}}
    register.to["format"] = table_format
    events = list[dict[str, Any]]()
    for number in range(4000):
        key = dice.randrange(300)
        late = dice.randrange(-500, 500) if key < 150 else 0
        city = str(number) if key < 150 else dice.choice(["Rome", "Oslo"])
        at = datetime.fromtimestamp(1_700_000_000 + number * 60 + late, timezone.utc).isoformat()
        record = {"id": key, "name": "n", "city": city, "at": at}
        events.append({"type": "RECORD", "stream": "people", "record": record})
        if number % 200 == 199:
            mark = {"replication_key": "at", "replication_key_value": f"{number:05}"}
            events.append({"type": "STATE", "value": {"bookmarks": {"people": mark}}})
    register.write(schema(), *events)
    settings = json.loads((register.project.folder / "bridge.yaml").read_text())
    slow = settings["pipelines"]["register"]["source"]["config"] | {"lines_per_second": 1500}
    settings["pipelines"]["register"]["source"]["config"] = slow
    (register.project.folder / "bridge.yaml").write_text(json.dumps(settings))
    for _ in range(kills):
        process = subprocess.Popen(
            [sys.executable, "-m", "bridge", "run", "register"],
            cwd=register.project.folder,
            env=register.project.environ,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        time.sleep(dice.uniform(0.5, 6))
        process.send_signal(signal.SIGKILL)
        process.wait()
    done = register.command("run", "register")
    assert done.code == 0, done.err
    assert register.command("verify", "register").code == 0
    assert _oracle(events) == sorted(
        (row["id"], row["city"], row["__START_AT"].timestamp(), row["__END_AT"] and row["__END_AT"].timestamp())
        for row in register.rows()
    )


def _oracle(events: Sequence[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """The versions, by a statement of DuckDB over all rows; the last one of a key and a time counts."""
    records = [one["record"] for one in events if one["type"] == "RECORD"]
    sent = pa.Table.from_pylist([record | {"n": number} for number, record in enumerate(records)])
    statement = """
        WITH latest AS (SELECT id, city, "at"::TIMESTAMPTZ AS t FROM sent
                        QUALIFY row_number() OVER (PARTITION BY id, t ORDER BY n DESC) = 1),
        changes AS (SELECT *, lag(city) OVER (PARTITION BY id ORDER BY t) AS before FROM latest
                    QUALIFY before IS DISTINCT FROM city)
        SELECT id, city, epoch(t), epoch(lead(t) OVER (PARTITION BY id ORDER BY t)) FROM changes"""
    engine = duckdb.connect()
    engine.register("sent", sent)
    return sorted(engine.execute(statement).fetchall())
