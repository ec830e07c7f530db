"""JSON columns of rows from PostgreSQL's log: the value instead of a text with it.

From the log meltanolabs-tap-postgres sends a `json` or `jsonb` value as the plugin's text, from a query as the value.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from bridge.protocol.decode.coerce import RecordRejected, column_text, parsed
from bridge.protocol.decode.columns import lossy, may_be_lossy
from bridge.protocol.schema.json_schema import is_json, source

_LSN = "_sdc_lsn"
"""meltanolabs-tap-postgres' column for the position in the log: null in rows from a query."""


def reads_log(fields: Sequence[pa.Field]) -> bool:
    """Whether rows with these columns may come from PostgreSQL's log, with JSON as text in them."""
    has_position = any(source(field) == _LSN and field.type == pa.int64() for field in fields)
    return has_position and any(is_json(field) for field in fields)


def log_json(arrays: Sequence[pa.Array], fields: Sequence[pa.Field]) -> list[pa.Array]:
    """Replace JSON texts by the JSON in them, in rows that have a position in the log.

    In other rows, from a query of the same tap, a text is a text.
    """
    [lsn] = [array for array, field in zip(arrays, fields, strict=True) if source(field) == _LSN]
    of_log = pc.is_valid(lsn)
    return [_unwrapped(array, of_log) if is_json(field) else array for array, field in zip(arrays, fields, strict=True)]


def _unwrapped(array: pa.Array, of_log: pa.Array) -> pa.Array:
    texts = pc.fill_null(pc.and_(of_log, pc.starts_with(array, '"')), False)
    if not pc.any(texts).as_py():
        return array
    wrapped = array.filter(texts)
    values = {text: _inner_json(text) for text in pc.unique(wrapped).to_pylist()}
    return pc.replace_with_mask(array, texts, pa.array([values[text] for text in wrapped.to_pylist()], pa.string()))


def _inner_json(text: str) -> str | None:
    """The JSON inside a JSON string; the string itself where it holds none."""
    try:
        inner = orjson.loads(text).encode()
        if inner.strip() == b"null":
            return None
        if not (may_be_lossy(inner) and lossy(b" " + inner)):
            with suppress(TypeError):  # nested deeper than orjson writes
                return orjson.dumps(orjson.loads(inner)).decode()
        return column_text(parsed(inner), ())
    except (RecordRejected, ValueError):
        return text
