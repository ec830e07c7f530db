"""What a STATE says, without ever owning it: STATE is opaque and kept verbatim.

Only the convention `{"bookmarks": {stream: bookmark}}` is read, to learn where a stream would resume. A STATE without
`bookmarks` is *flat*; there a stream's bookmark is whatever stands at the stream's name.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from bridge.errors import DataError, SettingsError
from bridge.exact_json import NotJson, loads

StreamName = str | tuple[str, ...]
"""A stream's name, or all of its names: most STATEs know it by its id in the catalog, some by that of its RECORDs."""

_IN_FLIGHT = {"progress_markers", "replication_key_signpost", "starting_replication_value"}


def parse_state(raw: bytes) -> Any:
    """Return the value of a STATE line. Raises `DataError` when the line is broken."""
    try:
        return loads(raw)["value"]
    except (NotJson, KeyError, TypeError) as error:
        raise DataError(
            "the tap wrote a broken STATE", hint="nothing after the last commit was kept; run again", line=raw[:200]
        ) from error


def is_empty(state: Any) -> bool:
    """Return True for a STATE that would make every stream start again."""
    return not state or (isinstance(state, dict) and not any(state.values()))


def is_flat(state: Any) -> bool:
    """Return True when the STATE does not follow the `bookmarks` convention."""
    return not (isinstance(state, dict) and isinstance(state.get("bookmarks"), dict))


def _names(stream: StreamName) -> tuple[str, ...]:
    return (stream,) if isinstance(stream, str) else stream


def bookmark(state: Any, stream: StreamName) -> Any:
    """Return a stream's bookmark, or None."""
    if not isinstance(state, dict):
        return None
    bookmarks = state if is_flat(state) else state["bookmarks"]
    return next((bookmarks[name] for name in _names(stream) if bookmarks.get(name) is not None), None)


def known_as(state: Any, stream: tuple[str, ...]) -> str:
    """Return the name by which a STATE has the stream's bookmark; where it has none the first of its names."""
    return next((name for name in stream if bookmark(state, name) is not None), stream[0])


def _resume_point(value: Any) -> Any:
    """Return the part of a bookmark that a restarted tap uses; None for a start from the beginning.

    A `version` alone is none: taps restart a table that they cannot continue under the version they noted.
    """
    if not isinstance(value, dict):
        return value
    parts = _partitions(value)
    ignored = _IN_FLIGHT if parts is None else _IN_FLIGHT | {"partitions"}
    plain = {key: item for key, item in value.items() if key not in ignored}
    plain = {key: item for key, item in plain.items() if item is not None and item is not False}
    if "replication_key" in plain and "replication_key_value" not in plain:
        del plain["replication_key"]
    if set(plain) == {"version"}:
        del plain["version"]
    points = [_resume_point(part) for part in parts or ()]
    started = [point for point in points if point and set(point) - {"context"}]
    return plain | ({"partitions": started} if started else {}) or None


def _partitions(value: dict[str, Any]) -> list[dict[str, Any]] | None:
    """Return singer-sdk's partitions; None where a tap has something else there, a value like any other."""
    parts = value.get("partitions") or []
    return parts if isinstance(parts, list) and all(isinstance(part, dict) for part in parts) else None


def _has_markers(value: Any) -> bool:
    return isinstance(value, dict) and (
        bool(value.get("progress_markers")) or any(map(_has_markers, _partitions(value) or ()))
    )


def covers(before: Any, after: Any, stream: StreamName) -> bool:
    """Return True when a tap restarted from `after` would not send the rows that it sent since `before`.

    The stream's own bookmark has to have moved: one that stands where it stood says nothing of the rows since. An
    empty one never covers, nor one with singer-sdk's `progress_markers`. `currently_syncing` covers a stream too, when
    it was this one and is another now.
    """
    value = bookmark(after, stream)
    if _has_markers(value):
        return False
    if _syncing(before) in _names(stream) and moved_on(before, after, stream):
        return True
    point = _resume_point(value)
    return point is not None and point != resume_point(before, stream)


def moved_on(before: Any, after: Any, stream: StreamName) -> bool:
    """Return True when `currently_syncing` came to name another stream: a restarted tap may skip this one."""
    return _syncing(after) not in (None, *_names(stream), _syncing(before))


def _syncing(state: Any) -> Any:
    return state.get("currently_syncing") if isinstance(state, dict) else None


