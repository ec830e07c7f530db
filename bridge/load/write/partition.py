"""Folders by the values of columns, as Hive names them: `country=DE/updated_at_day=2025-01-01`.

Guarantee: a row's folder depends on its values only, so rows of two folders never share a file. Every engine that knows
Hive's folders reads a value back from its folder; only the empty text is null to all of them. The columns stay in the
files as well, where no engine has to guess their types. Times count in UTC.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from bridge.errors import DataError, SettingsError, did_you_mean

NULL = "__HIVE_DEFAULT_PARTITION__"
"""A folder's name for null, as Hive writes it."""

_UNSAFE = re.compile(r"""[\x00-\x1f\x7f"#%'*/:=?\\{\[\]^]""")
"""Matches the characters that Hive and Spark encode in the name of a folder."""
_EMPTY = re.compile("=(?=/|$)")
_LONGEST = 255
"""Bytes that a folder's name can have in file systems."""
_FORMATS = {"year": "", "month": "-%m", "day": "-%m-%d", "hour": "-%m-%d-%H"}
"""The format of a time after the year, by granularity."""
_NO_KEYS = ("json", "null", "extra")
"""Kinds of text that cannot name a folder or be sorted by."""


@dataclass(frozen=True, slots=True)
class Partition:
    """A column whose values name folders: whole, or for times by `granularity`: year, month, day or hour."""

    column: str
    granularity: str | None = None

    @property
    def name(self) -> str:
        """The folders' name before the `=`."""
        return f"{self.column}_{self.granularity}" if self.granularity else self.column

    @property
    def setting(self) -> str | dict[str, str]:
        """It as settings and the commit log write it."""
        return {"column": self.column, "granularity": self.granularity} if self.granularity else self.column

    @classmethod
    def read(cls, setting: Any) -> Partition:
        return cls(setting) if isinstance(setting, str) else cls(setting["column"], setting["granularity"])


def check_layout(schema: pa.Schema, stream: str, partition_by: Sequence[Partition], sort_by: Sequence[str]) -> None:
    """Raise `SettingsError` unless a table with these columns can be partitioned and sorted like that."""
    taken = {name.casefold() for name in schema.names}
    for partition in partition_by:
        field = _field(schema, stream, "partition_by", partition.column)
        if reason := _no_folder(field, partition.granularity):
            hint = "partition by a text, an integer, a boolean, a date or a time, or by a granularity of these two"
            facts = {"stream": stream, "column": partition.column}
            raise SettingsError(f"partition_by: {reason} cannot name a folder", hint=hint, **facts)
        if partition.granularity and partition.name.casefold() in taken:
            hint = f"rename the column {partition.name}, or choose another granularity"
            raise SettingsError("partition_by: a column has the folders' name", hint=hint, stream=stream)
    for key in sort_by:
        if _is_nested(_field(schema, stream, "sort_by", key.removeprefix("-"))):
            hint = "choose another column, or one of its fields by a transform"
            raise SettingsError("sort_by: lists, objects and JSON have no order", hint=hint, stream=stream, column=key)


def _field(schema: pa.Schema, stream: str, setting: str, column: str) -> pa.Field:
    if column in schema.names:
        return schema.field(column)
    hint = did_you_mean(column, schema.names) or f"the table's columns are: {', '.join(schema.names[:20])}"
    raise SettingsError(f"{setting} names no column", hint=hint, stream=stream, column=column)


def _is_nested(field: pa.Field) -> bool:
    return bool(pa.types.is_nested(field.type)) or (field.metadata or {}).get(b"kind", b"").decode() in _NO_KEYS


def _no_folder(field: pa.Field, granularity: str | None) -> str | None:
    """Why a column cannot name folders; None if it can."""
    if _is_nested(field):
        return "a list, an object or JSON"
    if pa.types.is_floating(field.type):
        return "a floating-point number"
    if not granularity:
        return None
    if pa.types.is_timestamp(field.type) or (pa.types.is_date(field.type) and granularity != "hour"):
        return None
    return f"the {granularity} of a {'date' if pa.types.is_date(field.type) else 'column that is no time'}"


