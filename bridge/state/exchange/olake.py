"""OLake: `state.json` of type STREAM, a cursor a stream.

```
{"type": "STREAM", "version": 7, "streams": [
  {"stream": "orders", "namespace": "public", "sync_mode": "", "state": {"chunks": [], "updated_at": "2025-..."}}]}
```
An incremental stream has its cursor's field and value, and `chunks: []` once its first load is complete. That is what
Singer keeps as `replication_key` and `replication_key_value`, of a stream that SQL taps call `<namespace>-<stream>`.
Positions in a database's log have OLake's own form and cannot be converted, nor can an unfinished first load.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from bridge.errors import SettingsError
from bridge.singer.state import is_empty, is_flat
from bridge.singer.state_edits import parsed
from bridge.state.exchange.foreign import expect

_VERSION = 7
"""The newest that OLake 0.9 writes; it says how values are typed, and the layout has been the same since 0."""
_LOG_POSITIONS = {"_data", "resume_token", "lsn"}
"""Where MongoDB and SQL Server keep their position: in the stream, in place of a cursor."""
_KEY, _VALUE = "replication_key", "replication_key_value"
_NOTES = {"version", "last_replication_method"}
"""What some taps note beside the cursor, and OLake has no use for."""

_CDC_HINT = "a log position means nothing to a tap: let it start anew, or import other streams with --stream"


def read(data: bytes, which: str | None, streams: Collection[str]) -> Any:
    """Return the STATE. Raises `SettingsError` that names the first wanted stream which cannot be carried over."""
    del which
    document = parsed(data, "the file")
    expect(document, "olake")
    entries = _by_name(document.get("streams") or [])
    for name in _followed(document):
        if name in streams or not streams:
            raise SettingsError("OLake reads this stream from the database's log", hint=_CDC_HINT, stream=name)
    if not entries and not streams:
        raise SettingsError("no stream with a cursor in the file", hint=_CDC_HINT)
    wanted = {name: entry for name, entry in entries.items() if name in streams or not streams}
    return {"bookmarks": {name: _bookmark(name, entry) for name, entry in wanted.items()}}


def _by_name(found: list[Any]) -> dict[str, Any]:
    entries: dict[str, Any] = {}
    for entry in found:
        name = _name(entry)
        if name in entries:
            hint = "import all but this one with --stream, and set it by hand"
            raise SettingsError("two streams of OLake would have one name here", hint=hint, stream=name)
        entries[name] = entry
    return entries


def _name(entry: Any) -> str:
    try:
        namespace, stream = entry.get("namespace") or "", entry["stream"]
    except (AttributeError, KeyError):
        hint = "each entry of `streams` has `stream`, `namespace` and `state`"
        raise SettingsError("this is no STATE as OLake keeps it", hint=hint) from None
    return f"{namespace}-{stream}" if namespace else str(stream)


def _followed(document: dict[str, Any]) -> list[str]:
    """Return the streams that are read from a database's log, at one common position."""
    position = document.get("global")
    names = position.get("streams") or [] if isinstance(position, dict) else []
    return [str(name).replace(".", "-", 1) for name in names]


def _bookmark(name: str, entry: dict[str, Any]) -> dict[str, Any]:
    state = dict(entry.get("state") or {})
    if entry.get("sync_mode") in ("cdc", "strict_cdc") or state.keys() & _LOG_POSITIONS:
        raise SettingsError("OLake reads this stream from the database's log", hint=_CDC_HINT, stream=name)
    chunks = state.pop("chunks", None)
    cursors = {key: value for key, value in state.items() if key and value is not None}
    if not cursors:
        return {}  # OLake would start it from the beginning, too
    if chunks != []:
        hint = "let OLake finish it, or import the other streams with --stream"
        raise SettingsError("OLake's first load of this stream is not complete", hint=hint, stream=name)
    if len(cursors) > 1:
        hint = f"a tap has one: set it with `state set -s {name}`"
        raise SettingsError("OLake has two cursors for this stream", hint=hint, cursors=", ".join(cursors))
    [(key, value)] = cursors.items()
    return {_KEY: key, _VALUE: value}


def write(state: Any) -> Any:
    """Return the document. Raises `SettingsError` that names the first stream which OLake could not go on with."""
    if is_flat(state) and not is_empty(state):
        raise SettingsError("this STATE has no `bookmarks`", hint="OLake needs the cursor's field of each stream")
    rest = {key: value for key, value in (state or {}).items() if key != "bookmarks" and value is not None}
    if rest:
        hint = "let the pipeline run to its end first, or choose streams with --stream"
        raise SettingsError("OLake has no place for a part of this STATE", hint=hint, keys=", ".join(rest))
    bookmarks = (state or {}).get("bookmarks", {})
    entries = [_entry(name, value) for name, value in bookmarks.items()]
    return {"type": "STREAM", "version": _VERSION, "streams": entries}


def _entry(name: str, bookmark: Any) -> dict[str, Any]:
    namespace, dash, stream = name.partition("-")
    place = {"stream": stream, "namespace": namespace} if dash and namespace and stream else _unnamed(name)
    if bookmark == {}:
        return {**place, "sync_mode": "", "state": {}}
    if not isinstance(bookmark, dict) or not _is_cursor(bookmark):
        hint = "only a stream that is incremental by one column, and not in the middle of a run; see --stream"
        raise SettingsError("OLake cannot go on from this bookmark", hint=hint, stream=name)
    return {**place, "sync_mode": "", "state": {"chunks": [], bookmark[_KEY]: bookmark[_VALUE]}}


def _unnamed(name: str) -> dict[str, str]:
    return {"stream": name, "namespace": ""}


def _is_cursor(bookmark: dict[str, Any]) -> bool:
    key, value = bookmark.get(_KEY), bookmark.get(_VALUE)
    if bookmark.keys() - _NOTES != {_KEY, _VALUE} or value is None or isinstance(value, (dict, list)):
        return False
    return isinstance(key, str) and key not in {"", "chunks", *_LOG_POSITIONS}
