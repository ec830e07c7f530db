"""Which streams go together into one process of the tap: `source.parallelism`.

A child stays with its parent: taps read a child's rows while they read its parent's. The streams that took longest in
the last run are placed first, each in the group with the least work. Streams stay in their last group as long as the
number of groups is right, so that each group can resume from a STATE of its own.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from bridge.errors import SettingsError, did_you_mean
from bridge.lake.log import Snapshot
from bridge.lake.pipeline_state import PipelineState, merge_group, starting_groups
from bridge.lake.records import TapGroup
from bridge.lake.runs import read_opened
from bridge.lake.storage import Storage
from bridge.load.run.barriers import Barrier
from bridge.protocol.singer.catalog import (
    Catalog,
    StreamEntry,
    root_facts,
    selected_streams,
    stream_entry,
    stream_id,
    stream_ids,
)
from bridge.protocol.singer.selection import select
from bridge.protocol.singer.state import is_empty, is_flat
from bridge.settings.options import Pipeline

Family = tuple[str, ...]
"""The ids of a parent stream and its children, which must stay together."""

_RUNS_BACK = 10
"""How many runs back we look for one that loaded anything."""
_NO_CATALOG = "it tells each process its streams: make one with `singer-bridge discover`, or set source.catalog"
_FLAT = "its STATE has no `bookmarks` to keep apart: set source.parallelism to 1"
_SPREAD = (
    "goes on from a STATE put together from those of several: rows of a stream that another one brings along, as a "
    "parent does its children, may be missed or come twice where different processes read the two"
)


@dataclass(frozen=True, slots=True)
class Division:
    """A run's groups, each with the STATE that it starts from, and the `idle` groups, which it does not load.

    `catalogs` and `names` have an item for each group: the catalog that selects its streams, and the stream names that
    its messages may have.
    """

    groups: tuple[TapGroup, ...]
    idle: tuple[TapGroup, ...]
    catalogs: tuple[Catalog, ...]
    names: tuple[frozenset[str], ...]


def check_parallelism(pipeline: Pipeline, *, piped: bool, max_records: int | None) -> None:
    """Raise `SettingsError` for a run that cannot have several processes of the tap."""
    if pipeline.source.parallelism == 1:
        return
    if piped:
        hint = "remove source.parallelism: the tap at the other end of the pipe is one process"
        raise SettingsError("source.parallelism is for taps that singer-bridge starts", hint=hint)
    if max_records is not None:
        hint = "leave --max-records out, or set source.parallelism to 1 for this run"
        raise SettingsError("--max-records counts the records of one process of the tap", hint=hint)


def divided(
    pipeline: Pipeline, storage: Storage, snapshot: Snapshot, catalog: Catalog | None
) -> tuple[Division | None, list[str]]:
    """How a run's streams are divided (None: one process reads all), and warnings.

    Raises `SettingsError` if they cannot be divided: without a catalog, and with a flat STATE.
    """
    asked = pipeline.source.parallelism
    if asked == 1 and snapshot.pipeline_state.per_process is None:
        return None, []
    if catalog is None and asked != 1:
        raise SettingsError("source.parallelism needs a catalog", hint=_NO_CATALOG)
    streams = _groups(pipeline, storage, snapshot, catalog) if catalog else []
    groups, idle, spread = starting_groups(streams, snapshot.pipeline_state)
    if not catalog or (len(groups) <= 1 and not idle):
        return None, [f"one process of the tap {_SPREAD}"] if snapshot.pipeline_state.per_process is not None else []
    if is_flat(snapshot.state) and not is_empty(snapshot.state):
        raise SettingsError("this tap's STATE cannot be kept per stream", hint=_FLAT)
    names = tuple(_names(catalog, group) for group in groups)
    catalogs = tuple(select(catalog, (), group.streams) for group in groups)
    notes = [f"{group.label}: their process of the tap {_SPREAD}" for group in spread]
    return Division(tuple(groups), tuple(idle), catalogs, names), notes


def _groups(pipeline: Pipeline, storage: Storage, snapshot: Snapshot, catalog: Catalog) -> list[Family]:
    all_families, parallelism = families(catalog, pipeline), pipeline.source.parallelism
    count = min((os.cpu_count() or 1) if parallelism == "auto" else parallelism, len(all_families))
    last = [group.streams for group in snapshot.pipeline_state.per_process or ()]
    return balanced(all_families, count, _seconds(storage, pipeline.name, catalog), last)


def families(catalog: Catalog, pipeline: Pipeline) -> list[Family]:
    """The selected streams in the catalog's order, those with a common ancestor together.

    Streams that share a `stream` name stay together, too: the tap may use that name in their messages, and then the
    first SCHEMA is refused. Raises `SettingsError` if the settings name a parent that does not exist.
    """
    joined: dict[str, str] = {}

    def top(name: str) -> str:
        while name in joined:
            name = joined[name]
        return name

    for entry in catalog["streams"]:
        for other in (str(entry.get("stream") or ""), _parent(entry, catalog, pipeline)):
            if other and top(other) != top(stream_id(entry)):
                joined[top(other)] = top(stream_id(entry))
    selected, members = selected_streams(catalog), dict[str, list[str]]()
    for name in dict.fromkeys(stream_ids(catalog)):
        if name in selected:
            members.setdefault(top(name), []).append(name)
    return [tuple(names) for names in members.values()]


def _parent(entry: StreamEntry, catalog: Catalog, pipeline: Pipeline) -> str:
    """The name of a stream's parent, empty for none."""
    name = stream_id(entry)
    parent = pipeline.stream(name).parent
    if parent and stream_entry(catalog, parent) is None:
        names = stream_ids(catalog)
        hint = did_you_mean(parent, names) or f"the catalog has: {', '.join(names[:20])}"
        raise SettingsError("streams.<stream>.parent names no stream", hint=hint, stream=name, parent=parent)
    return parent or str(root_facts(entry).get("parent-tap-stream-id") or "")


