"""`reconcile --apply`: one commit makes the tables as the source is; what it refuses; what a kill leaves."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import duckdb
import pytest

from bridge.lake.log import Log
from bridge.lake.storage.local.storage import LocalStorage
from tests.support.s3server import S3Server
from tests.support.shell import Typed
from tests.unit.operate.reconcile.test_reconcile import ORDER, Source


@pytest.fixture
def source(folder: Path, typed: Typed, without_spark: None) -> Source:
    source = Source(folder, typed)
    source.settings(destination={"hard_delete": True})
    return source


def rows(source: Source, columns: str = "id, v", table: str = "orders") -> list[tuple[Any, ...]]:
    """The rows that a reader sees."""
    found = source.typed(f"sql --json 'SELECT {columns} FROM {table} ORDER BY ALL'")
    assert found.code == 0, found.err
    return [tuple(json.loads(line).values()) for line in found.out.split("\n") if line]


def log(source: Source) -> Log:
    return Log(LocalStorage(source.folder / "lake"), "shop")


def changed(source: Source) -> None:
    """A lake with rows 1 to 5, whose source has lost 2, changed 3 and got 0 since, behind the bookmark."""
    source.has(*source.rows(_1="a", _2="b", _3="c", _5="e"))
    assert source.typed("run shop -q").code == 0
    source.has(*source.rows(_1="a", _3="x", _4="d", _5="e"))


WANTED = [(1, "a"), (3, "x"), (4, "d"), (5, "e")]


@pytest.mark.parametrize("table_format", ["parquet", "delta", "iceberg"])
@pytest.mark.parametrize("flags", ["", "--keys"])
def test_one_commit(source: Source, table_format: str, flags: str) -> None:
    """It says what it did, the STATE stays, and a rollback undoes it. Values that changed alone need `--rows`."""
    source.settings(destination={"hard_delete": True, "format": table_format})
    changed(source)
    before = log(source).snapshot(1)
    done = source.reconcile("--apply", flags)
    assert done.code == 0, done.out + done.err
    assert "✓ orders: commit 2 made it as its source: 1 missing, 1 extra, 1 stale" in done.out
    assert rows(source) == WANTED
    after = log(source).snapshot(log(source).latest())
    assert (after.n, after.state) == (2, before.state)
    record = log(source).record(2)
    assert record
    assert record.reason == "reconciled with the source: orders 1 missing, 1 extra, 1 stale"
    assert source.typed("verify shop").code == 0
    assert source.counts(code=0) == {"orders": (0, 0, 0, 0)}
    assert source.typed("rollback 1 shop --yes").code == 0
    assert rows(source) == [(1, "a"), (2, "b"), (3, "c"), (5, "e")]


def test_nothing_to_do_is_no_commit(source: Source) -> None:
    source.has(*source.rows(_1="a"))
    assert source.typed("run shop -q").code == 0
    assert source.reconcile("--apply").code == 0
    assert log(source).latest() == 1


def test_rows_are_marked_where_the_settings_say_so(source: Source) -> None:
    source.settings(destination={"hard_delete": False})
    changed(source)
    assert source.reconcile("--apply").code == 0
    assert rows(source, "id, _sdc_deleted_at IS NULL") == [(1, True), (2, False), (3, True), (4, True), (5, True)]
    assert source.counts(code=0) == {"orders": (0, 0, 0, 0)}


def test_columns_by_other_names_and_columns_that_the_source_lost(source: Source) -> None:
    """Names of the settings stay; what the source does not have any more keeps its values."""
    source.settings(destination={"hard_delete": True}, streams={"orders": {"rename": {"v": "colour"}}})
    messages = source.rows(_1="a", _2="b")
    messages[0]["schema"]["properties"] = messages[0]["schema"]["properties"] | {"old": {"type": "integer"}}
    for number in (1, 2):
        messages[number]["record"]["old"] = number
    source.has(*messages)
    assert source.typed("run shop -q").code == 0
    source.has(*source.rows(_1="z", _2="b")[:-1], *source.rows(_2="b")[-1:])
    assert source.reconcile("--apply").code == 0
    assert rows(source, "id, colour, old") == [(1, "z", 1), (2, "b", 2)]


def test_exact_values(source: Source) -> None:
    """Decimals, microseconds, JSON, texts with quotes and line ends, emptiness: as the next run would store them."""
    properties = {
        "id": {"type": "string"},
        "d": {"type": "number", "multipleOf": 1e-9},
        "t": {"type": ["null", "string"], "format": "date-time"},
        "j": {"type": ["null", "object", "string"]},
        "o": {"type": ["null", "object"], "properties": {"x": {"type": ["null", "integer"]}, "y": {"type": "string"}}},
        "l": {"type": ["null", "array"], "items": {"type": "number"}},
        "day": {"type": ["null", "string"], "format": "date"},
        "b": {"type": ["null", "boolean"]},
        "f": {"type": ["null", "number"]},
    }
    schema = {"type": "SCHEMA", "stream": "orders", "key_properties": ["id"], "schema": {"properties": properties}}
    odd = {
        "d": 12345678901234.123456789,
        "t": "2026-01-01T10:00:00.123456+02:00",
        "j": {"a": ['"', "\n", None, 1.50]},
        "o": {"x": None, "y": "ü\u2028"},
        "l": [0.1, 1e300, -0.0],
        "day": "1999-12-31",
        "b": False,
        "f": 0.1,
    }
    first = [{"type": "RECORD", "stream": "orders", "record": {"id": 'k"\\', "d": 1}}]
    second = [{"type": "RECORD", "stream": "orders", "record": {"id": name} | odd} for name in ('k"\\', "", "new\n")]
    source.has(schema, *first)
    assert source.typed("run shop -q").code == 0
    source.has(schema, *second)
    done = source.reconcile("--apply")
    assert done.code == 0, done.out + done.err
    columns = ", ".join(properties)
    corrected = rows(source, columns)
    assert source.typed("run shop --full -q").code == 0
    assert rows(source, columns) == corrected
    assert source.counts(code=0) == {"orders": (0, 0, 0, 0)}


def test_what_is_left_as_it_is(source: Source) -> None:
    """Tables without a key, those that are only added to, far fewer rows than before, and records that do not fit."""
    source.settings(destination={"hard_delete": True}, streams={"added": {"load_method": "append-only"}})
    many = {f"_{n}": "x" for n in range(1, 21)}
    source.has(*source.rows(**many), *source.rows("added", _1="a", _2="b"))
    assert source.typed("run shop -q").code == 0
    source.has(*source.rows(_9="x"), *source.rows("added", _2="b"))
    done = source.reconcile("--apply")
    assert done.code == 1
    assert "added: it stays as it is: its rows are not merged by a key" in done.out
    assert "orders: it stays as it is: 19 of 20 rows would go: --no-guard, if they are gone at the source" in done.out
    assert log(source).latest() == 1
    done = source.reconcile("--apply", "--no-guard")
    assert done.code == 1, done.out  # for `added`
    assert rows(source) == [(9, "x")], done.out + done.err
    bad = {"type": "RECORD", "stream": "orders", "record": {"id": "no number"}}
    source.has(*source.rows(_8="x", _9="x")[:-1], bad, *source.rows("added", _1="a", _2="b"))
    done = source.reconcile("--apply")
    assert "records of the source do not fit their SCHEMA" in done.out
    assert rows(source) == [(9, "x")]


def test_a_run_that_is_alive_is_not_disturbed(source: Source) -> None:
    """Without `--apply` nobody is asked; with it the pipeline has to be free."""
    changed(source)
    slow = source.folder / "slow.py"
    slow.write_text("import time\ntime.sleep(60)\n")
    document = json.loads((source.folder / "bridge.yaml").read_text())
    document["pipelines"]["shop"]["source"] = {"tap": f"{sys.executable} slow.py"}
    (source.folder / "slow.yaml").write_text(json.dumps(document))
    argv = [sys.executable, "-m", "bridge", "run", "shop", "-f", "slow.yaml", "-q"]
    run = subprocess.Popen(argv, start_new_session=True)
    try:
        end = time.monotonic() + 60
        while source.typed("status --json").json[0]["held_by"] is None:
            assert time.monotonic() < end
        assert source.reconcile().code == 1
        assert source.reconcile("--apply").code == 4
        assert source.reconcile("--apply", "--wait", "1s").code == 4
    finally:
        os.killpg(run.pid, signal.SIGKILL)
        run.wait()
    assert source.reconcile("--apply").code == 0
    assert rows(source) == WANTED


@pytest.mark.parametrize("number", range(6))
def test_a_kill_leaves_the_table_before_or_after_it(source: Source, number: int) -> None:
    """Whenever it comes: no reader sees half of it, and the next comparison ends the work."""
    changed(source)
    argv = [sys.executable, "-m", "bridge", "reconcile", "shop", "--apply", "--no-progress"]
    killed = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    commits, pending = source.folder / "lake/.bridge/shop/commits", source.folder / "lake/.bridge/shop/pending"
    end = time.monotonic() + 60
    while killed.poll() is None and time.monotonic() < end:
        seen = [*commits.glob("*2.json")] if number % 2 else [*pending.rglob("*.parquet*")]
        if seen:
            time.sleep(0.004 * (number // 2))
            break
        time.sleep(0.0005)
    os.killpg(killed.pid, signal.SIGKILL)
    killed.wait()
    with duckdb.connect() as engine:
        files = source.folder / "lake/shop/orders/*.parquet"
        seen_rows = engine.execute(
            f"SELECT id, v FROM read_parquet('{files}', union_by_name=true) ORDER BY ALL"
        ).fetchall()
    assert len({row[0] for row in seen_rows}) == len(seen_rows)
    assert source.typed("recover shop").code == 0
    assert rows(source) in ([(1, "a"), (2, "b"), (3, "c"), (5, "e")], WANTED)
    assert source.reconcile("--apply").code == 0
    assert rows(source) == WANTED
    assert source.typed("verify shop").code == 0


@pytest.mark.parametrize(
    "settings",
    [
        {"columns": ["id", "at", "v"]},
        {"schema_policy": "freeze"},
        {"schema_policy": "discard"},
        {"hard_delete": True, "partition_by": ["v"], "sort_by": ["at"]},
    ],
)
@pytest.mark.parametrize("glob", ["*", "orders"])
def test_settings_of_the_stream_apply(source: Source, glob: str, settings: dict[str, Any]) -> None:
    """A deletion stays one, and is as the stream's settings say."""
    source.settings(destination={"hard_delete": "hard_delete" not in settings}, streams={glob: settings})
    changed(source)
    done = source.reconcile("--apply")
    assert done.code == 0, done.out + done.err
    assert rows(source) == WANTED


