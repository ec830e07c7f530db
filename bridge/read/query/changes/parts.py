"""Rows of one commit, sent one after the other: a file, the rows of a file that differ, the keys that are gone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from bridge.errors import LakeError
from bridge.lake.paths import last_name
from bridge.protocol.decode.casting import refit
from bridge.read.query.files import CommitFiles

DELETED = "deleted"
"""The name of the part with the keys that a commit removed."""
_BATCH = 16_384
"""Rows."""


class Part(Protocol):
    """Some rows of a commit; their number and order never change."""

    @property
    def name(self) -> str:
        """Its name within the commit."""

    @property
    def count(self) -> int:
        """Its rows."""

    def tables(self, skip: int = 0) -> Iterator[pa.Table]:
        """Yield the rows after the first `skip`.

        Raises `CommitExpired` if they are not kept any more, `LakeError` if they cannot be read.
        """


@dataclass(frozen=True, slots=True)
class FilePart:
    """All rows of a file, with the table's present columns."""

    files: CommitFiles
    name: str
    fields: Sequence[pa.Field]

    @property
    def count(self) -> int:
        return self.files.rows(self.name)

    def tables(self, skip: int = 0) -> Iterator[pa.Table]:
        try:
            yield from self._tables(skip)
        except (pa.ArrowInvalid, OSError) as error:
            hint = "`singer-bridge verify` says what else is wrong; restore it from a backup, or load the table anew"
            raise LakeError("a file of the table cannot be read", hint=hint, file=self.name, cause=error) from error

    def _tables(self, skip: int) -> Iterator[pa.Table]:
        with self.files.open_input_file(self.name) as opened, pq.ParquetFile(opened) as file:
            columns = [field.name for field in self.fields if field.name in file.schema_arrow.names]
            for group in range(file.num_row_groups):
                rows = file.metadata.row_group(group).num_rows
                if skip >= rows:
                    skip -= rows
                    continue
                for batch in file.iter_batches(_BATCH, row_groups=[group], columns=columns, use_threads=False):
                    rest, skip = batch.slice(min(skip, batch.num_rows)), max(0, skip - batch.num_rows)
                    if rest.num_rows:
                        yield self._refitted(rest)

    def _refitted(self, batch: pa.RecordBatch) -> pa.Table:
        if not self.fields:  # a table without columns still has rows
            return pa.table({"": pa.nulls(batch.num_rows)}).select([])
        return refit(pa.Table.from_batches([batch]), self.fields)


@dataclass(frozen=True, slots=True)
class ChosenPart:
    """The rows of a file that are chosen; `chosen` says it of each."""

    file: FilePart
    chosen: Any

    @property
    def name(self) -> str:
        return self.file.name

    @property
    def count(self) -> int:
        return int(self.chosen.true_count)

    def tables(self, skip: int = 0) -> Iterator[pa.Table]:
        at = 0
        for table in self.file.tables():
            rows = table.filter(self.chosen.slice(at, len(table)))
            at += len(table)
            rest, skip = rows.slice(min(skip, len(rows))), max(0, skip - len(rows))
            if len(rest):
                yield rest


@dataclass(frozen=True, slots=True)
class DeletedPart:
    """Keys that a commit removed, each with the time of the commit."""

    rows: pa.Table
    name: str = DELETED

    @property
    def count(self) -> int:
        return len(self.rows)

    def tables(self, skip: int = 0) -> Iterator[pa.Table]:
        if skip < len(self.rows):
            yield self.rows.slice(skip)


def in_order(names: Iterable[str]) -> list[str]:
    """Files as they are sent: in the order in which runs wrote them."""
    return sorted(names, key=lambda name: (last_name(name), name))
