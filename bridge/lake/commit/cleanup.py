"""Deletes what dead runs left: pending files that nobody can commit any more, and half written hidden files."""

from __future__ import annotations

from datetime import timedelta

from bridge.lake.log import Log, Snapshot
from bridge.lake.ownership import owned_by
from bridge.lake.paths import pipeline_key, table_and_name
from bridge.lake.presence import stale_pending

_DAY = timedelta(days=1)


def abort_older(log: Log, snapshot: Snapshot, generation: int, *, fenced: bool) -> None:
    """Delete the pending files of lower generations, as far as they can be listed.

    An upload that replaces a file has that file's name, so its own generation is not known. It is certainly older than
    ours if we began with a fence and nobody had taken over from us after the listing.
    """
    storage = log.storage
    own = pipeline_key(log.pipeline, "pending", "")
    live = {f"{table.folder}/{name}" for table in snapshot.tables.values() for name in table.files}
    stale = list(stale_pending(log, snapshot, generation))
    all_older = fenced and storage.size(log.key(snapshot.n + 1)) is None
    for pending, key in stale:
        if key in live and not all_older:
            continue
        if not pending.upload or key.startswith(own) or owned_by(storage, table_and_name(key)[0], log.pipeline):
            storage.abort(pending)


def tidy(log: Log, snapshot: Snapshot) -> int:
    """Delete hidden files that interrupted writes of this pipeline left more than a day ago; return how many.

    Only in a folder: an object of a bucket is never there in part.
    """
    if log.storage.folder is None:
        return 0
    tables = {table.folder for table in snapshot.tables.values()}
    notes = {f".bridge/tables/{folder.rpartition('/')[0]}" for folder in tables}
    return sum(log.storage.tidy(folder, _DAY) for folder in sorted({pipeline_key(log.pipeline), *tables, *notes}))
