"""What a STATE says, without ever owning it: STATE is opaque and kept verbatim.

Only the convention `{"bookmarks": {stream: bookmark}}` is read, to learn where a stream would resume. A STATE without
`bookmarks` is *flat*; there a stream's bookmark is whatever stands at the stream's name.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import orjson

from bridge.errors import DataError, SettingsError

__all__ = [
    "bookmark",
    "is_empty",
    "is_flat",
    "not_resumable",
    "overlay",
    "parse_state",
    "resume_point",
    "resume_points",
    "without",
]

_IN_FLIGHT = {"progress_markers", "replication_key_signpost", "starting_replication_value"}


def parse_state(raw: bytes) -> Any:
    """Return the value of a STATE line. Raises `DataError` when the line is broken."""
    try:
        return orjson.loads(raw)["value"]
    except (orjson.JSONDecodeError, KeyError, TypeError) as error:
        raise DataError(
            "the tap wrote a broken STATE", hint="nothing after the last commit was kept; run again", line=raw[:200]
        ) from error


def is_empty(state: Any) -> bool:
    """Return True for a STATE that would make every stream start again."""
    return not state or (isinstance(state, dict) and not any(state.values()))


def is_flat(state: Any) -> bool:
    """Return True when the STATE does not follow the `bookmarks` convention."""
    return not (isinstance(state, dict) and isinstance(state.get("bookmarks"), dict))


def bookmark(state: Any, stream: str) -> Any:
    """Return a stream's bookmark, or None."""
    if not isinstance(state, dict):
        return None
    return state.get(stream) if is_flat(state) else state["bookmarks"].get(stream)


def _resume_point(value: Any) -> Any:
    """Return the part of a bookmark that a restarted tap uses; None for a start from the beginning."""
    if not isinstance(value, dict):
        return value
    plain = {key: item for key, item in value.items() if key not in _IN_FLIGHT and key != "partitions"}
    if "replication_key" in plain and "replication_key_value" not in plain:
        del plain["replication_key"]
    partitions = [_resume_point(part) for part in value.get("partitions") or []]
    started = [part for part in partitions if part and set(part) - {"context"}]
    return plain | ({"partitions": started} if started else {}) or None


def _has_markers(value: Any) -> bool:
    return isinstance(value, dict) and (
        bool(value.get("progress_markers")) or any(_has_markers(part) for part in value.get("partitions") or [])
    )


def not_resumable(state: Any, stream: str) -> bool:
    """Return True when a tap restarted from this STATE would send the stream's rows again.

    singer-sdk taps say so by `progress_markers`; an empty bookmark says it too, except in a flat STATE, which may
    mean the stream by another name. `currently_syncing` on another stream says that this one is done.
    """
    value = bookmark(state, stream)
    if _has_markers(value):
        return True
    if is_flat(state) and not is_empty(state):
        return False
    moved_on = isinstance(state, dict) and state.get("currently_syncing", stream) not in (stream, None)
    return _resume_point(value) is None and not moved_on


def resume_points(state: Any, *, ignoring: Collection[str] = ()) -> Any:
    """Return where a tap would resume, without the notes it keeps in flight and without the streams in `ignoring`."""
    if not isinstance(state, dict):
        return state
    if is_flat(state):
        return {key: value for key, value in state.items() if key != "currently_syncing" and key not in ignoring}
    rest = {key: value for key, value in state.items() if key not in ("bookmarks", "currently_syncing")}
    points = {s: _resume_point(v) for s, v in state["bookmarks"].items() if s not in ignoring}
    return {**rest, "bookmarks": {s: point for s, point in points.items() if point is not None}}


def resume_point(state: Any, stream: str) -> Any:
    """Return where a tap would resume one stream; None for its beginning."""
    return _resume_point(bookmark(state, stream))


def overlay(old: Any, new: Any, kept: Collection[str]) -> Any:
    """Return `new` in which the streams in `kept` have their old bookmark, or none, as they did not speak.

    Raises `SettingsError` on a flat STATE, where nothing tells whose words are whose.
    """
    if not kept or (is_empty(old) and is_empty(new)):
        return new
    if (is_flat(old) and not is_empty(old)) or (is_flat(new) and not is_empty(new)):
        hint = "run the whole pipeline, without --stream; its STATE has no `bookmarks` to keep apart"
        raise SettingsError("this tap's STATE cannot be kept per stream", hint=hint)
    before, spoken = (old or {}).get("bookmarks", {}), (new or {}).get("bookmarks", {})
    bookmarks = {s: b for s, b in spoken.items() if s not in kept} | {s: before[s] for s in kept if s in before}
    return {**(new or {}), "bookmarks": bookmarks}


def without(state: Any, streams: Collection[str]) -> Any:
    """Return the STATE for a tap that shall start `streams` from the beginning. Raises `SettingsError` if flat."""
    return overlay({}, state, streams)
