"""Which type a column gets when its type changes, and which older files can be read beside newer ones.

The new type is that of a SCHEMA which allows both: numbers stay numbers while no digit is lost, a double becomes the
decimal that a better SCHEMA declares, a plain string takes the text of everything, a date becomes its midnight, and
types with nothing in common become JSON text. Spark and Polars read files of two types as one column only where int64
became decimal(38, 0).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from bridge.protocol.schema.json_schema import JSON_TEXT, STRING, TIMESTAMP, Shape, is_json
from bridge.protocol.schema.valid import INT64_DIGITS, MAX_DIGITS

_WIDE_INTEGER = pa.decimal128(MAX_DIGITS, 0)


def fits(new: pa.DataType, old: pa.DataType) -> bool:
    """Whether type `old` holds every value of `new`; an integer beyond 2**53 becomes the nearest double."""
    if new == old:
        return True
    if pa.types.is_decimal(old):
        whole = old.precision - old.scale
        if pa.types.is_decimal(new):
            return bool(new.scale <= old.scale and new.precision - new.scale <= whole)
        return bool(new == pa.int64() and whole >= INT64_DIGITS)
    return (old, new) in ((pa.float64(), pa.int64()), (TIMESTAMP, pa.date32()))


def wider(current: pa.Field, incoming: pa.Field) -> Shape:
    """The type for the values of both, where neither holds the other's."""
    old, new = current.type, incoming.type
    if is_json(incoming):
        return JSON_TEXT
    if new == pa.string():
        return STRING
    if (old, new) == (pa.date32(), TIMESTAMP):
        return TIMESTAMP, None
    if (old, new) == (pa.int64(), pa.float64()):
        return new, None
    numbers = [type_ for type_ in (old, new) if type_ in (pa.int64(), pa.float64()) or pa.types.is_decimal(type_)]
    if len(numbers) < 2:
        return JSON_TEXT
    if old == pa.float64():
        return new, None  # each stored value must have these digits, else nothing is committed
    return STRING if new == pa.float64() else _decimal(old, new)


def _decimal(old: pa.DataType, new: pa.DataType) -> Shape:
    """The decimal of two exact numbers. One of 38 digits does not tell how large its whole part is."""
    scale = max(_scale(old), _scale(new))
    whole = max(_whole(old), _whole(new))
    if whole + scale > MAX_DIGITS:
        whole = max(_needed(old), _needed(new))
        return (pa.decimal128(MAX_DIGITS, scale), None) if whole + scale <= MAX_DIGITS else STRING
    return pa.decimal128(whole + scale, scale), None


def _scale(type_: pa.DataType) -> int:
    return int(type_.scale) if pa.types.is_decimal(type_) else 0


def _whole(type_: pa.DataType) -> int:
    return int(type_.precision - type_.scale) if pa.types.is_decimal(type_) else INT64_DIGITS


def _needed(type_: pa.DataType) -> int:
    unknown = pa.types.is_decimal(type_) and type_.precision == MAX_DIGITS
    return INT64_DIGITS if unknown and type_.scale else _whole(type_)


def texts_made(
    before: Iterable[pa.Field], after: Iterable[pa.Field], at: str = ""
) -> Iterator[tuple[str, pa.Field, pa.Field]]:
    """Number, time and boolean columns that become text: their dotted names, and the fields before and after."""
    now = {field.name: field for field in after}
    for old in before:
        new, name = now.get(old.name), f"{at}{old.name}"
        if new is None or old.type == new.type:
            continue
        if new.type == pa.string() and not pa.types.is_nested(old.type):
            yield name, old, new
        elif pa.types.is_struct(old.type) and pa.types.is_struct(new.type):
            yield from texts_made(old.type, new.type, f"{name}.")
        elif pa.types.is_list(old.type) and pa.types.is_list(new.type):
            items = (each.type.value_field.with_name("[]") for each in (old, new))
            yield from texts_made([next(items)], [next(items)], name)


def stands_beside(old: pa.DataType, new: pa.DataType, *, strict: bool = False) -> bool:
    """Whether every engine reads a file with type `old` in a table with type `new`.

    `strict`: the table's format demands that each file has the table's types.
    """
    if pa.types.is_struct(old) and pa.types.is_struct(new):
        names = {field.name: field.type for field in new}
        return all(f.name in names and stands_beside(f.type, names[f.name], strict=strict) for f in old)
    if pa.types.is_list(old) and pa.types.is_list(new):
        return stands_beside(old.value_type, new.value_type, strict=strict)
    return bool(old == new or (not strict and (old, new) == (pa.int64(), _WIDE_INTEGER)))
