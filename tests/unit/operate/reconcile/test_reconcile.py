"""`reconcile` as it is typed, with a tap that plays a file: what is found, kept, shown, told, and refused."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import bridge
from bridge.lake.reconciled import Proof
from bridge.lake.storage.local.storage import LocalStorage
from bridge.serve.facts.metrics import figures, metrics_text
from tests.support.receiver import receiver
from tests.support.shell import Done, Typed

# apprise imports a module of Python that is to go.
pytestmark = pytest.mark.filterwarnings("ignore:'imghdr' is deprecated")
ORDER = {"id": {"type": "integer"}, "at": {"type": ["null", "string"], "format": "date-time"}, "v": {"type": "string"}}


class Source:
    """The pipeline `shop`, whose tap plays a file."""

    def __init__(self, folder: Path, typed: Typed) -> None:
        self.folder, self.typed = folder, typed
        self.settings()

    def settings(self, **more: Any) -> None:
        """Write bridge.yaml; `more` are keys of the pipeline."""
        destination = {"bucket": "lake", "load_method": "upsert"} | more.pop("destination", {})
        source = {"tap": "tap-replay", "config": {"path": "shop.jsonl"}}
        pipeline = {"source": source, "destination": destination, **more}
        (self.folder / "bridge.yaml").write_text(json.dumps({"pipelines": {"shop": pipeline}}))

    def has(self, *messages: dict[str, Any]) -> None:
        (self.folder / "shop.jsonl").write_text("".join(json.dumps(message) + "\n" for message in messages))

    def rows(self, stream: str = "orders", key: list[str] | None = None, **rows: Any) -> list[dict[str, Any]]:
        """The messages of a stream: its SCHEMA, these rows (`_1="red"`), and the STATE with their last time."""
        facts = {"key_properties": ["id"] if key is None else key, "bookmark_properties": ["at"]}
        schema = {"type": "SCHEMA", "stream": stream, "schema": {"properties": ORDER}, **facts}
        records = [
            {"id": int(name[1:]), "at": f"2026-01-{int(name[1:]):02}T00:00:00Z", "v": value}
            for name, value in rows.items()
        ]
        mark = {"replication_key": "at", "replication_key_value": max(one["at"] for one in records)} if records else {}
        state = {"type": "STATE", "value": {"bookmarks": {stream: mark}}}
        return [schema, *({"type": "RECORD", "stream": stream, "record": one} for one in records), state]

    def reconcile(self, *flags: str) -> Done:
        return self.typed(" ".join(["reconcile", "shop", *flags]))

    def counts(self, *flags: str, code: int) -> dict[str, tuple[int, ...]]:
        """By stream what is missing, extra, stale and in flight."""
        done = self.reconcile("--json", *flags)
        assert done.code == code, done.err + done.out
        kinds = ("missing", "extra", "stale", "in_flight")
        return {name: tuple(facts[kind] for kind in kinds) for name, facts in done.json["streams"].items()}


@pytest.fixture
def source(folder: Path, typed: Typed, without_spark: None) -> Source:
    return Source(folder, typed)


def test_a_lake_that_is_not_as_its_source(source: Source) -> None:
    """It is said with the keys and what to type; lake, STATE and runs stay; the next comparison ends it."""
    source.has(*source.rows(_1="a", _2="b", _3="c"))
    assert source.typed("run shop -q").code == 0
    before = sorted((path, path.read_bytes()) for path in (source.folder / "lake").rglob("*") if path.is_file())
    assert source.reconcile().code == 0
    source.has(*source.rows(_1="a", _3="x", _4="d"))
    done = source.reconcile()
    assert done.code == 1
    assert "! orders: 1 key not at the source, replication key 2026-01-02T00:00:00.000000Z, such as id=2" in done.out
    assert "✗ 1 table is not as its source, through commit 1 at " in done.out
    assert "load again: singer-bridge run shop --full -s orders" in done.out
    # rows 3 and 4 are at and beyond the bookmark: the next run brings them
    assert source.counts(code=1) == {"orders": (0, 1, 0, 2)}
    after = [path for path in sorted((source.folder / "lake").rglob("*")) if path.is_file()]
    kept = source.folder / "lake/.bridge/shop/reconciled.json"
    assert [(path, path.read_bytes()) for path in after if path != kept] == before
    assert not [path for path in (source.folder / ".singer-bridge/reconcile").iterdir() if path.is_dir()]
    assert source.typed("run shop -q").code == 0
    assert source.counts(code=1) == {"orders": (0, 1, 0, 0)}
    assert source.typed("run shop --full -q").code == 0
    assert source.counts(code=0) == {"orders": (0, 0, 0, 0)}


def test_who_learns_of_it(source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    """`status`, its exit code, SQL, Python, metrics and receivers, each difference once."""
    with receiver() as server:
        source.settings(notify=[{"url": f"json://127.0.0.1:{server.port}/x"}])
        source.has(*source.rows(_1="a", _2="b"))
        assert source.typed("run shop -q").code == 0
        source.has(*source.rows(_2="b"))
        assert source.reconcile("--keys").code == 1
        assert source.reconcile("--keys").code == 1
        assert server.kinds == ["differs"]
        status = source.typed("status --json --exit-code")
        (facts,) = status.json
        assert (status.code, facts["marks"]) == (7, {"differs": ["orders"]})
        assert facts["reconciled"]["orders"] | {"ended": ""} == {
            "commit": 1,
            "ended": "",
            "compared": "keys",
            "differs": True,
        } | dict.fromkeys(("missing", "stale", "in_flight", "rejected"), 0) | {"extra": 1}
        row = source.typed("sql --json 'SELECT * FROM bridge.reconciliations'").json
        assert (row["stream"], row["extra"], row["differs"], row["lake_rows"]) == ("orders", 1, True, 2)
        proof = bridge.Lake("lake").reconciled("shop")["orders"]
        assert (proof.key, proof.samples) == (("id",), {"extra": [{"id": 1}]})
        storage = LocalStorage(source.folder / "lake")
        assert 'table_differs{pipeline="shop",stream="orders"} 1.0' in metrics_text([figures(storage, "shop")])
        source.has(*source.rows(_1="a", _2="b"))
        assert source.reconcile().code == 0
        assert source.typed("status --exit-code").code == 0
        assert server.kinds == ["differs"]


def test_what_cannot_be_applied_is_told_too(source: Source) -> None:
    """`--keys` looks first: that look is no reason to keep the difference from the receivers."""
    with receiver() as server:
        notify = [{"url": f"json://127.0.0.1:{server.port}/x"}]
        source.settings(notify=notify, destination={"load_method": "append-only"})
        source.has(*source.rows(_1="a", _2="b"))
        assert source.typed("run shop -q").code == 0
        source.has(*source.rows(_2="b"))
        assert source.reconcile("--keys", "--apply").code == 1
        assert server.kinds == ["differs"]


def test_streams_and_keys(source: Source) -> None:
    """One of two; a table without a key; one with rows that do not fit; one that the tap no longer sends."""
    source.settings(destination={"load_method": "auto"})
    keyless = source.rows("plain", [], _1="a", _2="b")
    source.has(*source.rows(_1="a"), *keyless, *source.rows("gone", _1="a"))
    assert source.typed("run shop -q").code == 0
    bad = {"type": "RECORD", "stream": "orders", "record": {"id": "no number"}}
    messages = source.rows(_1="a")
    source.has(*messages[:-1], bad, messages[-1], *source.rows("plain", [], _2="b"))
    done = source.reconcile("--json")
    assert done.code == 1
    assert done.json["not_compared"] == {"gone": "the tap sent nothing of it, not even its SCHEMA"}
    assert done.json["streams"]["orders"]["rejected"] == 1
    assert done.json["streams"]["orders"]["differs"]
    plain = done.json["streams"]["plain"]
    assert (plain["key"], plain["extra"], plain["samples"]["extra"][0]["v"]) == ([], 1, "a")


def test_rows_that_are_only_added(source: Source) -> None:
    """Former rows of a key are no difference; the present one has to be there."""
    source.settings(destination={"load_method": "append-only"})
    for value in ("a", "b"):
        source.has(*source.rows(_1=value, _2="x"))
        assert source.typed("run shop -q --full --append").code == 0
    assert source.counts(code=0) == {"orders": (0, 0, 0, 0)}
    source.has(*source.rows(_1="c", _2="x"))
    assert source.counts(code=1) == {"orders": (0, 0, 1, 0)}


def test_settings_of_streams_apply(source: Source) -> None:
    """Renamed and left-out columns, names of columns, marks of deletion: what comes is shaped as in a run."""
    more = {"rename": {"v": "colour"}, "columns": ["id", "at", "v"]}
    source.settings(streams={"orders": more}, destination={"add_record_metadata": True})
    source.has(*source.rows(_1="a", _2="b", _3="c"))
    assert source.typed("run shop -q").code == 0
    assert source.counts(code=0) == {"orders": (0, 0, 0, 0)}
    messages = source.rows(_1="a", _2="z", _3="c")
    source.has(*messages)
    done = source.reconcile("--json")
    assert done.json["streams"]["orders"]["columns"] == {"v": 1}


@pytest.mark.parametrize("table_format", ["delta", "iceberg"])
def test_formats(source: Source, table_format: str) -> None:
    source.settings(destination={"format": table_format, "partition_by": ["v"]})
    source.has(*source.rows(_1="a", _2="b"))
    assert source.typed("run shop -q").code == 0
    source.has(*source.rows(_2="b"))
    assert source.counts(code=1) == {"orders": (0, 1, 0, 0)}


def test_an_extraction_that_fails_proves_nothing(source: Source) -> None:
    """The error is the tap's, nothing is kept; so it is with a tap that is not there."""
    source.has(*source.rows(_1="a"))
    assert source.typed("run shop -q").code == 0
    (source.folder / "shop.jsonl").unlink()
    done = source.reconcile()
    assert (done.code, done.out) == (1, "")
    assert "error:" in done.err
    assert Proof.last(LocalStorage(source.folder / "lake"), "shop") == {}


