"""How the streams of a tap without a catalog are replicated, as its own `--discover` says.

Only FULL_TABLE counts: of such a stream each run extracts all rows, which would be added again and again. `auto` never
deletes on a guess, so a stream whose rows may be a part of the source keeps the method that it had.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain

from bridge.lake.log import Snapshot
from bridge.lake.records import TableState
from bridge.lake.runs import read_opened
from bridge.lake.storage import Storage
from bridge.protocol.singer.catalog import Catalog, record_name, replication_method, root_facts, stream_id
from bridge.protocol.singer.state import bookmark
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


def _whole(declared: Catalog, pipeline: Pipeline, snapshot: Snapshot) -> Iterator[tuple[str, ...]]:
    for entry in declared["streams"]:
        names = (stream_id(entry), record_name(entry))
        if replication_method({"streams": [entry]}, names[0]) != "FULL_TABLE":
            continue
        position = bookmark(snapshot.state, names)
        # The Singer SDK does not name a stream's parent; but the bookmark of a child has a partition for each of them.
        has_parts = isinstance(position, dict) and bool(position.get("partitions"))
        parent = root_facts(entry).get("parent-tap-stream-id") or pipeline.stream(names[1]).parent
        if not parent and not has_parts:
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
