"""Spark's workers, as a run that merges or replaces has them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from bridge.lake.records import PendingFile
from bridge.spark.query import spread
from bridge.spark.session import Session
from bridge.write.context import WriteContext
from bridge.write.file import File
from bridge.write.report import WorkReport
from bridge.write.writer import Writer

Spread = Callable[..., list[dict[str, Any]]]
"""Does `work(job, payload)` for each of the payloads: its arguments are `work`, `job` and they."""


def here(work: Callable[[Any, Any], dict[str, Any]], job: Any, payloads: list[Any]) -> list[dict[str, Any]]:
    """Do it one by one, in this process."""
    return [work(job, payload) for payload in payloads]


@contextmanager
def executors(folder: Path) -> Iterator[Spread]:
    """Have it done by a task each, as many at once as there are cores."""
    session = Session(f"local[{os.cpu_count()}]", {}, folder, folder / "spark.log")
    try:
        yield partial(spread, session.spark)
    finally:
        session.close(hurry=True)


def write_share(job: WriteContext, share: tuple[str, list[int], int]) -> WorkReport:
    """Report the pending `files` with the rows of these row groups of a Parquet file."""
    source, groups, gathered = share
    files: list[PendingFile] = []

    def done(written: File) -> None:
        written.finish()
        files.append(written.close())

    with pq.ParquetFile(source) as file:
        for at in range(0, len(groups), gathered):
            writer = Writer(job.storage(), job, 1, "t", file.schema_arrow, done)
            for rows in file.iter_batches(row_groups=groups[at : at + gathered]):
                writer.add(pa.Table.from_batches([rows]))
            writer.finish()
    return WorkReport(files=files)