def folder_of(partition: Partition, value: Any) -> str:
    """The folder of a value. Raises `DataError` if its name would be too long."""
    text = NULL if value is None or value == "" else _encoded(_text(value, partition.granularity))
    folder = f"{_encoded(partition.name)}={text}"
    if len(folder.encode()) > _LONGEST:
        hint = "partition by a column with shorter values"
        raise DataError("a value is too long to name a folder", hint=hint, column=partition.column, bytes=len(folder))
    return folder


def _text(value: Any, granularity: str | None) -> str:
    if granularity:
        return f"{value.year:04d}{value.strftime(_FORMATS[granularity])}"  # %Y would not fill up the year
    if isinstance(value, bool):
        return str(value).lower()
    if hasattr(value, "utcoffset"):
        text = f"{value.replace(tzinfo=None).isoformat(' ')}"
        return text.rstrip("0") if value.microsecond else text
    return format(value, "f") if hasattr(value, "as_tuple") else str(value)


def _encoded(text: str) -> str:
    return _UNSAFE.sub(lambda match: f"%{ord(match.group()):02X}", text)


def sort_keys(sort_by: Iterable[str]) -> list[tuple[str, str]]:
    """The setting as Arrow writes an order: `-` before a column is descending."""
    return [(key.removeprefix("-"), "descending" if key.startswith("-") else "ascending") for key in sort_by]


def partitioned(
    table: pa.Table, partition_by: Sequence[Partition], sort_by: Sequence[str] = (), *, one_value: bool = False
) -> list[tuple[str, pa.Table]]:
    """Split rows by folder, each folder once; inside one they keep their order, or are sorted.

    Without partitions the one folder is `""`. The parts share the memory of one copy of the table. With `one_value`
    null and the empty text are apart: `shared_folder` turns the name of a part into its folder.
    """
    if not table.num_rows:
        return []
    if not partition_by:
        return [("", _sorted(table, None, sort_by))]
    labels = folders_of(table, partition_by, one_value=one_value).dictionary_encode()
    folders = labels.dictionary.to_pylist()
    if len(folders) == 1:
        return [(folders[0], _sorted(table, None, sort_by))]
    ends = _ends(labels.indices, len(folders))
    ordered = _sorted(table, labels.indices, sort_by)
    starts = [0, *ends[:-1]]
    return [(f, ordered.slice(start, end - start)) for f, start, end in zip(folders, starts, ends, strict=True)]


def _sorted(table: pa.Table, codes: pa.Array | None, sort_by: Sequence[str]) -> pa.Table:
    """Sort rows by code, then by the columns; equal rows keep their order. Without a column all have null there."""
    keys = [(table.column(name), order) for name, order in sort_keys(sort_by) if name in table.column_names]
    if codes is not None:
        keys.insert(0, (codes, "ascending"))
    if not keys:
        return table
    names = [str(number) for number in range(len(keys))]
    orders = [(name, order) for name, (_, order) in zip(names, keys, strict=True)]
    sorting = pa.table([column for column, _ in keys], names)
    return table.take(pc.sort_indices(sorting, sort_keys=orders))


def shared_folder(label: str) -> str:
    """The folder of rows that `partitioned` split by value."""
    return _EMPTY.sub(f"={NULL}", label)


def folders_of(table: pa.Table, partition_by: Sequence[Partition], *, one_value: bool = False) -> pa.Array:
    """Each row's folder. With `one_value` the folder of the empty text ends in `=`, as no folder does."""
    columns = []
    for partition in partition_by:
        column = table.column(partition.column)
        if partition.granularity:
            column = pc.floor_temporal(column, unit=partition.granularity)
        values = column.combine_chunks().dictionary_encode(null_encoding="encode")
        distinct = values.dictionary.to_pylist()
        own = [folder_of(partition, value) for value in distinct]
        if one_value and "" in distinct:
            own[distinct.index("")] = f"{_encoded(partition.name)}="
        columns.append(pa.array(own, pa.string()).take(values.indices))
    return columns[0] if len(columns) == 1 else pc.binary_join_element_wise(*columns, "/")


def _ends(codes: pa.Array, count: int) -> list[int]:
    """For each of `count` codes, where its rows end once they are sorted by code."""
    counted = {entry["values"]: entry["counts"] for entry in pc.value_counts(codes).to_pylist()}
    return list(accumulate(counted[code] for code in range(count)))
