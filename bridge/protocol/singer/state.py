"""Reads bookmarks in a STATE, which itself is opaque and stored verbatim.

Only the convention `{"bookmarks": {stream: bookmark}}` is known, to learn where a stream would resume. A STATE without
`bookmarks` is *flat*; there a stream's bookmark is the value of the key with the stream's name.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from bridge.errors import DataError, SettingsError
from bridge.exact_json import NotJson, loads

StreamName = str | tuple[str, ...]
"""A stream's name, or all of its names: most STATEs use its id in the catalog, some the name in its RECORDs."""

_SHOWN = 32
"""Bytes of a broken line that are shown: what follows may be of a RECORD that another thread wrote into it."""
_IN_FLIGHT = {"progress_markers", "replication_key_signpost", "starting_replication_value"}


def parse_state(raw: bytes) -> Any:
    """The value of a STATE line. Raises `DataError` for a broken line."""
    try:
        return loads(raw)["value"]
    except (NotJson, KeyError, TypeError) as error:
        raise DataError(
            "the tap wrote a broken STATE",
            hint="nothing after the last commit was kept; run again",
            begins=raw[:_SHOWN],
            bytes=len(raw),
        ) from error


def is_empty(state: Any) -> bool:
    """Whether every stream would start from the beginning."""
    return not state or (isinstance(state, dict) and not any(state.values()))


def is_flat(state: Any) -> bool:
    """Whether the STATE does not follow the `bookmarks` convention."""
    return not (isinstance(state, dict) and isinstance(state.get("bookmarks"), dict))


def _names(stream: StreamName) -> tuple[str, ...]:
    return (stream,) if isinstance(stream, str) else stream


def bookmark(state: Any, stream: StreamName) -> Any:
    """A stream's bookmark, or None."""
    if not isinstance(state, dict):
        return None
    bookmarks = state if is_flat(state) else state["bookmarks"]
    return next((bookmarks[name] for name in _names(stream) if bookmarks.get(name) is not None), None)


def reached_values(state: Any, stream: StreamName, key: str | None, *, bare: bool = False) -> list[Any]:
    """The values of a replication key that a stream's bookmark has: of each of its partitions, or its own.

    `key`: the replication key, if it is known. `bare`: a bookmark that is no object is such a value, too.
    """
    value = bookmark(state, stream)
    if not isinstance(value, dict):
        return [value] if bare and value is not None else []
    values = []
    for part in partitions(value) or [value]:
        own = part.get("replication_key_value")
        values.append(part.get(key) if own is None and key else own)
    return [value for value in values if value is not None]


def known_as(state: Any, stream: tuple[str, ...]) -> str:
    """The one of a stream's names that a STATE uses; the first if it has no bookmark of the stream."""
    return next((name for name in stream if bookmark(state, name) is not None), stream[0])


def _resume_point(value: Any) -> Any:
    """The part of a bookmark that a restarted tap uses; None: it starts from the beginning.

    A `version` alone counts as None: a tap starts such a table again, under the version that it noted.
    """
    if not isinstance(value, dict):
        return value
    parts = partitions(value)
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


def partitions(value: dict[str, Any]) -> list[dict[str, Any]] | None:
    """singer-sdk's partitions; None where a tap has another value there."""
    parts = value.get("partitions") or []
    return parts if isinstance(parts, list) and all(isinstance(part, dict) for part in parts) else None


def _has_markers(value: Any) -> bool:
    return isinstance(value, dict) and (
        bool(value.get("progress_markers")) or any(map(_has_markers, partitions(value) or ()))
    )


def covers(before: Any, after: Any, stream: StreamName) -> bool:
    """Whether a tap restarted from `after` would not send again the rows that it sent since `before`.

    The stream's bookmark must have changed, or else nothing is known of the rows since. An empty one never covers, nor
    one with singer-sdk's `progress_markers`. A stream is also covered if `currently_syncing` named it and now names
    another.
    """
    value = bookmark(after, stream)
    if _has_markers(value):
        return False
    if _syncing(before) in _names(stream) and moved_on(before, after, stream):
        return True
    point = _resume_point(value)
    return point is not None and point != resume_point(before, stream)


def moved_on(before: Any, after: Any, stream: StreamName) -> bool:
    """Whether `currently_syncing` changed to another stream: a restarted tap may skip this one."""
    return _syncing(after) not in (None, *_names(stream), _syncing(before))


def _syncing(state: Any) -> Any:
    return state.get("currently_syncing") if isinstance(state, dict) else None


