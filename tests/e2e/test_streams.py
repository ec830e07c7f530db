"""What taps write, through the real command: two of singer-sdk's own streams, and batches of files, in one run."""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import singer_sdk.testing

from tests.e2e.conftest import Project
from tests.support.hazards import DATA
from tests.support.pipe import plain, wire

pytestmark = pytest.mark.usefixtures("in_process")

SDK = Path(singer_sdk.testing.__file__).parent / "target_test_streams"
REPLAY = str(Path(sys.executable).with_name("tap-replay"))


def test_streams_and_batches_through_spark(project: Project) -> None:
    """Rows and values are those that the same bytes have without Spark; files in a BATCH are rows like others."""
    (project.folder / "1.jsonl.gz").write_bytes(gzip.compress(b'{"id":1,"at":"2024-01-01T00:00:00"}\n{"id":"x"}\n'))
    pq.write_table(pa.table({"id": list(range(2, 30_002))}), project.folder / "2.parquet")
    schema = {"properties": {"id": {"type": "integer"}, "at": {"type": "string", "format": "date-time"}}}
    encodings = [("1.jsonl.gz", {"format": "jsonl", "compression": "gzip"}), ("2.parquet", {"format": "parquet"})]
    batches = [
        {"type": "BATCH", "stream": "b", "encoding": encoding, "manifest": [(project.folder / name).as_uri()]}
        for name, encoding in encodings
    ]
    said = [(SDK / f"{name}.singer").read_bytes() for name in ("encoded_string_data", "schema_updates")]
    said.append(wire({"type": "SCHEMA", "stream": "b", "schema": schema, "key_properties": []}, *batches))
    (project.folder / "said.singer").write_bytes(b"".join(said) + wire({"type": "STATE", "value": {"n": 7}}))
    done = project.run({"path": str(project.folder / "said.singer")}, tap=REPLAY)
    assert done.code == 0, done.err
    expected = json.loads((DATA / "singer_sdk_streams.json").read_text())
    wanted = expected["encoded_string_data"]["rows"] | expected["schema_updates"]["rows"]
    for stream, rows in wanted.items():
        tables = [pq.read_table(path) for path in (project.lake / "smoke" / stream).glob("*.parquet")]
        found = pa.concat_tables(tables, promote_options="default").sort_by("id")
        assert plain(found.to_pylist()) == rows
    assert project.ids("b") == list(range(1, 30_002))
    streams = json.loads(done.out)["streams"]
    assert (streams["b"]["records"], streams["b"]["rejected"]) == (30_001, 1)
    assert project.state() == {"n": 7}


_BY_PROPERTIES = """#!/bin/sh
case "$*" in
  *--help*) echo "--config --catalog --properties --discover --state";;
  *--discover*) echo '{"streams": [{"tap_stream_id": "users", "schema": {"type": "object", "properties": {"id":
    {"type": "integer"}}}, "metadata": [{"breadcrumb": [], "metadata": {"table-key-properties": ["id"]}}]}]}';;
  *--properties*) echo '{"type": "SCHEMA", "stream": "users", "schema": {"type": "object"}, "key_properties": ["id"]}'
    echo '{"type": "RECORD", "stream": "users", "record": {"id": "7"}}';;
esac
"""


def test_a_tap_that_ignores_its_catalog(project: Project) -> None:
    """It ends well without a word: the run says which flag to write, and with that flag it loads."""
    tap = project.folder / "tap-x"
    tap.write_text(_BY_PROPERTIES)
    tap.chmod(0o755)
    for command, rows in ((str(tap), 0), (f"{tap} --properties", 1)):
        pipeline = {"source": {"tap": command, "select": ["*"]}, "destination": {"bucket": "lake"}}
        (project.folder / "bridge.yaml").write_text(json.dumps({"pipelines": {"shop": pipeline}}))
        done = project.command("run", "shop", "--json", timeout=300)
        assert (done.code, sum(one["records"] for one in done.json["streams"].values())) == (0, rows), done.err
        advice = [text for text in done.json["warnings"] if f"Try source.tap: {tap} --properties" in text]
        assert len(advice) == 1 - rows
