"""The keys that are to be forgotten: as texts, as values of columns, and as codes for a receipt."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal, InvalidOperation
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from bridge.errors import SettingsError
from bridge.exact_json import NotJson, loads
from bridge.protocol.mask.masks import Masks

Key = tuple[str, ...]
"""The texts of the values of one key, in the order of its columns."""
_WHOLE = re.compile(r"-?[0-9]+")
_BOOLEANS = {"true": True, "false": False}


def read_keys(texts: Iterable[str], parts: int) -> list[Key]:
    """The keys that an operator gives: one value, or of a key of several columns a JSON array of them.

    Raises `SettingsError` for a key that has not so many values.
    """
    keys = list(dict.fromkeys(_read(text, parts) for text in texts))
    if not keys:
        raise SettingsError("no key is given", hint="--key 42, or --key-file with one on each line")
    return keys


def _read(text: str, parts: int) -> Key:
    if parts == 1:
        return (text,)
    try:
        values = loads(text)
    except NotJson:
        values = None
    if not isinstance(values, list) or len(values) != parts or any(isinstance(one, (dict, list)) for one in values):
        hint = f"the key has {parts} columns: write a JSON array, such as --key '[42, \"de\"]'"
        raise SettingsError("a key has another number of values than its columns", hint=hint)
    return tuple("null" if one is None else Masks.text_of(one) for one in values)


@dataclass(frozen=True, slots=True)
class Target:
    """A stream whose rows are of the keys, by these columns as the tap names them; its table has them as `fields`."""

    stream: str
    columns: tuple[str, ...]
    fields: tuple[str, ...]
    texts: Mapping[Key, tuple[frozenset[str], ...]]
    """By key, for each column the texts that its values may have: as given, or hashed where the settings mask it."""

    def among(self, rows: pa.Table, fields: Sequence[str] | None = None) -> Any:
        """Booleans that say which rows are of one of the keys; `fields`: the columns, if they have other names here."""
        fields = fields or self.fields
        if not set(fields) <= set(rows.column_names):
            return pa.chunked_array([pa.repeat(False, len(rows))])
        met = None
        for parts in self.texts.values():
            of_key = None
            for name, texts in zip(fields, parts, strict=True):
                column = rows.column(name)
                is_one = pc.is_in(column, _values(texts, column.type))
                of_key = is_one if of_key is None else pc.and_(of_key, is_one)
            met = of_key if met is None else pc.or_(met, of_key)
        return met

    def has(self, raw: bytes) -> bool:
        """Whether a line of the tap is of one of the keys; one that cannot be read, if it has the words of a key."""
        try:
            message = loads(raw)
        except NotJson:
            message = None
        record = message.get("record") if isinstance(message, dict) else None
        if not isinstance(record, dict):
            return any(all(any(_has_word(raw, text) for text in part) for part in key) for key in self.texts.values())
        values = [_text(record.get(column)) for column in self.columns]
        return any(all(value in part for value, part in zip(values, key, strict=True)) for key in self.texts.values())


def _text(value: Any) -> str | None:
    return None if value is None or isinstance(value, (dict, list)) else Masks.text_of(value)


def _has_word(raw: bytes, text: str) -> bool:
    return re.search(rb"(?<![0-9A-Za-z])%s(?![0-9A-Za-z])" % re.escape(text.encode()), raw) is not None


def _values(texts: Iterable[str], type_: pa.DataType) -> pa.Array:
    """The values of a type that have one of these texts."""
    values = []
    for text in texts:
        with suppress(KeyError, ValueError, InvalidOperation, pa.ArrowException, OverflowError):
            values.append(pa.scalar(_value(text, type_), type_))
    return pa.array([value.as_py() for value in values], type_)


def _value(text: str, type_: pa.DataType) -> Any:
    if pa.types.is_string(type_):
        return text
    if pa.types.is_integer(type_) and _WHOLE.fullmatch(text):
        return int(text)
    if pa.types.is_decimal(type_):
        return Decimal(text)
    if pa.types.is_floating(type_):
        return float(text)
    if pa.types.is_boolean(type_):
        return _BOOLEANS[text]
    if pa.types.is_date(type_):
        return date.fromisoformat(text)
    if pa.types.is_timestamp(type_):
        return datetime.fromisoformat(text.replace("Z", "+00:00"))
    raise ValueError(text)
