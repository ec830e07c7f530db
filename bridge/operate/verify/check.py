"""All checks of one pipeline. A run may be alive meanwhile: problems that it could explain are checked again."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import timedelta
from typing import Any

from bridge.errors import CorruptLake
from bridge.findings import Finding
from bridge.lake.lease import lease_of
from bridge.lake.log import Log, Snapshot
from bridge.lake.paths import pipeline_key
from bridge.lake.storage import Storage
from bridge.operate.verify.derived import derived, lake
from bridge.operate.verify.files import CheckedFiles
from bridge.operate.verify.history import History
from bridge.operate.verify.report import Report, error

_LOOKS = 3
_PAUSE = timedelta(milliseconds=500)
"""The pause between two looks, in which a commit that is being published is likely to finish."""


class Verifier:
    """Checks one pipeline, as often as needed; a file that was whole is not read again."""

    def __init__(self, storage: Storage, pipeline: str) -> None:
        self.log = Log(storage, pipeline)
        self._whole: set[str] = set()
        self._history: History | None = None
        self.seen: tuple[dict[str, Any], str] = ({}, "")

    def look(self, lease: dict[str, Any], running: str = "") -> Report:
        """Check once. `lease` is what the last holder wrote, `running` the run that holds the pipeline."""
        self.seen = (lease, running)
        head = self.log.head()
        try:
            self._history = history = self._history or History(self.log)
            history.advance(head)
        except CorruptLake as failure:
            key = pipeline_key(self.log.pipeline, "begins.json")
            return Report(head=head, running=running, findings=[error("commits", key, failure.message, failure.hint)])
        snapshot = history.snapshot
        findings = [*(lake(self.log) if head or lease else ()), *history.findings]
        unfinished = bool(running) or lease.get("closed", 0) != head
        if snapshot is None:
            problem = "the tables were not checked: without all commits nobody can know what they hold"
            findings.append(error("commits", self.log.key(head), problem, "restore the damaged commits first"))
            snapshot = Snapshot(head)
        else:
            files = CheckedFiles(history, snapshot, unfinished, self._whole)
            findings += files.findings(running=bool(running))
            findings += derived(history, snapshot, unfinished=unfinished, running=bool(running))
        return self._report(history, snapshot, running, findings)

    @staticmethod
    def _report(history: History, snapshot: Snapshot, running: str, findings: list[Finding]) -> Report:
        files = [file for table in snapshot.tables.values() for file in table.files.values()]
        return Report(
            head=history.head,
            first=history.first if history.commits else 0,
            commits=history.commits,
            tables=len(snapshot.tables),
            files=len(files),
            rows=sum(file.rows for file in files),
            bytes=sum(file.size for file in files),
            running=running,
            findings=findings,
        )


def verify(storage: Storage, pipeline: str) -> Report:
    """Report what is wrong with a pipeline's part of the lake. Writes nothing, takes no lease.

    While a run holds the pipeline, only problems that every look finds count: the run may be about to commit.
    """
    verifier = Verifier(storage, pipeline)
    report, lasting = verifier.look(*lease_of(storage, pipeline)), list[Finding]()
    for look in range(_LOOKS - 1):
        quiet = not report.running and lease_of(storage, pipeline) == verifier.seen
        if quiet and verifier.log.head() == report.head:
            return report
        lasting = [finding for finding in report.findings if not look or finding in lasting]
        if not lasting:
            break
        time.sleep(_PAUSE.total_seconds())
        report = verifier.look(*lease_of(storage, pipeline))
    return replace(report, findings=[finding for finding in report.findings if finding in lasting])
