"""Which columns a record lacks: in a change that a database's log tells, these stay as they were.

PostgreSQL's log leaves out long values that an UPDATE did not touch; to the reader of JSON they look like null.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from bridge.decode.decoder import Decoded
from bridge.schema.json_schema import source
from bridge.schema.table_schema import EXTRA
from bridge.singer.messages import parse

_OF_BRIDGE = "_sdc_"
"""How the names of columns begin that tell of a change, and not of its row: without a value they are null."""


def absent_columns(decoded: Decoded, data: bytes, keys: Sequence[str]) -> pa.Array:
    """Return for each row the columns that its record lacks, null where it lacks none.

    Keys are never among them, nor is what a tap or the bridge adds to a row.
    """
    columns = {
        field.name: source(field)
        for field in decoded.table.schema
        if field.name != EXTRA and not field.name.startswith(_OF_BRIDGE) and source(field) not in keys
    }
    lines = data.split(b"\n")
    return pa.array([_lacking(lines[number], columns) for number in decoded.line_numbers], pa.list_(pa.string()))


def _lacking(line: bytes, columns: dict[str, str]) -> list[str] | None:
    record: Any = (parse(line) or {}).get("record")
    if not isinstance(record, dict):
        return None
    return [name for name, of_tap in columns.items() if of_tap not in record] or None
