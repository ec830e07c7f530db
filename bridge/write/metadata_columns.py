"""The rows of a stream as its table has them: what the Singer SDK notes of a record is added to what was read.

Pure: the times are constants of the manifest that a row came with.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
import pyarrow.compute as pc

from bridge.decode.decoder import Decoded
from bridge.schema.json_schema import LEFT_OUT, TIMESTAMP, source
from bridge.schema.table_schema import TableSchema
from bridge.spool.spool import Segment
from bridge.write.layout import TableLayout

DELETED_AT = "_sdc_deleted_at"
"""The one metadata column that a tap may fill."""

METADATA: dict[str, pa.DataType] = {
    "_sdc_extracted_at": TIMESTAMP,
    "_sdc_received_at": TIMESTAMP,
    "_sdc_batched_at": TIMESTAMP,
    DELETED_AT: TIMESTAMP,
    "_sdc_sequence": pa.int64(),
    "_sdc_table_version": pa.int64(),
}
"""The Singer SDK's metadata columns, in its order, all nullable."""


def with_metadata(fields: Iterable[pa.Field]) -> list[pa.Field]:
    """Return a SCHEMA's columns and the metadata columns; the tap's own of these names have the SDK's types."""
    kept = [field for field in fields if source(field) not in METADATA]
    return [*kept, *(pa.field(name, type_) for name, type_ in METADATA.items())]


def left_out(field: pa.Field) -> pa.Field:
    """Return the field as one that the tap sends and the table does not have."""
    return field.with_metadata({b"singer": source(field).encode(), b"kind": LEFT_OUT}).with_nullable(True)


def without(schema: TableSchema, fields: Iterable[pa.Field], *, metadata: bool) -> TableSchema:
    """Return the columns to read RECORDs into, where these fields are not kept and metadata columns not the tap's."""
    filled = [pa.field(name, pa.string()) for name in METADATA if metadata and name != DELETED_AT]
    skipped = {source(field): left_out(field) for field in [*filled, *fields]}
    if not skipped:
        return schema
    reading = [field for field in schema.fields if source(field) not in skipped]
    return TableSchema(schema.arrow, pa.schema([*reading, *skipped.values()]))


def shaped(decoded: Decoded, layout: TableLayout, segment: Segment) -> pa.Table:
    """Return a segment's rows as its table has them.

    With metadata columns, `decoded` has to have each row's `version` and `extracted`.
    """
    table = decoded.table
    if not layout.metadata or decoded.version is None or decoded.extracted is None:
        return table
    at = pa.repeat(pa.scalar(segment.at * 1000, pa.int64()).cast(TIMESTAMP), table.num_rows)
    filled = {
        "_sdc_extracted_at": pc.coalesce(decoded.extracted, at),
        "_sdc_received_at": at,
        "_sdc_batched_at": at,
        "_sdc_sequence": pa.repeat(pa.scalar(segment.at, pa.int64()), table.num_rows),
        "_sdc_table_version": decoded.version,
    }
    for place, field in enumerate(table.schema):
        if (array := filled.get(source(field))) is not None:
            table = table.set_column(place, field, array.cast(field.type))
    return table
