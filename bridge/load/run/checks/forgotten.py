"""Keys that were forgotten, and come again: a source that still has a person sends them anew.

`.bridge/<pipeline>/forgotten/<stream>.json` has their codes, HMACs under the settings' `mask_key`, and never the keys.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import date
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from bridge.errors import LakeError, SettingsError, did_you_mean
from bridge.exact_json import NotJson, dumps, loads
from bridge.lake.log import Log, Snapshot
from bridge.lake.paths import folder_name, pipeline_key
from bridge.lake.schemas import columns_of
from bridge.lake.storage import Storage
from bridge.load.run.streams import Streams
from bridge.protocol.mask.masks import Masks
from bridge.protocol.schema.json_schema import source
from bridge.settings.options import Pipeline

_RECEIPT = ".receipt.json"


def receipt_key(pipeline: str, id_: str) -> str:
    """The key of a receipt in the bucket."""
    return pipeline_key(pipeline, "forgotten", f"{id_}{_RECEIPT}")


def remember(storage: Storage, pipeline: str, stream: str, codes: Iterable[str], at: str) -> None:
    """Add the codes of a stream's keys to those that a run looks for."""
    key = pipeline_key(pipeline, "forgotten", f"{folder_name(stream, ())}.json")
    _, listed = _read(storage, key)
    body = {"format": 1, "stream": stream, "keys": {**listed, **dict.fromkeys(codes, at)}}
    storage.write(key, dumps(body, indent=2))


def _read(storage: Storage, key: str) -> tuple[str, Mapping[str, Any]]:
    """The stream of a list, and its codes; none if it cannot be read."""
    try:
        body = loads(storage.read(key) or b"{}")
    except NotJson:
        return "", {}
    keys = body.get("keys") if isinstance(body, dict) else None
    return (str(body.get("stream")), keys) if isinstance(keys, dict) else ("", {})


def columns_in(
    pipeline: Pipeline, snapshot: Snapshot, stream: str, declared: Iterable[str]
) -> dict[str, tuple[str, ...]]:
    """By stream with a table, the columns that have a key of `stream`: its own key, and those of its relations.

    `declared`: the key that the tap declares, for a table whose rows are not merged by one. Raises `SettingsError` if
    there is no such table at all, or its key is not known.
    """
    columns = dict[str, tuple[str, ...]]()
    table = snapshot.table(pipeline.names_of(stream))
    if table is not None and table.schema is not None:
        key = pipeline.stream(stream).key_properties or table.key or tuple(declared)
        if not key:
            hint = "set key_properties for it under streams: the columns by which its rows are found"
            raise SettingsError("the stream has no key", hint=hint, stream=stream)
        columns[stream] = tuple(key)
    for name in dict.fromkeys((stream, *pipeline.names_of(stream))):
        for other, named in pipeline.forget.get(name, {}).items():
            if snapshot.table(pipeline.names_of(other)) is not None:
                columns[other] = tuple(named)
    if not columns:
        hint = did_you_mean(stream, snapshot.stream_tables) or "`singer-bridge tables list` shows those there are"
        raise SettingsError("there is no such table", hint=hint, stream=stream)
    return columns


def field_of(schema: pa.Schema, column: str, stream: str) -> pa.Field:
    """A column by its name, or by the tap's. Raises `SettingsError` if there is none."""
    for one in schema:
        if column in (one.name, source(one)):
            return one
    hint = did_you_mean(column, schema.names) or f"its columns are: {', '.join(schema.names[:20])}"
    raise SettingsError("the table has no such column to find rows by", hint=hint, stream=stream, key=column)


def came_again(log: Log, streams: Streams, before: Snapshot, after: Snapshot) -> Iterator[str]:
    """A warning for each table to which commits after `before` brought rows of forgotten keys."""
    pipeline = streams.pipeline
    if not pipeline.mask_key or after.n == before.n:
        return
    folder = pipeline_key(log.pipeline, "forgotten")
    for name in sorted(one for one in log.storage.list(folder) if not one.endswith(_RECEIPT)):
        stream, codes = _read(log.storage, f"{folder}/{name}")
        try:
            columns = columns_in(pipeline, after, stream, streams[stream].keys) if codes else {}
            for table, key in columns.items():
                if count := len(_codes(log, pipeline, before, after, table, key) & codes.keys()):
                    remedy = f"singer-bridge forget {pipeline.name} -s {shlex.quote(stream)}"
                    yield (
                        f"{table}: rows of {count} forgotten key(s) came again, as the source still has them; "
                        f"`{remedy} --key ...` takes them out once more"
                    )
        except (SettingsError, LakeError) as error:
            yield f"{stream}: whether forgotten keys came again is not known: {error.message}"


def _codes(
    log: Log, pipeline: Pipeline, before: Snapshot, after: Snapshot, stream: str, columns: Collection[str]
) -> set[str]:
    """The codes of all keys in the files that came to a table since a commit."""
    names = pipeline.names_of(stream)
    name = next(one for one in (stream, *names) if one in after.tables)
    table, masks = after.tables[name], Masks(pipeline.mask, pipeline.mask_key or "")
    fields = [field_of(columns_of(log.storage, log.pipeline, table), column, stream) for column in columns]
    are_codes = [masks.of(names, source(one)) == "hash" for one in fields]
    keys = set[tuple[Any, ...]]()
    for file in _added(log, before.n, after.n, name) & table.files.keys():
        try:
            with log.storage.open(f"{table.folder}/{file}") as data, pq.ParquetFile(data) as parquet:
                if {one.name for one in fields} <= set(parquet.schema_arrow.names):
                    rows = parquet.read(columns=[one.name for one in fields])
                    unique = rows.group_by(rows.column_names).aggregate([])
                    keys.update(zip(*(unique.column(one.name).to_pylist() for one in fields), strict=True))
        except (pa.ArrowInvalid, OSError) as error:
            raise LakeError("a file cannot be read", file=file) from error
    whole = [key for key in keys if None not in key]
    if are_codes == [True]:
        return {str(value) for (value,) in whole}
    return {masks.code(*map(_text, key)) for key in whole}


def _added(log: Log, since: int, head: int, stream: str) -> set[str]:
    files = set[str]()
    for record in log.history(head, fences=False):
        if record.n <= since:
            break
        changes = [change for change in record.tables if change.stream == stream]
        files |= {add.name for change in changes for add in change.adds}
    return files


def _text(value: Any) -> str:
    return value.isoformat() if isinstance(value, date) else Masks.text_of(value)
