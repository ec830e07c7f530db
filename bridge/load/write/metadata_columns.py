"""The Singer SDK's metadata columns: which there are, and their values.

Pure: the times are constants of the sealed batch that a row came with.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
import pyarrow.compute as pc

from bridge.load.spool.folder import Segment
from bridge.load.write.layout import TableLayout
from bridge.protocol.decode.decoder import Decoded
from bridge.protocol.schema.json_schema import DELETED_AT, EXTRA, LEFT_OUT, TIMESTAMP, VERSION_COLUMN, source
from bridge.protocol.schema.table_schema import TableSchema

METADATA: dict[str, pa.DataType] = {
    "_sdc_extracted_at": TIMESTAMP,
    "_sdc_received_at": TIMESTAMP,
    "_sdc_batched_at": TIMESTAMP,
    DELETED_AT: TIMESTAMP,
    "_sdc_sequence": pa.int64(),
    VERSION_COLUMN: pa.int64(),
}
"""The Singer SDK's metadata columns, in its order, all nullable."""


def with_metadata(fields: Iterable[pa.Field]) -> list[pa.Field]:
    """Add the metadata columns to a SCHEMA's; the tap's own of these names get the SDK's types."""
    own = [field for field in fields if source(field) not in METADATA]
    return [*own, *(pa.field(name, type_) for name, type_ in METADATA.items())]


def visible(columns: pa.Schema, *, metadata: bool) -> list[pa.Field]:
    """The columns that a `transform` sees: not those of the bridge itself."""
    hidden = {EXTRA, *(METADATA if metadata else ())}
    return [field for field in columns if source(field) not in hidden and field.name != EXTRA]


def leave_out(schema: TableSchema, fields: Iterable[pa.Field], *, metadata: bool) -> TableSchema:
    """The columns to read RECORDs into where these fields are not kept; with `metadata` nor the tap's own of them."""
    filled = [pa.field(name, pa.string()) for name in METADATA if metadata and name != DELETED_AT]
    skipped = {source(field): _left_out(field) for field in [*filled, *fields]}
    if not skipped:
        return schema
    reading = [field for field in schema.fields if source(field) not in skipped]
    return TableSchema(schema.arrow, pa.schema([*reading, *skipped.values()]))


def _left_out(field: pa.Field) -> pa.Field:
    return field.with_metadata({b"singer": source(field).encode(), b"kind": LEFT_OUT}).with_nullable(True)


def fill_metadata(decoded: Decoded, layout: TableLayout, segment: Segment) -> pa.Table:
    """Fill a segment's metadata columns, where its table has them. It must have been decoded with `envelope` then."""
    table = decoded.table
    if not layout.metadata or decoded.version is None or decoded.extracted is None:
        return table
    at = pa.repeat(pa.scalar(segment.at * 1000, pa.int64()).cast(TIMESTAMP), table.num_rows)
    filled = {
        "_sdc_extracted_at": pc.coalesce(decoded.extracted, at),
        "_sdc_received_at": at,
        "_sdc_batched_at": at,
        "_sdc_sequence": pa.repeat(pa.scalar(segment.at, pa.int64()), table.num_rows),
        VERSION_COLUMN: decoded.version,
    }
    for place, field in enumerate(table.schema):
        if (array := filled.get(source(field))) is not None:
            table = table.set_column(place, field, array.cast(field.type))
    return table
