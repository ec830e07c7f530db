"""Refuses a commit that would empty a table, or load nothing: an overwrite that lost most rows, a load of rejects.

A refused commit changes no table and no STATE. Its rejects are kept, marked as refused: people can look at them, but
nothing replays them, as the next run extracts the same records again. A run that could add only rejects to a table
fails.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from bridge.errors import DataError
from bridge.lake.file_records import RejectFile
from bridge.lake.log import Snapshot
from bridge.lake.records import StagedTable
from bridge.load.write.report import WorkReport
from bridge.protocol.singer.replication import yaml_text
from bridge.settings.commands import full_run, pipeline_arguments
from bridge.settings.options import Pipeline


@dataclass(frozen=True, slots=True)
class Outcome:
    """The effect that a commit would have on one stream's table. `before` and `after` count its rows."""

    stream: str
    before: int = 0
    after: int = 0
    replaces: bool = False
    """Old rows are removed: by an overwrite, `--full`, or a complete version."""
    merges: bool = False
    """Old rows are removed as several have the key of one new row."""
    is_window: bool = False
    """The rows are those of a window, not of the table."""


@dataclass(slots=True)
class _Tally:
    """Counts of one stream's records since the tap began its table. `first` is the first reject."""

    stored: int = 0
    rejected: int = 0
    first: dict[str, Any] = field(default_factory=dict)

    @property
    def records(self) -> int:
        return self.stored + self.rejected


