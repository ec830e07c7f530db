"""Selects streams and columns: globs on a catalog, of which the last match wins, and the reason for each choice.

A pattern is `stream` or `stream.column`; `!` excludes. If stream names have dots, the longest name in the catalog
counts: `public.users.id` is a column of `public.users`. A pattern with wildcards counts in every way it can be read.
Patterns for columns of a stream exclude its other columns; patterns that only exclude include everything else. The
tap's automatic columns, keys and replication keys always stay. Without a matching pattern the catalog decides.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Literal

from bridge.errors import SettingsError, did_you_mean
from bridge.protocol.singer.catalog import (
    Catalog,
    Path,
    StreamEntry,
    column_facts,
    is_selected,
    key_properties,
    replication_key,
    root_facts,
    stream_id,
    stream_ids,
    write,
)

Status = Literal["selected", "automatic", "unsupported", "excluded"]


@dataclass(frozen=True, slots=True)
class Choice:
    """The decision on a stream, or on one of its columns."""

    stream: str
    path: Path
    """(): the stream itself."""
    status: Status
    why: str
    changes: bool = False
    """The catalog has to be changed for it."""

    @property
    def loaded(self) -> bool:
        """Whether it goes into the lake."""
        return self.status in ("selected", "automatic")

    @property
    def column(self) -> str:
        """The column as patterns write it; empty for the stream itself."""
        return ".".join(self.path)


@dataclass(frozen=True, slots=True)
class _Pattern:
    text: str
    splits: tuple[tuple[str, str], ...]
    """A glob for streams and one for columns, empty for the stream itself."""

    @property
    def include(self) -> bool:
        return not self.text.startswith("!")

    def matches(self, stream: str) -> bool:
        """Whether it includes or excludes the stream. A pattern that excludes columns does neither."""
        return any(fnmatchcase(stream, glob) and (self.include or not column) for glob, column in self.splits)

    def of(self, stream: str) -> list[str]:
        """Its globs for that stream's columns."""
        return [column for glob, column in self.splits if column and fnmatchcase(stream, glob)]


def is_glob(pattern: str) -> bool:
    """Whether a pattern may match more than one name."""
    return any(mark in pattern for mark in "*?[")


def reselected(before: Sequence[str], words: Sequence[str], *, remove: bool = False) -> list[str]:
    """The list with patterns added at its end, where they win, without their opposites; or with them removed."""
    if remove:
        return [pattern for pattern in before if pattern not in words]
    opposites = {word[1:] if word.startswith("!") else f"!{word}" for word in words}
    return [pattern for pattern in before if pattern not in opposites.union(words)] + list(dict.fromkeys(words))


def _parse(texts: Iterable[str], streams: Sequence[str]) -> list[_Pattern]:
    return [_Pattern(text, tuple(_splits(text.removeprefix("!"), streams))) for text in texts]


