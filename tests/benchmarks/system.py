"""What the benchmark asks of every system it runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from .inputs import Input

SMALL_RUN_RECORDS = 1_000
"""The size that measures start-up; it is never scaled and has no rate."""


@dataclass(frozen=True, slots=True)
class Job:
    """One run: this input into this folder, which is new and empty."""

    input: Input
    out: Path


@dataclass(frozen=True, slots=True)
class Launch:
    """How the run is started; everything its command does is inside the measured time."""

    command: Sequence[str | Path]
    stdin: Path | None = None
    environment: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Rows:
    """What is read back from the output: rows, and how many different ids they carry."""

    count: int
    distinct: int


class System:
    """One row of the table. `records` are the sizes of a full benchmark."""

    name: str
    label: str
    records: tuple[int, ...]
    counts_rows = True
    """False where the system stores nothing to count."""

    def prepare(self) -> None:
        """Once, before any run: what is installed or built. Not measured."""

    def launch(self, job: Job) -> Launch:
        """The command of a run."""
        raise NotImplementedError

    def rows(self, job: Job) -> Rows:
        """Reads the output back."""
        raise NotImplementedError


def count_ids(files: Sequence[Path], *, file_format: str = "parquet") -> Rows:
    """Rows and different ids in the files; no file is no row."""
    if not files:
        return Rows(0, 0)
    dataset = ds.dataset([str(file) for file in files], format=file_format, partitioning=None)
    ids = dataset.to_table(columns=["id"]).column("id")
    return Rows(len(ids), pc.count_distinct(ids.cast(pa.int64())).as_py())
