"""From which STATE a process of the tap starts."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from bridge.lake.log import Snapshot
from bridge.settings.options import Pipeline
from bridge.singer.state import is_empty, resumable_versions, without
from bridge.slots.guard import SlotGuard
from bridge.state.lookback import Lookback


class StartStates:
    """Where the streams of one run start. `asked` are all names of those that `--stream` names, none for all."""

    def __init__(
        self, pipeline: Pipeline, view: Snapshot, asked: Collection[str], *, full: bool, slots: SlotGuard | None = None
    ) -> None:
        """`slots`: what guards the replication slot; it may have a stream start before its bookmark."""
        self._pipeline, self._view, self._asked, self._full = pipeline, view, asked, full
        self._slots = slots or SlotGuard()

    def of(self, state: Any, own: Collection[str] | None) -> tuple[Any, Lookback]:
        """Return the STATE for a tap that goes on from a stored one, None to start from the beginning.

        `own` are the streams of that process of the tap: it starts the others where it had come to with them. Raises
        `SettingsError` for a STATE that cannot be kept per stream.
        """
        slots, said = self._slots, self._pipeline.stream
        lookback = Lookback(lambda s: slots.back.get(s, said(s).lookback) if own is None or s in own else None)
        lookback.quiet |= slots.back.keys()
        if self._asked:
            without(state, self._asked)
        if self._full:
            state = without(state, self._asked) if self._asked else None
        else:
            overwritten = (lambda s: self._overwritten(s) and s in own) if own is not None else self._overwritten
            state = resumable_versions(state, overwritten, self._version, self._view.tables)
        state = None if is_empty(state) else slots.handed(state)
        looks_back = slots.back or any(said.lookback is not None for said in self._pipeline.streams.values())
        return lookback.start(state) if looks_back else state, lookback

    def _overwritten(self, stream: str) -> bool:
        return self._pipeline.load_method(stream) == "overwrite"

    def _version(self, stream: str) -> int | None:
        """Return the `version` of a stream's rows in the lake, where they are known by any of its names."""
        found = (self._view.version(name) for name in self._pipeline.names_of(stream))
        return next((version for version in found if version is not None), None)

    def warnings(self, lookbacks: Sequence[Lookback]) -> list[str]:
        """Return a warning for each of the streams whose table will have rows twice, or that does not go back."""
        streams = dict.fromkeys(stream for lookback in lookbacks for stream in lookback.streams)
        unshifted = set().union(*(lookback.unshifted for lookback in lookbacks))
        again = "rows since its lookback come again, beside those that are there; load_method: upsert keeps one of each"
        twice = [stream for stream in streams if self._pipeline.load_method(stream) != "upsert"]
        still = "its lookback has no effect: the tap keeps its bookmark in a form of its own"
        return [f"{s}: {again}" for s in twice] + [f"{s}: {still}" for s in sorted(unshifted)]