def resume_points(state: Any, *, ignoring: Collection[str] = ()) -> Any:
    """Return where a tap would resume, without the notes it keeps in flight and without the streams in `ignoring`.

    None when it would resume nowhere: no STATE at all and one of empty bookmarks are the same.
    """
    if not isinstance(state, dict):
        return state or None
    if is_flat(state):
        return {
            key: value for key, value in state.items() if key != "currently_syncing" and key not in ignoring
        } or None
    rest = {key: value for key, value in state.items() if key not in ("bookmarks", "currently_syncing")}
    points = {s: _resume_point(v) for s, v in state["bookmarks"].items() if s not in ignoring}
    points = {s: point for s, point in points.items() if point is not None}
    return {**rest, "bookmarks": points} if rest or points else None


def resume_point(state: Any, stream: StreamName) -> Any:
    """Return where a tap would resume one stream; None for its beginning."""
    return _resume_point(bookmark(state, stream))


def overlay(old: Any, new: Any, kept: Collection[str], muted: Collection[str] = ()) -> Any:
    """Return `new` in which a stream in `kept` that it forgot has its old bookmark, and one in `muted` has no other.

    Raises `SettingsError` on a flat STATE, where nothing tells whose words are whose.
    """
    forgotten = {s for s in kept if bookmark(new, s) is None and bookmark(old, s) is not None}
    replaced = {s for s in muted if bookmark(new, s) != bookmark(old, s)}
    if not forgotten and not replaced:
        return new
    if (is_flat(old) and not is_empty(old)) or (is_flat(new) and not is_empty(new)):
        raise _flat()
    before, spoken = (old or {}).get("bookmarks", {}), (new or {}).get("bookmarks", {})
    bookmarks = {s: b for s, b in spoken.items() if s not in replaced}
    bookmarks |= {s: before[s] for s in forgotten | replaced if s in before}
    return {**(new or {}), "bookmarks": bookmarks}


def _flat() -> SettingsError:
    hint = "run the whole pipeline, without --stream or --resume; its STATE has no `bookmarks` to keep apart"
    return SettingsError("this tap's STATE cannot be kept per stream", hint=hint)


def without(state: Any, streams: Collection[str]) -> Any:
    """Return the STATE for a tap that shall start `streams` from the beginning. Raises `SettingsError` if flat."""
    if is_flat(state) and not is_empty(state):
        raise _flat()
    return overlay({}, state, (), muted=streams)


def forget(state: Any, streams: Collection[str]) -> Any:
    """Return the STATE without the bookmarks of these streams, which are there if they were staged."""
    if not streams:
        return state
    kept = {s: b for s, b in (state if is_flat(state) else state["bookmarks"]).items() if s not in streams}
    return kept if is_flat(state) else state | {"bookmarks": kept}


def continues(state: Any, stream: StreamName, version: int | None) -> bool:
    """Return True when a tap started from `state` goes on inside the full table of this `version`."""
    value = bookmark(state, stream)
    return isinstance(value, dict) and value.get("version") == version and resume_point(state, stream) is not None


def resumable_versions(
    state: Any, overwritten: Callable[[str], bool], version: Callable[[str], int | None], tables: Collection[str] = ()
) -> Any:
    """Return the STATE for a tap of which some tables are overwritten: of these only one of a known `version` goes on.

    An overwrite replaces the whole table; the rows since a bookmark alone would empty it. `version` says of which one
    a stream's rows in the lake are: those of append-only tables are of none, whatever their bookmarks say. `tables` are
    the streams of the lake: a flat STATE that names none of them is one position for all.

    Raises `SettingsError` where a flat STATE would have to be kept for one stream and not for another.
    """
    if is_flat(state):
        named = set(state) if isinstance(state, dict) else set()
        said = {overwritten(stream) for stream in (named if named & set(tables) else named | set(tables)) or [""]}
        if len(said) > 1 and not is_empty(state) and resume_points(state) is not None:
            hint = "its STATE has no `bookmarks` to keep apart: overwrite all of its streams, or none"
            raise SettingsError("this tap's STATE cannot be kept per stream", hint=hint)
        return None if said == {True} else state
    kept = {s: b for s, b in state["bookmarks"].items() if not overwritten(s) or _is_of(b, version(s))}
    if kept == state["bookmarks"]:
        return state
    return {**state, "bookmarks": kept} if kept else None


def _is_of(value: Any, version: int | None) -> bool:
    return version is not None and isinstance(value, dict) and value.get("version") == version
