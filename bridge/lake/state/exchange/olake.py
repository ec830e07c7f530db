"""OLake: `state.json`, a cursor or a position in the database's log for each stream, or one position for all.

```
{"type": "STREAM", "version": 7, "streams": [
  {"stream": "orders", "namespace": "public", "sync_mode": "", "state": {"chunks": [], "updated_at": "2025-..."}}],
 "global": {"state": {"lsn": "2D9/AD00445A"}, "streams": ["public.users"]}}
```
An incremental stream has its cursor's field and value, and `chunks: []` once its first load is complete. That is what
Singer keeps as `replication_key` and `replication_key_value`, of a stream that SQL taps call `<namespace>-<stream>`.
Files of early versions have no `version`, and may have no `chunks`. `olake_positions.py` converts positions in a log.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from random import SystemRandom
from typing import Any

from bridge.errors import SettingsError
from bridge.lake.state.exchange.foreign import ConversionRequest, Converted, expect
from bridge.lake.state.exchange.olake_positions import (
    TAPS,
    OlakePosition,
    bookmark_of,
    global_position,
    global_state,
    is_common,
    name_of,
    position_of,
    stream_position,
    stream_state,
)
from bridge.protocol.singer.state import is_empty, is_flat
from bridge.protocol.singer.state_edits import parsed

_VERSION = 7
"""The newest that OLake 0.9 writes; it says how values are typed, and the layout has been the same since 0."""
_LOG_POSITIONS = {"_data", "resume_token", "lsn"}
"""Where MongoDB and SQL Server keep their position: in the stream, in place of a cursor."""
_KEY, _VALUE = "replication_key", "replication_key_value"
_NOTES = {"version", "last_replication_method"}
"""The notes that some taps leave beside the cursor, and OLake has no use for."""
_UNKNOWN_START = "the file does not say whether OLake's first load was complete: compare the numbers of rows"


@dataclass(frozen=True, slots=True)
class _LeftOut:
    """Why a stream's position cannot be carried over."""

    reason: str
    hint: str


@dataclass(frozen=True, slots=True)
class _OlakeStream:
    """One stream of OLake's file."""

    namespace: str
    stream: str
    cursors: dict[str, Any]
    position: OlakePosition | None
    """In the database's log."""
    in_log: bool
    """Whether OLake reads the stream from there."""
    is_loaded: bool | None
    """Whether the first load is complete; None where an early version did not say it."""


def read(data: bytes, request: ConversionRequest) -> Converted:
    """The STATE of the streams that can be carried over.

    Raises `SettingsError` if there is none, or for a stream that was asked for and cannot be.
    """
    document = parsed(data, "the file")
    expect(document, "olake")
    entries = _by_name(_entries(document), request.tap)
    bookmarks, notes, left_out = dict[str, Any](), list[str](), dict[str, _LeftOut]()
    for name, entry in entries.items():
        if request.streams and name not in request.streams:
            continue
        result = _bookmark(entry, request.tap)
        if isinstance(result, _LeftOut):
            left_out[name] = result
            continue
        bookmarks[name] = result
        if result and entry.is_loaded is None:
            notes.append(f"{name}: {_UNKNOWN_START}")
    _refuse(left_out, request, any_left=bool(bookmarks), nothing="no stream with a position in the file")
    notes += [f"{name} starts from the beginning: {why.reason}; {why.hint}" for name, why in left_out.items()]
    tap = TAPS.get(request.tap or "")
    if tap and tap.note and any(entries[name].in_log for name in bookmarks):
        notes.append(f"{request.tap}: {tap.note}")
    return Converted({"bookmarks": bookmarks}, tuple(notes))


def _refuse(left_out: dict[str, _LeftOut], request: ConversionRequest, *, any_left: bool, nothing: str) -> None:
    """Raise `SettingsError` for a stream that was asked for and is left out, or if all are."""
    if left_out and (request.streams or not any_left):
        name, why = next(iter(left_out.items()))
        raise SettingsError(why.reason, hint=why.hint, stream=name)
    if not any_left and not request.streams:
        raise SettingsError(nothing, hint="it has nothing to go on from: start without it")


def _entries(document: dict[str, Any]) -> list[_OlakeStream]:
    """The file's streams, each once: those that are read from the log may be in both of its lists."""
    common = document.get("global")
    common = common if isinstance(common, dict) else {}
    position = global_position(common.get("state"))
    followed = {_names(str(name)) for name in common.get("streams") or []}
    entries = [_entry(each, document, position, followed) for each in document.get("streams") or []]
    listed = {(entry.namespace, entry.stream) for entry in entries}
    return entries + [_OlakeStream(*names, {}, position, True, True) for names in sorted(followed - listed)]


def _names(name: str) -> tuple[str, str]:
    """The namespace and the stream of a name in `global`."""
    namespace, dot, stream = name.partition(".")
    return (namespace, stream) if dot else ("", name)


def _entry(
    entry: Any, document: dict[str, Any], common: OlakePosition | None, followed: Collection[tuple[str, str]]
) -> _OlakeStream:
    try:
        names = str(entry.get("namespace") or ""), str(entry["stream"])
        state, mode = dict(entry.get("state") or {}), str(entry.get("sync_mode") or "")
    except (AttributeError, KeyError, TypeError, ValueError):
        hint = "each entry of `streams` has `stream`, `namespace` and `state`"
        raise SettingsError("this is no STATE as OLake keeps it", hint=hint) from None
    own = bool(state.keys() & _LOG_POSITIONS)
    in_log = own or names in followed or mode in ("cdc", "strict_cdc")
    is_loaded: bool | None = names in followed or not document.get("version")
    if "chunks" in state:
        is_loaded = not state["chunks"]
    elif is_loaded and names not in followed:
        is_loaded = None
    cursors = {key: value for key, value in state.items() if key and key != "chunks" and value is not None}
    return _OlakeStream(*names, cursors, stream_position(state) if own else common, in_log, is_loaded)


