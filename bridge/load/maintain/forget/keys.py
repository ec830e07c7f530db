"""The keys that are to be forgotten: as texts, as values of columns, and as words of lines that nobody can read."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from bridge.errors import SettingsError
from bridge.exact_json import NotJson, loads
from bridge.load.run.checks.forgotten import value_of
from bridge.protocol.mask.masks import Masks

Key = tuple[str, ...]
"""The texts of the values of one key, in the order of its columns."""
_WORD = re.compile(rb"[0-9A-Za-z]+")


def read_keys(texts: Iterable[str], parts: int) -> list[Key]:
    """The keys that an operator gives: one value, or of a key of several columns a JSON array of them.

    Raises `SettingsError` for a key that has not so many values, or that is empty.
    """
    keys = list(dict.fromkeys(_read(text, parts) for text in texts))
    if not keys:
        raise SettingsError("no key is given", hint="--key 42, or --key-file with one on each line")
    return keys


def _read(text: str, parts: int) -> Key:
    if not text.strip():
        raise SettingsError("a key is empty", hint="it would be looked for in each line that cannot be read")
    if parts == 1:
        return (text.strip(),)
    try:
        values = loads(text)
    except NotJson:
        values = None
    if not isinstance(values, list) or len(values) != parts or any(isinstance(one, (dict, list)) for one in values):
        hint = f"the key has {parts} columns: write a JSON array, such as --key '[42, \"de\"]'"
        raise SettingsError("a key has another number of values than its columns", hint=hint)
    if None in values:
        raise SettingsError("a part of a key is null", hint="a row with such a key is nobody's: give its other columns")
    return tuple(Masks.text_of(one) for one in values)


@dataclass(frozen=True)
class Way:
    """Columns by which rows of the keys are found in one table. `columns`: as the tap names them."""

    columns: tuple[str, ...]
    fields: tuple[tuple[str, ...], ...]
    """For each column its names in the table: where types were mixed, it has several."""
    texts: Mapping[Key, tuple[frozenset[str], ...]]
    """By key, for each column the texts that its values may have: as given, or hashed where the settings mask it."""

    @cached_property
    def _singles(self) -> frozenset[str]:
        """All texts, if the key has one column."""
        return (
            frozenset().union(*(parts[0] for parts in self.texts.values())) if len(self.columns) == 1 else frozenset()
        )

    def among(self, rows: pa.Table) -> Any:
        """Booleans that say which rows are of one of the keys."""
        if self._singles:
            return _is_one(rows, self.fields[0], self._singles)
        met = _none(rows)
        for parts in self.texts.values():
            of_key = None
            for names, texts in zip(self.fields, parts, strict=True):
                is_one = _is_one(rows, names, texts)
                of_key = is_one if of_key is None else pc.and_(of_key, is_one)
            met = pc.or_(met, of_key)
        return met

    def can_search(self, names: Iterable[str]) -> bool:
        """Whether a file with these columns shows the keys of its rows."""
        existing = set(names)
        return all(existing & set(each) for each in self.fields)

    def has(self, record: Mapping[str, Any]) -> bool:
        """Whether a record, as the tap sent it, is of one of the keys."""
        values = [_text(record.get(column)) for column in self.columns]
        if self._singles:
            return values[0] in self._singles
        return any(all(value in part for value, part in zip(values, key, strict=True)) for key in self.texts.values())

    def has_words(self, raw: bytes) -> bool:
        """Whether a line that nobody can read has the words of a key."""
        words = set(_WORD.findall(raw))
        if self._singles:
            return any(_is_in(text, raw, words) for text in self._singles)
        return any(all(any(_is_in(one, raw, words) for one in part) for part in key) for key in self.texts.values())


@dataclass(frozen=True, slots=True)
class Target:
    """A table in which rows of the keys may be, and the ways to find them."""

    ways: list[Way] = field(default_factory=list)

    def among(self, rows: pa.Table) -> Any:
        """Booleans that say which rows are of one of the keys."""
        met = _none(rows)
        for way in self.ways:
            met = pc.or_(met, way.among(rows))
        return met

    @property
    def fields(self) -> set[str]:
        """The table's columns that are looked at."""
        return {name for way in self.ways for names in way.fields for name in names}

    def can_search(self, names: Sequence[str]) -> bool:
        """Whether a file with these columns shows the keys of its rows."""
        return all(way.can_search(names) for way in self.ways)

    def has(self, raw: bytes) -> bool:
        """Whether a line of the tap is of one of the keys; one that cannot be read, if it has the words of a key."""
        try:
            message = loads(raw)
        except NotJson:
            message = None
        record = message.get("record") if isinstance(message, dict) else None
        return any(way.has(record) if isinstance(record, dict) else way.has_words(raw) for way in self.ways)


def _none(rows: pa.Table) -> Any:
    return pa.chunked_array([pa.repeat(False, len(rows))])


def _is_one(rows: pa.Table, names: Iterable[str], texts: frozenset[str]) -> Any:
    """Booleans that say in which rows one of these columns has one of these values."""
    met = _none(rows)
    for name in names:
        if name in rows.column_names:
            column = rows.column(name)
            met = pc.or_(met, pc.is_in(column, _values(texts, column.type)))
    return met


@lru_cache(16)
def _values(texts: frozenset[str], type_: pa.DataType) -> pa.Array:
    """The values of a type that have one of these texts."""
    values = [value_of(text, type_) for text in texts]
    return pa.array([value for value in values if value is not None], type_)


def _text(value: Any) -> str | None:
    return None if value is None or isinstance(value, (dict, list)) else Masks.text_of(value)


def _is_in(text: str, raw: bytes, words: set[bytes]) -> bool:
    data = text.encode()
    if data in words:
        return True
    if _WORD.fullmatch(data):
        return False
    forms = {data, json.dumps(text)[1:-1].encode(), json.dumps(text, ensure_ascii=False)[1:-1].encode()}
    return any(re.search(rb"(?<![0-9A-Za-z])%s(?![0-9A-Za-z])" % re.escape(form), raw) for form in forms)
