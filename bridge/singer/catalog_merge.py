"""What a new discovery changed, and a catalog in which the user's edits survive it.

Three catalogs meet: what the tap said last time, that catalog as the user edited it, and what the tap says now. Where
the user changed something his word stands; where he did not the tap's does.
"""

from __future__ import annotations

import copy
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from bridge.singer.catalog import (
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
"""What Singer leaves to the user to write; the older names have underscores."""


@dataclass(slots=True)
class Merged:
    """A catalog to keep. `overruled` names the places where the user and the tap both changed something."""

    catalog: Catalog
    gone: list[StreamEntry] = field(default_factory=list)
    """Streams that the tap does not have any more, as the user edited them; they may come back."""
    overruled: list[str] = field(default_factory=list)


def merge(before: Catalog | None, edited: Catalog, now: Catalog, gone: list[StreamEntry] | None = None) -> Merged:
    """Return what the tap says `now` with the edits that made `edited` out of `before`.

    Without `before` it is not known what was edited: then what Singer leaves to the user is taken from `edited`, and
    streams that it does not have come in deselected, since they may have been deleted on purpose.
    """
    old, mine = ({stream_id(s): s for s in (catalog or {"streams": []})["streams"]} for catalog in (before, edited))
    back = {stream_id(s): s for s in gone or ()}
    merged = Merged({**now, "streams": []})
    for theirs in now["streams"]:
        name = stream_id(theirs)
        if before is None:
            merged.catalog["streams"].append(_taken_over(mine.get(name), theirs))
        elif name in mine:
            merged.catalog["streams"].append(_merged(old.get(name), mine[name], theirs, merged.overruled))
        elif name not in old:
            merged.catalog["streams"].append(_taken_over(back[name], theirs) if name in back else theirs)
    here = set(stream_ids(now))
    merged.gone = [s for name, s in (back | mine).items() if name not in here]
    return merged


def _taken_over(mine: StreamEntry | None, theirs: StreamEntry) -> StreamEntry:
    """Return a stream with what the user may have said of it, where the tap's own words of that time are not known."""
    result = copy.deepcopy(theirs)
    if mine is None:
        write(result, {(): {"selected": False}})
        return result
    for key in _USERS:
        if (old := key.replace("-", "_")) in mine:
            result[old] = mine[old]
    said = {_crumb(entry): entry.get(_METADATA) or {} for entry in mine.get(_METADATA) or ()}
    for entry in result.get(_METADATA) or ():
        entry[_METADATA] = (entry.get(_METADATA) or {}) | {
            key: value for key, value in said.get(_crumb(entry), {}).items() if key in _USERS
        }
    if not has_metadata(result):
        places = [(result.get("schema", {}), mine.get("schema", {}))]
        before = columns(mine)
        places += [(schema, before.get(path, {})) for path, schema in columns(result).items()]
        for place, source in places:
            place.update({"selected": source["selected"]} if "selected" in source else {})
    return result


def _crumb(entry: dict[str, Any]) -> tuple[str, ...]:
    return tuple(entry.get("breadcrumb") or ())


def _merged(old: StreamEntry | None, mine: StreamEntry, theirs: StreamEntry, overruled: list[str]) -> StreamEntry:
    if old is None:
        return _taken_over(mine, theirs)
    sides = [_unfolded(stream) for stream in (old, mine, theirs)]
    result = _three_way(sides[0], sides[1], sides[2], stream_id(theirs), overruled)
    return _folded(result)


def _unfolded(stream: StreamEntry) -> StreamEntry:
    """Return the stream with its metadata by breadcrumb, so that the order of entries means nothing."""
    if not has_metadata(stream):
        return stream
    return stream | {_METADATA: {_crumb(entry): entry for entry in stream[_METADATA]}}


def _folded(stream: StreamEntry) -> StreamEntry:
    entries = stream.get(_METADATA)
    return stream | {_METADATA: list(entries.values())} if isinstance(entries, dict) else stream


def _three_way(before: Any, mine: Any, theirs: Any, place: str, overruled: list[str]) -> Any:
    """Return the value that one side changed; where both did, mappings are merged, else mine stands and is noted."""
    if mine in (before, theirs):
        return theirs
    if theirs == before:
        return mine
    if isinstance(mine, dict) and isinstance(theirs, dict):
        below = before if isinstance(before, dict) else {}
        keys = [*theirs, *(key for key in mine if key not in theirs)]
        found = {
            key: _three_way(
                below.get(key, _MISSING), mine.get(key, _MISSING), theirs.get(key, _MISSING), _at(place, key), overruled
            )
            for key in keys
        }
        return {key: value for key, value in found.items() if value is not _MISSING}
    if theirs is _MISSING:  # the tap does not have that column any more; what was said of it is pointless
        return theirs
    overruled.append(place)
    return mine


def _at(place: str, key: Any) -> str:
    """Return a place as a reader writes it: `users.age.type`, whatever the nesting on the way."""
    if isinstance(key, tuple):
        key = ".".join(key[1::2])
    return place if key in ("schema", "properties", _METADATA, "") else f"{place}.{key}"


@dataclass(slots=True)
class StreamChanges:
    """What became of one stream's columns; `types` and `facts` have what was and what is."""

    new: list[str] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)
    types: dict[str, tuple[str, str]] = field(default_factory=dict)
    facts: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Replication method and key, and the columns that identify a row."""

    def __bool__(self) -> bool:
        return bool(self.new or self.gone or self.types or self.facts)

    def to_json(self) -> dict[str, Any]:
        """Return it for programs."""
        pairs = {"types": self.types, "facts": self.facts}
        changed = {
            name: {key: {"from": was, "to": now} for key, (was, now) in each.items()} for name, each in pairs.items()
        }
        return {"new": self.new, "gone": self.gone, **changed}


@dataclass(slots=True)
class Changes:
    """What became of a tap's streams from one discovery to the next."""

    new: list[str] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)
    changed: dict[str, StreamChanges] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.new or self.gone or self.changed)

    def to_json(self) -> dict[str, Any]:
        """Return it for programs."""
        changed = {name: changes.to_json() for name, changes in self.changed.items()}
        return {"new": self.new, "gone": self.gone, "changed": changed}

    def told(self) -> list[str]:
        """Return a line for each thing that is different."""
        lines = [f"new stream: {name}" for name in self.new] + [f"gone stream: {name}" for name in self.gone]
        for name, stream in self.changed.items():
            lines += [f"{name}: new column {column}" for column in stream.new]
            lines += [f"{name}: gone column {column}" for column in stream.gone]
            lines += [f"{name}: type of {key} was {was}, is {now}" for key, (was, now) in stream.types.items()]
            lines += [f"{name}: {key} was {was}, is {now}" for key, (was, now) in stream.facts.items()]
        return lines


