"""The result of one check. A check that fails is a finding, too, so the other checks are still made."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from bridge.errors import BridgeError

Status = Literal["ok", "warning", "error"]
_LISTED = 8


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the doctor's report."""

    check: str
    status: Status
    text: str
    fix: str = ""
    """The fix to make or to type; empty where all is well."""
    exit_code: int = 0
    """The code that a run would end with; 0 unless it is an error."""

    def to_json(self) -> dict[str, str]:
        """The object that `doctor --json` prints it."""
        return {"check": self.check, "status": self.status, "found": self.text, "fix": self.fix}


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


def first_of(names: Sequence[str]) -> str:
    """The first names, and how many more there are."""
    return ", ".join(names[:_LISTED]) + (f" and {len(names) - _LISTED} more" if len(names) > _LISTED else "")
