"""A table that its tap begins anew in the middle of a run: what was staged of it goes, but not a moment too soon."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import orjson
import pyarrow.parquet as pq
import pytest

from bridge.errors import TapError
from tests.crash.driver import Line, Run, Tap

FULL = [{"tap_stream_id": "a", "stream": "a", "replication_method": "FULL_TABLE"}]


def message(kind: str, **facts: Any) -> str:
    """One line of a tap."""
    return orjson.dumps({"type": kind, **facts}).decode()


def schema(stream: str) -> str:
    """The SCHEMA of a stream."""
    return message("SCHEMA", stream=stream, schema={"properties": {"id": {"type": "integer"}}}, key_properties=[])


def record(stream: str, number: int, **version: int) -> str:
    """A RECORD."""
    return message("RECORD", stream=stream, record={"id": number}, **version)


def state(**bookmarks: Any) -> str:
    """A STATE."""
    return message("STATE", value={"bookmarks": bookmarks})


def run(folder: Path, tap: Tap, lag: int = 0) -> None:
    """Run to the end, or to the tap's."""
    with suppress(TapError):
        Run(tap, catalog={"streams": FULL}, lag=lag).execute(str(folder / "lake"), folder / "spool")


def half(_: Any) -> Iterable[Line]:
    """The first half of version 1, as far as the STATE says."""
    return [
        schema("a"),
        *(record("a", n, version=1) for n in range(1, 6)),
        state(a={"version": 1, "last_pk": 5}),
        TapError("died"),
    ]


def rest(given: Any) -> Iterable[Line]:
    """What the bookmark has still to come, up to the table's end."""
    at = given["bookmarks"]["a"]
    rows = (record("a", n, version=at["version"]) for n in range(at["last_pk"] + 1, 9))
    return [schema("a"), *rows, message("ACTIVATE_VERSION", stream="a", version=at["version"]), state(a={})]


@pytest.mark.parametrize("lag", [0, 1, 3])
def test_a_barrier_on_its_way_keeps_the_files_that_it_counts_on(tmp_path: Path, lag: int) -> None:
    """A STATE inside version 1 is committed with all of version 1, also if version 2 has begun by then."""

    def anew(_: Any) -> Iterable[Line]:
        first = state(a={"version": 1, "last_pk": 5}, b={"id": 1})
        return [schema("a"), schema("b"), record("b", 1), first, record("a", 1, version=2), TapError("died")]

    run(tmp_path, half)
    run(tmp_path, anew, lag)
    run(tmp_path, rest)
    assert rows(tmp_path) == Counter(range(1, 9))


def rows(folder: Path) -> Counter[int]:
    """What the table has."""
    files = (folder / "lake/p/a").glob("*.parquet")
    return Counter(n for file in files for n in pq.read_table(file).column("id").to_pylist())
