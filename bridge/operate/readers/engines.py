"""How engines write names, texts and types in SQL, and which names they do not accept."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from bridge.lake.table_columns import Entry, item_of, struct_of

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def _any_name(name: str) -> bool:
    return bool(name)


def _plain_name(name: str) -> bool:
    """Letters, digits and underscore: what Athena, and BigQuery over files, take as a column's name."""
    return bool(_PLAIN.fullmatch(name))


def _hive_name(name: str) -> bool:
    """Whether Trino's Hive connector takes a name: the metastore keeps a table's names in one text, split by commas."""
    return bool(name) and "," not in name and name == name.strip(" ")


def _decimal(precision: int, scale: int) -> str:
    return f"decimal({precision}, {scale})"


def _numeric(precision: int, scale: int) -> str:
    """BigQuery's two decimals: NUMERIC has 29 digits before the point and 9 after it."""
    word = "NUMERIC" if scale <= 9 and precision - scale <= 29 else "BIGNUMERIC"
    return f"{word}({precision}, {scale})"


@dataclass(frozen=True, slots=True)
class SqlEngine:
    """One engine's SQL. `struct` is the text before, between name and type, and after; `array` takes the item's type.

    `struct` is None if all nested values have one type, which is then `array`.
    """

    quote: str
    types: Mapping[str, str]
    decimal: Callable[[int, int], str]
    struct: tuple[str, str, str] | None
    array: str
    backslash: bool
    can_name: Callable[[str], bool]
    lists_of_lists: bool = True

    def name(self, name: str) -> str:
        return f"{self.quote}{name.replace(self.quote, self.quote * 2)}{self.quote}"

    def text(self, text: str) -> str:
        if self.backslash:
            text = text.replace("\\", "\\\\").replace("'", "\\'")
        return "'" + (text if self.backslash else text.replace("'", "''")) + "'"

    def type(self, type_: Any) -> str:
        """A column's type; empty if the engine has none, such as for a struct of which it can name no field."""
        if (item := item_of(type_)) is not None:
            inner = "" if item_of(item["type"]) and not self.lists_of_lists else self.type(item["type"])
            return inner and self.array.format(inner)
        if (fields := struct_of(type_)) is not None:
            return self._struct(fields)
        return self.types[type_] if isinstance(type_, str) else self.decimal(*type_["decimal"])

    def left_out(self, entries: Iterable[Entry], above: str = "") -> Iterator[str]:
        """Yield the columns, and dotted the fields inside them, that the engine cannot have."""
        for entry in entries:
            name, inner = f"{above}{entry['name']}", entry["type"]
            while (item := item_of(inner)) is not None:
                inner = item["type"]
            if not self.can_name(entry["name"]) or not self.type(entry["type"]):
                yield name
            elif self.struct and (fields := struct_of(inner)):
                yield from self.left_out(fields, f"{name}.")

    def _struct(self, entries: list[Entry]) -> str:
        if self.struct is None:
            return self.array
        before, between, after = self.struct
        fields = [(entry["name"], self.type(entry["type"])) for entry in entries if self.can_name(entry["name"])]
        text = ", ".join(f"{self.name(name)}{between}{inner}" for name, inner in fields if inner)
        return text and f"{before}{text}{after}"


def _types(integer: str, number: str, boolean: str, text: str, date: str, timestamp: str) -> dict[str, str]:
    names = (integer, number, boolean, text, date, timestamp)
    return dict(zip(("int64", "float64", "bool", "string", "date32", "timestamp[us, UTC]"), names, strict=True))


_HIVE_TYPES = _types("bigint", "double", "boolean", "string", "date", "timestamp")

DUCKDB = SqlEngine(
    '"',
    _types("BIGINT", "DOUBLE", "BOOLEAN", "VARCHAR", "DATE", "TIMESTAMP WITH TIME ZONE"),
    _decimal,
    ("STRUCT(", " ", ")"),
    "{}[]",
    backslash=False,
    can_name=_any_name,
)
SPARK = SqlEngine("`", _HIVE_TYPES, _decimal, ("struct<", ": ", ">"), "array<{}>", backslash=True, can_name=_any_name)
ATHENA = SqlEngine("`", _HIVE_TYPES, _decimal, ("struct<", ":", ">"), "array<{}>", backslash=True, can_name=_plain_name)
# The default precision of the Hive connector; any other has to be set in its catalog.
TRINO = SqlEngine(
    '"',
    _types("bigint", "double", "boolean", "varchar", "date", "timestamp(3)"),
    _decimal,
    ("row(", " ", ")"),
    "array({})",
    backslash=False,
    can_name=_hive_name,
)
BIGQUERY = SqlEngine(
    "`",
    _types("INT64", "FLOAT64", "BOOL", "STRING", "DATE", "TIMESTAMP"),
    _numeric,
    ("STRUCT<", " ", ">"),
    "ARRAY<{}>",
    backslash=True,
    can_name=_plain_name,
    lists_of_lists=False,
)
SNOWFLAKE = SqlEngine(
    '"',
    _types("NUMBER(38, 0)", "FLOAT", "BOOLEAN", "VARCHAR", "DATE", "TIMESTAMP_LTZ"),
    lambda precision, scale: f"NUMBER({precision}, {scale})",
    None,
    "VARIANT",
    backslash=True,
    can_name=_any_name,
)
