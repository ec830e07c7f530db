"""Whether what a pipeline has in the bucket is what its commit log says: its STATE, and the files of its tables."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from bridge.errors import CorruptLake
from bridge.lake.log import Log
from bridge.lake.presence import wrong_size
from bridge.lake.records import TableState
from bridge.maintain.doctor.finding import Check, Finding, error, fine, warning
from bridge.state.store import StateStore
from bridge.storage import Storage
from bridge.storage.parallel import parallel_map

MOST_FILES = 10_000
"""So many files are looked at; each costs a request where the bucket is far away."""
_TRIES = 3


def content_checks(storage: Storage, pipeline: str, most: int = MOST_FILES) -> list[Check]:
    """Return the checks of a pipeline's STATE and tables. Nothing is written."""
    return [
        ("state", lambda: _state(storage, pipeline)),
        ("tables", lambda: _tables(Log(storage, pipeline), most)),
    ]


def _state(storage: Storage, pipeline: str) -> Iterator[Finding]:
    seen = StateStore.at(storage, pipeline).read()
    if seen.older:
        fix = f"rm '{storage.uri}/.bridge/{pipeline}/state.json'; the commit log brings back the last STATE"
        raise CorruptLake("state.json is older than the lake: the next run will refuse it", hint=fix)
    if seen.edited:
        fix = "nothing, if that was meant; `singer-bridge state get` shows it"
        yield warning("state", "state.json was edited by hand: the next run starts from it", fix)
    else:
        yield fine("state", "state.json is that of the last commit" if seen.version else "none yet")


def _tables(log: Log, most: int) -> Iterator[Finding]:
    """Compare the files with the log's; a run may commit meanwhile, and then it is done again."""
    for _ in range(_TRIES):
        head = log.latest()
        tables = log.view(head).tables if head else {}
        gone = _gone(log, head, tables, most)
        if not gone or log.latest() == head:
            break
    files = sum(len(table.files) for table in tables.values())
    cut = f"; looked at the first {most:,} of {files:,}" if files > most else ""
    for stream, paths in sorted(gone.items()):
        text = f"{stream}: {len(paths)} of {len(tables[stream].files)} files gone: {paths[0]}{cut}"
        hint = "restore what is gone from a backup of the bucket; or load the table anew: singer-bridge run NAME --full"
        yield error("tables", CorruptLake(text, hint=hint))
    if not gone and files:
        yield fine("tables", f"files: {files:,}, tables: {len(tables):,}: all there, whole{cut}")


def _gone(log: Log, head: int, tables: dict[str, TableState], most: int) -> dict[str, list[str]]:
    """Return by stream the files that are not there with their size; not what a crash left for the next run."""
    listed = ((s, f"{t.folder}/{n}", f.size) for s, t in sorted(tables.items()) for n, f in sorted(t.files.items()))
    looked_at = list(islice(listed, most))
    found = parallel_map(log.storage, lambda one: wrong_size(log.storage, one[1], one[2]), looked_at)
    wrong = [one for one, text in zip(looked_at, found, strict=True) if text]
    pending = _pending(log, head) if wrong else {}
    gone: dict[str, list[str]] = {}
    for stream, key, size in wrong:
        if key not in pending or log.storage.size(pending[key]) != size:
            gone.setdefault(stream, []).append(f"{log.storage.uri}/{key}")
    return gone


def _pending(log: Log, head: int) -> dict[str, str]:
    """Return where the files of the last commit are as long as it is not visible, by the place where they go."""
    last = next(log.history(head, fences=False), None)
    changes = last.tables if last else ()
    return {f"{change.folder}/{add.name}": add.source for change in changes for add in change.adds}