def test_what_is_refused(source: Source) -> None:
    """A lake without tables, a cluster, flags that do not exist; the hint says what to type."""
    source.has(*source.rows(_1="a"))
    done = source.reconcile()
    assert (done.code, "singer-bridge run shop" in done.err) == (2, True)
    assert source.typed("run shop -q").code == 0
    source.settings(spark={"master": "spark://127.0.0.1:1"})
    assert "not on a cluster" in source.reconcile().err
    source.settings()
    assert "the setting has no effect" in source.reconcile("-s", "orders").err or source.reconcile("-s", "x").code == 2


def test_one_at_a_time_and_a_kill_leaves_nothing(source: Source) -> None:
    """A second one is refused while the first works; after a kill -9 the next one clears up."""
    source.has(*source.rows(_1="a"))
    assert source.typed("run shop -q").code == 0
    config = {"path": "shop.jsonl", "delay_ms": 60_000}
    document = json.loads((source.folder / "bridge.yaml").read_text())
    slow = source.folder / "slow.py"
    slow.write_text("import time\ntime.sleep(60)\n")
    document["pipelines"]["shop"]["source"] = {"tap": f"{sys.executable} slow.py", "config": config}
    (source.folder / "bridge.yaml").write_text(json.dumps(document))
    argv = [sys.executable, "-m", "bridge", "reconcile", "shop"]
    first = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    folder = source.folder / ".singer-bridge/reconcile/shop"
    try:
        end = time.monotonic() + 60
        while not (folder / "lake").exists():
            assert time.monotonic() < end
            time.sleep(0.05)
        done = source.reconcile()
        assert (done.code, "being compared already" in done.err) == (4, True)
    finally:
        os.killpg(first.pid, 9)
        first.wait()
    assert folder.exists()
    source.settings()
    assert source.reconcile().code == 0
    assert not folder.exists()
    assert shutil.which("tap-replay")
