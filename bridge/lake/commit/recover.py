"""The verb `recover`: what a run repairs when it opens the pipeline, without tap, Spark or any load."""

from __future__ import annotations

from dataclasses import dataclass

from bridge.lake.commit.committer import FILES_CHANGED
from bridge.lake.commit.open import open_pipeline
from bridge.lake.lease import last_lease, take
from bridge.lake.log import Log
from bridge.lake.runs import new_run_id
from bridge.lake.storage import Storage


@dataclass(frozen=True, slots=True)
class Recovered:
    """The result of a recovery. `head` is the number of the last commit now, 0 if there is none.

    `died` is the run that did not close cleanly; empty if the last one did. `finished` is the commit whose files or
    manifests it may have left unpublished; all of it is visible now. `notes` say in sentences what else was done.
    """

    head: int
    died: str = ""
    finished: int | None = None
    notes: tuple[str, ...] = ()

    @property
    def sentence(self) -> str:
        """Say for people what was done, but for the notes."""
        if not self.died:
            whole = f"commit {self.head} is whole" if self.head else "nothing was committed yet"
            return f"the log is at commit {self.head}" if self.head and self.notes else f"nothing to do, {whole}"
        finished = f": commit {self.finished} is whole" if self.finished else ""
        return f"run {self.died} had not ended in good order{finished}; the log is at commit {self.head}"


def recover(storage: Storage, pipeline: str) -> Recovered:
    """Recover a pipeline as its next run would. Can be repeated after a crash at any point.

    Raises `PipelineHeld` while a run is alive, and `CorruptLake` for what nobody can repair without guessing.
    """
    if not last_lease(storage, pipeline) and not Log(storage, pipeline).head():
        return Recovered(0)  # nothing ever ran: do not make a lake of a bucket for that
    run = new_run_id()
    lease = take(storage, pipeline, run, brief=True)
    with open_pipeline(storage, pipeline, run, lease=lease) as committer:
        notes = tuple(committer.notes)
        if committer.generation == lease.last.get("closed", 0):
            return Recovered(committer.snapshot.n, notes=notes)
        died, voided, last = str(lease.last.get("run") or "unknown"), None, None
        for record in committer.log.history(committer.snapshot.n, fences=False):
            if record.n < committer.generation:
                last = record.n if record.kind in FILES_CHANGED and record.n != voided else None
                break
            voided = voided if record.voids is None else record.voids
        return Recovered(committer.snapshot.n, died, last, notes)
