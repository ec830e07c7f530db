"""`smoke` reads the files of BATCH messages, and checks their rows as RECORDs."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from bridge.operate.smoke.listener import Listener
from bridge.operate.smoke.verdicts import Verdicts
from tests.support.shell import Typed
from tests.support.tables import Shop

SCHEMA = {
    "type": "SCHEMA",
    "stream": "s",
    "schema": {"properties": {"id": {"type": "integer"}, "at": {"type": "string", "format": "date-time"}}},
    "key_properties": ["id"],
}


def heard(*messages: dict[str, Any], most: int = 100) -> tuple[Listener, Verdicts]:
    verdicts = Verdicts()
    listener = Listener(verdicts, replication={}, may_repeat=set())
    for message in messages:
        listener.feed(json.dumps(message).encode() + b"\n", most)
    return listener, verdicts


def batch(file: Path, rows: Any, form: str = "arrow") -> dict[str, Any]:
    with pa.OSFile(str(file), "wb") as opened, pa.ipc.new_file(opened, rows.schema) as writer:
        writer.write_table(rows)
    return {"type": "BATCH", "stream": "s", "encoding": {"format": form}, "manifest": [file.as_uri()]}


def texts(verdicts: Verdicts, check: str) -> list[str]:
    return [finding.text for finding in verdicts.of(check)]


def test_rows_as_declared_have_no_finding(tmp_path: Path) -> None:
    rows = pa.table({"id": [1, 2, 3], "at": pa.array([1, 2, 3], pa.timestamp("us"))})
    listener, verdicts = heard(SCHEMA, batch(tmp_path / "f", rows))
    assert (listener.records, verdicts.status("batch"), verdicts.status("records")) == (3, "passed", "passed")


def test_each_row_is_checked_as_a_record(tmp_path: Path) -> None:
    """Another type than the SCHEMA's, a key twice, a time that is none: what a RECORD would be told."""
    rows = pa.table({"id": ["x", "y", "y"], "at": ["2024-02-31", "2024-01-01", None]})
    _, verdicts = heard(SCHEMA, batch(tmp_path / "f", rows))
    assert texts(verdicts, "records") == ['not as declared: type "integer"', 'not as declared: type "string"']
    assert texts(verdicts, "dates") == ["no date-time"]
    assert texts(verdicts, "keys") == ["two records have one key id"]


def test_no_more_rows_than_wanted_are_read(tmp_path: Path) -> None:
    listener, _ = heard(SCHEMA, batch(tmp_path / "f", pa.table({"id": list(range(5000))})), most=70)
    assert listener.records == 70


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"manifest": ["/none"]}, "a file of a BATCH cannot be read: No such file or directory"),
        ({"encoding": {"format": "orc"}}, "a BATCH of an unknown encoding"),
        ({"encoding": {"format": "parquet"}}, "a file of a BATCH cannot be read: Parquet magic bytes not found"),
        ({"manifest": None}, "a BATCH without stream or files"),
    ],
)
def test_a_file_that_cannot_be_read_fails(tmp_path: Path, change: dict[str, Any], says: str) -> None:
    _, verdicts = heard(SCHEMA, batch(tmp_path / "f", pa.table({"id": [1]})) | change)
    assert verdicts.status("batch") == "failed"
    assert texts(verdicts, "batch")[0].startswith(says)


def test_a_tap_that_sends_files(tmp_path: Path, typed: Typed) -> None:
    """The whole verb, with tap-bridge: each check passes, and `load` has every row."""
    shop = Shop(tmp_path / "source")
    shop.load("log", {"id": {"type": "integer"}}, [{"id": n} for n in range(50)])
    config = {"bucket": str(tmp_path / "source/lake")}
    config |= {"batch_config": {"encoding": {"format": "arrow"}, "storage": {"root": (tmp_path / "files").as_uri()}}}
    (tmp_path / "tap.json").write_text(json.dumps(config))
    tap = Path(sys.executable).with_name("tap-bridge")
    done = typed(f"smoke --tap {shlex.quote(str(tap))} --tap-config {tmp_path / 'tap.json'} --json")
    found = {check["check"]: check["status"] for check in done.json["checks"]}
    assert (done.code, found["batch"], found["records"]) == (0, "passed", "passed"), done.out
    assert done.json["first_run"]["records"] == 50
