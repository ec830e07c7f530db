"""Findings on what is not as the commit log says, and the report of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from bridge.findings import Finding, Mend, worst

_REPAIR = "singer-bridge verify NAME --repair"


def error(check: str, file: str, problem: str, fix: str = "", mend: Mend | None = None) -> Finding:
    """Readers or the next run would get something wrong, or stop here."""
    return Finding(check, "error", problem, fix or f"{_REPAIR} mends it", file=file, mend=mend)


def warning(check: str, file: str, problem: str, fix: str = "", mend: Mend | None = None) -> Finding:
    """Harmless for now, or the next run repairs it by itself."""
    return Finding(check, "warning", problem, fix or f"{_REPAIR} mends it", file=file, mend=mend)


@dataclass(frozen=True, slots=True)
class Report:
    """The findings, and how much was checked. `running` is the run that held the pipeline meanwhile, if any."""

    head: int = 0
    first: int = 0
    commits: int = 0
    tables: int = 0
    files: int = 0
    rows: int = 0
    bytes: int = 0
    running: str = ""
    findings: list[Finding] = field(default_factory=list)

    @property
    def errors(self) -> int:
        return sum(finding.status == "error" for finding in self.findings)

    def to_json(self) -> dict[str, Any]:
        """As `verify --json` prints it."""
        counts = {"commits": self.commits, "tables": self.tables, "files": self.files}
        return {
            "status": worst(self.findings),
            "commit": self.head,
            "first_commit": self.first,
            **counts,
            "rows": self.rows,
            "bytes": self.bytes,
            "running": self.running or None,
            "findings": [
                {"severity": one.status, "check": one.check, "file": one.file, "found": one.text, "fix": one.fix}
                | {"repairable": one.mend is not None}
                for one in self.findings
            ],
        }