def compare(before: Catalog, now: Catalog) -> Changes:
    """Return what is new, gone and changed between what a tap said before and what it says now."""
    old, new = ({stream_id(s): s for s in catalog["streams"]} for catalog in (before, now))
    changes = Changes([name for name in new if name not in old], [name for name in old if name not in new])
    for name in new:
        if name in old and (found := _compare(old[name], new[name])):
            changes.changed[name] = found
    return changes


def with_new_types(before: Catalog, now: Catalog, streams: Collection[str]) -> tuple[Catalog, list[str]]:
    """Return `before` with the columns of `streams` whose type is another one `now`, and a line for each of them.

    All else stays as it was said before: new columns and streams are for a whole discovery.
    """
    latest = {stream_id(stream): stream for stream in now["streams"] if stream_id(stream) in streams}
    changed = {name: changes.types for name, changes in compare(before, now).changed.items() if name in latest}
    lines = [
        f"{name}: type of {column} was {was}, is {is_now}"
        for name, types in changed.items()
        for column, (was, is_now) in types.items()
    ]
    result = [
        _retyped(stream, latest[stream_id(stream)]) if changed.get(stream_id(stream)) else stream
        for stream in before["streams"]
    ]
    return {**before, "streams": result}, lines


def _retyped(before: StreamEntry, now: StreamEntry) -> StreamEntry:
    """Return the stream with the schema and the metadata of each column that has another type now."""
    old, new = columns(before), columns(now)
    tops = {path[0] for path in new if path in old and _type(old[path]) != _type(new[path])}
    result = copy.deepcopy(before)
    properties = now["schema"]["properties"]
    result["schema"]["properties"] |= {top: properties[top] for top in tops}
    if has_metadata(result):
        crumbs = {_crumb(entry): entry for entry in now.get(_METADATA) or () if _is_of(entry, tops)}
        kept = [entry for entry in result[_METADATA] if not _is_of(entry, tops)]
        result[_METADATA] = [*kept, *crumbs.values()]
    return result


def _is_of(entry: dict[str, Any], tops: Collection[str]) -> bool:
    crumb = _crumb(entry)
    return len(crumb) > 1 and crumb[1] in tops


def _compare(before: StreamEntry, now: StreamEntry) -> StreamChanges:
    types = [{".".join(path): _type(schema) for path, schema in columns(stream).items()} for stream in (before, now)]
    facts = [_facts(stream) for stream in (before, now)]
    was, will = types
    return StreamChanges(
        [column for column in will if column not in was],
        [column for column in was if column not in will],
        {column: (was[column], will[column]) for column in will if was.get(column, will[column]) != will[column]},
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
    """Return a column's type for a reader: `integer or null`, `string (date-time)`, `array of string`."""
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
