"""Arrow columns of a tap's files in one of a few plain types: what the rest of the room reads.

Encodings go (dictionaries, runs, views, 64-bit offsets, fixed sizes), values stay. An extension type becomes what it
stands for: `arrow.json` text that is JSON, `arrow.uuid` its text, `arrow.bool8` booleans; others what they are stored
as. Plain are: null, bool, integers, double, decimals of 128 and 256 bits, string, binary, date32, timestamps, times,
durations, intervals, struct, and list. A map with texts as its keys is a list of its entries.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bridge.protocol.decode.casting import list_offsets, null_mask

KIND = b"plain"
"""Metadata of a field that is not what its type says."""
JSON_KIND = b"json"
"""A string field: each value is JSON text, or should be."""
TEXT_KIND = b"text"
"""A binary field: each value is text, some of it not UTF-8."""
MAP_KIND = b"map"
"""A list of structs: each value is a map, an item its key and its value."""

_MOST_ROWS = 1 << 16
_LARGEST = 4 << 20
"""Bytes of a plain piece, about."""
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
    rows = max(1, min(_MOST_ROWS, batch.num_rows * _LARGEST // max(1, batch.nbytes)))
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
    if hasattr(array, "storage") and isinstance(type_, pa.BaseExtensionType):
        return _plain_size(array.storage)
    if pa.types.is_dictionary(type_):
        return rows * _longest(array.dictionary)
    if pa.types.is_run_end_encoded(type_):
        return rows * _longest(array.values)
    if pa.types.is_struct(type_):
        return rows + sum(map(_plain_size, array.flatten()))
    if pa.types.is_map(type_):
        return rows + sum(map(_plain_size, _entries(array)[1:]))
    if pa.types.is_list_view(type_) or pa.types.is_large_list_view(type_):  # whose values may overlap
        items: int = pc.sum(pc.list_value_length(array)).as_py() or 0
        return rows + items * _longest(array.values)
    if pa.types.is_list(type_) or pa.types.is_large_list(type_) or pa.types.is_fixed_size_list(type_):
        return rows + _plain_size(array.flatten())
    if pa.types.is_string_view(type_) or pa.types.is_binary_view(type_):
        lengths = np.frombuffer(array.buffers()[1], np.int32)[:: _VIEW // 4][array.offset :][:rows]
        return _VIEW * rows + int(lengths.sum(dtype=np.int64))  # of nulls, too
    return 4 * rows + int(array.nbytes)


def _longest(values: pa.Array) -> int:
    """At most how many bytes one of these values has once it is plain."""
    type_ = values.type
    if not len(values):
        return 1
    if any(is_kind(type_) for is_kind in _TEXTS):
        return 4 + int(pc.max(pc.binary_length(values)).as_py() or 0)
    is_flat = not pa.types.is_nested(type_) and not hasattr(values, "dictionary")
    return 16 if is_flat and not pa.types.is_string_view(type_) else _plain_size(values)


def _is_valid(column: pa.Array) -> bool:
    """Whether a column is as its type says; False for text that is not UTF-8. Raises `pa.ArrowInvalid` for the rest."""
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
            raise
        column.cast(pa.large_binary()).validate(full=True)
        return False
    return True


def _not_utf8(field: pa.Field, column: pa.Array) -> tuple[pa.Field, pa.Array]:
    metadata = (field.metadata or {}) | {KIND: TEXT_KIND}
    return pa.field(field.name, pa.binary(), metadata=metadata), column.cast(pa.binary())


def kind_of(field: pa.Field) -> bytes | None:
    """The kind of a plain field's values, where its type does not say it."""
    kind: bytes | None = (field.metadata or {}).get(KIND)
    return kind


def plain(field: pa.Field, array: pa.Array) -> tuple[pa.Field, pa.Array]:
    """A column in a plain type. Raises `ValueError` if it has none."""
    extension = _extension(field)
    while not isinstance(array.type, pa.DictionaryType | pa.RunEndEncodedType) and hasattr(array, "storage"):
        array = array.storage
    if pa.types.is_dictionary(array.type):
        return plain(field.with_type(array.type.value_type), array.dictionary_decode())
    if pa.types.is_run_end_encoded(array.type):
        return plain(field.with_type(array.type.value_type), pc.run_end_decode(array))
    kind = MAP_KIND if pa.types.is_map(array.type) else None
    if extension == _UUID_TYPE:
        array = _uuids(array)
    elif extension == _BOOL_TYPE:
        array = array.cast(pa.bool_())
    elif extension == _JSON_TYPE:
        kind = JSON_KIND
    result = _nested(array, field.name) if pa.types.is_nested(array.type) else _scalars(array, field.name)
    return pa.field(field.name, result.type, metadata={KIND: kind} if kind else None), result


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
    item, items = plain(type_.value_field, array.flatten())
    return pa.ListArray.from_arrays(list_offsets(array), items, type=pa.list_(item), mask=null_mask(array))


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
    start, keys, values = _entries(array)
    (key, keys), (value, values) = plain(array.type.key_field, keys), plain(array.type.item_field, values)
    if not pa.types.is_string(key.type):
        raise ValueError(f"the column {name} is a map whose keys are not texts, for which records have no form")
    pairs = pa.StructArray.from_arrays([keys, values], fields=[key.with_name("key"), value.with_name("value")])
    offsets = pc.subtract(array.offsets, start).cast(pa.int32())
    return pa.ListArray.from_arrays(offsets, pairs, mask=null_mask(array))


def _entries(array: pa.MapArray) -> tuple[int, pa.Array, pa.Array]:
    """Where the entries of a slice begin, its keys and its values. Arrow's own casts of maps fail for some of these."""
    start, end = array.offsets[0].as_py(), array.offsets[len(array)].as_py()
    return start, array.keys.slice(start, end - start), array.items.slice(start, end - start)