def test_rows_that_the_settings_only_add_are_not_merged(source: Source) -> None:
    """Whatever the table was before, and whichever glob says so."""
    changed(source)
    source.settings(streams={"orders": {"sort_by": ["v"]}, "*": {"load_method": "append-only"}})
    done = source.reconcile("--apply")
    assert "it stays as it is: its rows are not merged by a key" in done.out
    assert log(source).latest() == 1


def test_a_key_that_the_source_sends_several_times(source: Source) -> None:
    """The last row counts, as in a run; a deletion after a row ends it."""
    messages = source.rows(**{f"_{n}": "x" for n in range(1, 28)})
    again = [json.loads(json.dumps(one)) for one in messages[1:-1]]
    for one in again:
        one["record"]["v"] = "latest"
    messages[0]["schema"]["properties"]["_sdc_deleted_at"] = {"type": ["null", "string"], "format": "date-time"}
    deleted = {"id": 27, "at": again[-1]["record"]["at"], "_sdc_deleted_at": "2026-05-01T00:00:00Z"}
    source.has(*messages[:-1], *again, {"type": "RECORD", "stream": "orders", "record": deleted}, messages[-1])
    assert source.typed("run shop -q").code == 0
    assert source.counts(code=0) == {"orders": (0, 0, 0, 0)}
    assert source.reconcile("--apply").code == 0
    assert {row[1] for row in rows(source)} == {"latest"}


