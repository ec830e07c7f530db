"""Merges a new discovery into a catalog that the user has edited, and shows what the discovery changed.

A three-way merge: the tap's catalog of last time, that catalog as the user edited it, and the tap's catalog of now.
Where the user changed something, the user's value stays; elsewhere the tap's counts.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from bridge.protocol.singer.catalog import (
    Catalog,
    StreamEntry,
    columns,
    has_metadata,
    key_properties,
    replication_key,
    replication_method,
    stream_id,
    stream_ids,
    write,
)

_MISSING: Any = object()
_METADATA = "metadata"
_USERS = ("selected", "replication-method", "replication-key", "view-key-properties")
"""The metadata that Singer has the user write; the older names have underscores."""


@dataclass(slots=True)
class MergedCatalog:
    """A catalog to keep."""

    catalog: Catalog
    removed: list[StreamEntry] = field(default_factory=list)
    """Streams that the tap does not have any more, as the user edited them; they may come back."""
    overruled: list[str] = field(default_factory=list)
    """Places that both the user and the tap have changed."""


def merge(
    before: Catalog | None, edited: Catalog, now: Catalog, removed: list[StreamEntry] | None = None
) -> MergedCatalog:
    """The tap's catalog of `now`, with the edits that made `edited` of `before`.

    Without `before` nobody knows what was edited: then only what Singer has the user write comes from `edited`, and a
    stream that it lacks is deselected, since the user may have deleted it on purpose.
    """
    old, user = ({stream_id(s): s for s in (catalog or {"streams": []})["streams"]} for catalog in (before, edited))
    back = {stream_id(s): s for s in removed or ()}
    merged = MergedCatalog({**now, "streams": []})
    for stream in now["streams"]:
        name = stream_id(stream)
        if before is None:
            merged.catalog["streams"].append(_with_choices(user.get(name), stream))
        elif name in user:
            merged.catalog["streams"].append(_merged(old.get(name), user[name], stream, merged.overruled))
        elif name not in old:
            merged.catalog["streams"].append(_with_choices(back[name], stream) if name in back else stream)
    current = set(stream_ids(now))
    merged.removed = [s for name, s in (back | user).items() if name not in current]
    return merged


def _with_choices(user: StreamEntry | None, tap: StreamEntry) -> StreamEntry:
    """The tap's stream with what Singer has the user write: where the tap's catalog of that time is not known."""
    result = copy.deepcopy(tap)
    if user is None:
        write(result, {(): {"selected": False}})
        return result
    for key in _USERS:
        if (old := key.replace("-", "_")) in user:
            result[old] = user[old]
    chosen = {_crumb(entry): entry.get(_METADATA) or {} for entry in user.get(_METADATA) or ()}
    for entry in result.get(_METADATA) or ():
        entry[_METADATA] = (entry.get(_METADATA) or {}) | {
            key: value for key, value in chosen.get(_crumb(entry), {}).items() if key in _USERS
        }
    if not has_metadata(result):
        places = [(result.get("schema", {}), user.get("schema", {}))]
        before = columns(user)
        places += [(schema, before.get(path, {})) for path, schema in columns(result).items()]
        for place, source in places:
            place.update({"selected": source["selected"]} if "selected" in source else {})
    return result


def _crumb(entry: dict[str, Any]) -> tuple[str, ...]:
    return tuple(entry.get("breadcrumb") or ())


def _merged(old: StreamEntry | None, user: StreamEntry, tap: StreamEntry, overruled: list[str]) -> StreamEntry:
    if old is None:
        return _with_choices(user, tap)
    result = _three_way(*map(_by_breadcrumb, (old, user, tap)), place=stream_id(tap), overruled=overruled)
    entries = result.get(_METADATA)
    return result | {_METADATA: list(entries.values())} if isinstance(entries, dict) else dict(result)


def _by_breadcrumb(stream: StreamEntry) -> StreamEntry:
    """The stream with its metadata by breadcrumb, so that the order of entries does not matter."""
    if not has_metadata(stream):
        return stream
    return stream | {_METADATA: {_crumb(entry): entry for entry in stream[_METADATA]}}


def _three_way(before: Any, user: Any, tap: Any, *, place: str, overruled: list[str]) -> Any:
    """The value that one side changed. If both did, mappings are merged; of other values the user's stays."""
    if user in (before, tap):
        return tap
    if tap == before:
        return user
    if isinstance(user, dict) and isinstance(tap, dict):
        below = before if isinstance(before, dict) else {}
        merged = {
            key: _three_way(
                *(side.get(key, _MISSING) for side in (below, user, tap)), place=_at(place, key), overruled=overruled
            )
            for key in (*tap, *(key for key in user if key not in tap))
        }
        return {key: value for key, value in merged.items() if value is not _MISSING}
    if tap is _MISSING:  # the tap does not have that column any more: the edit has no effect
        return tap
    overruled.append(place)
    return user


def _at(place: str, key: Any) -> str:
    """A place for readers: `users.age.type`, whatever the nesting."""
    if isinstance(key, tuple):
        key = ".".join(key[1::2])
    return place if key in ("schema", "properties", _METADATA, "") else f"{place}.{key}"


