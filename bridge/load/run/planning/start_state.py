"""From which STATE a process of the tap starts."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from bridge.lake.log import Snapshot
from bridge.lake.state.lookback import Lookback
from bridge.load.slots.guard import SlotGuard
from bridge.protocol.singer.state import is_empty, resumable_versions, without
from bridge.settings.destination import OVERWRITE, UPSERT
from bridge.settings.options import Pipeline


class StartStates:
    """From which STATE the streams of one run start.

    `asked` are all names of the streams given by `--stream`; empty: all.
    """

    def __init__(
        self, pipeline: Pipeline, view: Snapshot, asked: Collection[str], *, full: bool, slots: SlotGuard | None = None
    ) -> None:
        """`slots`: what guards the replication slot; it may have a stream start before its bookmark."""
        self._pipeline, self._view, self._asked, self._full = pipeline, view, asked, full
        self._slots = slots or SlotGuard()

    def of(self, state: Any, own: Collection[str] | None) -> tuple[Any, Lookback]:
        """The STATE for a tap that goes on from a stored one, None to start from the beginning.

        `own`: the streams that this process extracts. Other streams keep the bookmark they had. Raises `SettingsError`
        for a STATE that cannot be kept per stream.
        """
        slots, settings_of = self._slots, self._pipeline.stream
        lookback = Lookback(lambda s: slots.back.get(s, settings_of(s).lookback) if own is None or s in own else None)
        lookback.quiet |= slots.back.keys()
        if self._asked:
            without(state, self._asked)
        if self._full:
            state = without(state, self._asked) if self._asked else None
        else:
            overwritten = (lambda s: self._overwritten(s) and s in own) if own is not None else self._overwritten
            state = resumable_versions(state, overwritten, self._version, self._view.tables)
        state = None if is_empty(state) else slots.handed(state)
        looks_back = slots.back or any(one.lookback is not None for one in self._pipeline.streams.values())
        return lookback.start(state) if looks_back else state, lookback

    def _overwritten(self, stream: str) -> bool:
        return self._pipeline.load_method(stream) == OVERWRITE

    def _version(self, stream: str) -> int | None:
        """The `version` of a stream's rows in the lake, looked up by all of its names."""
        versions = (self._view.version(name) for name in self._pipeline.names_of(stream))
        return next((version for version in versions if version is not None), None)

    def warnings(self, lookbacks: Sequence[Lookback]) -> list[str]:
        """A warning for each stream whose lookback doubles rows, or cannot be applied."""
        streams = dict.fromkeys(stream for lookback in lookbacks for stream in lookback.streams)
        unshifted = set().union(*(lookback.unshifted for lookback in lookbacks))
        again = "rows since its lookback come again, beside those that are there; load_method: upsert keeps one of each"
        twice = [stream for stream in streams if self._pipeline.load_method(stream) != UPSERT]
        still = "its lookback has no effect: the tap keeps its bookmark in a form of its own"
        return [f"{s}: {again}" for s in twice] + [f"{s}: {still}" for s in sorted(unshifted)]
