"""Columns that a tap cannot give us as they are: of types that it does not know, or rounded on their way."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from decimal import Decimal
from typing import Any

from bridge.lake.runs import Difference
from bridge.load.tap.digits import digits_of
from bridge.protocol.schema.valid import MAX_DIGITS
from bridge.protocol.singer.catalog import (
    Catalog,
    StreamEntry,
    column_facts,
    columns,
    entries_by_name,
    replication_method,
    root_facts,
)

_OF_A_DOUBLE = 15
"""Digits that a double always holds."""
_FLOAT = re.compile(r"float\b")
"""MySQL's type of four bytes; PostgreSQL calls its own `real`."""

_MOST = 0.9
"""The share of a collection below which documents were left out: what a server counts may be some minutes old."""


def not_extracted(catalog: Catalog | None, new: AbstractSet[str]) -> Iterator[Difference]:
    """Differences of each new table that has such columns. Said once: `new` are the streams that the lake did not have.

    wal2json writes the numbers of PostgreSQL's log as JSON, and the taps that read it make doubles of them. The tap of
    MySQL makes a double of the four bytes of a `float`: 0.10000000149011612 of 0.1.
    """
    entries = entries_by_name(catalog) if catalog else {}
    for name in sorted(new & entries.keys()):
        facts = column_facts(entries[name])
        columns = [".".join(path) for path in facts if facts[path].get("inclusion") == "unsupported"]
        if columns:
            text = (
                f"the tap cannot extract {', '.join(columns)}: the lake has no value of them. To load them, make a "
                "view in the database that casts them to text, and select the view"
            )
            yield Difference(name, "unsupported_column", text)
        if replication_method(catalog, name) == "LOG_BASED":
            yield from _rounded(name, entries[name])


def _rounded(name: str, entry: StreamEntry) -> Iterator[Difference]:
    facts = column_facts(entry)
    long = [column for column, digits in _numerics(entry) if digits > _OF_A_DOUBLE]
    short = [".".join(path) for path in facts if _FLOAT.match(str(facts[path].get("sql-datatype", "")))]
    for names, place in ((long, "fifteenth"), (short, "seventh")):
        if names:
            text = (
                f"the tap makes doubles of numbers in the log, so {', '.join(names)} may have other digits after "
                f"the {place}, also in a key. If they matter, set replication_method: FULL_TABLE or INCREMENTAL"
            )
            yield Difference(name, "log_digits", text)


def _numerics(entry: StreamEntry) -> Iterator[tuple[str, int]]:
    """The columns of PostgreSQL's type `numeric`, each with its number of digits."""
    schemas, facts = columns(entry), column_facts(entry)
    for path, schema in schemas.items():
        kind = str(facts[path].get("sql-datatype", "")).lower()
        if kind.startswith("numeric") and not kind.endswith("[]"):
            declared = digits_of(kind)
            yield ".".join(path), declared[0] if declared else _digits(schema)


def _digits(schema: dict[str, Any]) -> int:
    """How many digits a number may have, as far as its schema says: by `precision`, or its bounds and `multipleOf`."""
    if isinstance(precision := schema.get("precision"), int):
        return precision
    bound, step = schema.get("maximum"), schema.get("multipleOf")
    if not bound:
        return 0 if step else MAX_DIGITS
    scale = max(0, -int(Decimal(str(step)).normalize().as_tuple().exponent)) if step else 0
    return len(str(int(bound) - 1)) + scale


def left_documents(pipeline: str, catalog: Catalog | None, new: Mapping[str, int]) -> Iterator[Difference]:
    """Differences of each new collection of MongoDB of which far fewer documents came than its tap has counted.

    A FULL_TABLE asks for `_id <= GREATEST`, and the server compares only what has the type of GREATEST. `new` has the
    records of streams that the lake did not have.
    """
    entries = entries_by_name(catalog) if catalog else {}
    for name in sorted(new.keys() & entries.keys()):
        facts = root_facts(entries[name])
        count = facts.get("row-count")
        if facts.get("table-key-properties") != ["_id"] or not isinstance(count, int):
            continue
        if replication_method(catalog, name) != "INCREMENTAL" and new[name] < count * _MOST:
            text = (
                f"{new[name]:,} documents came, and the tap counted {count:,}: it leaves out those whose `_id` has "
                "another type than the greatest `_id`. Set `replication_method: INCREMENTAL, replication_key: _id` for "
                f"the stream, then `singer-bridge run {pipeline} --full -s {shlex.quote(name)}` loads all of them"
            )
            yield Difference(name, "row_count", text, count - new[name])
