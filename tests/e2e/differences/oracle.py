"""What a table has, in the database and in the lake, made comparable without the product's own reading of values."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timezone
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

import duckdb

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


@dataclass(frozen=True)
class Table:
    """One state of a table: its columns by kind, and its rows by their names. A key is empty where there is none."""

    name: str
    kinds: dict[str, str]
    key: tuple[str, ...]
    rows: tuple[dict[str, Any], ...]

    def by_key(self) -> dict[tuple[Any, ...], dict[str, Any]]:
        return {tuple(row[name] for name in self.key): row for row in self.rows}


@dataclass
class Finding:
    """One sort of difference of one table."""

    table: str
    sort: str
    column: str = ""
    examples: list[str] = field(default_factory=list)
    count: int = 0

    def __str__(self) -> str:
        column = f" column={self.column}" if self.column else ""
        return f"{self.table}: {self.sort}{column} ({self.count}) {'; '.join(self.examples[:2])}"


def comparable(kind: str, text: str | None) -> Any:
    """A value by its meaning: digits as a decimal, moments as microseconds, JSON as a tree; what is odd stays text."""
    if text is None:
        return None
    with suppress(ValueError, InvalidOperation, binascii.Error, RecursionError):
        return _CANONICAL[kind](text)
    return text


def _number(text: str) -> Any:
    number = Decimal(text.replace("$", "").replace(",", "").strip())
    return number if number.is_finite() else str(number)


def _float(text: str) -> Any:
    number = float(text)
    return number if number - number == 0 else str(number)


def _moment(text: str) -> Any:
    if text in ("infinity", "-infinity"):
        return text
    if re.fullmatch(r"-?\d+", text):
        return int(text)
    moment = datetime.fromisoformat(text.replace(" ", "T").replace("Z", "+00:00"))
    apart = (moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)) - _EPOCH
    return (apart.days * 86400 + apart.seconds) * 1_000_000 + apart.microseconds


def _clock(text: str) -> Any:
    """A time of day, or a length of time: its parts as numbers; a date before it has to be that of the epoch."""
    match = re.fullmatch(r"(?:1970-01-01[T ])?(-?)(\d+):(\d+):(\d+(?:\.\d+)?)(Z|[+-]\d\d(?::?\d\d)?)?", text)
    if not match:
        return text
    zone = (match[5] or "+00").replace("Z", "+00").replace(":", "").ljust(5, "0")
    sign = -1 if match[1] else 1
    return sign * (int(match[2]) * 3600 + int(match[3]) * 60 + Decimal(match[4])), zone.replace("-0000", "+0000")


def _tree(text: str) -> Any:
    value = _plain(json.loads(text, parse_float=Decimal, parse_int=Decimal))
    return ("null of JSON",) if value is None else value


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return ("object", frozenset((name, _plain(one)) for name, one in value.items()))
    if isinstance(value, list):
        return ("list", tuple(_plain(one) for one in value))
    return value if not isinstance(value, bool) else ("bool", value)


def _items(text: str) -> Any:
    """An array. Some taps declare items of any type, which then are JSON texts, and texts are the numbers in them."""
    return _loose(json.loads(text, parse_float=Decimal, parse_int=Decimal))


def _loose(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_loose(one) for one in value)
    if isinstance(value, str):
        with suppress(ValueError):
            inner = json.loads(value, parse_float=Decimal, parse_int=Decimal)
            return _loose(inner) if isinstance(inner, (list, str)) else inner
        with suppress(ValueError):
            return _moment(value)
    return value


def _bytes(text: str) -> Any:
    with suppress(ValueError):
        return bytes.fromhex(text.removeprefix("\\x"))
    return base64.b64decode(text, validate=True)


_CANONICAL: dict[str, Any] = {
    "number": _number,
    "float": _float,
    "moment": _moment,
    "inet": lambda text: text.removesuffix("/32").removesuffix("/128"),
    "clock": _clock,
    "json": _tree,
    "items": _items,
    "bytes": _bytes,
    "bool": lambda text: {"t": True, "true": True, "1": True, "f": False, "false": False, "0": False}.get(text, text),
    "text": lambda text: text,
}


def read_lake(bucket: Path, folder: str, kinds: dict[str, str]) -> tuple[dict[str, str], list[dict[str, Any]]]:
    """A table's columns with their types, and its rows that are not marked as deleted, by DuckDB alone."""
    pattern = str(bucket / folder / "*.parquet").replace("'", "''")
    with duckdb.connect() as engine:
        engine.execute("set TimeZone='UTC'")
        source = f"read_parquet('{pattern}', union_by_name=true)"
        types = {str(name): str(kind) for name, kind, *_ in engine.execute(f"describe from {source}").fetchall()}
        columns = {name: kind for name, kind in types.items() if not name.startswith("_sdc_")}
        cast = ", ".join(_as_text(name, kind) for name, kind in columns.items()) or "1"
        alive = "where _sdc_deleted_at is null" if "_sdc_deleted_at" in types else ""
        rows = engine.execute(f"select {cast} from {source} {alive}").fetchall()
    names = [_source_name(name, kinds) for name in columns]
    made = [{n: comparable(kinds.get(n, "text"), text) for n, text in zip(names, row, strict=False)} for row in rows]
    return dict(zip(names, columns.values(), strict=True)), made


