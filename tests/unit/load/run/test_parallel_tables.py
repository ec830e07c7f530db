"""Several processes of one tap into each kind of table: one of them fails, and all go on in the next run.

Real processes, a real load, everything but Spark. The rows are those that readers of the format find.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import duckdb
import pytest
from deltalake import DeltaTable

from bridge.lake.log import Log
from bridge.lake.storage import open_storage
from bridge.lake.storage.local.storage import LocalStorage
from bridge.operate.verify.check import verify
from tests.support.iceberg_lake import catalog_of
from tests.support.tap_runs import PagedRuns, upto, values

from .test_parallel_taps import lake

__all__ = ["lake"]


def found(uri: str, kind: str, stream: str) -> list[tuple[int, int]]:
    """The (id, said) of a table's rows, by a reader that goes by the table's own log, where it has one."""
    if kind == "iceberg":
        with catalog_of(LocalStorage(Path(uri))) as catalog:
            rows = catalog.load_table(f"p.{stream}").scan().to_arrow().to_pylist()
    elif kind == "delta":
        rows = DeltaTable(f"{uri}/p/{stream}").to_pyarrow_table().to_pylist()
    else:
        return duckdb.sql(f"select id, said from '{uri}/*/{stream}/*.parquet' order by all").fetchall()
    return sorted((row["id"], row["said"]) for row in rows)


@pytest.mark.parametrize(
    ("kind", "method", "batch"),
    [
        ("parquet", "append-only", True),
        ("parquet", "upsert", False),
        ("delta", "append-only", False),
        ("delta", "upsert", True),
        ("iceberg", "append-only", True),
        ("iceberg", "upsert", False),
    ],
)
def test_one_fails_then_all_go_on(lake: PagedRuns, kind: str, method: str, batch: bool) -> None:
    """Each row is there once, with its last value; the commit has for each process the STATE that it came to."""
    lake.settings = {"destination": {"bucket": lake.uri, "format": kind, "load_method": method}}
    again = 3 if method == "upsert" else 0
    files = {"batch": str(lake.given.parent)} if batch else {}
    lake.streams = {"a": {"last": 9}, "b": {"last": 9, "fails_at": 6}, "c": {"last": 7, "parent": "b"}}
    for stream in lake.streams.values():
        stream |= {"said": 1, "again": again, **files}
    first = lake.run(3)
    assert (first.status, first.warnings[0].split(":")[0], lake.alive) == ("failed", "b", [])
    assert first.error
    assert ("a file of a BATCH cannot be read" if batch else "the source went away") in first.error.message
    assert lake.groups == {"a": {"a": 9}, "b": {"b": 4}, "c": {"b": 7, "c": 7}}
    assert {s: len(found(lake.uri, kind, s)) for s in "abc"} == {"a": 9, "b": 4, "c": 7}

    del lake.streams["b"]["fails_at"]
    for stream in lake.streams.values():
        stream |= {"said": 2, "last": 12}
    second = lake.run(3)
    assert (second.status, second.warnings, lake.alive) == ("success", [], [])
    assert lake.was_given() == {"a": {"a": 9}, "b": {"b": 4}, "c": {"b": 7, "c": 7}}
    assert lake.groups == {"a": {"a": 12}, "b": {"b": 12}, "c": {"b": 12, "c": 12}}
    assert values(lake.view.state) == {"a": 12, "b": 12, "c": 12}
    assert {s: found(lake.uri, kind, s) for s in "abc"} == {
        s: [(n, 1 if n <= old - again else 2) for n in upto(12)] for s, old in (("a", 9), ("b", 4), ("c", 7))
    }
    _whole(lake.uri, "p")


def test_tables_shared_with_another(lake: PagedRuns) -> None:
    """Two pipelines of two processes each add to the same tables; neither touches the rows or STATEs of the other."""
    lake.settings = {"destination": {"bucket": lake.uri, "path": "both", "shared": True, "load_method": "append-only"}}
    lake.streams = {"a": {"last": 9, "said": 1}, "b": {"last": 9, "said": 1, "fails_at": 6}}
    assert lake.run().status == "failed"
    lake.name, lake.streams = "q", {"a": {"last": 5, "said": 2, "fails_at": 3}, "b": {"last": 5, "said": 2}}
    assert lake.run().status == "failed"
    assert lake.groups == {"a": {"a": 2}, "b": {"b": 5}}
    rows: dict[str, list[Any]] = {s: found(lake.uri, "parquet", s) for s in "ab"}
    assert rows == {
        "a": sorted([(n, 1) for n in upto(9)] + [(n, 2) for n in upto(2)]),
        "b": sorted([(n, 1) for n in upto(4)] + [(n, 2) for n in upto(5)]),
    }
    for name, said in (("p", 1), ("q", 2)):
        lake.name, lake.streams = name, {s: {"last": 10, "said": said} for s in "ab"}
        result = lake.run()
        assert (result.status, result.warnings) == ("success", [])
        assert lake.groups == {"a": {"a": 10}, "b": {"b": 10}}
    for stream in "ab":
        assert found(lake.uri, "parquet", stream) == [(n, said) for n in upto(10) for said in (1, 2)]
    for name in "pq":
        _whole(lake.uri, name)


def _whole(uri: str, pipeline: str) -> None:
    """Nothing is wrong in the lake, and what is shown for all is what the file says."""
    storage = open_storage(uri)
    assert verify(storage, pipeline).findings == []
    log = Log(storage, pipeline)
    assert json.loads(storage.read(f".bridge/{pipeline}/state.json") or b"") == log.snapshot(log.latest()).state
