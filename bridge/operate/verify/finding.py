"""One thing in the bucket that is not as the commit log says."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal


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
    """A problem of one file of the bucket, by its key. An `error` needs repair; a `warning` does no harm yet."""

    severity: Literal["error", "warning"]
    check: str
    file: str
    problem: str
    fix: str
    mend: Mend | None = None

    def to_json(self) -> dict[str, Any]:
        """The object that `verify --json` prints for it."""
        facts = {"severity": self.severity, "check": self.check, "file": self.file, "found": self.problem}
        return facts | {"fix": self.fix, "repairable": self.mend is not None}


_REPAIR = "singer-bridge verify NAME --repair"


def error(check: str, file: str, problem: str, fix: str = "", mend: Mend | None = None) -> Finding:
    """Readers or the next run would get something wrong, or stop here."""
    return Finding("error", check, file, problem, fix or f"{_REPAIR} mends it", mend)


def warning(check: str, file: str, problem: str, fix: str = "", mend: Mend | None = None) -> Finding:
    """Harmless for now, or the next run repairs it by itself."""
    return Finding("warning", check, file, problem, fix or f"{_REPAIR} mends it", mend)


@dataclass(frozen=True, slots=True)
class Report:
    """The counts and findings of a check. `running` is the run that held the pipeline meanwhile, if any."""

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
        return sum(finding.severity == "error" for finding in self.findings)

    def to_json(self) -> dict[str, Any]:
        """The object that `verify --json` prints it."""
        counts = {"commits": self.commits, "tables": self.tables, "files": self.files}
        status = "error" if self.errors else "warning" if self.findings else "ok"
        return {
            "status": status,
            "commit": self.head,
            "first_commit": self.first,
            **counts,
            "rows": self.rows,
            "bytes": self.bytes,
            "running": self.running or None,
            "findings": [finding.to_json() for finding in self.findings],
        }
