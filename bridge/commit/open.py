"""A pipeline opened for writing: its lease is ours, its log recovered and ready for the next commit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from bridge.commit.committer import Committer
from bridge.errors import BridgeError, MissingFiles
from bridge.lake.lease import Lease
from bridge.storage import Storage


@contextmanager
def opened(
    storage: Storage,
    pipeline: str,
    run: str,
    lease: Lease,
    *,
    clean: Callable[[], bool] = lambda: True,
    first: Callable[[], object] = lambda: None,
) -> Iterator[Committer]:
    """Yield the one writer of a pipeline whose lease was taken, then close. `first` is done before the log is read.

    Left by an error, or when `clean` says no at the end, the lease tells the next writer to fence and recover. After
    `MissingFiles` it does not: nothing was changed, and recovery would stop at the same files.
    """
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
