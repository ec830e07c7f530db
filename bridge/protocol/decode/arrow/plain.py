"""Arrow columns of a tap's files in one of a few plain types: what the rest of the room reads.

Encodings go (dictionaries, runs, views, 64-bit offsets, fixed sizes), values stay. An extension type becomes what it
stands for: `arrow.json` text that is JSON, `arrow.uuid` its text, `arrow.bool8` booleans; others what they are stored
as. Plain are: null, bool, integers, double, decimals of 128 and 256 bits, string, binary, date32, timestamps, times,
durations, intervals, struct, and list. A map with texts as its keys is a list of its entries.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from bridge.protocol.decode.casting import null_mask

KIND = b"plain"
"""Metadata of a field that is not what its type says."""
JSON_KIND = b"json"
"""A string field: each value is JSON text, or should be."""
TEXT_KIND = b"text"
"""A binary field: each value is text, some of it not UTF-8."""
MAP_KIND = b"map"
"""A list of structs: each value is a map, an item its key and its value."""

_MOST_ROWS = 1 << 16
_LARGEST = 8 << 20
"""Bytes of a plain piece, about."""
_A_VALUE = 12
"""Bytes of a value beside its own: its name and what stands around it, should it become text."""
_LARGEST_ROW = 1 << 30
"""Bytes that one row may have when it is plain: its encoding may be small, and the row not."""
_JSON_TYPE, _UUID_TYPE, _BOOL_TYPE = "arrow.json", "arrow.uuid", "arrow.bool8"
_EXTENSION = b"ARROW:extension:name"


def plain_pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield the rows in plain types, some MiB at once.

    Raises `ValueError` or `pa.ArrowException` for a type that has no plain form, and for a batch that is damaged.
    """
    if len(set(batch.schema.names)) < batch.num_columns:
        raise ValueError("two of its columns have one name")
    try:
        batch.validate(full=True)
        broken = set[int]()
    except pa.ArrowInvalid:
        broken = {place for place, column in enumerate(batch.columns) if not _is_valid(column)}
    size = sum(map(_plain_size, batch.columns))
    rows = max(1, min(_MOST_ROWS, batch.num_rows * _LARGEST // max(1, size)))
    for start in range(0, batch.num_rows, rows):
        yield from _plain_rows(batch.slice(start, rows), broken)


def _plain_rows(batch: pa.RecordBatch, broken: set[int]) -> Iterator[pa.RecordBatch]:
    size = sum(map(_plain_size, batch.columns))
    if size > 2 * _LARGEST and batch.num_rows > 1:
        half = batch.num_rows // 2
        yield from _plain_rows(batch.slice(0, half), broken)
        yield from _plain_rows(batch.slice(half), broken)
        return
    if size > _LARGEST_ROW:
        raise ValueError(f"a row of it has some {size >> 20} MiB, and may have {_LARGEST_ROW >> 20}")
    columns = [
        _not_utf8(field, column) if place in broken else plain(field, column)
        for place, (field, column) in enumerate(zip(batch.schema, batch.columns, strict=True))
    ]
    if not columns:  # rows without columns
        yield batch
        return
    fields = [field for field, _ in columns]
    yield pa.RecordBatch.from_arrays([array for _, array in columns], schema=pa.schema(fields))


def _plain_size(array: pa.Array) -> int:
    """At most how many bytes the values have once they are plain, in memory or as text; about right for usual data."""
    type_, rows = array.type, len(array)
    if not rows:
        return 0
    if _is_extension(type_):
        return _plain_size(array.storage)
    if pa.types.is_dictionary(type_):
        return rows * _longest(array.dictionary)
    if pa.types.is_run_end_encoded(type_):
        return rows * _longest(array.values)
    if pa.types.is_struct(type_):
        return rows + sum(map(_plain_size, array.flatten()))
    if pa.types.is_map(type_):
        return rows + sum(map(_plain_size, _entries(array)[1:]))
    if _is_list_view(type_):  # whose values may overlap
        items: int = pc.sum(pc.list_value_length(array)).as_py() or 0
        return rows + items * _longest(array.values)
    if _is_list(type_):
        return rows + _plain_size(_items(array)[1])
    if _is_view(type_):
        return _A_VALUE * rows + int(_view_lengths(array).sum(dtype="int64"))  # of nulls, too
    return _A_VALUE * rows + int(array.nbytes)


def _longest(values: pa.Array) -> int:
    """At most how many bytes one of these values has once it is plain."""
    type_ = values.type
    if not len(values):
        return 1
    if _is_extension(type_):
        return _longest(values.storage)
    if any(is_kind(type_) for is_kind in _TEXTS):
        return _A_VALUE + int(pc.max(pc.binary_length(values)).as_py() or 0)
    if _is_view(type_):
        return _A_VALUE + int(_view_lengths(values).max())
    if pa.types.is_fixed_size_binary(type_):
        return _A_VALUE + 2 * int(type_.byte_width)  # as text, or in base64
    if pa.types.is_struct(type_):
        return 1 + sum(map(_longest, values.flatten()))
    if _is_list(type_) or _is_list_view(type_):
        most: int = pc.max(pc.list_value_length(values)).as_py() or 0
        return 1 + most * _longest(values.values)
    return 2 * _A_VALUE if _is_flat(type_) else _plain_size(values)


def _view_lengths(array: pa.Array) -> Any:
    """The bytes of each text, as an array of numpy."""
    import numpy as np  # here: executors, which import this module, may have none

    return np.frombuffer(array.buffers()[1], np.int32)[:: _VIEW // 4][array.offset :][: len(array)]


def _is_view(type_: pa.DataType) -> bool:
    return bool(pa.types.is_string_view(type_) or pa.types.is_binary_view(type_))


def _is_flat(type_: pa.DataType) -> bool:
    """Whether each value has its bytes, or its text, in one place."""
    return bool(
        any(is_kind(type_) for is_kind in (*_PLAIN, pa.types.is_floating, pa.types.is_decimal, pa.types.is_date))
    )


def _is_extension(type_: pa.DataType) -> bool:
    """Whether it stands for another type."""
    return isinstance(type_, pa.BaseExtensionType)


def _is_list(type_: pa.DataType) -> bool:
    kinds = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    return any(is_kind(type_) for is_kind in kinds)


def _is_list_view(type_: pa.DataType) -> bool:
    return bool(pa.types.is_list_view(type_) or pa.types.is_large_list_view(type_))


def _is_valid(column: pa.Array) -> bool:
    """Whether a column is as its type says; False for text that is not UTF-8. Raises `pa.ArrowInvalid` for the rest."""
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        binary = _as_binary(column)
        if binary is None:
            raise
        binary.validate(full=True)
        return False
    return True


def _as_binary(column: pa.Array) -> pa.Array | None:
    """Texts as their bytes; None for another column."""
    type_ = column.type
    if pa.types.is_dictionary(type_):
        values = _as_binary(column.dictionary)
        return None if values is None else pa.DictionaryArray.from_arrays(column.indices, values)
    if pa.types.is_string_view(type_):
        return column.cast(pa.binary_view())
    return column.cast(pa.large_binary()) if any(is_kind(type_) for is_kind in _TEXTS) else None


def _not_utf8(field: pa.Field, column: pa.Array) -> tuple[pa.Field, pa.Array]:
    metadata = (field.metadata or {}) | {KIND: TEXT_KIND}
    binary: Any = _as_binary(column)
    return pa.field(field.name, pa.binary(), metadata=metadata), plain(pa.field("", binary.type), binary)[1]


def kind_of(field: pa.Field) -> bytes | None:
    """The kind of a plain field's values, where its type does not say it."""
    kind: bytes | None = (field.metadata or {}).get(KIND)
    return kind


def plain(field: pa.Field, array: pa.Array) -> tuple[pa.Field, pa.Array]:
    """A column in a plain type. Raises `ValueError` if it has none."""
    extension = _extension(field)
    while _is_extension(array.type):
        array = array.storage
    if pa.types.is_dictionary(array.type):
        return _decoded(field, array.dictionary, array.indices)
    if pa.types.is_run_end_encoded(array.type):
        start, count = array.find_physical_offset(), array.find_physical_length()
        runs = pa.RunEndEncodedArray.from_arrays(array.run_ends, pa.array(range(len(array.values)), pa.int32()))
        places = pc.subtract(pc.run_end_decode(runs.slice(array.offset, len(array))), start)
        return _decoded(field, array.values.slice(start, count), places)
    kind = MAP_KIND if pa.types.is_map(array.type) else None
    if extension == _UUID_TYPE:
        array = _uuids(array)
    elif extension == _BOOL_TYPE:
        array = array.cast(pa.bool_())
    elif extension == _JSON_TYPE:
        kind = JSON_KIND
    result = _nested(array, field.name) if pa.types.is_nested(array.type) else _scalars(array, field.name)
    return pa.field(field.name, result.type, metadata={KIND: kind} if kind else None), result


def _decoded(field: pa.Field, values: pa.Array, places: pa.Array) -> tuple[pa.Field, pa.Array]:
    """An encoded column. Values are made plain first: Arrow cannot take those of each type."""
    if any(map(pa.types.is_dictionary, _types(values.type))):
        raise ValueError(f"the column {field.name} is a dictionary of dictionaries, which Arrow itself misreads")
    plain_field, values = plain(field.with_type(values.type), values)
    return plain_field, values.take(places)


def _types(type_: pa.DataType) -> Iterator[pa.DataType]:
    """A type, and those inside of it."""
    yield type_
    if _is_extension(type_):
        yield from _types(type_.storage_type)
    for place in range(type_.num_fields):
        yield from _types(type_.field(place).type)


def _extension(field: pa.Field) -> str:
    """The extension type's name, also of one that this version of Arrow does not know."""
    name = getattr(field.type, "extension_name", None) or (field.metadata or {}).get(_EXTENSION, b"").decode()
    return str(name)


def _uuids(array: pa.Array) -> pa.Array:
    hexes = [None if value is None else value.hex() for value in array.to_pylist()]
    dashed = [h and f"{h[:8]}-{h[8:12]}-{h[12:16]}-{h[16:20]}-{h[20:]}" for h in hexes]
    return pa.array(dashed, pa.string())


_MOST_DIGITS = 76
_VIEW = 16
"""Bytes of a view, of which the first four are the length of its text."""
_TEXTS = (pa.types.is_string, pa.types.is_binary, pa.types.is_large_string, pa.types.is_large_binary)
_CASTS = [
    (pa.types.is_large_string, pa.string()),
    (pa.types.is_string_view, pa.string()),
    (pa.types.is_large_binary, pa.binary()),
    (pa.types.is_binary_view, pa.binary()),
    (pa.types.is_fixed_size_binary, pa.binary()),
    (pa.types.is_date64, pa.date32()),
    (pa.types.is_floating, pa.float64()),
]
_PLAIN = (
    pa.types.is_null,
    pa.types.is_boolean,
    pa.types.is_integer,
    pa.types.is_string,
    pa.types.is_binary,
    pa.types.is_date32,
    pa.types.is_timestamp,
    pa.types.is_time,
    pa.types.is_duration,
    pa.types.is_interval,
)


def _scalars(array: pa.Array, name: str) -> pa.Array:
    type_ = array.type
    if pa.types.is_decimal(type_):
        if abs(type_.scale) > _MOST_DIGITS:
            raise ValueError(f"the column {name} is {type_}, for which records have no form")
        wide = pa.types.is_decimal256(type_)
        return array if wide or pa.types.is_decimal128(type_) else array.cast(pa.decimal128(38, type_.scale))
    target = next((target for is_kind, target in _CASTS if is_kind(type_)), None)
    if target is not None:
        return array.cast(target)
    if not any(is_kind(type_) for is_kind in _PLAIN):
        raise ValueError(f"the column {name} is {type_}, for which records have no form")
    return array


def _nested(array: pa.Array, name: str) -> pa.Array:
    type_ = array.type
    if pa.types.is_struct(type_):
        return _struct(array, name)
    if pa.types.is_map(type_):
        return _map(array, name)
    if pa.types.is_union(type_):
        raise ValueError(f"the column {name} is a union, for which records have no form")
    if _is_list_view(type_):
        return _without_overlaps(array)
    offsets, items = _items(array)
    item, items = plain(type_.value_field, items)
    return pa.ListArray.from_arrays(offsets, items, type=pa.list_(item), mask=null_mask(array))


def _items(array: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Offsets of the lists, and the items to which they point: a part of the array's own, not copied."""
    if pa.types.is_fixed_size_list(array.type):
        size = array.type.list_size
        items = array.values.slice(array.offset * size, len(array) * size)
        return pa.array(range(0, (len(array) + 1) * size, size or 1), pa.int32())[: len(array) + 1], items
    offsets, start, count = _span(array)
    return offsets, array.values.slice(start, count)


def _span(array: pa.Array) -> tuple[pa.Array, int, int]:
    """Offsets from 0, and where the items of a slice begin and how many they are; an empty array may have none."""
    if not len(array):
        return pa.array([0], pa.int32()), 0, 0
    start, end = array.offsets[0].as_py(), array.offsets[len(array)].as_py()
    return pc.subtract(array.offsets, start).cast(pa.int32()), start, end - start


def _without_overlaps(array: pa.Array) -> pa.Array:
    """A list view as plain lists, each of which has its own items."""
    import numpy as np

    sizes = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    starts = np.where(sizes > 0, array.offsets.to_numpy(zero_copy_only=False)[: len(array)], 0).astype(np.int64)
    before = np.concatenate(([0], np.cumsum(sizes)))
    places = np.arange(before[-1]) + np.repeat(starts - before[:-1], sizes)
    item, items = plain(array.type.value_field, array.values)
    lists = pa.ListArray.from_arrays(pa.array(before, pa.int32()), items.take(pa.array(places)), type=pa.list_(item))
    return lists if not array.null_count else pc.if_else(array.is_valid(), lists, None)


def _struct(array: pa.StructArray, name: str) -> pa.Array:
    names = [child.name for child in array.type]
    if len(set(names)) < len(names):
        raise ValueError(f"two fields of the column {name} have one name")
    if not names:
        return array
    children: list[tuple[pa.Field, pa.Array]] = list(map(plain, array.type, array.flatten()))
    fields = [field for field, _ in children]
    return pa.StructArray.from_arrays([each for _, each in children], fields=fields, mask=null_mask(array))


def _map(array: pa.MapArray, name: str) -> pa.Array:
    offsets, keys, values = _entries(array)
    (key, keys), (value, values) = plain(array.type.key_field, keys), plain(array.type.item_field, values)
    if not pa.types.is_string(key.type):
        raise ValueError(f"the column {name} is a map whose keys are not texts, for which records have no form")
    pairs = pa.StructArray.from_arrays([keys, values], fields=[key.with_name("key"), value.with_name("value")])
    return pa.ListArray.from_arrays(offsets, pairs, mask=null_mask(array))


def _entries(array: pa.MapArray) -> tuple[pa.Array, pa.Array, pa.Array]:
    """Offsets of the maps, their keys and their values. Arrow's own casts of maps fail for some of these."""
    offsets, start, count = _span(array)
    return offsets, array.keys.slice(start, count), array.items.slice(start, count)