@dataclass(slots=True)
class StreamChanges:
    """The changes of one stream; `types` and `facts` have the value before and after."""

    new: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    types: dict[str, tuple[str, str]] = field(default_factory=dict)
    facts: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Replication method and key, and the columns that identify a row."""

    def __bool__(self) -> bool:
        return bool(self.new or self.removed or self.types or self.facts)

    @property
    def columns(self) -> list[str]:
        """The columns that came or went."""
        return [*self.new, *self.removed]

    def to_json(self) -> dict[str, Any]:
        pairs = {"types": self.types, "facts": self.facts}
        changed = {
            name: {key: {"from": was, "to": now} for key, (was, now) in each.items()} for name, each in pairs.items()
        }
        return {"new": self.new, "gone": self.removed, **changed}


@dataclass(slots=True)
class Changes:
    """The changes of a tap's streams from one discovery to the next."""

    new: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    changed: dict[str, StreamChanges] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.new or self.removed or self.changed)

    def to_json(self) -> dict[str, Any]:
        changed = {name: changes.to_json() for name, changes in self.changed.items()}
        return {"new": self.new, "gone": self.removed, "changed": changed}

    def lines(self) -> list[str]:
        """A line for each change."""
        lines = [f"new stream: {name}" for name in self.new] + [f"gone stream: {name}" for name in self.removed]
        for name, stream in self.changed.items():
            lines += [f"{name}: new column {column}" for column in stream.new]
            lines += [f"{name}: gone column {column}" for column in stream.removed]
            lines += [f"{name}: type of {key} was {was}, is {now}" for key, (was, now) in stream.types.items()]
            lines += [f"{name}: {key} was {was}, is {now}" for key, (was, now) in stream.facts.items()]
        return lines


def compare(before: Catalog, now: Catalog) -> Changes:
    """Compare two discoveries: what is new, removed and changed."""
    old, new = ({stream_id(s): s for s in catalog["streams"]} for catalog in (before, now))
    changes = Changes([name for name in new if name not in old], [name for name in old if name not in new])
    for name in new:
        if name in old and (different := _compare(old[name], new[name])):
            changes.changed[name] = different
    return changes


def with_columns_of(
    before: Catalog, now: Catalog, streams: Collection[str], others: Mapping[str, Collection[str]]
) -> tuple[Catalog, list[str]]:
    """`before` with those columns of `streams` as they are now whose type has changed, and a line for each of them.

    `others`: for each stream more columns that are taken as they are now, or left out if they are there no more. All
    else stays: the rest of new columns, and new streams, need a whole discovery.
    """
    latest = {stream_id(stream): stream for stream in now["streams"] if stream_id(stream) in streams}
    changed = {name: changes.types for name, changes in compare(before, now).changed.items() if name in latest}
    lines = [
        f"{name}: type of {column} was {was}, is {is_now}"
        for name, types in changed.items()
        for column, (was, is_now) in types.items()
    ]
    result = []
    for stream in before["streams"]:
        name = stream_id(stream)
        tops = {column.split(".")[0] for column in changed.get(name, ())}.union(others.get(name, ()))
        result.append(_with_columns(stream, latest[name], tops) if tops else stream)
    return {**before, "streams": result}, lines


def _with_columns(before: StreamEntry, now: StreamEntry, names: Collection[str]) -> StreamEntry:
    """The stream with the present schema and metadata of these columns, or without those that are there no more."""
    result = copy.deepcopy(before)
    tops, properties = set(names), now["schema"]["properties"]
    for top in tops:
        result["schema"]["properties"].pop(top, None)
    result["schema"]["properties"] |= {name: schema for name, schema in properties.items() if name in tops}
    if has_metadata(result):
        crumbs = {_crumb(entry): entry for entry in now.get(_METADATA) or () if _is_of(entry, tops)}
        others = [entry for entry in result[_METADATA] if not _is_of(entry, tops)]
        result[_METADATA] = [*others, *crumbs.values()]
    return result


def _is_of(entry: dict[str, Any], tops: Collection[str]) -> bool:
    crumb = _crumb(entry)
    return len(crumb) > 1 and crumb[1] in tops


def _compare(before: StreamEntry, now: StreamEntry) -> StreamChanges:
    types = [{".".join(path): _type(schema) for path, schema in columns(stream).items()} for stream in (before, now)]
    facts = [_facts(stream) for stream in (before, now)]
    old, new = types
    return StreamChanges(
        [column for column in new if column not in old],
        [column for column in old if column not in new],
        {column: (old[column], new[column]) for column in new if old.get(column, new[column]) != new[column]},
        {name: (value, facts[1][name]) for name, value in facts[0].items() if value != facts[1][name]},
    )


def _facts(stream: StreamEntry) -> dict[str, str]:
    alone, name = {"streams": [stream]}, stream_id(stream)
    return {
        "replication method": replication_method(alone, name) or "none",
        "replication key": replication_key(alone, name) or "none",
        "key": ", ".join(key_properties(stream)) or "none",
    }


def _type(schema: dict[str, Any]) -> str:
    """A column's type for readers: `integer or null`, `string (date-time)`, `array of string`."""
    alternatives = schema.get("anyOf") or schema.get("oneOf")
    if isinstance(alternatives, list) and alternatives:
        words = [_type(one) for one in alternatives if isinstance(one, dict)]
    else:
        kinds = schema.get("type") or "any"
        words = [_word(str(kind), schema) for kind in (kinds if isinstance(kinds, list) else [kinds])]
    return " or ".join(sorted(dict.fromkeys(words), key=lambda word: (word == "null", word)))


def _word(kind: str, schema: dict[str, Any]) -> str:
    if kind == "string" and isinstance(schema.get("format"), str):
        return f"string ({schema['format']})"
    if kind == "array" and isinstance(schema.get("items"), dict):
        return f"array of {_type(schema['items'])}"
    return kind
