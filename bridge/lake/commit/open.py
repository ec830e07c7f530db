"""A pipeline opened for writing: its lease is ours, its log recovered and ready for the next commit.

`recover` does no more than that: what a run repairs when it opens the pipeline, without tap, Spark or any load.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from typing import Any

from bridge.errors import BridgeError, LakeError, MissingFiles
from bridge.lake.commit.cleanup import abort_older
from bridge.lake.commit.committer import FILES_CHANGED, Committer
from bridge.lake.commit.recovery import finish_last_commit, reconcile_state_file, restart_damaged_staged
from bridge.lake.lease import Lease, last_lease, take
from bridge.lake.log import Log
from bridge.lake.runs import new_run_id
from bridge.lake.storage import Storage
from bridge.lake.stream_files import StreamFiles


class OwnedPipeline:
    """A pipeline whose lease is ours until the block ends. Everything that commits goes through here.

    Unless it `is_clean`, and after an error, the lease tells the next writer to fence and recover. Not after
    `MissingFiles`: nothing was changed then, and recovery would stop at the same files.
    """

    def __init__(self, storage: Storage, pipeline: str, run: str, lease: Lease) -> None:
        self._storage, self._pipeline, self._run, self._lease = storage, pipeline, run, lease
        self._committer: Committer | None = None
        self.is_clean = True

    def open(self) -> Committer:
        """Read the log and recover what an earlier run left; returns the pipeline's one writer."""
        last = self._lease.last
        committer = open_committer(self._storage, self._pipeline, self._run, last)
        if committer.generation != last.get("closed", 0):
            StreamFiles(committer.log, committer.snapshot).mend()
        self._committer = committer
        return committer

    def __enter__(self) -> OwnedPipeline:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        head = self._committer.snapshot.n if self._committer else self._lease.last.get("head") or 0
        clean = isinstance(error, MissingFiles) if error else self.is_clean
        # the operator must see the first error, not one of closing
        with suppress(BridgeError) if error else nullcontext():
            self._lease.close(head=head, clean=clean)


@contextmanager
def open_pipeline(
    storage: Storage, pipeline: str, run: str = "", *, brief: bool = False, lease: Lease | None = None
) -> Iterator[Committer]:
    """Yield the one writer of a pipeline, then close it.

    `run` is the id of the run, a new one by default. Without a `lease` that the caller already holds one is taken here;
    `brief` announces that it is held for one commit only. Raises `PipelineHeld` while another run is alive.
    """
    run = run or new_run_id()
    with OwnedPipeline(storage, pipeline, run, lease or take(storage, pipeline, run, brief=brief)) as owned:
        yield owned.open()


def open_committer(storage: Storage, pipeline: str, run: str, last: dict[str, Any]) -> Committer:
    """The writer of a pipeline whose lease is held; `last` is what the lease said of the run before.

    Unless that run closed cleanly, this creates a fence and recovers what the run left.
    """
    log = Log(storage, pipeline)
    # A run that died may have left more than its lease says: only the list of records shows a gap among them.
    head = log.head(last.get("closed"))
    clean = head == last.get("closed", 0)
    committer = Committer(log, run, log.snapshot(head), head if clean else head + 1)
    if clean:
        reconcile_state_file(committer, recovering=False)
    else:
        last_change = next(log.history(head, fences=False), None)
        committer.create("fence", committer.snapshot.pipeline_state, after=last_change.n if last_change else 0)
        finish_last_commit(committer, last_change)
    restart_damaged_staged(committer)
    with suppress(LakeError):
        abort_older(log, committer.snapshot, committer.generation, fenced=not clean)
    return committer


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