def _splits(glob: str, streams: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Each way to read a pattern so that it matches a stream of the catalog, the longest stream first."""
    dots = [place for place in range(len(glob) - 1, 0, -1) if glob[place] == "."]
    for place in (len(glob), *dots):
        if any(fnmatchcase(stream, glob[:place]) for stream in streams):
            yield glob[:place], glob[place + 1 :]
            if not is_glob(glob[:place]):
                return


def choices(catalog: Catalog, patterns: Sequence[str], only: Collection[str] = ()) -> list[Choice]:
    """The decision on every stream, each followed by those on its columns, in the catalog's order.

    `only`: no other streams; without patterns they are selected whatever the catalog says.
    """
    parsed = _parse(patterns, stream_ids(catalog))
    result: list[Choice] = []
    for stream, choice in _streams(catalog, parsed, only):
        result.append(choice)
        result += _columns(stream, parsed, loaded=choice.loaded)
    return result


def loaded_streams(catalog: Catalog, patterns: Sequence[str], only: Collection[str] = ()) -> set[str]:
    """The streams that `choices` includes, without looking at their columns."""
    parsed = _parse(patterns, stream_ids(catalog))
    return {choice.stream for _, choice in _streams(catalog, parsed, only) if choice.loaded}


def _streams(catalog: Catalog, patterns: list[_Pattern], only: Collection[str]) -> Iterator[tuple[StreamEntry, Choice]]:
    by_default = not any(pattern.include for pattern in patterns) and not any(map(is_selected, catalog["streams"]))
    for stream in catalog["streams"]:
        yield stream, _stream(stream, patterns, only, by_default=by_default)


def _stream(stream: StreamEntry, patterns: list[_Pattern], only: Collection[str], *, by_default: bool) -> Choice:
    name, facts, selected = stream_id(stream), root_facts(stream), is_selected(stream)
    status, why = _stream_status(name, facts, patterns, selected=selected, by_default=by_default)
    if only and status != "unsupported":
        status, why = ("selected", "--stream") if name in only and (status == "selected" or not patterns) else _OTHERS
    return Choice(name, (), status, why, changes=facts.get("selected") is not (status == "selected"))


_OTHERS: tuple[Status, str] = ("excluded", "--stream names others")


def _stream_status(
    name: str, facts: dict[str, Any], patterns: list[_Pattern], *, selected: bool, by_default: bool
) -> tuple[Status, str]:
    if facts.get("inclusion") == "unsupported":
        return "unsupported", "the tap cannot extract it"
    last = next((pattern for pattern in reversed(patterns) if pattern.matches(name)), None)
    if last:
        return ("selected" if last.include else "excluded"), last.text
    if any(pattern.include for pattern in patterns):
        return "excluded", "no pattern names it"
    if patterns and by_default:
        return "selected", "no pattern excludes it"
    return ("selected" if selected else "excluded"), _source(facts)


def _columns(stream: StreamEntry, patterns: list[_Pattern], *, loaded: bool) -> Iterator[Choice]:
    name, facts = stream_id(stream), column_facts(stream)
    globs = [(pattern, glob) for pattern in patterns for glob in pattern.of(name)]
    key = replication_key({"streams": [stream]}, name)
    fixed = dict.fromkeys(key_properties(stream), "a key column") | ({key: "the replication key"} if key else {})
    inside, decided = _inside(facts), dict[Path, tuple[bool | None, str]]()
    for path, column in facts.items():
        decided[path] = _decide(path, globs, inside, decided)
        included, why = decided[path]
        status: Status
        if column.get("inclusion") == "unsupported":
            status, why = "unsupported", "the tap cannot extract it"
        elif column.get("inclusion") == "automatic" or (len(path) == 1 and path[0] in fixed):
            spite = f", in spite of {why}" if included is False and why.startswith("!") else ""
            status, why = "automatic", fixed.get(path[0], "the tap always sends it") + spite
        else:
            if included is None:
                included, why = bool(column.get("selected", column.get("selected-by-default", True))), _source(column)
            status = "selected" if included else "excluded"
        changes = loaded and _must_be_written(status, column, bool(patterns))
        yield Choice(name, path, *((status, why) if loaded else ("excluded", "its stream")), changes=changes)


def _must_be_written(status: Status, facts: dict[str, Any], by_pattern: bool) -> bool:
    """Some taps select a column without `selected`, others do not: the choice of a pattern is always written."""
    if not by_pattern or status == "unsupported" or facts.get("inclusion") == "automatic":
        return False
    return facts.get("selected") is not (status != "excluded")


def _source(facts: dict[str, Any]) -> str:
    return "the catalog" if "selected" in facts else "the tap's default"


def _inside(paths: Iterable[Path]) -> dict[Path, list[str]]:
    """The columns inside each column that has some."""
    inside: dict[Path, list[str]] = {}
    for path in paths:
        for length in range(1, len(path)):
            inside.setdefault(path[:length], []).append(".".join(path))
    return inside


def _decide(
    path: Path,
    globs: list[tuple[_Pattern, str]],
    inside: dict[Path, list[str]],
    above: dict[Path, tuple[bool | None, str]],
) -> tuple[bool | None, str]:
    """Decide by patterns whether a column is loaded (None: the catalog decides), and name the pattern that decides."""
    column = ".".join(path)
    last = next((pattern for pattern, glob in reversed(globs) if fnmatchcase(column, glob)), None)
    if last:
        return last.include, last.text
    if listed := _listing(path, globs, inside):
        return True, listed[-1]
    parent = above.get(path[:-1])
    if parent and parent[0] is False:
        return parent
    if len(path) > 1:
        others = _listing(path[:-1], globs, inside)
    else:
        others = [pattern.text for pattern, glob in globs if pattern.include and glob != "*"]
    return (False, f"{others[-1]} names others") if others else (None, "")


def _listing(path: Path, globs: list[tuple[_Pattern, str]], inside: dict[Path, list[str]]) -> list[str]:
    """The patterns that include something inside a column."""
    columns = inside.get(path, ())
    return [p.text for p, glob in globs if p.include and any(fnmatchcase(column, glob) for column in columns)]


def select(catalog: Catalog, patterns: Sequence[str], only: Collection[str] = ()) -> Catalog:
    """A copy of the catalog that selects what `choices` includes. Raises `SettingsError` if that is no stream."""
    result = copy.deepcopy(catalog)
    names = stream_ids(result)
    for unknown in (name for name in only if name not in names):
        hint = did_you_mean(unknown, names) or f"it has: {', '.join(names[:20])}"
        raise SettingsError("the catalog has no such stream", hint=hint, stream=unknown)
    facts: dict[str, dict[Path, dict[str, Any]]] = {name: {} for name in names}
    decided = choices(result, patterns, only)
    for choice in decided:
        if choice.changes:
            facts[choice.stream][choice.path] = {"selected": choice.loaded}
    if not any(choice.loaded for choice in decided if not choice.path):
        hint = f"the catalog has: {', '.join(names[:20])}"
        raise SettingsError("no stream is selected", hint=hint, select=list(patterns) or "the catalog's own")
    for stream in result["streams"]:
        write(stream, facts[stream_id(stream)])
    return result


def unmatched(catalog: Catalog, patterns: Sequence[str]) -> list[tuple[str, str]]:
    """The patterns that match nothing in the catalog, each with "did you mean ...", or with an empty text."""
    streams = {stream_id(stream): [".".join(path) for path in column_facts(stream)] for stream in catalog["streams"]}
    return [
        (pattern.text, _guess(pattern, streams))
        for pattern in _parse(patterns, list(streams))
        if not any(_matches(pattern, stream, columns) for stream, columns in streams.items())
    ]


def _matches(pattern: _Pattern, stream: str, columns: list[str]) -> bool:
    whole = any(fnmatchcase(stream, glob) for glob, column in pattern.splits if not column)
    return whole or any(fnmatchcase(column, glob) for glob in pattern.of(stream) for column in columns)


def _guess(pattern: _Pattern, streams: dict[str, list[str]]) -> str:
    text = pattern.text.removeprefix("!")
    names = [f"{name}.{column}" for name, columns in streams.items() if pattern.of(name) for column in columns]
    return did_you_mean(text, names or streams)
