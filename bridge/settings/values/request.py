"""`Request`: what the caller wants of one run beyond its settings, and by which flags each door takes it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Literal

from bridge.errors import SettingsError
from bridge.settings.values.units import parse_duration

if TYPE_CHECKING:
    from bridge.settings.options import Pipeline


Bound = Decimal | datetime
"""A number, or a time in UTC."""

_NUMBER = re.compile(r"-?[0-9]{1,30}(\.[0-9]{1,18})?")
_DAY = re.compile(r"\d{4}-\d\d-\d\d.*", re.ASCII)
_SUCH_AS = "write it as FROM..TO, such as 2024-01-01..2024-03-01 or 1..500000; TO itself is not part of it"
_MOST_STEPS = 10_000


@dataclass(frozen=True, slots=True)
class Window:
    """From `low` on, up to but without `high`."""

    low: Bound
    high: Bound

    @classmethod
    def read(cls, text: str) -> Window:
        """The window `FROM..TO` of two dates, times or numbers; a time without a zone is in UTC. Raises
        `SettingsError`."""
        low, _, high = text.partition("..")
        bounds: Any = _bound(low.strip()), _bound(high.strip())
        if None in bounds or type(bounds[0]) is not type(bounds[1]):
            raise SettingsError("no window", hint=_SUCH_AS)
        if not bounds[0] < bounds[1]:
            raise SettingsError("a window without anything in it", hint=_SUCH_AS)
        return cls(*bounds)

    def steps(self, step: str) -> list[Window]:
        """The windows of this length, one after another, that make up this one. Raises `SettingsError`."""
        windows = []
        for window in self._cut(_length(step, self.low)):
            windows.append(window)
            if len(windows) > _MOST_STEPS:
                raise SettingsError(f"--step {step} cuts the window into too many", hint=f"at most {_MOST_STEPS:,}")
        return windows

    def _cut(self, length: Any) -> Iterator[Window]:
        low: Any = self.low
        high: Any = self.high
        while low < high:
            end = high if high - low <= length else low + length
            yield Window(low, end)
            low = end

    def ends_after(self, value: Any) -> bool:
        """Whether it ends after a bookmark's value; also True where that cannot be told."""
        is_number = isinstance(value, (int, float, Decimal)) and not isinstance(value, bool)
        bound: Any = Decimal(str(value)) if is_number else _bound(str(value))
        high: Any = self.high
        return type(bound) is not type(high) or not bound >= high

    def __str__(self) -> str:
        return f"{bound_text(self.low)}..{bound_text(self.high)}"


def bound_text(bound: Bound) -> str:
    """A bound as people write it."""
    if isinstance(bound, Decimal):
        return f"{bound:f}"
    day, time = bound.date().isoformat(), bound.time()
    return f"{day}T{time.isoformat()}Z" if time != time.min else day


def _bound(text: str) -> Bound | None:
    if _NUMBER.fullmatch(text):
        return Decimal(text)
    with suppress(ValueError, OverflowError):
        at = datetime.fromisoformat(text.replace("Z", "+00:00")) if _DAY.fullmatch(text) else None
        return at and (at if at.tzinfo else at.replace(tzinfo=timezone.utc)).astimezone(timezone.utc)
    return None


def _length(step: str, low: Bound) -> timedelta | Decimal:
    if isinstance(low, Decimal):
        if _NUMBER.fullmatch(step) and Decimal(step) > 0:
            return Decimal(step)
        raise SettingsError(f"--step {step} does not fit a window of numbers", hint="write a number, such as 100000")
    try:
        length = parse_duration(step)
    except SettingsError as error:
        raise SettingsError(f"--step {step} does not fit a window of times", hint=error.hint) from error
    if not length:
        raise SettingsError("--step is no time at all", hint="write a whole number with s, m, h or d, such as 7d")
    return length


