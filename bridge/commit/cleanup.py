"""What runs that died have left: pending files that nobody can commit any more, and bytes that were being written."""

from __future__ import annotations

from datetime import timedelta

from bridge.lake.folder_names import generation_of, last_name, table_and_name
from bridge.lake.log import Log, View, meta
from bridge.lake.ownership import owned_by

_DAY = timedelta(days=1)


def abort_older(log: Log, view: View, generation: int, *, fenced: bool) -> None:
    """Take away what lower generations left pending, as far as it can be listed.

    An upload that is to replace a file goes to that file's name, which says nothing of the upload's own generation. It
    is older than ours if we have begun with a fence, and when all was listed nobody had followed us.
    """
    storage = log.storage
    staged = {last_name(file.name) for stage in view.staged.values() for file in stage.files}
    live = {f"{table.folder}/{name}" for table in view.tables.values() for name in table.files}
    found = list(storage.pending(meta(log.pipeline, "pending")))
    all_older = fenced and storage.size(log.key(view.n + 1)) is None
    for pending in found:
        key = pending.key or pending.source
        wrote = generation_of(key)
        if wrote is None or wrote >= generation or last_name(key) in staged or (key in live and not all_older):
            continue
        if not pending.upload or owned_by(storage, table_and_name(key)[0], log.pipeline):
            storage.abort(pending)


def tidy(log: Log, view: View) -> int:
    """Delete what writes of this pipeline that died left more than a day ago; return how many files.

    An object of a store is there whole or not at all: there is nothing to look for.
    """
    if log.storage.folder is None:
        return 0
    tables = {table.folder for table in view.tables.values()}
    notes = {f".bridge/tables/{folder.rpartition('/')[0]}" for folder in tables}
    return sum(log.storage.tidy(folder, _DAY) for folder in sorted({meta(log.pipeline), *tables, *notes}))