class Guard:
    """Counts rows and rejects, and decides which commits are refused."""

    def __init__(self, pipeline: Pipeline, *, piped: bool = False, full: bool = False) -> None:
        """`piped`: another program starts the tap, so there is no `singer-bridge run` to type."""
        self._pipeline, self._piped, self._full = pipeline, piped, full
        self._tallies: dict[str, _Tally] = {}

    def _tally(self, stream: str) -> _Tally:
        return self._tallies.setdefault(stream, _Tally())

    def adopt(self, stream: str, stage: StagedTable) -> None:
        """Count what an earlier run staged of a table that this run continues."""
        self._tally(stream).stored += sum(file.rows for file in stage.files)
        for rejects in stage.rejects:
            self._reject(stream, rejects, {})

    def add(self, report: WorkReport) -> None:
        """Count the records of an executor's report."""
        for file in report.files:
            self._tally(file.stream).stored += file.rows
        for spill in report.spills:
            self._tally(spill.stream).stored += spill.rows
        for stream, lines in report.filtered.items():
            self._tally(stream).stored += lines  # SQL filtered them out on purpose
        for rejects in report.rejects:
            if rejects.file.stream is not None:
                self._reject(rejects.file.stream, rejects.file, rejects.first)

    def _reject(self, stream: str, rejects: RejectFile, first: dict[str, Any]) -> None:
        tally = self._tally(stream)
        tally.rejected += rejects.lines
        tally.first = tally.first or first or {"reason": next(iter(rejects.reasons), "")}

    def restart(self, streams: Iterable[str]) -> None:
        """Reset the counts of these streams: the tap sends their tables from the start again."""
        for stream in streams:
            self._tallies.pop(stream, None)

    def refusals(self, outcomes: Iterable[Outcome]) -> Iterator[tuple[str, DataError]]:
        """Yield each stream for which a commit with these outcomes is refused, with the error."""
        for outcome in outcomes:
            if error := self._judge(outcome):
                yield outcome.stream, error

    def complaint(self) -> DataError | None:
        """The error for a run that has committed all it could, if all records of a stream were rejected.

        The stream's old rows stay, so the commit was not refused: one bad record must not block its stream for ever.
        """
        for stream, tally in self._tallies.items():
            if tally.rejected and not tally.stored and self._pipeline.guard_of(stream).rejected is not None:
                count = "its only new record was" if tally.rejected == 1 else f"all {tally.rejected:,} new records were"
                text = f"{stream}: {count} rejected, and kept as rejects"
                return DataError(text, hint=self._later(stream), **_facts(tally))
        return None

    def _judge(self, outcome: Outcome) -> DataError | None:
        limits, tally = self._pipeline.guard_of(outcome.stream), self._tally(outcome.stream)
        if limits.rejected is not None and tally.rejected:
            if not tally.stored and (outcome.replaces or not outcome.before):
                return self._all_rejected(outcome, tally)
            if outcome.replaces and outcome.before and tally.rejected > limits.rejected * tally.records:
                return self._mostly_rejected(outcome, tally)
        if (outcome.replaces or outcome.merges) and limits.is_shrunk(outcome.before, outcome.after):
            return self._shrunk(outcome)
        return None

    def _all_rejected(self, outcome: Outcome, tally: _Tally) -> DataError:
        return DataError(
            f"{outcome.stream}: all of its records were rejected; {_stays(outcome)}",
            hint=self._how(outcome.stream, "rejected"),
            **_facts(tally),
        )

    def _mostly_rejected(self, outcome: Outcome, tally: _Tally) -> DataError:
        part = f"{tally.rejected:,} of {tally.records:,} records of the overwrite were rejected"
        hint = self._how(outcome.stream, "rejected")
        return DataError(f"{outcome.stream}: {part}; {_stays(outcome)}", hint=hint, **_facts(tally))

    def _shrunk(self, outcome: Outcome) -> DataError:
        text = f"the overwrite has {outcome.after:,} rows, the table has {outcome.before:,}"
        if outcome.is_window:
            text = f"the source has {outcome.after:,} rows in the window, the table has {outcome.before:,} of it"
        elif not outcome.replaces:
            text = f"the merge would leave {outcome.after:,} of {outcome.before:,} rows, as many have one key"
        hint = (
            "look at the source: did the tap see all of it? If so many rows are gone for good:\n"
            f"{'type it again with --no-guard' if outcome.is_window else self._accept(outcome.stream, 'shrink')}"
        )
        return DataError(f"{outcome.stream}: {text}; {_stays(outcome)}", hint=hint)

    def _how(self, stream: str, limit: str) -> str:
        name = self._pipeline.name
        where = pipeline_arguments(name, self._pipeline.destination.bucket, piped=self._piped)
        show = f"look at them: singer-bridge rejects show {where} -s {shlex.quote(stream)}"
        refresh = "have the tap discover again" if self._piped else f"singer-bridge run {name} --refresh-catalog"
        again = f"if the column has another type by now: {refresh}"
        return f"{show}\n{again}\nto load what fits all the same, {self._accept(stream, limit)}"

    def _later(self, stream: str) -> str:
        show, refresh = self._how(stream, "rejected").splitlines()[:2]
        where = show.partition("rejects show ")[2]
        ignore = f"to let such a run succeed: streams: {{{yaml_text(stream)}: {{guard: {{rejected: null}}}}}}"
        return f"{show}\n{refresh}\nwhen they fit: singer-bridge rejects replay {where}\n{ignore}"

    def _accept(self, stream: str, limit: str) -> str:
        """The hint that says how to let the commit through."""
        always = f"streams: {{{yaml_text(stream)}: {{guard: {{{limit}: null}}}}}}"
        run = full_run(self._pipeline.name, [stream]) if self._full else f"singer-bridge run {self._pipeline.name}"
        return f"set {always}" if self._piped else f"once: {run} --no-guard\nalways: {always}"


def _stays(outcome: Outcome) -> str:
    if not outcome.before:
        return "nothing was committed"
    rows = "row" if outcome.before == 1 else "rows"
    return f"the table keeps its {outcome.before:,} {rows}"


def _facts(tally: _Tally) -> dict[str, Any]:
    """Describe the first reject: its column, its value, its reason."""
    first = {name: tally.first.get(name) for name in ("pointer", "value", "reason")}
    column = str(first.pop("pointer") or "").removeprefix("/").replace("/", ".")
    return {name: value for name, value in ({"column": column} | first).items() if value}


def without_limits(pipeline: Pipeline) -> Pipeline:
    """The pipeline as `--no-guard` has it for one run."""
    streams = {glob: keys.model_copy(update={"guard": None}) for glob, keys in pipeline.streams.items()}
    return pipeline.model_copy(update={"guard": None, "streams": streams})


def refused_before(snapshot: Snapshot, streams: Iterable[str | None]) -> list[str]:
    """The reject files of these streams' refused commits, outdated as their records came again."""
    names = set(streams)
    return [file for file, reject in snapshot.rejects.items() if reject.refused and reject.stream in names]