def test_values_that_messages_do_not_have(source: Source) -> None:
    """Fields outside the SCHEMA, NaN: such tables stay, as a correction would lose them."""
    source.has(*source.rows(_1="a", _2="b", _3="c", _4="d"))
    messages = source.rows(_1="a", _2="b", _3="c", _4="d")
    messages[1]["record"]["more"] = 5
    source.has(*messages)
    assert source.typed("run shop -q").code == 0
    source.has(*source.rows(_1="z", _2="b", _3="c", _4="d"))
    assert "it keeps fields outside its SCHEMA in _sdc_extra" in source.reconcile("--apply").out
    assert log(source).latest() == 1


def test_one_table_does_not_stop_the_others(source: Source) -> None:
    """Another key, another type of it: such a table is named, with what to do."""
    source.has(*source.rows(_1="a", _2="b", _3="c"), *source.rows("other", _1="a"), *source.rows("third", _1="a"))
    assert source.typed("run shop -q").code == 0
    other = source.rows("other", ["u"], _1="a")
    other[0]["schema"] = {"properties": ORDER | {"u": {"type": "integer"}}}
    other[1]["record"]["u"] = 7
    third = source.rows("third", _1="a")
    third[0]["schema"] = {"properties": ORDER | {"id": {"type": "string"}}}
    third[1]["record"]["id"] = "A-1"
    source.has(*source.rows(_1="a", _2="b", _4="c"), *other, *third)
    done = source.reconcile("--apply", "--json")
    assert done.code == 1
    assert done.json["not_compared"].keys() == {"other", "third"}
    assert all("the key is another one now" in text for text in done.json["not_compared"].values())
    assert rows(source) == [(1, "a"), (2, "b"), (4, "c")]


