"""Which columns a record lacks: in a change from a database's log these keep their values.

PostgreSQL's log leaves out long values that an UPDATE did not touch; in a table they would be null.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from bridge.protocol.decode.decoder import Decoded
from bridge.protocol.schema.json_schema import EXTRA, source
from bridge.protocol.singer.messages import parse


def absent_columns(decoded: Decoded, data: bytes, others: Sequence[str]) -> pa.Array:
    """For each row the columns that its record lacks, null where it lacks none.

    `others`: properties that it never lacks, the key and those that describe the change: without a value they are null.
    """
    columns = {
        field.name: source(field)
        for field in decoded.table.schema
        if field.name != EXTRA and source(field) not in others
    }
    lines = data.split(b"\n")
    return pa.array([_lacking(lines[number], columns) for number in decoded.line_numbers], pa.list_(pa.string()))


def _lacking(line: bytes, columns: dict[str, str]) -> list[str] | None:
    record: Any = (parse(line) or {}).get("record")
    if not isinstance(record, dict):
        return None
    return [name for name, property_ in columns.items() if property_ not in record] or None
