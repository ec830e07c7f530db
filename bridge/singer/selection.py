"""Which streams and columns are loaded: globs on a catalog, the last match wins, and why each is in or out.

A pattern is `stream` or `stream.column`, `!` excludes. Where stream names have dots the longest that is known is meant:
`public.users.id` is a column of `public.users`. Patterns with wildcards mean all they can mean.
Naming columns of a stream leaves its others out; naming only what is excluded leaves everything else in. The tap's
automatic columns, keys and replication keys always stay. What no pattern speaks of is as the catalog says.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Literal

from bridge.errors import SettingsError, did_you_mean
from bridge.singer.catalog import (
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
    """What was decided on a stream, at (), or on a column; `changes` says that the catalog has to be told."""

    stream: str
    path: Path
    status: Status
    why: str
    changes: bool = False

    @property
    def loaded(self) -> bool:
        """Whether it comes into the lake."""
        return self.status in ("selected", "automatic")

    @property
    def column(self) -> str:
        """The column as patterns name it, empty for the stream itself."""
        return ".".join(self.path)


@dataclass(frozen=True, slots=True)
class _Pattern:
    text: str
    splits: tuple[tuple[str, str], ...]
    """A glob of streams and one of columns, which is empty where the stream itself is meant."""

    @property
    def include(self) -> bool:
        return not self.text.startswith("!")

    def says(self, stream: str) -> bool:
        """Return whether it includes or excludes the stream; excluding columns says nothing of it."""
        return any(fnmatchcase(stream, glob) and (self.include or not column) for glob, column in self.splits)

    def of(self, stream: str) -> list[str]:
        """Return its globs of that stream's columns."""
        return [column for glob, column in self.splits if column and fnmatchcase(stream, glob)]


def is_glob(pattern: str) -> bool:
    """Return whether a pattern may mean more than one name."""
    return any(mark in pattern for mark in "*?[")


def reselected(before: Sequence[str], words: Sequence[str], *, remove: bool = False) -> list[str]:
    """Return the list with patterns added at its end, where they win, or removed. Their opposites are dropped."""
    if remove:
        return [pattern for pattern in before if pattern not in words]
    opposites = {word[1:] if word.startswith("!") else f"!{word}" for word in words}
    return [pattern for pattern in before if pattern not in opposites.union(words)] + list(dict.fromkeys(words))


def _parse(texts: Iterable[str], streams: Sequence[str]) -> list[_Pattern]:
    return [_Pattern(text, tuple(_splits(text.removeprefix("!"), streams))) for text in texts]


