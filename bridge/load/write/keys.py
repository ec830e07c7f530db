"""Keys of rows: null equals null, -0 equals 0, several columns are compared as a whole.

Keys are ordered by their first column, then by the next; null comes before all else.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from bridge.errors import SettingsError
from bridge.protocol.decode.casting import refit
from bridge.protocol.schema.json_schema import is_json, source
from bridge.protocol.schema.merging import is_variant


def key_columns(schema: pa.Schema, keys: Sequence[str]) -> list[str]:
    """The columns that hold these properties. Raises `SettingsError` if a property has none, or two.

    It has two if its type changed under `on_type_change: variant` before it was a key: no row has a value in both.
    """
    columns = {source(field): field.name for field in schema}
    if split := [source(field) for field in schema if is_variant(field) and source(field) in keys]:
        hint = "load the table anew with --full, which makes it one column; or set other key_properties or load_method"
        raise SettingsError("a key is in two columns, as its type has changed", hint=hint, key=split[0])
    names = [columns.get(key, key) for key in keys]
    for name in names:
        if name not in schema.names:
            hint = "keep the key among `columns` and in what `transform` returns, or set other key_properties"
            raise SettingsError("a key is not a column of the table", hint=hint, key=name)
    return names


def check_keys(schema: pa.Schema, stream: str, keys: Sequence[str]) -> None:
    """Raise `SettingsError` unless these properties can be a key."""
    for name in key_columns(schema, keys):
        field = schema.field(name)
        if pa.types.is_nested(field.type) or is_json(field):
            hint = "upsert needs keys of one value each; choose others with key_properties, or set another load_method"
            raise SettingsError("a list, an object or JSON cannot be a key", hint=hint, stream=stream, key=name)


def refuse_new_columns(schema: pa.Schema, stream: str, keys: Sequence[str]) -> None:
    """Raise `SettingsError` if a table with rows and these columns has none for a property of its key.

    Its rows would have null there: they would never be merged again, and each be there twice.
    """
    names = {name.casefold() for field in schema for name in (field.name, source(field))}
    if new := [key for key in keys if key.casefold() not in names]:
        hint = (
            f"set key_properties for it under streams: `[{', '.join(keys)}]`, and older rows, which have no {new[0]}, "
            "stay beside the newer ones, or the key of before; or load it anew with --full"
        )
        raise SettingsError("the key is a new column, and the table has rows", hint=hint, stream=stream, key=new[0])


def keys_of(table: pa.Table, fields: Sequence[pa.Field]) -> pa.Table:
    """The keys of rows as columns `0`, `1`, ... of these fields; a column that the table lacks is null."""
    keys = refit(table.select([field.name for field in fields if field.name in table.column_names]), fields)
    floats = [pc.add(array, 0.0) if pa.types.is_floating(array.type) else array for array in keys.columns]  # -0 is 0
    return pa.table(floats, [str(number) for number in range(len(fields))])


def row_numbers(count: int, first: int = 0) -> pa.Array:
    """The numbers of `count` rows, as 64-bit integers from `first` on."""
    # without numpy, which executors need for upserts only
    return pc.cumulative_sum(pa.repeat(pa.scalar(1, pa.int64()), count), start=first - 1)


def lookup(keys: pa.Table, among: pa.Table) -> pa.Array:
    """For each of `keys` its row in `among`, null without one; any of several equal ones."""
    own = [among.column(name).combine_chunks() for name in among.column_names]
    if len(own) == 1:
        return _flat(pc.index_in(keys.column(0), value_set=own[0]))
    # Most keys of a table are not asked for: only those whose columns all occur are compared as a whole.
    maybe = reduce(pc.and_, (pc.is_in(column, value_set=one) for column, one in zip(keys.columns, own, strict=True)))
    codes, count = codes_of(pa.concat_tables([among, keys.filter(maybe)])), len(among)
    rows = pc.index_in(codes.slice(count), value_set=codes.slice(0, count))
    return pc.replace_with_mask(pa.nulls(len(keys), rows.type), _flat(maybe), rows)


def key_order(keys: pa.Table) -> pa.Array:
    """The rows of `keys` in their order."""
    return pc.sort_indices(keys, sort_keys=[(name, "ascending") for name in keys.column_names])


def _flat(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def codes_of(keys: pa.Table) -> pa.Array:
    """A number for each key; equal keys have equal numbers."""
    first, *others = keys.columns
    codes = _encoded(first)
    for column in others:
        encoded = _encoded(column)
        width = (pc.max(encoded).as_py() or 0) + 1
        codes = _encoded(pc.add(pc.multiply(codes, width), encoded))  # two 32-bit numbers never overflow 64 bits
    return codes


def _encoded(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    whole = _flat(column)
    if isinstance(whole, pa.ChunkedArray):  # text beyond 2 GiB stays in chunks
        whole = pa.concat_arrays(whole.unify_dictionaries().chunks)
    return whole.dictionary_encode(null_encoding="encode").indices.cast(pa.int64())


def at_least(keys: pa.Table, bound: Sequence[Any]) -> pa.Array:
    """Which keys are `bound` or come after it."""
    result: Any = pa.scalar(True)
    for name, value in reversed(list(zip(keys.column_names, bound, strict=True))):
        column = keys.column(name)
        if value is None:
            more, same = pc.is_valid(column), pc.is_null(column)
        else:
            scalar = pa.scalar(value, column.type)
            more, same = (pc.fill_null(test(column, scalar), False) for test in (pc.greater, pc.equal))
        result = pc.or_(more, pc.and_(same, result))
    return result


def order_of(key: Sequence[Any]) -> tuple[Any, ...]:
    """Sorts keys that are Python values."""
    return tuple((value is not None, value) if value is not None else (False,) for value in key)
