"""What a lake shows at the instant of a kill: at which step of the commit protocol the run was.

Read from the bucket, the spool and the tap's log, with no code of ours, and never from what the kill aimed at.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .orchestrator import Orchestrator
from .project import Project

STEPS = (
    "recovery, before its fence",
    "recovery, fence made, last commit not repaired",
    "recovery, all repaired, tap not heard yet",
    "extracting, nothing pending",
    "pending files, no commit yet",
    "commit on record, nothing of it visible",
    "commit on record, visible in part",
    "commit visible, manifest or state.json behind",
    "between commits",
    "closing, after the last commit",
)
"""Every step that a kill may be counted under, in the order in which a run goes through them."""


@dataclass(frozen=True)
class Finding:
    """One kill. `pending`: files were there that no reader may see yet."""

    step: str
    pending: bool

    @property
    def recovery(self) -> bool:
        """Whether the run was repairing what its predecessor left."""
        return self.step.startswith("recovery")


class Autopsy:
    """Made before a run starts; `look` is for the instant after the kill.

    `planned` is how many records the tap would have sent in this run, all streams together.
    """

    def __init__(self, project: Project, planned: int) -> None:
        self._project, self._planned = project, planned
        self._before = project.history.head()
        self._recovers = project.needs_recovery()

    def look(self, run: Orchestrator) -> Finding | None:
        """Return the step; None if it does not count: before the first record of a run with nothing to repair."""
        pending = bool(self._project.pending())
        self._project.history.head()
        new = self._project.history.records[self._before :]
        if data := [record for record in new if record["kind"] == "data"]:
            return Finding(self._after_commits(run, data), pending)
        if run.said:
            return Finding(STEPS[4] if pending else STEPS[3], pending)
        if not self._recovers:
            return None
        if not new:
            return Finding(STEPS[0], pending)
        return Finding(STEPS[1] if self._unsettled() else STEPS[2], pending)

    def _after_commits(self, run: Orchestrator, data: list[dict[str, Any]]) -> str:
        if step := self._unsettled():
            return step
        entries = [
            entry for record in data for entry in record["tables"] if entry["stream"] in self._project.shape.streams
        ]
        committed = sum(add["rows"] for entry in entries for add in entry["adds"])
        said_all = run.scratch is None or run.said >= self._planned  # the end of a run deletes the log there
        return STEPS[9] if said_all and committed >= self._planned else STEPS[8]

    def _unsettled(self) -> str | None:
        """Return the step that the last commit's publication is at, None when it is done."""
        history = self._project.history
        last: dict[str, Any] = next((r for r in reversed(history.records) if r["kind"] in ("data", "void")), {"n": 0})
        entries = last.get("tables", [])
        adds, removes, seen = set(), set(), set()
        for entry in entries:
            here = self._project.table(entry["stream"])
            new, old = {add["name"] for add in entry["adds"]}, set(entry["removes"])
            adds |= new - old  # a file that is rewritten keeps its name
            removes |= old - new
            seen |= here
        if adds - seen or removes & seen:
            return STEPS[6] if adds & seen or removes - seen else STEPS[5]
        behind = any(
            self._project.manifest(entry["stream"])
            != sorted(f"{self._project.lake.uri}/{entry['folder']}/{name}" for name in history.live(entry["stream"]))
            for entry in entries
        )
        return STEPS[7] if behind or self._project.json("state.json") != history.state else None
