"""Marks a run that ended well, and of which something looks wrong beside the runs before it.

A mark is part of the run record. A run warns of a mark that the last successful run did not have; `status` and `doctor`
show it until it is gone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from itertools import islice
from statistics import median

from bridge.lake.log import Snapshot
from bridge.lake.runs import NO_STATE, STANDING_RUNS, STANDSTILL, VOLUME, RunRecord, advice, read_opened
from bridge.lake.storage import Storage
from bridge.load.run.result import Counts
from bridge.load.run.streams import Streams
from bridge.protocol.singer.moves import short_bookmark
from bridge.protocol.singer.state import bookmark, is_null, standing_point
from bridge.settings.destination import APPEND_ONLY, HISTORY, OVERWRITE, UPSERT

_EARLIER, _FEWEST = 10, 5
"""How many earlier runs tell what is usual, and how many it takes at least."""
_USUAL, _SHARE = 100, 10
"""From how many rows on a stream is judged, and which part of them, or of a table, is few: a tenth."""
_RUNS_BACK = 30
"""How many records are read for the earlier runs."""
_DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Judgement:
    """The marks of a run by their kind, and warnings of those that are new."""

    marks: dict[str, list[str]]
    warnings: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedRun:
    """A load that ended well, and the lake before and after it."""

    streams: Streams
    before: Snapshot
    after: Snapshot
    counts: Mapping[str, Counts]
    deselected: frozenset[str] = frozenset()
    without_state: Sequence[str] = ()
    """Streams whose rows no STATE covers, as none came."""
    is_narrowed: bool = False
    """Some streams were not to be extracted, or not to their ends."""

    def judge(self, storage: Storage) -> Judgement:
        """Compare the run with those before it."""
        runs = read_opened(storage, self.streams.pipeline.name, _RUNS_BACK)
        earlier = list(
            islice((run for run in runs if run.status == "success" and "backfill" not in run.requested), _EARLIER)
        )
        usual = self._usual(earlier) if not self.is_narrowed else {}
        marks = {
            STANDSTILL: sorted(self._standing(earlier[: STANDING_RUNS - 1])),
            VOLUME: sorted(usual),
            NO_STATE: sorted(self._unknown_position()),
        }
        marks = {kind: streams for kind, streams in marks.items() if streams}
        last = earlier[0].marks if earlier else {}
        new = {kind: [one for one in streams if one not in last.get(kind, ())] for kind, streams in marks.items()}
        # Of appended rows without a STATE another warning tells, in each run.
        new[NO_STATE] = [one for one in new.get(NO_STATE, ()) if self.streams[one].usual == UPSERT]
        details = usual | {name: self._at(name) for name in new.get(STANDSTILL, ())}
        return Judgement(marks, [self._warning(kind, new[kind], details) for kind in new if new[kind]])

    def _warning(self, kind: str, streams: Sequence[str], details: Mapping[str, str]) -> str:
        shown = [f"{stream} ({details[stream]})" if stream in details else stream for stream in streams]
        what, fix = advice(kind, shown, self.streams.pipeline.name)
        return f"{what}. What to do: {fix}"

    def _at(self, stream: str) -> str:
        names = self.streams[stream].names
        return (
            "at null" if is_null(self.after.state, names) else f"at {short_bookmark(bookmark(self.after.state, names))}"
        )

    def _unknown_position(self) -> Iterator[str]:
        """Yield the streams without a STATE, apart from those that are to be appended to, or of unknown replication."""
        for stream in self.without_state:
            if self.streams[stream].is_known and self.streams[stream].setting != APPEND_ONLY:
                yield stream

    def _standing(self, earlier: Sequence[RunRecord]) -> Iterator[str]:
        if len(earlier) < STANDING_RUNS - 1:
            return
        for stream, counts in self.counts.items():
            names = self.streams[stream].names
            point = standing_point(self.after.state, names)
            # A tap may send the one row at the bookmark again in each run: that is how many taps are made.
            if counts.committed < 2 or point is None or not self._is_incremental(stream):
                continue
            if _is_of_today(bookmark(self.after.state, names)) or point != standing_point(self.before.state, names):
                continue
            if all(_stood(run, stream, names, point) for run in earlier) and not self._repeats(stream, counts, earlier):
                yield stream

    def _repeats(self, stream: str, counts: Counts, earlier: Sequence[RunRecord]) -> bool:
        """Whether these are the rows at the bookmark, as after one UPDATE of many: few of the table, always as many."""
        table = self.after.table(self.streams[stream].names)
        if counts.load_method not in (UPSERT, HISTORY) or not table or counts.committed * _SHARE >= table.rows:
            return False
        return all(run.streams[stream].records == counts.committed for run in earlier)

    def _is_incremental(self, stream: str) -> bool:
        plan = self.streams.opened.get(stream)
        if plan is None or plan.usual == OVERWRITE or plan.settings.lookback is not None:
            return False
        by_key = bool(plan.bookmark) or is_null(self.after.state, plan.names)
        return plan.replication == "INCREMENTAL" or (plan.replication is None and by_key)

    def _usual(self, earlier: Sequence[RunRecord]) -> dict[str, str]:
        """The streams with far fewer rows than usual, each with both numbers."""
        if len(earlier) < _FEWEST:
            return {}
        few = dict[str, str]()
        for stream in {name for run in earlier for name in run.streams} - self.deselected:
            rows = [run.streams[stream].records if stream in run.streams else 0 for run in earlier]
            now, usual = self.counts[stream].committed if stream in self.counts else 0, median(rows)
            if usual >= _USUAL and now * _SHARE < usual:
                few[stream] = f"{now:,}, usually {round(usual):,}"
        return few


def _stood(run: RunRecord, stream: str, names: tuple[str, ...], point: object) -> bool:
    result = run.streams.get(stream)
    return bool(
        result
        and result.records > 1
        and result.load_method != OVERWRITE  # as a full run does
        and standing_point(run.state_before, names) == point
        and standing_point(run.state, names) == point
    )


def _is_of_today(position: object) -> bool:
    """Whether a bookmark is a day, and that day may not be over: until then its rows come again."""
    value = position.get("replication_key_value") if isinstance(position, dict) else position
    with suppress(ValueError, TypeError):
        day = datetime.fromisoformat(str(value).replace("Z", "+00:00"))
        if (day.hour, day.minute, day.second) == (0, 0, 0):
            return datetime.now(timezone.utc).replace(tzinfo=None) - day.replace(tzinfo=None) < 2 * _DAY
    return False
