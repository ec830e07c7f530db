"""Arrow to JSON text, column by column: Arrow's own kernels do the work, so Python does not see a single value.

Times are RFC 3339 in UTC, decimals have all of their digits, JSON text is what it says. NaN and infinity, which JSON
does not have, are null; or, in a text that is only compared, words.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from bridge.protocol.decode.casting import null_mask
from bridge.protocol.schema.json_schema import EXTRA, is_json

_ESCAPED = r'["\\\x00-\x1f]'
"""Matches the characters that a JSON string cannot have as they are."""
_ROWS = 16_384
_BYTES = 32 << 20
"""At most so many rows, or Arrow bytes, become text at once: a column of text has less than 2 GiB."""


def slices(table: pa.Table, most: int = _ROWS) -> Iterator[pa.Table]:
    """Yield the rows in pieces that become text at once, of at most so many rows."""
    rows = max(1, min(most, _ROWS, int(_BYTES / max(1.0, table.nbytes / max(1, len(table))))))
    for at in range(0, len(table), rows):
        yield table.slice(at, rows)


def objects(table: pa.Table, *, exact: bool = False) -> pa.Array:
    """Each row as a JSON object, of the rows of one slice. `exact`: different rows have different texts, which may be
    no JSON.
    """
    columns = [column.combine_chunks() for column in table.columns]
    return _object(len(table), list(table.schema), columns, exact=exact)


def lines(texts: pa.Array, before: bytes, after: bytes) -> memoryview:
    """The texts, each between the same bytes, one after the other."""
    if not len(texts):
        return memoryview(b"")
    joined = pc.binary_join_element_wise(before.decode(), texts, after.decode(), "")
    first, *_, last = joined.buffers()[1:]
    offsets = memoryview(first).cast("i")
    return memoryview(last)[offsets[joined.offset] : offsets[joined.offset + len(joined)]]


def _object(rows: int, fields: Sequence[pa.Field], columns: Sequence[pa.Array], *, exact: bool) -> pa.Array:
    if not fields:
        return pa.array(["{}"] * rows, pa.string())
    pieces: list[pa.Array | str] = []
    for field, column in zip(fields, columns, strict=True):
        name = orjson.dumps(field.name).decode()
        pieces += [f"{',' if pieces else '{'}{name}:", _values(column, field, exact=exact)]
    return pc.binary_join_element_wise(*pieces, "}", "")


def _values(array: pa.Array, field: pa.Field, *, exact: bool) -> pa.Array:
    """Each value as JSON."""
    texts = _texts(array, field, exact=exact)
    return pc.fill_null(texts, "null") if texts.null_count else texts


def _texts(array: pa.Array, field: pa.Field, *, exact: bool) -> pa.Array:
    """The JSON texts of an array, as `_values` makes them; null stays null."""
    type_ = array.type
    if pa.types.is_struct(type_):
        texts = _object(len(array), list(type_), array.flatten(), exact=exact)
        return pc.if_else(array.is_valid(), texts, None) if array.null_count else texts
    if pa.types.is_list(type_):
        return _lists(array, exact=exact)
    if type_ == pa.string():
        return array if is_json(field) or field.name == EXTRA else _strings(array)
    if pa.types.is_floating(type_):
        return array.cast(pa.string()) if exact else pc.if_else(pc.is_finite(array), array.cast(pa.string()), None)
    texts = array.cast(pa.string())
    if pa.types.is_timestamp(type_):
        return _quoted(pc.replace_substring(texts, " ", "T"))
    return _quoted(texts) if pa.types.is_date(type_) else texts


def _lists(array: pa.ListArray, *, exact: bool) -> pa.Array:
    items = _values(array.flatten(), array.type.value_field, exact=exact)
    lengths = pc.fill_null(pc.list_value_length(array), 0)
    offsets = pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(lengths).cast(pa.int32())])
    lists = pa.ListArray.from_arrays(offsets, items, mask=null_mask(array))
    return pc.binary_join_element_wise("[", pc.binary_join(lists, ","), "]", "")


def _quoted(texts: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise('"', texts, '"', "")


def _strings(array: pa.Array) -> pa.Array:
    quoted = _quoted(array)
    odd = pc.fill_null(pc.match_substring_regex(array, _ESCAPED), False)
    if not pc.any(odd).as_py():
        return quoted
    escaped = [orjson.dumps(text).decode() for text in array.filter(odd).to_pylist()]
    return pc.replace_with_mask(quoted, odd, pa.array(escaped, pa.string()))


def not_finite(table: pa.Table) -> list[str]:
    """The columns with a NaN or an infinity, which become null; none that are inside of objects."""
    floating = (field.name for field in table.schema if pa.types.is_floating(field.type))
    return [name for name in floating if pc.all(pc.is_finite(table.column(name))).as_py() is False]
