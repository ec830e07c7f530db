"""How a Parquet file keeps its columns: as differences, with a dictionary, or plainly.

Numbers and times that rise or seldom repeat are kept as differences, which makes keys and times several times smaller:
each such column is tried both ways on the first rows of its file. Texts and floats have a dictionary, unless theirs
would be larger than Parquet's writer lets it grow: it would give up half way, and leave both a useless dictionary and
plain values. Nested columns always have dictionaries. Few rows have none, but for a text that is the same in all of
them: DuckDB 2.0 takes such a column for one without nulls if it has no dictionary.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from bridge.lake.formats.file_notes import leaves
from bridge.load.write.context import WriteContext
from bridge.protocol.schema.json_schema import children

_DICTIONARY_ROWS = 64
"""With fewer rows in its first row group, a file is larger with dictionaries, and costs a third more time."""
_SHARE = 8
"""One row of so many is tried: the trial costs less than it saves."""
_FEWEST, _MOST = 1 << 10, 1 << 16
"""Rows that are tried: of fewer a dictionary is as large as they are; more tell nothing new."""
_WORTH = 0.9
"""Differences must be smaller than this part of a dictionary: every reader knows dictionaries."""
_DIFFERENCES = "DELTA_BINARY_PACKED"
_DICTIONARY_BYTES = 1 << 20
"""The largest dictionary that Parquet's writer makes."""
_PROBES = 1 << 12
"""Values that tell how often a column repeats."""
_REPEATS = 100
"""If more than one probe of so many repeats another, the part of a dictionary that fits is worth its bytes."""
_PRIME = 2_654_435_761
"""Spreads the probes over the column without the rhythm that rows may have."""


def encodings(table: pa.Table, table_format: str, context: WriteContext) -> dict[str, Any]:
    """The arguments of `ParquetWriter`, chosen by the first rows of a file."""
    codec = {"compression": context.compression, "compression_level": context.level}
    if table.num_rows < _DICTIONARY_ROWS:
        texts = list(_same_texts(table))
        return {**codec, "use_dictionary": texts if all(map(_can_be_named, table.schema)) else bool(texts)}
    if not all(map(_can_be_named, table.schema)):
        return {**codec, "use_dictionary": True}
    # Iceberg's own reader in Spark knows differences only since 1.11
    differences = _smaller_as_differences(table, codec) if table_format != "iceberg" else []
    plain = [name for name in table.column_names if name not in differences and _outgrows_dictionary(table[name])]
    dictionaries = [path for path in _paths(table.schema) if path not in (*differences, *plain)]
    encoded = {"column_encoding": dict.fromkeys(differences, _DIFFERENCES)} if differences else {}
    return {**codec, "use_dictionary": dictionaries, **encoded}


def _same_texts(table: pa.Table) -> Iterator[str]:
    """Yield the columns with nulls and one text."""
    for path, values in leaves(table):
        is_text = pa.types.is_string(values.type) or pa.types.is_binary(values.type)
        if is_text and path and values.null_count and len(set(values.to_pylist())) == 2:  # null is the other one
            yield ".".join(path)


def _outgrows_dictionary(column: pa.ChunkedArray) -> bool:
    """Whether texts or floats seldom repeat and are too many for a dictionary, by a few values from all over them."""
    if not (pa.types.is_string(column.type) or pa.types.is_floating(column.type)) or column.nbytes <= _DICTIONARY_BYTES:
        return False
    places = [number * _PRIME % len(column) for number in range(min(_PROBES, len(column)))]
    probes = column.take(pa.array(places)).drop_null()
    count = len(probes)
    if count - pc.count_distinct(probes).as_py() > count // _REPEATS:
        return False
    return bool(count and (len(column) - column.null_count) * probes.nbytes / count > _DICTIONARY_BYTES)


def _smaller_as_differences(table: pa.Table, codec: dict[str, Any]) -> list[str]:
    rows = min(table.num_rows // _SHARE, _MOST)
    if rows < _FEWEST:
        return []
    names = [field.name for field in table.schema if _is_number(field.type)]
    sample = table.select(names).slice(0, rows)
    dictionaries = _sizes(sample, use_dictionary=True, **codec)
    differences = _sizes(sample, use_dictionary=False, column_encoding=_DIFFERENCES, **codec) if names else []
    sizes = zip(names, dictionaries, differences, strict=True)
    return [name for name, dictionary, difference in sizes if difference < _WORTH * dictionary]


def _sizes(table: pa.Table, **options: Any) -> list[int]:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, write_statistics=False, row_group_size=table.num_rows, **options)
    group = pq.read_metadata(pa.BufferReader(sink.getvalue())).row_group(0)
    return [group.column(place).total_compressed_size for place in range(table.num_columns)]


def _is_number(type_: pa.DataType) -> bool:
    return bool(pa.types.is_integer(type_) or pa.types.is_timestamp(type_) or pa.types.is_date(type_))


def _can_be_named(field: pa.Field) -> bool:
    """Whether pyarrow takes the paths of its leaves: it splits them at dots."""
    inside = children(field.type)
    return "." not in field.name and bool(inside) == pa.types.is_nested(field.type) and all(map(_can_be_named, inside))


def _paths(fields: Iterable[pa.Field], parent: str = "") -> Iterator[str]:
    """The path of each leaf, as Parquet has it."""
    for field in fields:
        inside, path = children(field.type), f"{parent}{field.name}"
        if not inside:
            yield path
        elif pa.types.is_struct(field.type):
            yield from _paths(inside, f"{path}.")
        else:
            yield from _paths([inside[0].with_name("element")], f"{path}.list.")
