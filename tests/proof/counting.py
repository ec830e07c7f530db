"""Rows lost and rows doubled: what a system wrote, held against what the source has."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import duckdb


@dataclass(frozen=True, slots=True)
class Count:
    """`lost`: records that are in no row. `doubled`: rows beyond the first of a record. `strange`: other rows."""

    lost: int
    doubled: int
    strange: int = 0

    @property
    def exact(self) -> bool:
        """Each record is there once, and nothing else is."""
        return self == NOTHING


NOTHING = Count(0, 0)
"""Nothing lost, nothing doubled."""


def count(numbers: Iterable[int | None], records: int) -> Count:
    """Hold the ids of all rows against the source's, 1 to `records`."""
    rows = list(numbers)
    sent = [number for number in rows if number is not None and 1 <= number <= records]
    different = len(set(sent))
    return Count(records - different, len(sent) - different, len(rows) - len(sent))


def read(files: Sequence[Path], reader: str) -> list[int | None]:
    """The ids in files, by a reader of DuckDB's such as `read_parquet(?)`. A file that it cannot read has no rows."""
    numbers: list[int | None] = []
    for file in files:
        try:
            found = duckdb.execute(f"SELECT try_cast(id AS BIGINT) FROM {reader}", [str(file)]).fetchall()
        except duckdb.Error:
            continue
        numbers += [number for (number,) in found]
    return numbers


def read_table(database: Path, table: str) -> list[int | None]:
    """The ids in a table of a DuckDB database."""
    if not database.exists():
        return []
    with duckdb.connect(str(database), read_only=True) as connection:
        return [number for (number,) in connection.execute(f"SELECT id FROM {table}").fetchall()]
