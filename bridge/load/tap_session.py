"""What a load has once for each process of the tap: a way for its lines, epochs of its own, and the STATE it came to.

Barriers are one process's: they publish its streams only, and cover nothing of the others. A commit's record says for
each process which whole STATE is committed, and `state` of it is what is shown for all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from bridge.errors import SettingsError
from bridge.lake.records import TapGroup
from bridge.lake.tap_groups import shown
from bridge.load.barriers import Barrier
from bridge.load.dispatcher import Dispatcher
from bridge.load.division import Division
from bridge.singer.messages import Reader
from bridge.singer.state import is_empty, is_flat


@dataclass(frozen=True, slots=True)
class RunContext:
    """How a load is watched and stopped: `tick` raises when it shall end, `stage` hears what it does.

    `said` hears each STATE of the tap's once all that it covers is committed.
    """

    tick: Callable[[], None]
    stage: Callable[[str], None]
    said: Callable[[Any], None] = lambda _state: None


@dataclass(slots=True)
class TapSession:
    """One process of the tap; `label` names its streams for people, where it is not the only one.

    `ended`: all that can be committed of it is on its way.
    """

    intake: Dispatcher
    label: str
    reader: Reader
    ended: bool = False


class JointBarriers:
    """Makes the barriers of single processes into those of the whole run. Used by the one thread that reads them all,
    in the order in which commits will follow.
    """

    def __init__(self, division: Division, state: Any, staged: dict[str, int]) -> None:
        """`state` is what is shown for all, `staged` as in `Barrier`."""
        self._division = division
        self._groups = list(division.groups)
        self._shown = state
        self.staged = [{s: v for s, v in staged.items() if s in names} for names in division.names]
        self._idle = {s: v for s, v in staged.items() if not any(s in names for names in division.names)}

    def barrier(self, number: int, barrier: Barrier) -> Barrier:
        """Return what one group's barrier is for the run. Raises `SettingsError` for a flat STATE."""
        group, after = self._groups[number], barrier.state
        if is_flat(after) and not is_empty(after):
            hint = "its STATE has no `bookmarks` to keep apart: set source.parallelism to 1, and run again"
            raise SettingsError("this tap's STATE cannot be kept per stream", hint=hint)
        names = self._division.names
        others = frozenset().union(
            *names[:number], *names[number + 1 :], *(idle.streams for idle in self._division.idle)
        )
        self._shown = shown(self._shown, group.state, after, names[number], others)
        self._groups[number] = TapGroup(group.streams, after)
        self.staged[number] = barrier.staged
        return replace(
            barrier,
            state=self._shown,
            merged=True,
            staged={stream: version for staged in (*self.staged, self._idle) for stream, version in staged.items()},
            groups=[*self._groups, *self._division.idle],
        )
