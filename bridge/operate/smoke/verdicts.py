"""The result of each check: passed, failed, a warning, or skipped with the reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from bridge.findings import Finding, Status

CHECKS = {
    "about": "--about says what it is, as JSON",
    "discover": "--discover prints a catalog",
    "catalog": "the catalog is valid",
    "log-based": "streams are read from the database's log",
    "stdout": "nothing but Singer messages on stdout",
    "schema-first": "each stream's SCHEMA comes before its first RECORD",
    "schema": "each SCHEMA is valid, and has its keys",
    "batch": "the files of BATCH messages can be read",
    "records": "records are as their SCHEMA says",
    "dates": "dates and times can be read",
    "keys": "keys are there, not null, and unique",
    "replication-key": "bookmarks advance, and no later record is older",
    "state": "STATE is emitted",
    "exit-code": "it ends with exit code 0",
    "resume": "a second run starts at the bookmark",
    "repeat": "a third run is the same as the second",
    "bad-config": "a broken config is refused",
    "sigterm": "SIGTERM ends it, with whole lines",
    "golden": "the schemas are as they were written down",
    "load": "it loads, every record",
}
"""The checks in the order of the report, and what each checks."""


@dataclass
class Verdicts:
    """All findings, by their subject. A check that was made and has no finding has passed."""

    made: set[str] = field(default_factory=set)
    shows_values: bool = True
    """Whether a finding may show a value: not where the pipeline masks any."""
    _findings: dict[tuple[str, str | None, str, str], Finding] = field(default_factory=dict)

    def add(self, finding: Finding) -> None:
        """Note a finding; the same one again is only counted."""
        self.made.add(finding.check)
        finding = finding if self.shows_values else replace(finding, example="")
        key = (finding.check, finding.stream, finding.pointer, finding.text)
        if earlier := self._findings.get(key):
            finding = replace(earlier, times=earlier.times + finding.times)
        self._findings[key] = finding

    def fail(self, check: str, text: str, hint: str = "", **about: Any) -> None:
        self.add(Finding(check, "failed", text, hint, **about))

    def warn(self, check: str, text: str, hint: str = "", **about: Any) -> None:
        """Note what may be wrong."""
        self.add(Finding(check, "warning", text, hint, **about))

    def skip(self, check: str, why: str) -> None:
        """Note why a check was not made."""
        if check not in self.made:
            self.add(Finding(check, "skipped", why))

    def make(self, *checks: str) -> None:
        """Note that checks were made."""
        self.made.update(checks)

    @staticmethod
    def meaning(check: str) -> str:
        """Say in a few words what passes the check."""
        return CHECKS[check]

    def of(self, check: str) -> list[Finding]:
        """A check's findings, the worst first."""
        order = ("failed", "warning", "skipped")
        return sorted((f for f in self._findings.values() if f.check == check), key=lambda f: order.index(f.status))

    def status(self, check: str) -> Status:
        """The worst status of a check's findings; `skipped` if it was not made."""
        findings = self.of(check)
        return findings[0].status if findings else "passed" if check in self.made else "skipped"

    def __iter__(self) -> Iterator[tuple[str, Status, list[Finding]]]:
        """Yield each check that was made or skipped with a reason, in the order of the report."""
        for check in CHECKS:
            if check in self.made:
                yield check, self.status(check), self.of(check)

    @property
    def counts(self) -> Counter[str]:
        """How many checks have which status."""
        return Counter(status for _, status, _ in self)

    @property
    def failed(self) -> bool:
        return self.counts["failed"] > 0
