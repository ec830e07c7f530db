"""What an operator does to a STATE: set, clear and merge bookmarks, and see what that changes.

Nothing is ever changed in place. Bookmarks are only told apart under `bookmarks`: in a flat STATE nobody knows which
key is a stream's, so there the whole is replaced or nothing.
"""

from __future__ import annotations

import codecs
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from bridge.errors import SettingsError
from bridge.exact_json import NotJson, dumps, loads
from bridge.singer.state import is_empty, is_flat


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that a change did. `stream` is None for what is no stream's: `part` says what it is then.

    `before` and `after` are None where there was nothing, or is nothing any more.
    """

    stream: str | None
    part: str
    before: Any
    after: Any


def parsed(text: bytes | str, what: str) -> Any:
    """Return the JSON of a text. Raises `SettingsError` that says where it is broken."""
    try:
        return loads(text.removeprefix(codecs.BOM_UTF8) if isinstance(text, bytes) else text)
    except NotJson as error:
        where = {"line": error.lineno, "column": error.colno} if text.strip() else {}
        raise SettingsError(f"{what} is not JSON: {error.msg}", hint="check quotes and commas", **where) from None


def check_shape(state: Any) -> None:
    """Raise `SettingsError` for what no tap can resume from: a STATE is an object, and so are its `bookmarks`."""
    hint = 'such as {"bookmarks": {"users": {"replication_key": "id", "replication_key_value": 5}}}'
    if state is not None and not isinstance(state, dict):
        raise SettingsError("a STATE is a JSON object", hint=hint)
    if isinstance(state, dict) and not isinstance(state.get("bookmarks"), dict | None):
        raise SettingsError("`bookmarks` of a STATE is a JSON object, with a bookmark by stream", hint=hint)


def plain(value: Any) -> Any:
    """Return the value as it will be read back. Raises `SettingsError` if JSON cannot hold it."""
    try:
        return loads(dumps(value))
    except (TypeError, ValueError, RecursionError) as error:
        hint = "give text, numbers, true, false, null, lists and objects; a time as text in ISO 8601"
        raise SettingsError(f"JSON cannot hold this STATE: {error}", hint=hint) from None


def same(one: Any, other: Any) -> bool:
    """Return whether two values are the same JSON; 1, true and 1.0 are three."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(value, other[key]) for key, value in one.items())
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    return dumps(one) == dumps(other)


def streams_of(state: Any) -> list[str]:
    """Return the streams that have a bookmark; none in a flat STATE, where keys may be anything."""
    return [] if is_flat(state) else list(state["bookmarks"])


def with_bookmarks(state: Any, given: Mapping[str, Any]) -> Any:
    """Return the STATE in which these streams have these bookmarks. Raises `SettingsError` on a flat one."""
    per_stream = _per_stream(state)
    return {**per_stream, "bookmarks": {**per_stream["bookmarks"], **given}}


def without_bookmarks(state: Any, streams: Collection[str]) -> Any:
    """Return the STATE for which these streams start from the beginning. Raises `SettingsError` on a flat one.

    A stream without a bookmark is an error as well: it is more often misspelt than meant.
    """
    per_stream = _per_stream(state)
    unknown = [stream for stream in streams if stream not in per_stream["bookmarks"]]
    if unknown:
        hint = f"there are: {', '.join(per_stream['bookmarks']) or 'none'}"
        raise SettingsError("no bookmark of this stream", hint=hint, stream=unknown[0])
    kept = {stream: value for stream, value in per_stream["bookmarks"].items() if stream not in streams}
    return {**per_stream, "bookmarks": kept}


def merged(state: Any, given: Any) -> Any:
    """Return the STATE with the given one laid over it, object by object; lists and values are replaced whole.

    Raises `SettingsError` where either is flat, unless the stored one is empty.
    """
    if is_empty(state):
        return given
    return _laid_over(_per_stream(state), _per_stream(given))


def _laid_over(below: Any, above: Any) -> Any:
    if not isinstance(below, dict) or not isinstance(above, dict):
        return above
    both = {key: _laid_over(below[key], value) if key in below else value for key, value in above.items()}
    return {**below, **both}


def _per_stream(state: Any) -> dict[str, Any]:
    if is_flat(state) and not is_empty(state):
        hint = "it has no `bookmarks`: give the whole STATE with `singer-bridge state set`, or `state edit`"
        raise SettingsError("this STATE cannot be changed per stream", hint=hint)
    return state if not is_flat(state) else {**(state or {}), "bookmarks": {}}


def differences(before: Any, after: Any) -> list[Difference]:
    """Return what changed, stream by stream; of a flat STATE key by key, of any other as a whole."""
    if same(before, after):
        return []
    if not all(isinstance(state, dict) or state is None for state in (before, after)):
        return [Difference(None, "STATE", before, after)]
    if _is_other_kind(before, after):
        return [Difference(None, "STATE", before, after)]
    old, new = before or {}, after or {}
    found = _changed(old.get("bookmarks"), new.get("bookmarks"), streams=True)
    rest = [{key: value for key, value in state.items() if key != "bookmarks"} for state in (old, new)]
    return found + _changed(*rest, streams=False) or [Difference(None, "STATE", before, after)]


def _is_other_kind(before: Any, after: Any) -> bool:
    """Whether a flat STATE met one that is not: keys of one cannot be told from streams of the other."""
    flat = [is_flat(state) for state in (before, after) if not is_empty(state)]
    return len(set(flat)) > 1 or any((state or {}).get("bookmarks", {}) is None for state in (before, after))


def _changed(old: Any, new: Any, *, streams: bool) -> list[Difference]:
    if not all(isinstance(part, dict) or part is None for part in (old, new)):
        return [Difference(None, "bookmarks", old, new)]
    old, new = old or {}, new or {}
    keys = [*old, *(key for key in new if key not in old)]
    return [
        Difference(key if streams else None, key, old.get(key), new.get(key))
        for key in keys
        if (key in old) != (key in new) or not same(old[key], new[key])
    ]