def balanced(
    members: Sequence[Family], count: int, seconds: Mapping[str, float], last: Sequence[Sequence[str]] = ()
) -> list[Family]:
    """The families in `count` groups: the longest first, each into the group with the least work.

    Families stay in their group of the `last` run, unless that leaves a group empty or makes too many.
    """
    homes = [{number for number, group in enumerate(last) if not set(group).isdisjoint(family)} for family in members]
    used = sorted(set().union(*homes))
    if len(used) > count or any(len(home) > 1 for home in homes):
        homes, used = [set()] * len(members), []
    usual = median([seconds[s] for family in members for s in family if s in seconds] or [1.0])
    weights = [sum(seconds.get(stream, usual) for stream in family) for family in members]
    groups: list[set[str]] = [set() for _ in range(count)]
    loads = [0.0] * count
    for n in sorted(range(len(members)), key=lambda n: (not homes[n], -weights[n])):
        # With the number of streams: those that take no time are spread as well.
        least = min(range(count), key=lambda number: (loads[number], len(groups[number])))
        place = used.index(*homes[n]) if homes[n] else least
        groups[place] |= set(members[n])
        loads[place] += weights[n]
    if used and not all(groups):
        return balanced(members, count, seconds)
    order = [stream for family in members for stream in family]
    return [tuple(stream for stream in order if stream in group) for group in groups]


def _seconds(storage: Storage, pipeline: str, catalog: Catalog) -> dict[str, float]:
    """How long each stream took in the last run that loaded any, by its id."""
    runs = read_opened(storage, pipeline, _RUNS_BACK)
    last = next((run.streams for run in runs if run.streams), {})
    ids = {name: stream_id(entry) for name in last if (entry := stream_entry(catalog, name))}
    return {ids[name]: result.seconds for name, result in last.items() if name in ids}


def _names(catalog: Catalog, group: TapGroup) -> frozenset[str]:
    own = (entry for entry in catalog["streams"] if stream_id(entry) in group.streams)
    return frozenset(name for entry in own for name in (stream_id(entry), entry.get("stream")) if name)


class JointBarriers:
    """Turns the barrier of one process into one of the whole run.

    The main thread calls it in the order in which the commits will follow.
    """

    def __init__(self, division: Division, state: Any, staged: dict[str, int], *, at_end: bool = False) -> None:
        """`state` is what is shown for all, `staged` as in `Barrier`. `at_end`: one commit for all processes."""
        self._division = division
        self._groups = list(division.groups)
        self._shown = state
        self.staged = [{s: v for s, v in staged.items() if s in names} for names in division.names]
        self._ends: list[Barrier] | None = [] if at_end else None
        self._idle = {s: v for s, v in staged.items() if not any(s in names for names in division.names)}

    def barrier(self, number: int, barrier: Barrier) -> Barrier | None:
        """One group's barrier as one of the whole run. Raises `SettingsError` for a flat STATE.

        With one commit for all processes: None until the last of them has ended.
        """
        joint = self._joint(number, barrier)
        if self._ends is None:
            return joint
        self._ends.append(joint)
        return _together(self._ends) if len(self._ends) == len(self._groups) else None

    def _joint(self, number: int, barrier: Barrier) -> Barrier:
        group, after = self._groups[number], barrier.state
        if is_flat(after) and not is_empty(after):
            hint = "its STATE has no `bookmarks` to keep apart: set source.parallelism to 1, and run again"
            raise SettingsError("this tap's STATE cannot be kept per stream", hint=hint)
        names = self._division.names
        others = frozenset().union(
            *names[:number], *names[number + 1 :], *(idle.streams for idle in self._division.idle)
        )
        self._shown = merge_group(self._shown, group.state, after, names[number], others)
        self._groups[number] = TapGroup(group.streams, after)
        self.staged[number] = barrier.staged
        return replace(
            barrier,
            state=self._shown,
            merged=True,
            staged={stream: version for staged in (*self.staged, self._idle) for stream, version in staged.items()},
            stored=PipelineState(self._shown, [*self._groups, *self._division.idle]),
        )


def _together(ends: Sequence[Barrier]) -> Barrier:
    """The last barrier, with what the others publish; each adds streams of its own."""
    return replace(
        ends[-1],
        publish={stream: how for each in ends for stream, how in each.publish.items()},
        schemas={stream: schema for each in ends for stream, schema in each.schemas.items()},
        activate={stream: version for each in ends for stream, version in each.activate.items()},
        from_tap=any(each.from_tap for each in ends),
        uncovered=tuple(stream for each in ends for stream in each.uncovered),
        read=frozenset(stream for each in ends for stream in each.read),
        extends=frozenset(stream for each in ends for stream in each.extends),
    )
