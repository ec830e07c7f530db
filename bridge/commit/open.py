"""A pipeline opened for writing: its lease is ours, its log recovered and ready for the next commit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from bridge.commit.committer import Committer
from bridge.errors import BridgeError, MissingFiles
from bridge.lake.lease import Lease, take
from bridge.lake.runs import new_run_id
from bridge.storage import Storage


@contextmanager
def open_pipeline(
    storage: Storage,
    pipeline: str,
    run: str = "",
    *,
    brief: bool = False,
    lease: Lease | None = None,
    clean: Callable[[], bool] = lambda: True,
    first: Callable[[], object] = lambda: None,
) -> Iterator[Committer]:
    """Yield the one writer of a pipeline, then close it. All that write commits go through here.

    `run` is the id of the run, a new one by default. `lease` is one that the caller took already; else it is taken
    here, and `brief` says that it is held for one commit only. `first` is done before the log is read.

    Left by an error, or when `clean` says no at the end, the lease tells the next writer to fence and recover. After
    `MissingFiles` it does not: nothing was changed, and recovery would stop at the same files.
    Raises `PipelineHeld` while another run is alive.
    """
    run = run or new_run_id()
    lease = lease or take(storage, pipeline, run, brief=brief)
    head = lease.last.get("head") or 0
    try:
        first()
        committer = Committer(storage, pipeline, run, last=lease.last)
        try:
            yield committer
        finally:
            head = committer.view.n
    except BaseException as error:
        with suppress(BridgeError):  # what failed first is what the operator has to hear of
            lease.close(head=head, clean=isinstance(error, MissingFiles))
        raise
    lease.close(head=head, clean=clean())