@dataclass(frozen=True, slots=True)
class Request:
    """The wishes of the caller for this run, beyond its settings.

    `timeout` counts from the run's start; `wait` is how long it may wait for another run that holds the pipeline. What
    is started together with runs of other pipelines has the same `batch`. `run_id` is chosen by a caller who has to
    know it before the run starts; a retry gets another one. `attempt` is above 1 if the process of an earlier
    attempt was killed. `backfill`: load rows of this window of the streams' replication keys once more, as
    a step of the window `step_of`; the STATE stays.
    """

    full: bool = False
    append: bool = False
    streams: tuple[str, ...] = ()
    resume: bool = False
    state: Any = None
    refresh_catalog: bool = False
    max_records: int | None = None
    adopt: bool = False
    backfill: Window | None = None
    step_of: Window | None = None
    guard: bool = True
    timeout: timedelta | None = None
    wait: timedelta | None = None
    batch: str | None = None
    run_id: str | None = None
    attempt: int = 1

    def to_record(self) -> dict[str, Any]:
        """The fields of the run record for it."""
        names = ("full", "append", "streams", "resume", "max_records")
        requested = {name: value for name in names if (value := getattr(self, name))}
        if self.streams:
            requested["streams"] = list(self.streams)
        windows = {"backfill": self.backfill, "step_of": self.step_of}
        requested |= {name: str(window) for name, window in windows.items() if window}
        return {"requested": requested} | ({"batch": self.batch} if self.batch else {})

    def begins_anew(self, pipeline: Pipeline) -> bool:
        """Whether the run loads from the start: as asked, or as the settings have every run do."""
        return self.full or not pipeline.incremental.enabled

    def check(self, pipeline: Pipeline) -> None:
        """Raise `SettingsError` for flags that contradict the settings: such a run leaves no record."""
        if self.backfill and not pipeline.incremental.enabled:
            hint = "`run` loads all of it in any case"
            raise SettingsError("there is nothing to backfill: incremental is off", hint=hint)
        if not self.begins_anew(pipeline):
            return
        if self.resume:
            hint = "a full run begins every table anew; leave one of them out"
            raise SettingsError("--resume and --full contradict each other", hint=hint)
        if self.max_records is not None:
            hint = "run without --max-records, or not in full"
            raise SettingsError("--max-records would replace tables by a part of them", hint=hint)
        if not self.append and pipeline.appends_only(self.streams):
            hint = "add --append to load every row once more, or set load_method to auto or overwrite"
            raise SettingsError("--full would double the rows of append-only tables", hint=hint)

    @property
    def is_narrowed(self) -> bool:
        """Whether it asks for less than all: some streams, those that are left, or so many records."""
        return bool(self.streams or self.resume or self.max_records is not None)

    def __post_init__(self) -> None:
        """Raise `SettingsError` for what contradicts itself, whatever the pipeline."""
        if self.append and not self.full:
            raise SettingsError("--append goes with --full", hint="a plain run appends already")
        if self.state is not None and not isinstance(self.state, dict):
            raise SettingsError("a STATE is a JSON object", hint="to start from the beginning use --full")
        if self.max_records is not None and self.max_records < 1:
            raise SettingsError("--max-records is at least 1", hint="leave it out for all records")
        if self.backfill:
            if not self.streams:
                raise SettingsError("--backfill is of some streams", hint="name them: -s STREAM")
            if self.full or self.resume or self.adopt or self.state is not None or self.max_records is not None:
                hint = "leave out --full, --resume, --adopt, --state and --max-records"
                raise SettingsError("--backfill has a beginning and an end of its own", hint=hint)
        for name, duration in (("timeout", self.timeout), ("wait", self.wait)):
            if duration is not None and not isinstance(duration, timedelta):
                raise SettingsError(f"{name} is not a duration", hint="give a datetime.timedelta")


@dataclass(frozen=True, slots=True)
class Flag:
    """How a field of `Request` is typed. `--no-x` sets the field `x` to false; `metavar` stands for a value.

    `doors`: whether a run of the service may have it, and whether the page has a box for it.
    """

    words: tuple[str, ...]
    help: str
    metavar: str | None = None
    doors: tuple[Literal["service", "page"], ...] = ()

    @property
    def key(self) -> str:
        """Its name in JSON."""
        return self.words[0][2:].replace("-", "_")


_FULL = "Start from the beginning and replace the tables at the end."
_APPEND = "With --full: append to append-only tables, which otherwise refuse it."
_RESUME = "Skip the streams that the last run completed before it failed; of several pipelines, those that succeeded."
_GUARD = "Replace tables even where `guard` would keep the old one."

FLAGS = {
    "full": Flag(("--full", "--full-refresh"), _FULL, doors=("service", "page")),
    "append": Flag(("--append",), _APPEND, doors=("service", "page")),
    "resume": Flag(("--resume",), _RESUME, doors=("service", "page")),
    "state": Flag(("--state",), "Start from this STATE.", "FILE"),
    "refresh_catalog": Flag(("--refresh-catalog",), "Discover again.", doors=("service", "page")),
    "max_records": Flag(("--max-records",), "Stop the tap after about this many records.", "N"),
    "adopt": Flag(("--adopt",), "Add the files that are already in the tables' folders."),
    "guard": Flag(("--no-guard",), _GUARD, doors=("service",)),
    "timeout": Flag(("--timeout",), "Stop a run that takes longer.", "30m"),
    "wait": Flag(("--wait",), "Wait this long for a run that holds the pipeline.", "10m"),
    "backfill": Flag(("--backfill",), "Load rows of -s of this window once more; the bookmark stays.", "FROM..TO"),
}
"""The flags of `singer-bridge run` by field, in the order of `--help`; `--stream` is one of many verbs."""
