"""Fields outside the SCHEMA, where a whole piece is read at once: the column for them, and how many records have each.

Only fields of the record itself are told here; the exact path reads lines with unknown fields inside an object.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from bridge.protocol.decode.coerce import lines_of
from bridge.protocol.decode.columns import NeedsExactPath, has_double, may_be_lossy, texts
from bridge.protocol.decode.exact import DecodedLines, no_collector
from bridge.protocol.decode.json_fields import column_of
from bridge.protocol.schema.json_schema import JSON_TEXT, children

_JSON = pa.field("others", JSON_TEXT[0], metadata=JSON_TEXT[1])
_ESCAPED_NAME = re.compile(rb'\\.[^"]*"\s*:')
_MOST = 16
"""Unknown fields of a piece; each is looked for in all of its text."""


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
        _add(batch, others.is_valid(), objects, given)


def add_inferred(
    batch: DecodedLines, text: bytes, record: pa.StructArray, declared: pa.StructType, names: Collection[str]
) -> None:
    """Add the fields that Arrow found beside the `declared` ones; `names` are those that a record may have.

    `text`: each line is a row. Raises `NeedsExactPath` where that does not tell which lines have such fields: Arrow
    does not show one that is null.
    """
    new = [field for field in record.type if field.name not in names]
    if not new:
        return
    if len(new) > _MOST or record.type.num_fields != declared.num_fields + len(new):
        raise NeedsExactPath
    if any("record" in _names([field]) for field in new):
        raise NeedsExactPath  # a message may be inside another one
    if b"\\" in text and _ESCAPED_NAME.search(text):
        raise NeedsExactPath  # there may be more of them than are counted
    has = None
    for field in new:
        valid = record.field(field.name).is_valid()
        if text.count(orjson.dumps(field.name)) != pc.sum(valid).as_py():
            raise NeedsExactPath
        has = valid if has is None else pc.or_(has, valid)
    lines = lines_of(text)
    lines = [lines[row] for row in pc.indices_nonzero(has).to_pylist()]
    with no_collector():
        try:  # one record after the other: to keep them all took longer than to read them
            objects = [{name: record[name] for name in record if name not in names} for record in map(_record, lines)]
        except orjson.JSONDecodeError as error:
            raise NeedsExactPath from error
        written = texts(objects, trusted=True)
        if has_double(written) and may_be_lossy(b"\n".join(lines)):
            raise NeedsExactPath
        _add(batch, has, objects, pa.array(written, pa.string()))


def _record(line: bytes) -> dict[str, Any]:
    record: dict[str, Any] = orjson.loads(line)["record"]
    return record


def same_shape(read: pa.StructType, declared: pa.StructType) -> bool:
    """Whether each declared field has just the type that was asked for: no unknown field is inside of one."""
    return all(read.field(field.name).type == field.type for field in declared)


def _add(batch: DecodedLines, has: pa.Array, objects: Sequence[dict[str, Any]], written: pa.Array) -> None:
    batch.extra = pc.replace_with_mask(pa.nulls(batch.rows, pa.string()), has, written)
    for names, count in Counter(map(tuple, objects)).items():
        batch.outside.update(dict.fromkeys(names, count))


def _names(fields: Sequence[pa.Field]) -> Iterator[str]:
    for field in fields:
        yield field.name
        yield from _names(children(field.type))
