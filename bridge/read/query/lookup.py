"""One row of a sorted Parquet file by its key: by the footer's bounds, then in the row groups that may have it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from bridge.errors import LakeError
from bridge.load.write.merge.footers import Range, group_range
from bridge.protocol.decode.casting import refit
from bridge.read.query.keys import Key

_BATCH = 4096
"""Rows."""

Open = Callable[[str], pa.NativeFile]
"""Opens a file by its name in the table."""


@dataclass(frozen=True, slots=True)
class RowGroup:
    """A row group, and the bounds of each key column in it; None: unknown."""

    file: IndexedFile
    number: int
    bounds: Range

    @property
    def first(self) -> list[Any]:
        """The smallest possible key: a value for each column, up to the first one whose bounds differ."""
        return [bound[0] for bound in self._determined()]

    @property
    def last(self) -> list[Any]:
        """The greatest possible key, in the same way."""
        return [bound[1] for bound in self._determined()]

    def _determined(self) -> list[tuple[Any, Any]]:
        ends = list[tuple[Any, Any]]()
        for bound in self.bounds:
            least, greatest = bound[:2] if bound else (None, None)
            ends.append((least, greatest))
            if least != greatest:
                break
        return ends


@dataclass(frozen=True, slots=True)
class IndexedFile:
    """A file's footer, and the bounds that are in it. The file itself is opened for each row group that is read."""

    name: str
    footer: pq.FileMetaData
    is_sorted: bool
    """Its footer says that its rows are in the order of the keys."""
    bounds: tuple[Range, ...]
    """The range of each row group."""

    @classmethod
    def read(cls, name: str, open_file: Open, keys: Sequence[pa.Field]) -> IndexedFile:
        """Read a file's footer. Raises `LakeError` or what Arrow raises."""
        with _parquet(name, open_file) as file:
            usable = [_is_bounded(field, file.schema_arrow) for field in keys]
            bounds = []
            for number in range(file.num_row_groups):
                ranges = group_range(file, number, [field.name for field in keys])
                bounds.append(tuple(one if use else None for one, use in zip(ranges, usable, strict=True)))
            order = [field.name for field in keys]
            return cls(name, file.metadata, _is_sorted(file, order), tuple(bounds))

    def groups(self, key: Key) -> Iterator[RowGroup]:
        """The row groups whose bounds allow the key."""
        for number, bounds in enumerate(self.bounds):
            if all(bound is None or _inside(value, *bound) for value, bound in zip(key, bounds, strict=True)):
                yield RowGroup(self, number, bounds)


def find_row(
    key: Key, files: Iterable[IndexedFile], open_file: Open, keys: Sequence[pa.Field], columns: Sequence[pa.Field]
) -> pa.Table | None:
    """The row with this key as a table of these columns, None if no file has it.

    At most two row groups are read where the files are sorted and no bound is unknown.
    """
    for group in candidates(key, files):
        with _parquet(group.file.name, open_file, group.file.footer) as file:
            row = _row_in(file, group.number, key, keys, columns)
        if row is not None:
            return row
    return None


@contextmanager
def _parquet(name: str, open_file: Open, footer: pq.FileMetaData | None = None) -> Iterator[pq.ParquetFile]:
    """Open a file to read it. Raises `LakeError` for what Arrow raises."""
    try:
        with open_file(name) as source, pq.ParquetFile(source, metadata=footer) as file:
            yield file
    except (pa.ArrowException, OSError) as error:
        raise LakeError(
            f"a file cannot be read: {error}", hint="`singer-bridge verify` looks for damage", file=name
        ) from error


def candidates(key: Key, files: Iterable[IndexedFile]) -> Sequence[RowGroup]:
    """The row groups that can hold a key. Their number is at most two where the order of rows is known."""
    groups = [group for file in files for group in file.groups(key)]
    if len(groups) < 2 or not all(group.file.is_sorted and _is_known(group) for group in groups):
        return groups
    ordered = sorted(groups, key=lambda group: _order([edge for bound in group.bounds if bound for edge in bound[:2]]))
    return _narrowed(key, ordered)


