"""The limits: pyarrow on its own, as it would be typed in two lines, and DuckDB. Their programs say what they lack."""

from __future__ import annotations

import sys
from pathlib import Path

from .system import Job, Launch, Rows, System, count_ids

_PROGRAM = Path(__file__).with_name("one_shot.py")
_COPY = Path(__file__).with_name("duckdb_copy.py")


class Limit(System):
    """Stores the columns of `record`, like all the others: the 1.0 of every ratio."""

    name = "limit"
    label = "limit: pyarrow read_json + write_table"
    records = (1_000_000, 4_000_000)

    def launch(self, job: Job) -> Launch:
        """X."""
        return Launch([sys.executable, _PROGRAM, job.out, *job.input.pieces])

    def rows(self, job: Job) -> Rows:
        """From the written files."""
        return count_ids(sorted(job.out.glob("*.parquet")))


class DuckdbCopy(System):
    """The fastest reader of JSON that has a package: one COPY, and no check, no STATE, no resumption."""

    name = "duckdb"
    label = "limit: DuckDB's COPY"
    records = (1_000_000, 4_000_000)

    def launch(self, job: Job) -> Launch:
        """With all cores, and the columns named."""
        return Launch([sys.executable, _COPY, job.out, *job.input.pieces])

    def rows(self, job: Job) -> Rows:
        """From the written files."""
        return count_ids(sorted(job.out.glob("*.parquet")))
