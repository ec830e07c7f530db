"""The result of a run: for people, for `--json`, and for its record."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from msgspec import structs

from bridge.errors import BridgeError
from bridge.lake.records import TableChange
from bridge.lake.runs import DIFFERS, Difference
from bridge.load.run.checks.changed_values import ChangedValues
from bridge.load.tap.new_columns import ColumnNews
from bridge.protocol.singer.moves import moves
from bridge.protocol.singer.state import bookmark
from bridge.settings.options import Pipeline

_MOVES = 10
"""Bookmarks that a summary shows."""


@dataclass(slots=True)
class Counts:
    """Counts of one stream: `records` are those read from the tap, all others count what was committed.

    `ended`: the tap has finished the stream, as another stream's rows began and none of its own came after.
    """

    load_method: str
    reason: str
    names: tuple[str, ...] = ()
    """All names that a STATE may have for it."""
    keys: tuple[str, ...] = ()
    """The properties that make a row's key."""
    replication_key: str = ""
    """The one property of its bookmark, if it is incremental."""
    records: int = 0
    committed: int = 0
    rejected: int = 0
    filtered: int = 0
    files: int = 0
    bytes: int = 0
    ended: bool = False
    refused: bool = False
    """The guard refused its commit, so the next run extracts its records again."""
    held: BridgeError | None = None
    """Why the stream was held back, so that the next run extracts its records again."""
    first_at: float | None = None
    last_at: float = 0.0
    merged: dict[str, int] = field(default_factory=dict)
    """The counts of rows that were merged by key, by the commits: inserted, updated, deleted and so on."""
    changed: ChangedValues = field(default_factory=ChangedValues)
    """Values that are not in the lake as the tap sent them."""

    @property
    def seconds(self) -> float:
        """Time from the chunk with the first RECORD to the one with the latest."""
        return 0.0 if self.first_at is None else self.last_at - self.first_at

    def seen(self, now: float) -> None:
        """Note that RECORDs came, at `now` by the monotonic clock."""
        self.first_at = now if self.first_at is None else self.first_at
        self.last_at = now

    def took(self, change: TableChange) -> None:
        """Count what a commit did to the stream's table."""
        self.committed += change.new_rows
        for name, rows in change.merged.items():
            self.merged[name] = self.merged.get(name, 0) + rows
        self.files += len(change.adds)
        self.bytes += sum(add.size for add in change.adds)

    @property
    def stored(self) -> int:
        """How many of its records a commit took, as rows or as rejects, or a `transform` left out."""
        return self.committed + self.rejected + self.filtered

    @property
    def is_complete(self) -> bool:
        """Whether the tap finished the stream, and all of its records are committed."""
        return self.ended and not self.refused and not self.held and self.stored >= self.records

    def to_json(self) -> dict[str, Any]:
        """The figures as the reference names them: `records` are the committed ones."""
        return {
            "read": self.records,
            "records": self.committed,
            "rejected": self.rejected,
            "filtered": self.filtered,
            "files": self.files,
            "bytes": self.bytes,
            "seconds": round(self.seconds, 3),
            "load_method": self.load_method,
            "reason": self.reason,
            "complete": self.is_complete,
            **({"merged": self.merged} if self.merged else {}),
            **({"held_back": error_facts(self.held)} if self.held else {}),
        }


@dataclass(slots=True)
class Result:
    """The result of a run. It counts as `failed` until it has succeeded."""

    run_id: str
    pipeline: str
    """Its full name, which begins with the environment, if any."""
    attempt: int = 1
    """Counts from 1; above, `retry` has run it again."""
    status: str = "failed"
    """`success`, `failed`, `interrupted`, or `held`: another run had the pipeline."""
    skipped: list[str] = field(default_factory=list)
    """Streams that `resume` left out."""
    commits: int = 0
    commit: int | None = None
    """The last commit of the log when it ended; None if it did not come so far as to read that."""
    streams: dict[str, Counts] = field(default_factory=dict)
    """By name, the streams of which anything came."""
    state: Any = None
    """The STATE from which the next run starts; `state_before`: the one from which this run started."""
    state_before: Any = None
    seconds: dict[str, float] = field(default_factory=dict)
    """Wall-clock: `total`, and parts of it."""
    spark: str = ""
    """Why Spark was started; empty if this process wrote all rows."""
    warnings: list[str] = field(default_factory=list)
    marks: dict[str, list[str]] = field(default_factory=dict)
    """The streams that look wrong beside earlier runs, by kind. See `bridge.lake.runs.advice`."""
    differences: list[Difference] = field(default_factory=list)
    """How tables differ from their source, as far as the run knows. Add to it with `differ` only."""
    error: BridgeError | None = None
    """Why it failed."""

    @property
    def records(self) -> int:
        """How many records were committed, over all streams."""
        return sum(counts.committed for counts in self.streams.values())

    @property
    def read(self) -> int:
        """How many records came from the tap, over all streams."""
        return sum(counts.records for counts in self.streams.values())

    def differ(self, *differences: Difference) -> None:
        """Say that tables differ from their source: in the summary, in the run record, to `status` and receivers."""
        for difference in differences:
            if difference not in self.differences:
                self.differences.append(difference)
                self.warnings.append(f"{difference.stream}: {difference.text}")
                self.marks[DIFFERS] = sorted({one.stream for one in self.differences})

    def differ_by_values(self, pipeline: Pipeline, *, piped: bool) -> None:
        """Say which streams have values that are not as the tap sent them. `piped`: another program starts the tap."""
        for stream, counts in self.streams.items():
            self.differ(*counts.changed.differences(pipeline, stream, piped=piped))

    def report(self, notes: Iterable[str], news: Iterable[ColumnNews]) -> None:
        """Say what a source was found to be like before the run."""
        self.warnings += notes
        self.differ(*(Difference(one.stream, one.kind, one.text) for one in news))

    def moves(self) -> list[str]:
        """A line for each bookmark, or part of one, that moved: the first ones. A full run began at the beginning."""
        lines = []
        for name, counts in self.streams.items():
            before, after = (bookmark(state, counts.names or (name,)) for state in (self.state_before, self.state))
            made = moves(None if counts.reason == "--full" else before, after)
            lines += [f"{move.of(name)}: from {move.before} to {move.after}" for move in made]
        more = len(lines) - _MOVES
        return [*lines[:_MOVES], f"and {more} more: singer-bridge state list {self.pipeline}"] if more > 0 else lines

    def to_json(self) -> dict[str, Any]:
        """The object that `--json` prints and the run record keeps."""
        error = self.error
        return {
            "format": 1,
            "run_id": self.run_id,
            "pipeline": self.pipeline,
            "attempt": self.attempt,
            "status": self.status,
            "skipped": self.skipped,
            "commits": self.commits,
            "commit": self.commit,
            "streams": {name: counts.to_json() for name, counts in self.streams.items()},
            "state": self.state,
            "state_before": self.state_before,
            "seconds": {name: round(value, 3) for name, value in self.seconds.items()},
            "spark": self.spark or None,
            "warnings": self.warnings,
            "marks": self.marks,
            "differences": [structs.asdict(each) for each in self.differences],
            "error": error and error_facts(error),
        }


def error_facts(error: BridgeError) -> dict[str, str]:
    """The object that `--json` prints for an error."""
    return {"type": type(error).__name__, "message": error.message, "hint": error.hint}
