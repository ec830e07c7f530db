"""JSON columns of rows that come from PostgreSQL's log hold the value, not a text that holds it.

meltanolabs-tap-postgres passes on the log plugin's text of a `json` or `jsonb` value; its queries give the value.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from bridge.decode.coerce import RecordRejected, json_text, parsed
from bridge.decode.columns import lossy, may_be_lossy
from bridge.schema.json_schema import is_json, source

_LSN = "_sdc_lsn"
"""meltanolabs-tap-postgres' column for the position in the log: a number in rows from there, null in queried ones."""


def reads_log(fields: Sequence[pa.Field]) -> bool:
    """Return whether rows with these columns may come from PostgreSQL's log with JSON as text in them."""
    has_position = any(source(field) == _LSN and field.type == pa.int64() for field in fields)
    return has_position and any(is_json(field) for field in fields)


def log_json(arrays: Sequence[pa.Array], fields: Sequence[pa.Field]) -> list[pa.Array]:
    """Return the columns with the JSON values of rows from the log that are texts replaced by what these texts hold.

    Only rows that say their position in the log: a query of the same tap gives values, so a text there is one.
    """
    [lsn] = [array for array, field in zip(arrays, fields, strict=True) if source(field) == _LSN]
    of_log = pc.is_valid(lsn)
    return [_unfolded(array, of_log) if is_json(field) else array for array, field in zip(arrays, fields, strict=True)]


def _unfolded(array: pa.Array, of_log: pa.Array) -> pa.Array:
    texts = pc.fill_null(pc.and_(of_log, pc.starts_with(array, '"')), False)
    if not pc.any(texts).as_py():
        return array
    there = array.filter(texts)
    values = {text: _held(text) for text in pc.unique(there).to_pylist()}
    return pc.replace_with_mask(array, texts, pa.array([values[text] for text in there.to_pylist()], pa.string()))


def _held(text: str) -> str | None:
    """Return the JSON that a JSON text holds as its string; the text itself where that is no JSON."""
    try:
        inner = orjson.loads(text).encode()
        if inner.strip() == b"null":
            return None
        if not (may_be_lossy(inner) and lossy(b" " + inner)):
            with suppress(TypeError):  # nested deeper than orjson writes
                return orjson.dumps(orjson.loads(inner)).decode()
        return json_text(parsed(inner), ())
    except (RecordRejected, ValueError):
        return text
