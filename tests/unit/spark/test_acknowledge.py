"""A task in a Python worker on this machine gets its rows at once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from statistics import median

import pyarrow as pa

from bridge.spark.session import Session


def waited(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield how many connections the worker has, and the seconds until its rows were there."""
    import time

    from bridge.spark.worker import connections, prepare

    began = time.perf_counter()
    prepare()
    rows = sum(batch.num_rows for batch in batches)
    seconds = time.perf_counter() - began
    yield pa.RecordBatch.from_pydict({"connections": [len(connections)], "rows": [rows], "seconds": [seconds]})


def test_rows_are_not_held_back(tmp_path: Path) -> None:
    """Without the acknowledgement nearly all of these tasks wait 40 ms, however idle the machine is."""
    session = Session("local[1]", {}, tmp_path / "scratch", tmp_path / "log")
    try:
        job = session.spark.range(0, 3, 1, 1).mapInArrow(waited, "connections bigint, rows bigint, seconds double")
        answers = [tuple(row) for _ in range(15) for row in job.collect()]
    finally:
        session.close(hurry=True)
    assert {(connections, rows) for connections, rows, _ in answers} == {(1, 3)}
    assert median(seconds for _, _, seconds in answers) < 0.03