def _narrowed(key: Key, groups: Sequence[RowGroup]) -> Sequence[RowGroup]:
    """Narrow sorted row groups, each of whose bounds allow the key, to those that can hold it.

    These are from the last one that may begin at or before the key, to the first one that may end at or after it.
    """
    if any(_overlap(one.last, other.first) for one, other in pairwise(groups)):
        return groups
    begins = [at for at, group in enumerate(groups) if _is_decided(group.first, key)]
    ends = [at for at, group in enumerate(groups) if _is_decided(group.last, key)]
    start, end = (begins[-1] if begins else 0), (ends[0] if ends else len(groups) - 1)
    return groups[start : end + 1]


def _overlap(last: Sequence[Any], first: Sequence[Any]) -> bool:
    """Whether a row group may end after the next one begins."""
    length = min(len(last), len(first))
    return _order(last[:length]) > _order(first[:length])


def _order(values: Sequence[Any]) -> list[tuple[bool, Any]]:
    """NULLs are compared with NULLs only: a row group that has both is not `_is_known`."""
    return [(value is not None, 0 if value is None else value) for value in values]


def _is_decided(edge: Sequence[Any], key: Key) -> bool:
    """Whether the bounds tell on which side of this edge the key is: not if they are equal as far as they go."""
    return tuple(edge) != key[: len(edge)] or len(edge) == len(key)


def _is_known(group: RowGroup) -> bool:
    """Whether all its bounds are known, and no column has both values and NULLs."""
    return all(bound is not None and (bound[0] is None or not bound[2]) for bound in group.bounds)


def _inside(value: Any, least: Any, greatest: Any, nulls: bool) -> bool:
    if value is None:
        return nulls
    return least is not None and bool(least <= value <= greatest)


def _is_bounded(field: pa.Field, file: pa.Schema) -> bool:
    """Whether the statistics of a column are bounds of its values: not of floats, whose NaN they leave out."""
    same = field.name in file.names and file.field(field.name).type == field.type
    return same and not pa.types.is_floating(field.type)


def _is_sorted(file: pq.ParquetFile, keys: Sequence[str]) -> bool:
    """Whether the footer says of each row group that its rows are sorted by the keys, ascending."""
    names = [file.schema.column(at).path for at in range(len(file.schema))]
    orders = (file.metadata.row_group(number).sorting_columns for number in range(file.num_row_groups))
    return all(
        [names[one.column_index] for one in order] == list(keys) and not any(one.descending for one in order)
        for order in orders
    )


def _row_in(
    file: pq.ParquetFile, group: int, key: Key, keys: Sequence[pa.Field], columns: Sequence[pa.Field]
) -> pa.Table | None:
    """The row of one row group that has the key. The other columns are read only if there is one."""
    # Arrow's threads may still be starting when a program as short as a command ends; it would abort.
    names = [field.name for field in keys]
    own = refit(file.read_row_group(group, columns=names, use_threads=False), keys)
    matches = reduce(pc.and_, (_equal(own.column(field.name), value) for field, value in zip(keys, key, strict=True)))
    at = pc.index(matches, True).as_py()
    if at < 0:
        return None
    row = own.slice(at, 1)
    if rest := [field.name for field in columns if field.name not in names]:
        others = _row_at(file, group, at, rest)
        for name in rest:
            if name in others.column_names:
                row = row.append_column(others.schema.field(name), others.column(name))
    return refit(row, columns)


def _row_at(file: pq.ParquetFile, group: int, at: int, columns: Sequence[str]) -> pa.Table:
    """Row `at` of a row group. What comes after it is not decoded."""
    for batch in file.iter_batches(_BATCH, row_groups=[group], columns=columns, use_threads=False):
        if at < batch.num_rows:
            return pa.Table.from_batches([batch.slice(at, 1)])
        at -= batch.num_rows
    raise pa.ArrowInvalid("a row group has fewer rows than its footer says")


def _equal(column: pa.ChunkedArray, value: Any) -> Any:
    """Which values equal one, as GROUP BY has it: NULL equals NULL, NaN equals NaN, -0 equals 0."""
    if value is None:
        return pc.is_null(column)
    if isinstance(value, float) and math.isnan(value):
        return pc.fill_null(pc.is_nan(column), False)
    try:
        scalar = pa.scalar(value, column.type)
    except (pa.ArrowInvalid, OverflowError, UnicodeEncodeError):  # the type cannot hold it: no row has it
        return pa.chunked_array([pa.repeat(False, len(column))])
    return pc.fill_null(pc.equal(column, scalar), False)
