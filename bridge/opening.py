"""A pipeline opened for writing: its lease is ours, its log recovered and ready for the next commit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4

from bridge.commit import Committer
from bridge.errors import BridgeError
from bridge.lock import Lease
from bridge.log import meta
from bridge.storage import Storage
from bridge.verbatim import dumps

__all__ = ["lease_path", "opened"]


def lease_path(storage: Storage, pipeline: str) -> Path:
    """Return where the pipeline's lease is."""
    return Path(storage.uri) / meta(pipeline, "lease.json")


@contextmanager
def opened(
    storage: Storage, pipeline: str, run: str, lease: Lease, *, clean: Callable[[], bool] = lambda: True
) -> Iterator[Committer]:
    """Yield the one writer of a pipeline whose lease was taken, then close; make the bucket a lake if it is none.

    Left by an error, or when `clean` says no at the end, the lease tells the next writer to fence and recover.
    """
    head = lease.last.get("head") or 0
    try:
        lake = {"format": 1, "id": str(uuid4()), "made_by": "singer-bridge"}
        storage.put_if_absent(".bridge/lake.json", dumps(lake))
        committer = Committer(storage, pipeline, run, last=lease.last)
        try:
            yield committer
        finally:
            head = committer.view.n
    except BaseException:
        with suppress(BridgeError):  # what failed first is what the operator has to hear of
            lease.close(head=head, clean=False)
        raise
    lease.close(head=head, clean=clean())
