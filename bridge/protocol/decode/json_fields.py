"""Columns that Arrow's JSON reader cannot keep as they are, JSON text above all: msgspec cuts them out of the lines.

Each distinct value is parsed once; the rest of a line is only skipped. Such columns cost about as much as all others
together; to parse whole records would cost five times that.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import msgspec
import orjson
import pyarrow as pa

from bridge.protocol.decode.coerce import RecordRejected, column_text, lines_of, parsed
from bridge.protocol.decode.columns import NeedsExactPath, column, lossy, may_be_lossy, texts
from bridge.protocol.schema.json_schema import is_json, source

_NULL = msgspec.Raw(b"null")


class JsonFieldExtractor:
    """Cuts the `chosen` of a record's `fields` out of messages that have no other fields, at any depth.

    Raises `ValueError` for names that msgspec cannot match: those with quotes, backslashes or control characters.
    """

    def __init__(self, fields: Sequence[pa.Field], chosen: Sequence[pa.Field]) -> None:
        names = {source(field) for field in chosen}
        self.chosen = chosen
        self._places = [index for index, field in enumerate(fields) if source(field) in names]
        self._record = _members([(source(f), msgspec.Raw if source(f) in names else _shape(f.type)) for f in fields])
        self._decoders: dict[frozenset[str], msgspec.json.Decoder[Any]] = {}

    def cut(self, text: bytes, around: Collection[str]) -> dict[str, pa.Array]:
        """The chosen columns, by the fields' names in the record, a value for each line.

        `around`: the other fields of a message. Raises `NeedsExactPath` if a line is not one message of just these
        fields, and for values that only the exact path can judge.
        """
        try:
            decoder = self._decoder(frozenset(around))
            records = [decoder.decode(line).record for line in lines_of(text)]
            return {
                source(field): column_of([bytes(getattr(record, f"f{place}")) for record in records], field)
                for place, field in zip(self._places, self.chosen, strict=True)
            }
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise NeedsExactPath from error

    def _decoder(self, around: frozenset[str]) -> msgspec.json.Decoder[Any]:
        if around not in self._decoders:
            others = [(f"around{place}", msgspec.Raw, _maybe(name)) for place, name in enumerate(sorted(around))]
            fields: list[Any] = [("record", self._record), *others]
            message = msgspec.defstruct("Message", fields, forbid_unknown_fields=True, gc=False)
            self._decoders[around] = msgspec.json.Decoder(message)
        return self._decoders[around]


def _members(members: Sequence[tuple[str, Any]]) -> Any:
    """An object of these fields and no others; each may be missing."""
    fields = [(f"f{place}", type_, _maybe(name)) for place, (name, type_) in enumerate(members)]
    return msgspec.defstruct("Members", fields, forbid_unknown_fields=True, gc=False)


def _maybe(name: str) -> Any:
    """A field that is null where it is missing."""
    return msgspec.field(name=name, default=_NULL)


def _shape(type_: pa.DataType) -> Any:
    """The type that decoding expects, so that unknown fields inside a value are noticed; all else is skipped."""
    if pa.types.is_struct(type_):
        return _members([(source(field), _shape(field.type)) for field in type_]) | None
    if pa.types.is_list(type_) and (inner := _shape(type_.value_field.type)) is not msgspec.Raw:
        return list[inner] | None  # type: ignore[valid-type]
    return msgspec.Raw


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