def resume_points(state: Any, *, ignoring: Collection[str] = ()) -> Any:
    """Where a tap would resume, without notes of a sync under way and without the streams in `ignoring`.

    None if it would start from the beginning: no STATE and one with empty bookmarks are the same.
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
    """Where a tap would resume one stream; None: from the beginning."""
    return _resume_point(bookmark(state, stream))


def is_null(state: Any, stream: StreamName) -> bool:
    """Whether the stream has a bookmark by a replication key, and no value of it: a tap starts from the beginning."""
    value = bookmark(state, stream)
    if not isinstance(value, dict) or _has_markers(value) or _resume_point(value) is not None:
        return False
    parts = (value, *(partitions(value) or ()))
    return any("replication_key_value" in part or part.get("replication_key") for part in parts)


def standing_point(state: Any, stream: StreamName) -> Any:
    """The `resume_point`, and a bookmark of null is one as well: if it stays so, each run brings the same rows."""
    return {"replication_key_value": None} if is_null(state, stream) else resume_point(state, stream)


def has_own_bookmark(state: Any, stream: StreamName) -> bool:
    """Whether the STATE has a bookmark of the stream that is not by contexts, as those of child streams are."""
    value = bookmark(state, stream)
    return bool(value) and not (isinstance(value, dict) and value.get("partitions"))


def shared_part(state: Any) -> dict[str, Any]:
    """The part of a STATE beside its `bookmarks`, without notes of a sync under way."""
    rest = state if isinstance(state, dict) else {}
    return {key: value for key, value in rest.items() if key not in ("bookmarks", "currently_syncing")}


def overlay(old: Any, new: Any, retained: Collection[str], muted: Collection[str] = ()) -> Any:
    """`new`, with the old bookmark for each stream in `retained` that it lacks, and for each stream in `muted`.

    Raises `SettingsError` for a flat STATE, whose keys may be anything.
    """
    forgotten = {s for s in retained if bookmark(new, s) is None and bookmark(old, s) is not None}
    replaced = {s for s in muted if bookmark(new, s) != bookmark(old, s)}
    if not forgotten and not replaced:
        return new
    if (is_flat(old) and not is_empty(old)) or (is_flat(new) and not is_empty(new)):
        raise _flat()
    before, after = (old or {}).get("bookmarks", {}), (new or {}).get("bookmarks", {})
    bookmarks = {s: b for s, b in after.items() if s not in replaced}
    bookmarks |= {s: before[s] for s in forgotten | replaced if s in before}
    return {**(new or {}), "bookmarks": bookmarks}


def _flat() -> SettingsError:
    hint = "run the whole pipeline, without --stream or --resume; its STATE has no `bookmarks` to keep apart"
    return SettingsError("this tap's STATE cannot be kept per stream", hint=hint)


def without(state: Any, streams: Collection[str]) -> Any:
    """The STATE with which a tap starts `streams` from the beginning. Raises `SettingsError` for a flat one."""
    if is_flat(state) and not is_empty(state):
        raise _flat()
    return overlay({}, state, (), muted=streams)


def forget(state: Any, streams: Collection[str]) -> Any:
    """The STATE without the bookmarks of these streams."""
    if not streams:
        return state
    rest = {s: b for s, b in (state if is_flat(state) else state["bookmarks"]).items() if s not in streams}
    return rest if is_flat(state) else state | {"bookmarks": rest}


def continues(state: Any, stream: StreamName, version: int | None) -> bool:
    """Whether a tap started from `state` goes on inside the full table of this `version`."""
    value = bookmark(state, stream)
    return isinstance(value, dict) and value.get("version") == version and resume_point(state, stream) is not None


def resumable_versions(
    state: Any, overwritten: Callable[[str], bool], version: Callable[[str], int | None], tables: Collection[str] = ()
) -> Any:
    """Drop the bookmarks from which the tap would send only a part of an overwritten table.

    A bookmark stays if it carries the `version` of the stream's rows in the lake (None for append-only tables, which
    keep any bookmark). `tables`: the streams of the lake; a flat STATE that names none of them is one position for all.

    Raises `SettingsError` where a flat STATE would have to be kept for one stream and dropped for another.
    """
    if is_flat(state):
        named = set(state) if isinstance(state, dict) else set()
        drops = {overwritten(stream) for stream in (named if named & set(tables) else named | set(tables)) or [""]}
        if len(drops) > 1 and not is_empty(state) and resume_points(state) is not None:
            hint = "its STATE has no `bookmarks` to keep apart: overwrite all of its streams, or none"
            raise SettingsError("this tap's STATE cannot be kept per stream", hint=hint)
        return None if drops == {True} else state
    resuming = {s: b for s, b in state["bookmarks"].items() if not overwritten(s) or _is_of(b, version(s))}
    if resuming == state["bookmarks"]:
        return state
    return {**state, "bookmarks": resuming} if resuming else None


def _is_of(value: Any, version: int | None) -> bool:
    return version is not None and isinstance(value, dict) and value.get("version") == version
