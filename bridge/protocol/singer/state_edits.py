"""Edits of a STATE by an operator: set, clear and merge bookmarks, and show what that changes.

Nothing is changed in place. In a flat STATE nobody knows which key is a stream's, so it can only be replaced whole.
"""

from __future__ import annotations

import codecs
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from bridge.errors import SettingsError
from bridge.exact_json import NotJson, dumps, loads
from bridge.protocol.singer.state import is_empty, is_flat


@dataclass(frozen=True, slots=True)
class StateDifference:
    """One difference between two STATEs."""

    stream: str | None
    """None: it is no stream's."""
    part: str
    """The key in the STATE."""
    before: Any
    """None: it did not exist."""
    after: Any
    """None: it does not exist any more."""


def parsed(text: bytes | str, what: str) -> Any:
    """The JSON of a text. Raises `SettingsError` with the place of an error."""
    try:
        return loads(text.removeprefix(codecs.BOM_UTF8) if isinstance(text, bytes) else text)
    except NotJson as error:
        where = {"line": error.lineno, "column": error.colno} if text.strip() else {}
        raise SettingsError(f"{what} is not JSON: {error.msg}", hint="check quotes and commas", **where) from None


def check_shape(state: Any) -> None:
    """Raise `SettingsError` unless the STATE, and its `bookmarks` if it has some, are objects."""
    hint = 'such as {"bookmarks": {"users": {"replication_key": "id", "replication_key_value": 5}}}'
    if state is not None and not isinstance(state, dict):
        raise SettingsError("a STATE is a JSON object", hint=hint)
    if isinstance(state, dict) and not isinstance(state.get("bookmarks"), dict | None):
        raise SettingsError("`bookmarks` of a STATE is a JSON object, with a bookmark by stream", hint=hint)


def plain(value: Any) -> Any:
    """The value as it will be read back. Raises `SettingsError` if JSON cannot hold it."""
    try:
        return loads(dumps(value))
    except (TypeError, ValueError, RecursionError) as error:
        hint = "give text, numbers, true, false, null, lists and objects; a time as text in ISO 8601"
        raise SettingsError(f"JSON cannot hold this STATE: {error}", hint=hint) from None


def same(one: Any, other: Any) -> bool:
    """Whether two values are the same JSON; 1, true and 1.0 are three different values."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(value, other[key]) for key, value in one.items())
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    return dumps(one) == dumps(other)


def streams_of(state: Any) -> list[str]:
    """The streams with a bookmark; none in a flat STATE, whose keys may be anything."""
    return [] if is_flat(state) else list(state["bookmarks"])


def with_bookmarks(state: Any, given: Mapping[str, Any]) -> Any:
    """The STATE with these bookmarks. Raises `SettingsError` for a flat one."""
    per_stream = _per_stream(state)
    return {**per_stream, "bookmarks": {**per_stream["bookmarks"], **given}}


def without_bookmarks(state: Any, streams: Collection[str]) -> Any:
    """The STATE with which these streams start from the beginning. Raises `SettingsError` for a flat one.

    A stream without a bookmark is an error as well: its name is probably misspelt.
    """
    per_stream = _per_stream(state)
    unknown = [stream for stream in streams if stream not in per_stream["bookmarks"]]
    if unknown:
        hint = f"there are: {', '.join(per_stream['bookmarks']) or 'none'}"
        raise SettingsError("no bookmark of this stream", hint=hint, stream=unknown[0])
    rest = {stream: value for stream, value in per_stream["bookmarks"].items() if stream not in streams}
    return {**per_stream, "bookmarks": rest}


def contexts_of(value: Any) -> list[Any]:
    """The contexts of a bookmark that has one for each, as the Singer SDK keeps them under `partitions`."""
    parts = value.get("partitions") if isinstance(value, dict) else None
    return [part.get("context") for part in parts if isinstance(part, dict)] if isinstance(parts, list) else []


def partition_of(value: Any, context: Any) -> Any:
    """The bookmark of one context, None if there is none."""
    parts = value["partitions"] if contexts_of(value) else []
    return next((part for part in parts if isinstance(part, dict) and same(part.get("context"), context)), None)


def with_partition(value: Any, context: dict[str, Any], mark: dict[str, Any] | None) -> dict[str, Any]:
    """A stream's bookmark with another bookmark for one context, or without one; the others stay as they are.

    Raises `SettingsError` for a bookmark that has another form.
    """
    if value is not None and (not isinstance(value, dict) or not isinstance(value.get("partitions", []), list)):
        hint = "give the stream's whole bookmark, without --partition"
        raise SettingsError("this bookmark has no list of `partitions`", hint=hint)
    parts, old = list((value or {}).get("partitions", [])), partition_of(value, context)
    new = [] if mark is None else [{"context": context, **mark}]
    place = len(parts) if old is None else parts.index(old)
    return {**(value or {}), "partitions": [*parts[:place], *new, *parts[place + (old is not None) :]]}


def merged(state: Any, given: Any) -> Any:
    """Merge the given STATE into this one, object by object; lists and values are replaced whole.

    Raises `SettingsError` if one of them is flat, unless `state` is empty.
    """
    if is_empty(state):
        return given
    return _merge_objects(_per_stream(state), _per_stream(given))


def _merge_objects(below: Any, above: Any) -> Any:
    if not isinstance(below, dict) or not isinstance(above, dict):
        return above
    both = {key: _merge_objects(below[key], value) if key in below else value for key, value in above.items()}
    return {**below, **both}


def _per_stream(state: Any) -> dict[str, Any]:
    if is_flat(state) and not is_empty(state):
        hint = "it has no `bookmarks`: give the whole STATE with `singer-bridge state set`, or `state edit`"
        raise SettingsError("this STATE cannot be changed per stream", hint=hint)
    return state if not is_flat(state) else {**(state or {}), "bookmarks": {}}


def differences(before: Any, after: Any) -> list[StateDifference]:
    """The changes of a STATE: stream by stream, in a flat STATE key by key, else as a whole."""
    if same(before, after):
        return []
    if not all(isinstance(state, dict) or state is None for state in (before, after)):
        return [StateDifference(None, "STATE", before, after)]
    if _is_other_kind(before, after):
        return [StateDifference(None, "STATE", before, after)]
    old, new = before or {}, after or {}
    changed = _changed(old.get("bookmarks"), new.get("bookmarks"), streams=True)
    rest = [{key: value for key, value in state.items() if key != "bookmarks"} for state in (old, new)]
    return changed + _changed(*rest, streams=False) or [StateDifference(None, "STATE", before, after)]


def _is_other_kind(before: Any, after: Any) -> bool:
    """Whether one STATE is flat and the other is not: keys cannot be compared with streams then."""
    flat = [is_flat(state) for state in (before, after) if not is_empty(state)]
    return len(set(flat)) > 1 or any((state or {}).get("bookmarks", {}) is None for state in (before, after))


def _changed(old: Any, new: Any, *, streams: bool) -> list[StateDifference]:
    if not all(isinstance(part, dict) or part is None for part in (old, new)):
        return [StateDifference(None, "bookmarks", old, new)]
    old, new = old or {}, new or {}
    keys = [*old, *(key for key in new if key not in old)]
    return [
        StateDifference(key if streams else None, key, old.get(key), new.get(key))
        for key in keys
        if (key in old) != (key in new) or not same(old[key], new[key])
    ]
