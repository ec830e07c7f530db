"""Reads and edits a Singer catalog, in each of the styles that taps use.

Metadata entries with breadcrumbs go first; older catalogs say the same beside the schema and inside it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from bridge.errors import TapError
from bridge.exact_json import NotJson, dumps, loads

Catalog = dict[str, Any]
StreamEntry = dict[str, Any]
Path = tuple[str, ...]
"""A column: `("address", "city")` is inside `("address",)`."""

_SYSTEM = frozenset({"information_schema", "pg_catalog", "pg_toast", "performance_schema", "mysql", "sys"})
_SYSTEM_PREFIXES = ("information_schema-", "pg_catalog-")

_KEYS = ("view-key-properties", "table-key-properties", "key-properties")
_HINT = 'the tap\'s --discover, or the file given as `catalog`, must hold {"streams": [...]}'


def parse_catalog(text: bytes) -> Catalog | None:
    """The catalog; None if the first line is a Singer message: the tap ran instead of discovering."""
    try:
        catalog = loads(text)
    except NotJson as error:
        if _is_message(text.lstrip().split(b"\n", 1)[0]):
            return None
        raise TapError("this is not a catalog", hint=_HINT) from error
    if isinstance(catalog, dict) and "type" in catalog and "streams" not in catalog:
        return None
    streams = catalog.get("streams") if isinstance(catalog, dict) else None
    if not isinstance(streams, list):
        raise TapError("this is not a catalog", hint=_HINT)
    for number, stream in enumerate(streams):
        if not isinstance(stream, dict):
            shown = dumps(stream).decode()[:80]
            raise TapError(
                "this is not a catalog: a stream in it is no object", hint=_HINT, **{f"streams[{number}]": shown}
            )
    return dict(catalog)


def _is_message(line: bytes) -> bool:
    try:
        message = loads(line)
    except NotJson:
        return False
    return isinstance(message, dict) and "type" in message and "streams" not in message


def stream_id(stream: StreamEntry) -> str:
    """`tap_stream_id`, or `stream` where that is missing."""
    return str(stream.get("tap_stream_id") or stream.get("stream"))


def stream_ids(catalog: Catalog) -> list[str]:
    """In the catalog's order."""
    return [stream_id(stream) for stream in catalog["streams"]]


def is_system(stream: StreamEntry) -> bool:
    """Whether a stream is a table of the database system, such as those of `information_schema`."""
    facts = root_facts(stream)
    schemas = {str(facts.get(name, "")).lower() for name in ("schema-name", "database-name")}
    return bool(schemas & _SYSTEM) or stream_id(stream).lower().startswith(_SYSTEM_PREFIXES)


def user_streams_first(catalog: Catalog) -> list[StreamEntry]:
    """The streams in the catalog's order, those of system schemas last."""
    return sorted(catalog["streams"], key=is_system)


def stream_entry(catalog: Catalog | None, name: str) -> StreamEntry | None:
    """The stream with that id, else one whose RECORDs have that name, preferably a selected one."""
    streams = (catalog or {}).get("streams", [])
    by_id = (stream for stream in streams if stream_id(stream) == name)
    by_name = [stream for stream in streams if stream.get("stream") == name]
    return next(by_id, None) or next(filter(is_selected, by_name), None) or next(iter(by_name), None)


def entries_by_name(catalog: Catalog) -> dict[str, StreamEntry]:
    """The entry that `stream_entry` finds for each name: for whoever looks up thousands of streams."""
    streams = [*reversed(catalog.get("streams", []))]  # of several with one name, the last one written counts
    selected_last = sorted(streams, key=is_selected)
    entries = {stream["stream"]: stream for stream in selected_last if "stream" in stream}
    return entries | {stream_id(stream): stream for stream in streams}


def record_name(stream: StreamEntry) -> str:
    """The name that the stream's RECORDs may have; in older taps it is not the id."""
    return str(stream.get("stream") or stream_id(stream))


def stream_names(catalog: Catalog) -> dict[str, tuple[str, ...]]:
    """All names of a stream by each of them: its id first, then the name that its RECORDs may have.

    A name that is an id belongs to that stream. A name of several streams belongs to the selected one; to none if
    several are selected; to all of them if none is.
    """
    by_id = {stream_id(stream): stream for stream in catalog["streams"]}
    names: dict[str, tuple[str, ...]] = {
        name: (name,) if (other := record_name(stream)) == name or other in by_id else (name, other)
        for name, stream in by_id.items()
    }
    for shared in {pair[1] for pair in names.values() if len(pair) > 1}:
        owners = [name for name, pair in names.items() if shared in pair]
        selected = [name for name in owners if is_selected(by_id[name])]
        if len(selected) == 1:
            names[shared] = names[selected[0]]
        elif not selected:
            names[shared] = (*owners, shared)
    return names


def namesakes(catalog: Catalog | None, name: str) -> list[str]:
    """The ids of the selected streams whose RECORDs may be named `name`, if there are several."""
    streams = (catalog or {}).get("streams", [])
    if any(stream_id(stream) == name for stream in streams):
        return []
    ids = [stream_id(stream) for stream in streams if record_name(stream) == name and is_selected(stream)]
    return ids if len(ids) > 1 else []


