"""How the streams of a tap are replicated, as its own `--discover` says: which of them are whole.

Only FULL_TABLE counts: of such a stream each run extracts all rows, which would be added again and again. `auto` never
deletes on a guess, so a stream whose rows may be a part of the source keeps the method that it had.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any

from bridge.lake.log import Snapshot
from bridge.lake.records import TableState
from bridge.lake.runs import read_opened
from bridge.lake.storage import Storage
from bridge.protocol.singer.catalog import Catalog, record_name, replication_method, root_facts, stream_id
from bridge.protocol.singer.state import bookmark, is_flat, resume_point
from bridge.settings.destination import UPSERT
from bridge.settings.options import Pipeline

_RUNS_BACK = 20
"""How many runs back we look for those that loaded the streams last."""


def whole_tables(declared: Catalog | None, pipeline: Pipeline, storage: Storage, snapshot: Snapshot) -> frozenset[str]:
    """The names of the streams whose tables each run may replace.

    A child stream is left out: it has its parent's rows only as far as these changed. So is a table that the last runs
    merged by key: nothing grows there, and it keeps rows that are gone in the source until somebody says otherwise.
    """
    whole = list(_whole(declared, pipeline, snapshot)) if declared else []
    merged = _merged(storage, pipeline, {name: table for name in chain(*whole) if (table := snapshot.table([name]))})
    return frozenset(name for names in whole if not merged.intersection(names) for name in names)


def comes_in_part(state: Any, names: tuple[str, ...], parent: str) -> bool:
    """Whether the tap may send only those rows of a stream whose parent changed, though it calls it FULL_TABLE.

    So it is with a stream whose parent is named; one that names itself has none. Nobody names the parents of the Singer
    SDK: its children have a bookmark for each of the parent's records, and the parent goes on from its own.
    """
    if parent:
        return parent not in names
    if not has_parts(state, names) or is_flat(state):
        return False
    return any(resume_point(state, other) is not None for other in state["bookmarks"] if other not in names)


def has_parts(state: Any, names: tuple[str, ...]) -> bool:
    """Whether a stream's bookmark is one for each context, as those of the Singer SDK's children are."""
    position = bookmark(state, names)
    return isinstance(position, dict) and bool(position.get("partitions"))


def _whole(declared: Catalog, pipeline: Pipeline, snapshot: Snapshot) -> Iterator[tuple[str, ...]]:
    for entry in declared["streams"]:
        names = (stream_id(entry), record_name(entry))
        if replication_method({"streams": [entry]}, names[0]) != "FULL_TABLE":
            continue
        parent = root_facts(entry).get("parent-tap-stream-id") or pipeline.stream(names[1]).parent
        if not parent and not has_parts(snapshot.state, names):
            yield names


def _merged(storage: Storage, pipeline: Pipeline, tables: Mapping[str, TableState]) -> set[str]:
    """The streams that were merged by key when a run last loaded them; where the log does not say it, by its record."""
    methods, streams = dict[str, str](), {name for name, table in tables.items() if table.upserts is None}
    if streams:
        for run in read_opened(storage, pipeline.name, _RUNS_BACK):
            methods |= {name: run.streams[name].load_method for name in run.streams if name not in methods}
            if methods.keys() >= streams:
                break
    by_record = {stream for stream in streams if methods.get(stream) == UPSERT}
    return by_record | {name for name, table in tables.items() if table.upserts}