def _source_name(name: str, kinds: dict[str, str]) -> str:
    """docs/types.md, "Names": of two names that differ in case alone, the second has a number in the lake."""
    plain = name.removesuffix("_2")
    return plain if name not in kinds and [one.casefold() for one in kinds].count(plain.casefold()) == 2 else name


def _as_text(name: str, kind: str) -> str:
    column = '"' + name.replace('"', '""') + '"'
    if kind.endswith("]") or kind.startswith("STRUCT"):
        return f"to_json({column}::{re.sub(r'DECIMAL[(][0-9, ]+[)]', 'VARCHAR', kind)})::varchar"
    if kind.startswith("TIMESTAMP"):
        return f"epoch_us({column})::varchar"
    if kind == "DATE":
        return f"epoch_us({column}::timestamp)::varchar"
    if kind == "BLOB":
        return f"hex({column})"
    return f"{column}::varchar"


def compare(table: Table, columns: dict[str, str], rows: list[dict[str, Any]], before: list[Table]) -> list[Finding]:
    """How the lake's table differs from the database's. `before` are the states that the table had earlier."""
    result: dict[tuple[str, str], Finding] = {}

    def note(sort: str, column: str = "", example: str = "") -> None:
        one = result.setdefault((sort, column), Finding(table.name, sort, column))
        one.count += 1
        one.examples += [example] if len(one.examples) < 3 else []

    names = [name for name in table.kinds if name in columns]
    for name in table.kinds.keys() - columns.keys():
        if any(row[name] is not None for row in table.rows):
            note("column missing", name)
    for name in columns.keys() - table.kinds.keys():
        if any(row[name] is not None for row in rows):
            note("column too many", name)
    if not table.key or not set(table.key) <= set(names):
        there = Counter(tuple(_known(row[name]) for name in names) for row in table.rows)
        here = Counter(tuple(_known(row[name]) for name in names) for row in rows)
        for values in (there - here).elements():
            note("rows missing", example=str(values))
        for values in (here - there).elements():
            note("rows too many", example=str(values))
        return list(result.values())
    mine: dict[tuple[Any, ...], dict[str, Any]] = {}
    twice = set()
    for row in rows:
        key = tuple(_known(row[name]) for name in table.key)
        if key in mine:
            note("rows twice", example=str(key))
            twice.add(key)
        mine[key] = row
    for full, row in table.by_key().items():
        key = tuple(map(_known, full))
        lake = mine.pop(key, None)
        if lake is None:
            note("rows missing", example=str(full))
            continue
        if key in twice:
            continue
        changed = [name for name in names if _known(row[name]) != _known(lake[name])]
        if changed and any(_is_row(state.by_key().get(full), lake, names) for state in before):
            note("stale", example=str(full))
            continue
        for name in changed:
            note("value", name, f"{name}: {row[name]!r} is {lake[name]!r}")
    for key in mine:
        note("rows too many", example=str(key))
    return list(result.values())


def _is_row(row: dict[str, Any] | None, lake: dict[str, Any], names: list[str]) -> bool:
    return row is not None and all(_known(row.get(name)) == _known(lake[name]) for name in names)


_ENDS = {"infinity": 253402300799999999, "-infinity": _moment("0001-01-01")}
_LAST_DAY = _moment("9999-12-31")


def _known(value: Any) -> Any:
    """A value after the conversions that docs/types.md lists: the end of time, of dates and of moments."""
    if value == _LAST_DAY:
        return _ENDS["infinity"]
    return _ENDS.get(value, value) if isinstance(value, str) else value
