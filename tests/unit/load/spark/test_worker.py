"""A task in a Python worker begins at once, and needs little."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from bridge.load.spark.session import Session
from bridge.load.spark.shipping import map_in_arrow

Answer = tuple[int, int, bool, float]


def task() -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """A function inside a function goes to a worker as code: it does not import this module, and pandas with it."""

    def waited(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield its connections, the rows, whether it has imported pandas, and the seconds until its rows came."""
        import sys
        import time

        import pyarrow as pa

        from bridge.load.spark.worker import connections, prepare

        began = time.perf_counter()
        prepare()
        rows = sum(batch.num_rows for batch in batches)
        facts = (len(connections), rows, "pandas" in sys.modules, time.perf_counter() - began)
        names = ("connections", "rows", "pandas", "seconds")
        yield pa.RecordBatch.from_pydict({name: [fact] for name, fact in zip(names, facts, strict=True)})

    return waited


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> list[Answer]:
    """Those of fifteen tasks of one worker, one after the other."""
    folder = tmp_path_factory.mktemp("spark")
    session = Session("local[1]", {}, folder / "scratch", folder / "log")
    try:
        columns = "connections bigint, rows bigint, pandas boolean, seconds double"
        job = map_in_arrow(session.spark.range(0, 3, 1, 1), task(), columns)
        return [(row.connections, row.rows, row.pandas, row.seconds) for _ in range(15) for row in job.collect()]
    finally:
        session.close(hurry=True)


def test_rows_are_not_held_back(answers: list[Answer]) -> None:
    """Without the acknowledgement nearly all of these tasks wait 40 ms, however idle the machine is."""
    assert {(connections, rows) for connections, rows, _, _ in answers} == {(1, 3)}
    assert sorted(seconds for *_, seconds in answers)[len(answers) // 4] < 0.03  # a busy machine delays the others


def test_a_worker_imports_no_pandas(answers: list[Answer]) -> None:
    """pyarrow would, at the first report of each worker, for a quarter of a second."""
    assert not any(pandas for _, _, pandas, _ in answers)


WITHOUT_PANDAS = """
import sys
from pathlib import Path
from bridge.load.spark.worker import _NoPandas
sys.meta_path.insert(0, _NoPandas)
import pyarrow as pa
from bridge.load.spark.session import Session
from bridge.load.spark.shipping import map_in_arrow
session = Session("local[1]", {}, Path("scratch"), Path("log"))
rows = session.spark.createDataFrame(pa.table({"id": [1, 2]}))
print(sum(row.id for row in map_in_arrow(rows, lambda batches: batches, "id bigint").collect()))
session.close(hurry=True)
"""


def test_nothing_asks_for_pandas(tmp_path: Path) -> None:
    """pyspark's own `mapInArrow` does, although it does not use it; no dependency of ours brings it."""
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_PANDAS], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.stdout == "3\n", done.stderr


WITHOUT_NUMPY = """
import sys
sys.modules["numpy"] = None
from bridge.load.write.keys import row_numbers
import bridge.load.spark.worker
assert row_numbers(0).to_pylist() == []
assert row_numbers(3, first=5).to_pylist() == [5, 6, 7]
"""


def test_a_worker_that_appends_needs_no_numpy() -> None:
    """docs/cluster.md says that executors need it for upserts only."""
    subprocess.run([sys.executable, "-c", WITHOUT_NUMPY], check=True)