def _by_name(entries: list[_OlakeStream], tap: str | None) -> dict[str, _OlakeStream]:
    named: dict[str, _OlakeStream] = {}
    for entry in entries:
        name = name_of(tap, entry.namespace, entry.stream)
        if name in named:
            hint = "import all but this one with --stream, and set it by hand"
            raise SettingsError("two streams of OLake would have one name here", hint=hint, stream=name)
        named[name] = entry
    return named


def _bookmark(entry: _OlakeStream, tap: str | None) -> dict[str, Any] | _LeftOut:
    cursors = entry.cursors
    if not cursors and not entry.in_log:
        return {}  # OLake would start it from the beginning, too
    if entry.is_loaded is False:
        return _LeftOut(*_INCOMPLETE)
    if entry.in_log:
        return _from_log(entry, tap)
    if len(cursors) > 1:
        return _LeftOut(f"OLake has two cursors for it: {', '.join(cursors)}", "a tap has one: see `state set`")
    if tap in TAPS and not TAPS[tap].reads_cursors:
        hint = "let the tap load it anew"
        return _LeftOut(f"{tap} also needs the type of the cursor, which OLake does not keep", hint)
    [(key, value)] = cursors.items()
    return {_KEY: key, _VALUE: value}


_INCOMPLETE = (
    "OLake's first load of this stream is not complete",
    "let OLake finish it, or let the tap load it anew",
)


def _from_log(entry: _OlakeStream, tap: str | None) -> dict[str, Any] | _LeftOut:
    if entry.position is None:
        reason = "OLake reads it from the database's log, and its position is not one that we know"
        return _LeftOut(reason, "let the tap load it anew")
    if tap is None:
        able = ", ".join(name for name, each in TAPS.items() if each.kind == entry.position.kind)
        reason = f"OLake reads it from the database's log: its position is a {entry.position.kind}"
        return _LeftOut(reason, f"name the tap that is to go on from there with --as, one of: {able}")
    if (result := bookmark_of(tap, entry.position)) is None:
        return _LeftOut(f"its position is a {entry.position.kind}, which {tap} cannot read", "let the tap load it anew")
    return result


def write(state: Any, request: ConversionRequest) -> Converted:
    """The document with the streams that OLake can go on with.

    Raises `SettingsError` if there is none, or for a stream that was asked for and cannot be.
    """
    if is_flat(state) and not is_empty(state):
        raise SettingsError("this STATE has no `bookmarks`", hint="OLake needs the cursor's field of each stream")
    rest = {key: value for key, value in (state or {}).items() if key != "bookmarks" and value is not None}
    if rest:
        hint = "let the pipeline run to its end first, or choose streams with --stream"
        raise SettingsError("OLake has no place for a part of this STATE", hint=hint, keys=", ".join(rest))
    bookmarks = (state or {}).get("bookmarks", {})
    entries, common, left_out = list[dict[str, Any]](), dict[str, OlakePosition](), dict[str, _LeftOut]()
    for name, bookmark in bookmarks.items():
        position = position_of(request.tap or "", bookmark)
        if position and is_common(position):
            common[name] = position
        if bookmark == {} or position or _is_cursor(bookmark):
            entries.append({**_place(name), "sync_mode": "", "state": _state(bookmark, position)})
        else:
            hint = "only a stream that is incremental by one column, and not in the middle of a run; see --stream"
            left_out[name] = _LeftOut("OLake cannot go on from this bookmark", _export_hint(request, hint))
    if left_out:
        _refuse(left_out, request, any_left=bool(entries), nothing="")
    notes = [f"{name} is left out, and OLake loads it from the beginning: {why.hint}" for name, why in left_out.items()]
    document = {"type": "STREAM", "version": _VERSION, "streams": entries}
    if common:
        # The state of the log's streams, as OLake itself makes it: the number is that of a replica, any that is free.
        document["global"] = {
            "state": global_state(list(common.values()), SystemRandom().randrange(1000, 2**32 - 1)),
            "streams": [_place(name)["namespace"] + "." + _place(name)["stream"] for name in common],
        }
        notes.append("OLake has one position for all streams of the log: the earliest; it reads later changes again")
    return Converted(document, tuple(notes))


def _export_hint(request: ConversionRequest, hint: str) -> str:
    return hint if request.tap else f"{hint}; if it is a position in a log, name the tap with --as"


def _state(bookmark: dict[str, Any], position: OlakePosition | None) -> dict[str, Any]:
    if position:
        return {"chunks": []} | ({} if is_common(position) else stream_state(position))
    return {"chunks": [], bookmark[_KEY]: bookmark[_VALUE]} if bookmark else {}


def _place(name: str) -> dict[str, str]:
    namespace, dash, stream = name.partition("-")
    if dash and namespace and stream:
        return {"stream": stream, "namespace": namespace}
    return {"stream": name, "namespace": ""}


def _is_cursor(bookmark: Any) -> bool:
    if not isinstance(bookmark, dict):
        return False
    key, value = bookmark.get(_KEY), bookmark.get(_VALUE)
    if bookmark.keys() - _NOTES != {_KEY, _VALUE} or value is None or isinstance(value, (dict, list)):
        return False
    return isinstance(key, str) and key not in {"", "chunks", "_sdc_lsn", *_LOG_POSITIONS}
