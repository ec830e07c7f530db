"""One type for what a check reports, in `doctor`, `verify` and `smoke`. A check that fails is a finding, too."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from bridge.errors import BridgeError

Status = Literal["ok", "passed", "warning", "error", "failed", "skipped"]
"""`smoke` reports `passed`, `failed` and `skipped`, where others report `ok` and `error`."""
_LISTED = 8


@dataclass(frozen=True, slots=True)
class Mend:
    """How a finding is repaired without guessing.

    `how`: `publish` (the last commit again), `back` (the file at `source` belongs here), `trash` (no commit names the
    file), `again` (a commit removed it, to `source`), `manifest`, `stream`, `owner` (written again), `state`
    (`state.json` is deleted; a copy goes to `source` if given), `recover` (opening the pipeline does it), `table log`
    (one more entry of the table's own log makes it agree with ours).
    """

    how: Literal["publish", "back", "trash", "again", "manifest", "stream", "owner", "recover", "state", "table log"]
    stream: str = ""
    source: str = ""


@dataclass(frozen=True, slots=True)
class Finding:
    """One result of a check: a problem, or that all is well."""

    check: str
    status: Status
    text: str
    fix: str = ""
    """The remedy; empty where all is well."""
    exit_code: int = 0
    """The exit code that a run would end with, for an error of `doctor`."""
    file: str = ""
    """Key of the file in the bucket that has the problem."""
    mend: Mend | None = None
    """How `verify --repair` mends it; None if it cannot."""
    stream: str | None = None
    pointer: str = ""
    """JSON pointer of the value inside the record, or of the place inside the schema."""
    times: int = 1
    example: str = ""

    @property
    def sentence(self) -> str:
        """The finding on one line: where, what, how often, and the first example."""
        where = f"{self.file}{self.stream or ''}{self.pointer}"
        times = f" ({self.times:,} times)" if self.times > 1 else ""
        example = f": {self.example}" if self.example else ""
        return f"{where + ': ' if where else ''}{self.text}{times}{example}"


Check = tuple[str, Callable[[], Iterable[Finding]]]
"""A check's name, and what it does."""


def fine(check: str, text: str) -> Finding:
    """All is well."""
    return Finding(check, "ok", text)


def warning(check: str, text: str, fix: str) -> Finding:
    """A run works, but not as well as it might, or not for long."""
    return Finding(check, "warning", text, fix)


def error(check: str, failure: BridgeError) -> Finding:
    """A run would fail with this."""
    return Finding(check, "error", failure.message, failure.hint, failure.exit_code)


def run_checks(checks: Iterable[Check]) -> Iterator[Finding]:
    """Make the checks one after another; yield each finding at once."""
    for name, check in checks:
        try:
            yield from check()
        except BridgeError as failure:
            yield error(name, failure)
        except OSError as failure:
            text = f"{failure.strerror or type(failure).__name__}: {failure.filename or name}"
            yield Finding(name, "error", text, "look at the path and its rights", 3)


def exit_code(findings: Iterable[Finding]) -> int:
    """The worst of the exit codes; a warning has none."""
    return max((finding.exit_code for finding in findings), default=0)


def worst(findings: Sequence[Finding]) -> Status:
    """`error`, `warning` or `ok`: the worst status of all."""
    statuses = {finding.status for finding in findings}
    return "error" if "error" in statuses else "warning" if "warning" in statuses else "ok"


def first_of(names: Sequence[str]) -> str:
    """The first names, and how many more there are."""
    return ", ".join(names[:_LISTED]) + (f" and {len(names) - _LISTED} more" if len(names) > _LISTED else "")
