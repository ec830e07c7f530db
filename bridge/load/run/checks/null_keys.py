"""Says again of each run that older rows of a table have no replication key: the run did not see whether they changed.

The run that brings such rows counts them. Those after it look at the table's footers, if an earlier one had any.
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from functools import partial

import pyarrow as pa

from bridge.errors import BridgeError
from bridge.lake.log import Snapshot
from bridge.lake.records import TableState
from bridge.lake.runs import read_opened
from bridge.lake.schemas import read_schema
from bridge.lake.storage import Storage
from bridge.lake.storage.parallel import parallel_map
from bridge.load.run.checks.changed_values import ChangedValues
from bridge.load.run.checks.repeats import column_statistics
from bridge.load.run.plan import LoadPlan
from bridge.load.run.result import Result
from bridge.load.run.streams import StreamPlan
from bridge.protocol.decode.changed import NULL_KEY
from bridge.protocol.schema.json_schema import source

_RUNS_BACK = 10
_FOOTERS = 100
"""How many footers of a table are read, the oldest files first: then the rows are at least as many."""


def say_null_keys(plan: LoadPlan, lake: Storage, result: Result, after: Snapshot) -> None:
    """Add to the result the incremental streams of the run that have had such rows, if they are there yet."""
    streams, piped = plan.tables.streams.opened, plan.context.piped is not None
    watched = {stream for stream, one in streams.items() if one.watched and after.tables.get(stream)}
    watched -= {each.stream for each in result.differences if each.kind == NULL_KEY}
    if not watched:
        return
    with suppress(BridgeError):  # what cannot be read must not end a run that has committed
        runs = list(read_opened(lake, result.pipeline, _RUNS_BACK))
        before = {each.stream for run in runs for each in run.differences if each.kind == NULL_KEY}
        for stream in sorted(watched & before):
            rows = _nulls(lake, result.pipeline, after.tables[stream], streams[stream])
            for each in ChangedValues(values={NULL_KEY: rows}).differences(plan.pipeline, stream, piped=piped):
                result.differ(each)


def _nulls(lake: Storage, pipeline: str, table: TableState, plan: StreamPlan) -> Counter[str]:
    """How many rows lack a value, by the property; one that is in two columns is left alone."""
    columns = read_schema(lake, pipeline, table.schema).arrow if table.schema else pa.schema([])
    rows = Counter[str]()
    for name in plan.watched:
        parts = [field.name for field in columns if source(field) == name]
        if len(parts) == 1:
            files = [f"{table.folder}/{file}" for file in list(table.files)[:_FOOTERS]]
            rows[name] = sum(parallel_map(lake, partial(_nulls_of, lake, parts[0]), files))
    return +rows


def _nulls_of(lake: Storage, column: str, key: str) -> int:
    """Count a column's nulls by a file's footer; a file that is older than the column has none."""
    with suppress(BridgeError, OSError, ValueError):
        chunks = column_statistics(lake, key, column)
        return sum(facts.null_count for facts in chunks if facts and facts.has_null_count)
    return 0