def test_keys_with_a_null_are_left(source: Source) -> None:
    """No commit is made for them, and none is claimed."""
    properties = ORDER | {"id": {"type": ["null", "integer"]}}
    messages = source.rows(_1="a", _2="b")
    messages[0]["schema"] = {"properties": properties}
    without = {"type": "RECORD", "stream": "orders", "record": {"id": None, "v": "n"}}
    source.has(*messages[:-1], without, messages[-1])
    assert source.typed("run shop -q").code == 0
    source.has(*messages)
    done = source.reconcile("--apply")
    assert (done.code, "rows whose key has a NULL are left as they are" in done.out) == (1, True), done.out
    assert log(source).latest() == 1


def test_no_state_is_no_failure_of_a_correction(source: Source) -> None:
    source.settings(destination={"hard_delete": True}, on_no_state="fail")
    changed(source)
    assert source.reconcile("--apply").code == 0
    assert rows(source) == WANTED


def test_a_later_glob_does_not_undo_the_merge(source: Source) -> None:
    """A key that comes twice counts once, whatever else the settings say of all streams."""
    source.settings(streams={"orders": {"sort_by": ["v"]}, "*": {"load_method": "upsert"}})
    messages = source.rows(_1="a", _2="b")
    again = json.loads(json.dumps(messages[1]))
    again["record"]["v"] = "z"
    source.has(*messages[:-1], again, messages[-1])
    assert source.typed("run shop -q").code == 0
    done = source.reconcile("--json")
    assert (done.code, done.json["streams"]["orders"]["source_rows"]) == (0, 2)


@pytest.mark.parametrize("load_method", ["upsert", "append-only"])
def test_in_a_bucket(source: Source, s3: S3Server, load_method: str) -> None:
    """S3: compared, made as the source is, and loaded once more by a window."""
    to = {"bucket": s3.bucket("compared"), "hard_delete": True, "load_method": load_method}
    source.settings(destination=to)
    changed(source)
    assert source.reconcile().code == 1
    if load_method == "upsert":
        assert source.reconcile("--apply").code == 0
        assert rows(source) == WANTED
        source.has(*source.rows(_1="a", _3="y", _4="d", _5="e"))
    done = source.typed("run shop -q -s orders --backfill 2026-01-02..2026-01-05 --no-guard")
    assert done.code == 0, done.err
    assert rows(source) == [(1, "a"), (3, "y" if load_method == "upsert" else "x"), (4, "d"), (5, "e")]
    assert source.reconcile().code == 0
    assert source.typed("verify shop").code == 0


def test_paging_that_is_cut_off(source: Source) -> None:
    """A source that sends only its first pages, and says that all is well, does not empty the table."""
    names = {f"_{n}": "x" for n in range(1, 28)}
    source.has(*source.rows(**names))
    assert source.typed("run shop -q").code == 0
    source.has(*source.rows(_1="x", _2="x", _3="x"))
    done = source.reconcile("--apply")
    assert "it stays as it is: 24 of 27 rows would go: --no-guard, if they are gone at the source" in done.out
    assert len(rows(source)) == 27
