"""What a run pays for each stream, counted: thousands of small streams must not cost a run minutes."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import orjson
import pyarrow.dataset as ds
import pytest

from bridge.lake.storage.local.storage import LocalStorage
from tests.crash.driver import PIPELINE, Run

RECORDS = 3
MANY = 200
FEW = 100


def lines(streams: int) -> list[str]:
    """Every stream's SCHEMA, then their RECORDs in turns, then one STATE."""
    names = [f"s{number}" for number in range(streams)]
    properties = {"id": {"type": "integer"}, "name": {"type": ["null", "string"]}}
    messages: list[dict[str, object]] = [
        {"type": "SCHEMA", "stream": name, "schema": {"properties": properties}, "key_properties": []} for name in names
    ]
    for id_ in range(RECORDS):
        messages += [{"type": "RECORD", "stream": name, "record": {"id": id_, "name": name}} for name in names]
    messages.append({"type": "STATE", "value": {"bookmarks": {name: {"id": RECORDS} for name in names}}})
    return [orjson.dumps(message).decode() for message in messages]


_COUNTED = Counter[str]()
_IS_COUNTING: list[bool] = []


def _count(event: str, arguments: tuple[object, ...]) -> None:
    if _IS_COUNTING and (event.startswith("os.") or event == "open"):
        _COUNTED[event] += 1


@cache
def _install() -> None:
    """In the process that runs these tests only: it slows down all that comes after."""
    sys.addaudithook(_count)  # for good: Python has no way to take one away


@contextmanager
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter[str]]:
    """The system calls on files that Python makes meanwhile, by name; `fsync` is among them."""
    _install()
    real = os.fsync

    def fsync(fd: int) -> None:
        _COUNTED["fsync"] += 1
        real(fd)

    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", fsync)
        _COUNTED.clear()
        _IS_COUNTING.append(True)
        try:
            yield _COUNTED
        finally:
            _IS_COUNTING.clear()


def test_the_price_of_one_more_stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run syncs seven files and folders a stream, however many there are, and all rows are in the lake."""
    costs = []
    for streams in (FEW, MANY):
        lake = tmp_path / f"lake-{streams}"
        with counted(monkeypatch) as calls:
            Run(lambda _, streams=streams: lines(streams), at_end=True).execute(str(lake), tmp_path / "scratch")  # type: ignore[misc]
            costs.append(Counter(calls))
        files = [str(path) for path in (lake / PIPELINE).rglob("*.parquet")]
        assert ds.dataset(files, partitioning=None).count_rows() == streams * RECORDS
        owners = LocalStorage(lake).walk(f".bridge/tables/{PIPELINE}")
        assert len([name for name in owners if name.endswith(".json")]) == streams
    few, many = costs
    more = Counter({name: (many[name] - few[name]) / (MANY - FEW) for name in many})
    # The owner, the pending file and its folder, the table's folder, two manifests and the folder of one of them.
    assert more["fsync"] <= 7, more
    assert more["os.rename"] <= 4, more
    assert more["os.mkdir"] <= 2, more
    assert more["os.listdir"] + more["os.scandir"] <= 2, more
    assert more["open"] <= 24, more


def test_nothing_waits_for_the_disk_while_schemas_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tap's SCHEMAs are read without a durable write each: those come together, when a batch is sealed."""
    syncs: list[int] = []

    def tap(_: object) -> Iterator[str]:
        schemas = [line for line in lines(MANY) if '"SCHEMA"' in line]
        before = _COUNTED["fsync"]
        yield from schemas
        syncs.append(_COUNTED["fsync"] - before)
        yield from lines(MANY)[len(schemas) :]

    with counted(monkeypatch):
        Run(tap, at_end=True).execute(str(tmp_path / "lake"), tmp_path / "scratch")
    assert syncs == [0]
