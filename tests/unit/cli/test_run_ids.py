"""A run's id has one name in all that programs read: `run_id`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bridge.lake.lease import take
from bridge.lake.storage.local.storage import LocalStorage
from bridge.read.query.system import COLUMNS
from tests.golden.make import unpack_to
from tests.support.shell import Typed


def keys_of(value: Any) -> Iterator[str]:
    """Every key of a document, but not those inside of a STATE or a record."""
    if isinstance(value, dict):
        for key, each in value.items():
            yield key
            yield from keys_of(each)
    elif isinstance(value, list):
        for each in value:
            yield from keys_of(each)


def test_no_output_calls_it_otherwise(tmp_path: Path, typed: Typed) -> None:
    """Runs, commits, history, rejects, and who holds the pipeline: of a lake that an earlier version wrote."""
    lake = unpack_to("parquet", tmp_path)
    held = take(LocalStorage(lake), "p", "20260101T000000Z-aaaa")
    listed = f"--to {lake} --name p --json"
    for verb in ("runs list", "runs show", "commits list", "commits show 1", "state history", "rejects list", "status"):
        document = typed(f"{verb} {listed}").json
        assert "run_id" in {*keys_of(document)}, verb
        assert "run" not in {*keys_of(document)}, verb
    held.close(head=0, clean=True)
    (first, *_) = typed(f"rejects show {listed}").out.splitlines()
    assert json.loads(first)["run_id"] == typed(f"rejects list {listed}").json[0]["run_id"]
    assert "run" not in json.loads(first)


def test_system_tables_have_the_same_name(tmp_path: Path, typed: Typed) -> None:
    """So do `Lake.sql` and the files for BI, which have the same columns."""
    named = {name for name, schema in COLUMNS.items() if "run_id" in schema.names}
    assert named == {"runs", "stream_runs", "commits", "rejects", "reconciliations"}
    assert not any("run" in schema.names for schema in COLUMNS.values())
    lake = unpack_to("parquet", tmp_path)
    question = "SELECT count(*) AS n FROM bridge.runs JOIN bridge.commits USING (run_id)"
    assert typed(f"sql '{question}' --to {lake} --json").json["n"] > 0
