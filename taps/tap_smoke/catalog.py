"""The streams that the tap offers (`--discover`), and those that a passed catalog selects."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tap_smoke.config import read_json
from tap_smoke.records import REPLICATION_KEY, column_schemas
from tap_smoke.settings import METHODS, Settings, StreamSettings, TapError


@dataclass(frozen=True)
class Selection:
    """One stream that is to be synced: with which method, and which columns of it."""

    stream: StreamSettings
    method: str
    columns: set[str]


def discover(settings: Settings) -> dict[str, Any]:
    """The Singer catalog; everything in it is selected, so that it can be passed back as it is."""
    return {"streams": [_entry(stream) for stream in settings.streams]}


def select(settings: Settings, path: str | None) -> list[Selection]:
    """The streams to sync, in config order; without a catalog all of them with all columns."""
    if path is None:
        return [Selection(s, s.replication_method, set(column_schemas(s))) for s in settings.streams]
    entries = _read(path)
    declared = {stream.name for stream in settings.streams}
    chosen = {name: entry for name, entry in entries.items() if _stream_selected(entry)}
    foreign = sorted(chosen.keys() - declared)
    if foreign:
        raise TapError(f"the catalog selects a stream this tap does not have: {foreign[0]}")
    return [_selection(stream, chosen[stream.name]) for stream in settings.streams if stream.name in chosen]


def _read(path: str) -> dict[str, dict[str, Any]]:
    catalog = read_json(path, "catalog")
    try:
        return {entry.get("tap_stream_id") or entry["stream"]: entry for entry in catalog["streams"]}
    except (KeyError, TypeError, AttributeError) as error:
        raise TapError("the catalog is not a Singer catalog: it needs streams, each with a tap_stream_id") from error


def _entry(stream: StreamSettings) -> dict[str, Any]:
    schemas, incremental = column_schemas(stream), stream.replication_method == "INCREMENTAL"
    keys = list(stream.key_properties or ())
    root: dict[str, Any] = {"inclusion": "available", "selected": True, "table-key-properties": keys}
    root.update({"replication-method": stream.replication_method, "valid-replication-keys": [REPLICATION_KEY]})
    if incremental:
        root["replication-key"] = REPLICATION_KEY
    fixed = _always(stream)
    metadata = [{"breadcrumb": [], "metadata": root}]
    for name in schemas:
        mark = {"inclusion": "automatic"} if name in fixed else {"inclusion": "available", "selected-by-default": True}
        metadata.append({"breadcrumb": ["properties", name], "metadata": mark})
    return {
        "tap_stream_id": stream.name,
        "stream": stream.name,
        "key_properties": keys,
        "replication_method": stream.replication_method,
        **({"replication_key": REPLICATION_KEY} if incremental else {}),
        "schema": {"type": "object", "properties": schemas},
        "metadata": metadata,
    }


def _always(stream: StreamSettings) -> set[str]:
    """Columns that cannot be deselected: the key and the replication key."""
    return {REPLICATION_KEY, *(stream.key_properties or ())}


def _metadata(entry: dict[str, Any]) -> dict[tuple[str, ...], dict[str, Any]]:
    return {tuple(item["breadcrumb"]): item["metadata"] for item in entry.get("metadata") or ()}


def _stream_selected(entry: dict[str, Any]) -> bool:
    """Metadata decides; without it the keys of older catalogs, `selected` beside or inside the schema."""
    root = _metadata(entry).get((), {})
    for place in (root, entry, entry.get("schema") or {}):
        if "selected" in place:
            return place["selected"] is True
    return False


def _selection(stream: StreamSettings, entry: dict[str, Any]) -> Selection:
    metadata = _metadata(entry)
    root = metadata.get((), {})
    method = root.get("replication-method") or entry.get("replication_method") or stream.replication_method
    if method not in METHODS:
        raise TapError(f"stream {stream.name}: this tap has no replication-method {method}")
    columns = {name for name in column_schemas(stream) if _column_selected(metadata.get(("properties", name), {}))}
    return Selection(stream, method, columns | _always(stream))


def _column_selected(mark: dict[str, Any]) -> bool:
    if mark.get("inclusion") == "unsupported":
        return False
    return bool(mark.get("selected", mark.get("selected-by-default", True)))