def has_metadata(stream: StreamEntry) -> bool:
    """Whether metadata entries describe the stream; in older catalogs they do not."""
    return bool(stream.get("metadata"))


def _breadcrumb(path: Path) -> list[str]:
    return [part for name in path for part in ("properties", name)]


def _entries(stream: StreamEntry) -> Iterator[tuple[Path, dict[str, Any]]]:
    """The metadata of the stream, at (), and of its columns, except those inside arrays."""
    for entry in stream.get("metadata") or ():
        crumb = entry.get("breadcrumb") or []
        if all(part == "properties" for part in crumb[::2]) and len(crumb) % 2 == 0:
            yield tuple(crumb[1::2]), entry.get("metadata") or {}


def root_facts(stream: StreamEntry) -> dict[str, Any]:
    """The stream's own metadata, including `selected`, by metadata's names. Do not write to it."""
    schema = stream.get("schema") or {}
    facts = {key: schema[key] for key in ("inclusion", "selected") if key in schema}
    facts |= {key: stream[key] for key in ("inclusion", "selected") if stream.get(key) is not None}
    own = next((metadata for path, metadata in _entries(stream) if not path), {})
    return facts | {key: value for key, value in own.items() if value is not None}


def _properties(schema: Any, above: Path = ()) -> Iterator[tuple[Path, dict[str, Any]]]:
    properties = schema.get("properties") if isinstance(schema, dict) else None
    for name, inner in properties.items() if isinstance(properties, dict) else ():
        if isinstance(inner, dict):
            yield (*above, name), inner
            yield from _properties(inner, (*above, name))


def columns(stream: StreamEntry) -> dict[Path, dict[str, Any]]:
    """Each column's JSON Schema, in the schema's order; nested columns follow theirs."""
    return dict(_properties(stream.get("schema") or {}))


def column_facts(stream: StreamEntry) -> dict[Path, dict[str, Any]]:
    """Each column's metadata: `inclusion`, `selected` and so on. Do not write to it."""
    marks = ("inclusion", "selected", "selected-by-default")
    facts = {path: {key: schema[key] for key in marks if key in schema} for path, schema in columns(stream).items()}
    for path, metadata in _entries(stream):
        if path in facts:
            facts[path] |= {key: value for key, value in metadata.items() if value is not None}
    return facts


def write(stream: StreamEntry, facts: dict[Path, dict[str, Any]]) -> None:
    """Write metadata of the stream, at (), and of columns, to each place where taps of its style look."""
    new_style = has_metadata(stream)
    places = {(): stream.setdefault("schema", {})} | columns(stream)
    entries = {tuple(entry.get("breadcrumb") or ()): entry for entry in stream.get("metadata") or ()}
    for path, new in facts.items():
        crumb = _breadcrumb(path)
        if new_style:
            entry = entries.get(tuple(crumb)) or {"breadcrumb": crumb}
            entry["metadata"] = (entry.get("metadata") or {}) | new
            if tuple(crumb) not in entries:
                stream["metadata"].append(entry)
        if "selected" not in new:
            continue
        for place in (places.get(path, {}), *(() if path else (stream,))):
            if not new_style or "selected" in place:
                place["selected"] = new["selected"]


def _fact(stream: StreamEntry | None, name: str) -> Any:
    """The stream's value under metadata's name, else under the older name with underscores."""
    if stream is None:
        return None
    return root_facts(stream).get(name) or stream.get(name.replace("-", "_"))


def replication_method(catalog: Catalog | None, stream: str) -> str | None:
    """The stream's replication method in capitals: the chosen one, else the forced one, else None."""
    entry = stream_entry(catalog, stream)
    method = _fact(entry, "replication-method") or _fact(entry, "forced-replication-method")
    return str(method).upper() if method else None


def replication_key(catalog: Catalog | None, stream: str) -> str | None:
    """The stream's replication key; None if the catalog has none."""
    key = _fact(stream_entry(catalog, stream), "replication-key")
    return str(key) if key else None


def key_properties(stream: StreamEntry) -> list[str]:
    """The columns that identify a row: for a view those that the user chose, for a table its own."""
    for name in _KEYS:
        if keys := _fact(stream, name):
            return [keys] if isinstance(keys, str) else [str(key) for key in keys]
    return []


def declares_keys(stream: StreamEntry) -> bool:
    """Whether the catalog says which columns identify a row; it may say that none do."""
    return any(name in root_facts(stream) or name.replace("-", "_") in stream for name in _KEYS)


def is_selected(stream: StreamEntry) -> bool:
    """Whether a tap would sync the stream."""
    facts = root_facts(stream)
    if facts.get("inclusion") == "unsupported":
        return False
    if "selected" in facts:
        return bool(facts["selected"])
    return bool(facts.get("selected-by-default")) or facts.get("inclusion") == "automatic"


def selected_streams(catalog: Catalog) -> set[str]:
    """The ids of the streams that a tap would sync."""
    return {stream_id(stream) for stream in catalog["streams"] if is_selected(stream)}


def deselected(catalog: Catalog) -> set[str]:
    """Every name of the streams in the catalog that are not selected."""
    names: dict[bool, set[str]] = {True: set(), False: set()}
    for stream in catalog["streams"]:
        names[is_selected(stream)] |= {stream_id(stream), record_name(stream)}
    return names[False] - names[True]
