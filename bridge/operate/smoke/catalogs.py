"""Problems of a catalog that would stop targets and runners."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bridge.operate.smoke.verdicts import Verdicts
from bridge.protocol.decode.validate import draft_of
from bridge.protocol.schema.valid import json_pointer
from bridge.protocol.singer.catalog import (
    Catalog,
    StreamEntry,
    key_properties,
    replication_key,
    stream_id,
    stream_ids,
)

_HINT = "correct the tap's discovery"


def check_catalog(catalog: Catalog, verdicts: Verdicts) -> None:
    """Note what is wrong with each stream of a catalog."""
    verdicts.make("catalog")
    if not catalog["streams"]:
        verdicts.fail("catalog", "it has no streams", "check whether the tap's settings let it find any")
    ids = stream_ids(catalog)
    for name in sorted({name for name in ids if ids.count(name) > 1}):
        verdicts.fail("catalog", "two streams have one tap_stream_id", _HINT, stream=name)
    for stream in catalog["streams"]:
        _check_stream(stream, catalog, verdicts)


def _check_stream(stream: StreamEntry, catalog: Catalog, verdicts: Verdicts) -> None:
    name, schema = stream_id(stream), stream.get("schema")
    if not stream.get("tap_stream_id"):
        verdicts.fail("catalog", "a stream has no tap_stream_id", _HINT, stream=name)
    if not isinstance(schema, dict):
        verdicts.fail("catalog", "a stream has no schema", _HINT, stream=name)
        return
    if wrong := schema_error(schema):
        verdicts.fail("catalog", f"its schema is no JSON Schema: {wrong[1]}", _HINT, stream=name, pointer=wrong[0])
    columns = schema.get("properties") or {}
    for key in key_properties(stream):
        if key not in columns:
            verdicts.fail("catalog", f"key {key} is no column", _HINT, stream=name)
    bookmark = replication_key(catalog, name)
    if bookmark and bookmark not in columns:
        verdicts.fail("catalog", f"replication key {bookmark} is no column", _HINT, stream=name)
    for entry in stream.get("metadata") or ():
        crumb = entry.get("breadcrumb") if isinstance(entry, dict) else None
        if not isinstance(crumb, Sequence) or not _leads_somewhere(crumb, schema):
            verdicts.fail("catalog", f"metadata of a column that does not exist: {crumb}", _HINT, stream=name)


def _leads_somewhere(crumb: Sequence[Any], schema: Any) -> bool:
    if not crumb or not isinstance(schema, dict) or not {"properties", "items"} & schema.keys():
        return True  # nobody can tell about what the schema does not spell out
    place: Any = schema
    for part in crumb:
        if not isinstance(place, dict) or part not in place:
            return isinstance(place, dict) and not {"properties", "items"} & place.keys()
        place = place[part]
    return True


def schema_error(schema: dict[str, Any]) -> tuple[str, str] | None:
    """Where and why a schema is no JSON Schema of its draft; None if it is one."""
    from jsonschema.exceptions import best_match

    kind = draft_of(schema)
    error = best_match(kind(kind.META_SCHEMA).iter_errors(schema))
    return error and (json_pointer(error.absolute_path), error.message[:200])
