"""Keys that were forgotten, and come again: a source that still has a person sends them anew.

`.bridge/<pipeline>/forgotten/<stream>.json` has their codes, HMACs under the settings' `mask_key`, and never the keys.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import date, datetime, timezone
from decimal import Decimal, InvalidOperation
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
from bridge.protocol.schema.json_schema import VersionColumn, source
from bridge.settings.destination import HISTORY
from bridge.settings.options import Pipeline

_RECEIPT = ".receipt.json"
_WHOLE = re.compile(r"-?[0-9]+")
_NUMBER = re.compile(r"-?[0-9]+(?:[.][0-9]+)?(?:[eE][-+]?[0-9]{1,3})?")


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
    """The stream of a list, and its codes; none if there is no list. Raises `LakeError` for one that cannot be read."""
    try:
        data = storage.read(key)
        body: Any = loads(data) if data is not None else {"stream": "", "keys": {}}
        return str(body["stream"]), dict(body["keys"])
    except (NotJson, KeyError, TypeError, ValueError) as error:
        hint = "restore it from a backup of the bucket; or delete it, and no run warns of these keys any more"
        raise LakeError("a list of forgotten keys cannot be read", hint=hint, file=key) from error


Columns = list[tuple[str, tuple[str, ...]]]
"""Streams with a table, each with columns that have a key; a stream may have several such."""


def columns_in(pipeline: Pipeline, snapshot: Snapshot, stream: str, declared: Iterable[str]) -> Columns:
    """The columns that have a key of `stream`: its own key, and those of its relations.

    `declared`: the key that the tap declares, for a table whose rows are not merged by one. Raises `SettingsError` if
    there is no such table at all, or its key is not known.
    """
    columns: Columns = []
    if has_table(pipeline, snapshot, stream):
        table = snapshot.table(pipeline.names_of(stream))
        stored = [one for one in (table.key if table else ()) if not _is_start(pipeline, stream, one)]
        key = stored or pipeline.stream(stream).key_properties or tuple(declared)
        if not key:
            hint = "set key_properties for it under streams: the columns by which its rows are found"
            raise SettingsError("the stream has no key", hint=hint, stream=stream)
        columns.append((stream, tuple(key)))
    for other, named in related_to(pipeline, stream):
        if has_table(pipeline, snapshot, other):
            is_single = len(columns[0][1]) == 1 if columns else True
            columns += [(other, (one,)) for one in named] if is_single else [(other, tuple(named))]
    if not columns:
        hint = did_you_mean(stream, snapshot.stream_tables) or "`singer-bridge tables list` shows those there are"
        raise SettingsError("there is no such table", hint=hint, stream=stream)
    return columns


def _is_start(pipeline: Pipeline, stream: str, column: str) -> bool:
    """Whether a column of a table's key tells the versions of one row apart."""
    return column == VersionColumn.START and pipeline.load_method(stream) == HISTORY


def related_to(pipeline: Pipeline, stream: str) -> list[tuple[str, list[str]]]:
    """The streams that the settings relate to one, and their columns that have its key."""
    names = dict.fromkeys((stream, *pipeline.names_of(stream)))
    return [relation for name in names for relation in pipeline.forget.get(name, {}).items()]


def has_table(pipeline: Pipeline, snapshot: Snapshot, stream: str) -> bool:
    """Whether a stream has a table, or one that is half loaded."""
    names = (stream, *pipeline.names_of(stream))
    table = snapshot.table(names)
    return (table is not None and table.schema is not None) or any(name in snapshot.staged for name in names)


def fields_of(schema: pa.Schema, column: str, stream: str) -> list[pa.Field]:
    """The columns of a table with the values of one: by its name, or by the tap's, which variants have, too.

    Raises `SettingsError` if there is none.
    """
    fields = [one for one in schema if column in (one.name, source(one))]
    fields += [one for one in schema if fields and one not in fields and source(one) == source(fields[0])]
    if not fields:
        hint = did_you_mean(column, schema.names) or f"its columns are: {', '.join(schema.names[:20])}"
        raise SettingsError("the table has no such column to find rows by", hint=hint, stream=stream, key=column)
    return fields


def value_of(text: str, type_: pa.DataType) -> Any:
    """The value of a column's type that has a text; None if the type has none."""
    try:
        return pa.scalar(_value(text, type_), type_).as_py()
    except (KeyError, ValueError, InvalidOperation, pa.ArrowException, OverflowError):
        return None


def _value(text: str, type_: pa.DataType) -> Any:
    if pa.types.is_string(type_):
        return text
    if pa.types.is_integer(type_) and _WHOLE.fullmatch(text):
        return int(text)
    if pa.types.is_decimal(type_) and _NUMBER.fullmatch(text):
        return Decimal(text)
    if pa.types.is_floating(type_) and _NUMBER.fullmatch(text):
        return float(text)
    if pa.types.is_boolean(type_):
        return {"true": True, "false": False}[text.lower()]
    if pa.types.is_date(type_):
        return date.fromisoformat(text)
    if pa.types.is_timestamp(type_):
        at = datetime.fromisoformat(text.replace("Z", "+00:00"))
        return at if at.tzinfo or type_.tz is None else at.replace(tzinfo=timezone.utc)
    raise ValueError(text)


def text_of(value: Any) -> str:
    """The text of a column's value, by which its code is made."""
    if isinstance(value, datetime) and value.tzinfo:
        value = value.astimezone(timezone.utc)
    return value.isoformat() if isinstance(value, date) else Masks.text_of(value)


def came_again(log: Log, streams: Streams, before: Snapshot, after: Snapshot) -> Iterator[str]:
    """A warning for each table to which commits after `before` brought rows of forgotten keys."""
    pipeline = streams.pipeline
    if not pipeline.mask_key or after.n == before.n:
        return
    folder = pipeline_key(log.pipeline, "forgotten")
    for name in sorted(one for one in log.storage.list(folder) if not one.endswith(_RECEIPT)):
        stream = name.removesuffix(".json")
        try:
            stream, codes = _read(log.storage, f"{folder}/{name}")
            for table, key in columns_in(pipeline, after, stream, streams[stream].keys) if codes else ():
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
    name = next((one for one in (stream, *names) if one in after.tables), "")
    if not name:
        return set()
    table, masks = after.tables[name], Masks(pipeline.mask, pipeline.mask_key or "")
    schema = columns_of(log.storage, log.pipeline, table)
    fields = [fields_of(schema, column, stream)[0] for column in columns]
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
    return {masks.code(*map(text_of, key)) for key in whole}


def _added(log: Log, since: int, head: int, stream: str) -> set[str]:
    files = set[str]()
    for record in log.history(head, fences=False):
        if record.n <= since:
            break
        changes = [change for change in record.tables if change.stream == stream]
        files |= {add.name for change in changes for add in change.adds}
    return files
