"""The STATE of a parallel tap: its streams are divided into groups, each with a process and a STATE of its own.

A process starts from its own group's STATE whenever there is one, never from one joined from several. A child stream
has no bookmark, its parent's covers it: beside the parent's bookmark of one process, the rows of a child in another
process, which died earlier, would be lost. The joined STATE is shown to people. A group starts from it only if its
streams come from several groups, or if somebody changed the STATE by hand.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from msgspec import structs

from bridge.lake.records import TapGroup
from bridge.protocol.singer.state import forget, is_empty, is_flat, overlay


@dataclass(frozen=True, slots=True)
class PipelineState:
    """A pipeline's whole STATE. Code that does not deal with processes of the tap passes it on unchanged."""

    shown: Any = None
    """The one STATE that is shown to people, to readers and to a tap of one process. None: there is none yet."""
    per_process: list[TapGroup] | None = None
    """The STATE of each process of a parallel tap. None: one process reads all. Empty: `shown` was given by hand."""

    def said_by_one(self, state: Any) -> PipelineState:
        """The STATE after a commit of a tap of one process, which sent `state`."""
        return self if state == self.shown else PipelineState(state)

    def given(self, state: Any) -> PipelineState:
        """The STATE after an operator gave `state` for all processes."""
        return PipelineState(state, None if self.per_process is None else [])

    def without(self, streams: Collection[str]) -> PipelineState:
        """The STATE without the bookmarks of `streams`: they start again."""
        if self.per_process is None:
            return PipelineState(_without(self.shown, streams))
        groups = [structs.replace(group, state=_without(group.state, streams)) for group in self.per_process]
        return PipelineState(_without(self.shown, streams), groups)

    def keeping(self, streams: Iterable[Collection[str]], before: PipelineState) -> PipelineState:
        """The STATE with the bookmarks that these streams, each with all its names, have in `before`.

        Raises `SettingsError` for a flat STATE.
        """
        shown, groups = self.shown, list(self.per_process or ())
        for names in streams:
            shown = overlay(before.shown, shown, (), muted=names)
            for place, group in enumerate(groups):
                if not set(group.streams).isdisjoint(names):
                    old = (each for each in before.per_process or () if not set(each.streams).isdisjoint(names))
                    was = next((each.state for each in old), before.shown)
                    groups[place] = structs.replace(group, state=overlay(was, group.state, (), muted=names))
        return PipelineState(shown, None if self.per_process is None else groups)


def _without(state: Any, streams: Collection[str]) -> Any:
    return state if is_empty(state) else forget(state, streams)


def starting_groups(
    divided: Iterable[Sequence[str]], stored: PipelineState
) -> tuple[list[TapGroup], list[TapGroup], list[TapGroup]]:
    """A run's groups, each with its starting STATE; the idle groups; and the groups that start from `shown`.

    A group gets the STATE of the old group that its streams come from. The streams that are left of an old group keep
    its STATE; they are the idle groups. Streams that come together from several groups, and those of a STATE that was
    changed by hand, start from the STATE that is shown.
    """
    before, groups, spread = stored.per_process or [], list[TapGroup](), list[TapGroup]()
    for streams in divided:
        previous = [old for old in before if not set(streams).isdisjoint(old.streams)]
        group = TapGroup(tuple(streams), stored.shown)
        if len(previous) == 1 and previous[0].covers(group):
            group = TapGroup(group.streams, previous[0].state)
        elif previous or stored.per_process == []:
            spread.append(group)
        groups.append(group)
    running = {stream for group in groups for stream in group.streams}
    rest = [TapGroup(tuple(s for s in group.streams if s not in running), group.state) for group in before]
    return groups, [group for group in rest if group.streams], spread


def merge_group(now: Any, before: Any, after: Any, own: Collection[str], others: Collection[str]) -> Any:
    """Apply one group's change, from `before` to `after`, to the STATE that users see, `now`.

    `own` are the names of the group's streams, `others` those of other groups: what it says of these is ignored. There
    is no `currently_syncing`, as several streams are read at once. Both STATEs of the group have bookmarks, or are
    empty.
    """
    if after == before:
        return now
    declared, previous = _bookmarks(after), _bookmarks(before)
    marks = {s: mark for s, mark in _bookmarks(now).items() if s not in own or s in declared}
    marks |= {s: mark for s, mark in declared.items() if s in own or (s not in others and mark != previous.get(s))}
    old, new = _rest(before), _rest(after)
    return {**_rest(now), **{k: v for k, v in new.items() if k not in old or old[k] != v}, "bookmarks": marks}


def _bookmarks(state: Any) -> dict[str, Any]:
    return {} if is_flat(state) else dict(state["bookmarks"])


def _rest(state: Any) -> dict[str, Any]:
    fields = state if isinstance(state, dict) and not is_flat(state) else {}
    return {key: value for key, value in fields.items() if key not in ("bookmarks", "currently_syncing")}