def _splits(glob: str, streams: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield each way to read a pattern that names a stream of the catalog, the longest stream first."""
    dots = [place for place in range(len(glob) - 1, 0, -1) if glob[place] == "."]
    for place in (len(glob), *dots):
        if any(fnmatchcase(stream, glob[:place]) for stream in streams):
            yield glob[:place], glob[place + 1 :]
            if not is_glob(glob[:place]):
                return


def choices(catalog: Catalog, patterns: Sequence[str], only: Collection[str] = ()) -> list[Choice]:
    """Return what is decided on every stream, each followed by its columns, in the catalog's order.

    `only` narrows to these streams; with no patterns it narrows what the catalog selects itself.
    """
    parsed = _parse(patterns, stream_ids(catalog))
    found: list[Choice] = []
    for stream, choice in _streams(catalog, parsed, only):
        found.append(choice)
        found += _columns(stream, parsed, loaded=choice.loaded)
    return found


def loaded_streams(catalog: Catalog, patterns: Sequence[str], only: Collection[str] = ()) -> set[str]:
    """Return the streams that `choices` lets in, without a look at their columns."""
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
    last = next((pattern for pattern in reversed(patterns) if pattern.says(name)), None)
    if last:
        return ("selected" if last.include else "excluded"), last.text
    if any(pattern.include for pattern in patterns):
        return "excluded", "no pattern names it"
    if patterns and by_default:
        return "selected", "no pattern excludes it"
    said = "the catalog" if "selected" in facts else "the tap's default"
    return ("selected" if selected else "excluded"), said


def _columns(stream: StreamEntry, patterns: list[_Pattern], *, loaded: bool) -> Iterator[Choice]:
    name, facts = stream_id(stream), column_facts(stream)
    globs = [(pattern, glob) for pattern in patterns for glob in pattern.of(name)]
    key = replication_key({"streams": [stream]}, name)
    fixed = dict.fromkeys(key_properties(stream), "a key column") | ({key: "the replication key"} if key else {})
    inside, decided = _inside(facts), dict[Path, tuple[bool | None, str]]()
    for path, said in facts.items():
        decided[path] = _decide(path, globs, inside, decided)
        wanted, why = decided[path]
        status: Status
        if said.get("inclusion") == "unsupported":
            status, why = "unsupported", "the tap cannot extract it"
        elif said.get("inclusion") == "automatic" or (len(path) == 1 and path[0] in fixed):
            spite = f", in spite of {why}" if wanted is False and why.startswith("!") else ""
            status, why = "automatic", fixed.get(path[0], "the tap always sends it") + spite
        else:
            included, why = (_by_default(said), _source(said)) if wanted is None else (wanted, why)
            status = "selected" if included else "excluded"
        changes = loaded and _has_to_be_told(status, said, bool(patterns))
        yield Choice(name, path, *((status, why) if loaded else ("excluded", "its stream")), changes=changes)


def _has_to_be_told(status: Status, said: dict[str, Any], by_pattern: bool) -> bool:
    """Some taps take a column about which nothing is said, others do not: the patterns' choice is always said."""
    if not by_pattern or status == "unsupported" or said.get("inclusion") == "automatic":
        return False
    return said.get("selected") is not (status != "excluded")


def _by_default(said: dict[str, Any]) -> bool:
    return bool(said.get("selected", said.get("selected-by-default", True)))


def _source(said: dict[str, Any]) -> str:
    return "the catalog" if "selected" in said else "the tap's default"


def _inside(paths: Iterable[Path]) -> dict[Path, list[str]]:
    """Return what lies inside of each column that has columns."""
    found: dict[Path, list[str]] = {}
    for path in paths:
        for length in range(1, len(path)):
            found.setdefault(path[:length], []).append(".".join(path))
    return found


def _decide(
    path: Path,
    globs: list[tuple[_Pattern, str]],
    inside: dict[Path, list[str]],
    above: dict[Path, tuple[bool | None, str]],
) -> tuple[bool | None, str]:
    """Return whether patterns include a column, None where they leave it to the catalog; and which one decides."""
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
    """Return the patterns that include something inside of a column."""
    columns = inside.get(path, ())
    return [p.text for p, glob in globs if p.include and any(fnmatchcase(column, glob) for column in columns)]


def select(catalog: Catalog, patterns: Sequence[str], only: Collection[str] = ()) -> Catalog:
    """Return a copy in which exactly what the patterns choose is selected. Raises `SettingsError` if that is nothing.

    `only` narrows to these streams; with no patterns it narrows what the catalog selects itself.
    """
    result = copy.deepcopy(catalog)
    names = stream_ids(result)
    for unknown in (name for name in only if name not in names):
        hint = did_you_mean(unknown, names) or f"it has: {', '.join(names[:20])}"
        raise SettingsError("the catalog has no such stream", hint=hint, stream=unknown)
    said: dict[str, dict[Path, dict[str, Any]]] = {name: {} for name in names}
    found = choices(result, patterns, only)
    for choice in found:
        if choice.changes:
            said[choice.stream][choice.path] = {"selected": choice.loaded}
    if not any(choice.loaded for choice in found if not choice.path):
        hint = f"the catalog has: {', '.join(names[:20])}"
        raise SettingsError("no stream is selected", hint=hint, select=list(patterns) or "the catalog's own")
    for stream in result["streams"]:
        write(stream, said[stream_id(stream)])
    return result


def unmatched(catalog: Catalog, patterns: Sequence[str]) -> list[tuple[str, str]]:
    """Return the patterns that mean nothing in the catalog, each with a guess at what was meant, or an empty text."""
    streams = {stream_id(stream): [".".join(path) for path in column_facts(stream)] for stream in catalog["streams"]}
    strange = (
        pattern
        for pattern in _parse(patterns, list(streams))
        if not any(_means(pattern, stream, columns) for stream, columns in streams.items())
    )
    return [(pattern.text, _guess(pattern, streams)) for pattern in strange]


def _means(pattern: _Pattern, stream: str, columns: list[str]) -> bool:
    whole = any(fnmatchcase(stream, glob) for glob, column in pattern.splits if not column)
    return whole or any(fnmatchcase(column, glob) for glob in pattern.of(stream) for column in columns)


def _guess(pattern: _Pattern, streams: dict[str, list[str]]) -> str:
    text = pattern.text.removeprefix("!")
    known = [f"{name}.{column}" for name, columns in streams.items() if pattern.of(name) for column in columns]
    return did_you_mean(text, known or streams)
