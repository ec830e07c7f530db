"""Columns that the compiled reader leaves as the tap wrote them: JSON, and fields of a record outside the SCHEMA.

Each distinct value is parsed once. Lines with unknown fields inside an object are the exact path's.
"""

from __future__ import annotations

from collections import Counter

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from bridge.protocol.decode.coerce import RecordRejected, column_text, parsed
from bridge.protocol.decode.columns import NeedsExactPath, column, lossy, may_be_lossy, texts
from bridge.protocol.decode.exact import DecodedLines, no_collector
from bridge.protocol.schema.json_schema import JSON_TEXT, is_json

_JSON = pa.field("others", JSON_TEXT[0], metadata=JSON_TEXT[1])


def add_written(batch: DecodedLines, others: pa.Array) -> None:
    """Add the unknown fields of each row, an object as the tap wrote it; null: it has none.

    Raises `NeedsExactPath` for values that only the exact path can judge.
    """
    if others.null_count == len(others):
        return
    given = others.drop_null()
    joined = pc.binary_join(pa.ListArray.from_arrays([0, len(given)], given.cast(pa.binary())), b",")[0].as_py()
    whole = b"[%s]" % joined
    with no_collector():
        try:
            objects = orjson.loads(whole)
            is_ours = orjson.dumps(objects) == whole
        except (orjson.JSONDecodeError, TypeError) as error:
            raise NeedsExactPath from error
        if len(objects) != len(given):
            raise NeedsExactPath
        if may_be_lossy(whole):
            given = column_of(given.cast(pa.binary()).to_pylist(), _JSON)
        elif not is_ours:
            given = pa.array(texts(objects, trusted=True), pa.string())
        batch.extra = pc.replace_with_mask(pa.nulls(batch.rows, pa.string()), others.is_valid(), given)
        for names, count in Counter(map(tuple, objects)).items():
            batch.outside.update(dict.fromkeys(names, count))


def column_of(values: list[bytes], field: pa.Field) -> pa.Array:
    """A column of values as they were written. Raises `NeedsExactPath` for one that only the exact path can judge."""
    try:
        return _column(values, field)
    except (ValueError, RecursionError, RecordRejected) as error:
        raise NeedsExactPath from error


def _column(values: list[bytes], field: pa.Field) -> pa.Array:
    objects = {raw: orjson.loads(raw) for raw in set(values)}
    suspect = may_be_lossy(b"\n".join(objects))
    if is_json(field):
        json = dict(zip(objects, texts(objects.values(), trusted=True), strict=True))
        if suspect:  # the space: `lossy` finds numbers after a separator
            json |= {raw: column_text(parsed(raw), ()) for raw in objects if lossy(b" " + raw)}
        array = pa.array([json[raw] for raw in values], pa.string())
    else:
        array = column([objects[raw] for raw in values], field, trusted=not suspect)
    if array.null_count and not field.nullable:
        raise NeedsExactPath
    return array
