"""Does the bucket hold what the pipeline's commit log says? Does anything look wrong in its last run?"""

from __future__ import annotations

from collections.abc import Iterator

from bridge.errors import CorruptLake
from bridge.findings import Check, Finding, error, fine, warning
from bridge.lake.log import Log, Snapshot
from bridge.lake.run_status import last_run, last_success
from bridge.lake.runs import SHORT, advice
from bridge.lake.state.store import StateStore
from bridge.lake.storage import Storage
from bridge.operate.verify.unpublished import damaged_files
from bridge.settings.commands import reload
from bridge.settings.options import Pipeline

MOST_FILES = 10_000
"""How many files are checked; each costs a request where the bucket is far away."""
_TRIES = 3


def content_checks(storage: Storage, pipeline: Pipeline, most: int = MOST_FILES) -> list[Check]:
    """The checks of a pipeline's STATE and tables. They write nothing."""
    return [
        ("state", lambda: _state(storage, pipeline.name)),
        ("tables", lambda: _tables(Log(storage, pipeline.name), pipeline, most)),
        ("last run", lambda: _last_run(storage, pipeline.name)),
    ]


def _last_run(storage: Storage, pipeline: str) -> Iterator[Finding]:
    """Look at the record of the last run, and at the marks of the last one that succeeded."""
    newest = last_run(storage, pipeline)
    if newest and newest.error and not newest.is_readable:
        yield warning("last run", f"{newest.run_id}: {newest.error.message}", newest.error.hint)
    last = last_success(storage, pipeline)
    if last is None:
        return
    for kind, streams in last.marks.items():  # a newer version may have more kinds
        if kind in SHORT:
            yield warning("last run", *advice(kind, streams, pipeline))
    if not last.marks:
        yield fine("last run", f"the last success, {last.run_id}: its bookmarks and its number of rows are as usual")


def _state(storage: Storage, pipeline: str) -> Iterator[Finding]:
    stored = StateStore.at(storage, pipeline).read()
    if stored.edited:
        fix = "nothing, if you meant it; `singer-bridge state get` shows it"
        yield warning("state", "state.json was edited by hand: the next run starts from it", fix)
    else:
        yield fine("state", "state.json is that of the last commit" if stored.version else "none yet")


def _tables(log: Log, pipeline: Pipeline, most: int) -> Iterator[Finding]:
    """Check that each file is there with its size. If a run commits meanwhile, check again."""
    for _ in range(_TRIES):
        snapshot = log.snapshot(head) if (head := log.latest()) else Snapshot()
        damaged = damaged_files(log, snapshot, most)
        if not damaged or log.latest() == head:
            break
    files = sum(len(table.files) for table in snapshot.tables.values())
    cut = f"; looked at the first {most:,} of {files:,}" if files > most else ""
    for stream, keys in sorted(damaged.items()):
        count = f"{len(keys)} of {len(snapshot.tables[stream].files)} files missing"
        hint = f"restore them from a backup of the bucket; or load the table again: {reload(pipeline, [stream])}"
        yield error("tables", CorruptLake(f"{stream}: {count}: {log.storage.uri}/{keys[0]}{cut}", hint=hint))
    if not damaged and files:
        yield fine("tables", f"files: {files:,}, tables: {len(snapshot.tables):,}: all there, whole{cut}")
