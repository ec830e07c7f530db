"""Compares how many rows a database and the lake have: deletions, a TRUNCATE, and rows that came with an old key.

It must not give a false alarm. A table that is replicated by key is compared up to its bookmark, as rows may come
during the run. One that is read from the log counts if the log has no change of it that the run has not read. Any
other counts only if it had as many rows before the run as after it.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from bridge.errors import BridgeError
from bridge.lake.log import Snapshot
from bridge.lake.records import TableState
from bridge.lake.runs import Difference
from bridge.lake.storage import Storage
from bridge.lake.table_columns import read_columns
from bridge.load.run.plan import LoadPlan
from bridge.load.run.result import Result
from bridge.load.run.streams import StreamPlan
from bridge.load.slots.row_counts import Mark, RowCount, row_counts
from bridge.load.slots.unread import Position, unread
from bridge.load.tap.database.columns import table_of
from bridge.load.tap.database.connection import NotAsked
from bridge.load.tap.database.source_database import Place, SourceDatabase
from bridge.protocol.schema.json_schema import DELETED_AT, VersionColumn
from bridge.protocol.singer.catalog import Catalog, StreamEntry, is_selected, root_facts, stream_id
from bridge.protocol.singer.state import bookmark
from bridge.settings.commands import reload
from bridge.settings.destination import APPEND_ONLY, OVERWRITE, LoadMethod
from bridge.settings.options import Pipeline

_CLEAR = 1.5
"""How many times its server's estimate a table must have to differ."""
_FOOTERS = 100
"""The most files whose footers are read, to leave out rows that are marked as deleted."""


@dataclass(frozen=True, slots=True)
class Stream:
    """A stream whose rows can be compared with its source's."""

    name: str
    method: str
    """INCREMENTAL, LOG_BASED or FULL_TABLE."""
    load_method: LoadMethod
    key: str = ""
    """The replication key."""
    expects_all: bool = True
    """Whether each row of the source up to the bookmark must be in the lake."""


@dataclass(slots=True)
class SourceRows:
    """The rows of a run's source, before the run and after it."""

    plan: LoadPlan
    database: SourceDatabase
    streams: dict[Place, Stream] = field(default_factory=dict)
    before: dict[Place, RowCount] = field(default_factory=dict)

    @classmethod
    def begin(cls, plan: LoadPlan, database: SourceDatabase, catalog: Catalog | None) -> SourceRows:
        """Count what may be compared with later. What cannot be asked is left out."""
        rows, pipeline, streams = cls(plan, database), plan.pipeline, plan.tables.streams
        if catalog and pipeline.source.check_counts != "never" and database.kind:
            config = database.settings
            rows.streams = {
                table_of(entry): stream
                for entry in catalog["streams"]
                if not {stream_id(entry), entry.get("stream")} & plan.deselected
                and (stream := comparable(pipeline, config, entry, streams.expected(stream_id(entry))))
            }
        rows.before = rows._ask({place: None for place, one in rows.streams.items() if one.method != "INCREMENTAL"})
        return rows

    def _ask(self, questions: Mapping[Place, Mark | None]) -> dict[Place, RowCount]:
        if not questions:
            return {}
        self.plan.context.stage = "counting the rows of the source"
        is_exact = self.plan.pipeline.source.check_counts == "exact"
        try:
            return row_counts(self.database, questions, is_exact=is_exact)
        except NotAsked:  # a count is no reason to fail
            return {}

    def differences(self, result: Result, read_to: Mapping[str, Position]) -> Iterator[Difference]:
        """Yield the tables that have other rows than their source. `read_to`: how far a stream was read in the log."""
        snapshot, pipeline, streams = self.plan.committer.snapshot, self.plan.pipeline, self.plan.tables.streams
        questions: dict[Place, Mark | None] = {}
        for place, stream in self.streams.items():
            mark = mark_of(snapshot.state, streams[stream.name].names, stream.key)
            is_asked = mark is not None if stream.method == "INCREMENTAL" else place in self.before
            if is_asked and _is_whole(snapshot, streams[stream.name].names, result):
                questions[place] = mark if stream.method == "INCREMENTAL" else None
        is_quiet = not any(self._records(one, result) for one in self.streams.values() if one.method == "LOG_BASED")
        counts = self._ask(questions)
        logged = {place: read_to[one.name] for place in counts if (one := self.streams[place]).name in read_to}
        changed = unread(pipeline, self.database, logged)
        for place, after in counts.items():
            stream, before = self.streams[place], self.before.get(place)
            if changed is not None and place in logged.keys() - changed:
                before = after  # each change that the count saw is in the lake
            elif stream.method == "LOG_BASED" and not is_quiet:
                continue  # a tap that reads the log for a while only may not have come to all changes
            lake = self._live(snapshot, streams[stream.name].names)
            if lake is not None and (difference := judge(pipeline, stream, lake, before, after)):
                yield difference

    def _records(self, stream: Stream, result: Result) -> int:
        names = self.plan.tables.streams[stream.name].names
        return sum(result.streams[name].records for name in names if name in result.streams)

    def _live(self, snapshot: Snapshot, names: tuple[str, ...]) -> int | None:
        table = snapshot.table(names)
        try:
            return live_rows(self.plan.committer.storage, self.plan.pipeline.name, table) if table else None
        except (BridgeError, OSError, ValueError):  # the look is no reason to fail
            return None


def comparable(pipeline: Pipeline, config: Mapping[str, Any], entry: StreamEntry, plan: StreamPlan) -> Stream | None:
    """How a stream's rows can be compared with its source's; None if they cannot. `config` is the tap's."""
    method, keys, usual = plan.replication, plan.settings, plan.usual
    database = root_facts(entry).get("database-name")
    elsewhere = root_facts(entry).get("schema-name") and config.get("dbname", database) not in (None, database)
    if not is_selected(entry) or pipeline.destination.shared or keys.transform or config.get("stream_maps"):
        return None
    is_repeated = usual == APPEND_ONLY and method == "FULL_TABLE"
    is_partial = usual == OVERWRITE and method != "FULL_TABLE"
    if (elsewhere and database) or method is None or is_repeated or is_partial:
        return None
    # Keys of the user's own may merge rows, and a start or a lookback leaves rows to none or to a later run.
    expects_all = not (keys.key_properties or keys.lookback or config.get("start_date") or config.get("limit"))
    return Stream(plan.name, method, usual, plan.replication_key or "", expects_all)


def mark_of(state: Any, names: tuple[str, ...], key: str) -> Mark | None:
    """A stream's bookmark by this replication key; None where it has none, or one of another form, as of fractions."""
    mark = bookmark(state, names)
    if not isinstance(mark, dict) or mark.get("partitions") or mark.get("replication_key") != key:
        return None
    value = mark.get("replication_key_value")
    return Mark(key, value) if isinstance(value, (str, int)) and not isinstance(value, bool) else None


def judge(pipeline: Pipeline, stream: Stream, lake: int, before: RowCount | None, after: RowCount) -> Difference | None:
    """How a table differs from its source; None if it does not, or if nobody can tell."""
    is_by_key, may_have_more = stream.method == "INCREMENTAL", stream.load_method == APPEND_ONLY
    if not is_by_key and before != after:
        return None
    if lake > after.rows * (_CLEAR if after.is_estimate else 1) and not may_have_more:
        about = "about " if after.is_estimate else ""
        why = "deleted there, or their key was changed" if stream.method == "LOG_BASED" else "deleted there"
        text = f"it has {lake:,} rows, and its source {about}{after.rows:,}: rows were {why}, and no run saw that"
        flag = " --no-guard" if pipeline.guard_of(stream.name).is_shrunk(lake, after.rows) else ""
        return _difference(pipeline, stream, text, None if after.is_estimate else lake - after.rows, flag)
    if after.is_estimate:
        return None
    # Of the rows that have the bookmark's own value some may have come since; one of them made it the bookmark.
    seen = after.below + min(after.at, 1) if is_by_key else after.rows
    if stream.expects_all and lake < seen:
        upto = f" up to the bookmark of {stream.key}" if is_by_key else ""
        why = f"rows came with an older {stream.key}, and no run extracts them" if is_by_key else "rows are missing"
        text = f"it has {lake:,} rows, and its source {seen:,}{upto}: {why}"
        return _difference(pipeline, stream, text, seen - lake)
    if is_by_key and after.below and not (after.at or after.above or may_have_more):
        text = (
            f"the greatest {stream.key} of its source is before the bookmark: rows were removed there, and rows that "
            "come before the bookmark are extracted by no run"
        )
        return _difference(pipeline, stream, text, None)
    return None


def _difference(pipeline: Pipeline, stream: Stream, text: str, rows: int | None, flag: str = "") -> Difference:
    which = f"see which: singer-bridge reconcile {pipeline.name} -s {shlex.quote(stream.name)} --keys"
    again = f"{text}; {which}; load again: {reload(pipeline, [stream.name])}{flag}"
    return Difference(stream.name, "row_count", again, rows)


def _is_whole(snapshot: Snapshot, names: tuple[str, ...], result: Result) -> bool:
    """Whether the table is meant to have all rows: none is staged, rejected, held back, or of an older version."""
    table, counts = snapshot.table(names), [result.streams[name] for name in names if name in result.streams]
    return (
        table is not None
        and not table.is_of_view
        and snapshot.staged.keys().isdisjoint(names)
        and not any(reject.stream in (None, *names) for reject in snapshot.rejects.values())
        and not any(one.refused or one.held or one.rejected or one.filtered for one in counts)
        and not any(file.stale for file in table.files.values())
    )


def live_rows(storage: Storage, pipeline: str, table: TableState) -> int | None:
    """The rows that are not marked as deleted, of versions the current ones; None where that takes too long to know."""
    files = {name: file for name, file in table.files.items() if not file.deleted}
    columns = read_columns(storage, pipeline, table.schema) if table.schema else []
    has_versions = any(entry.get("kind") == VersionColumn.KIND for entry in columns)
    property_ = VersionColumn.END if has_versions else DELETED_AT
    column = next((entry["name"] for entry in columns if entry.get("singer", entry["name"]) == property_), None)
    if column is None:
        return sum(file.rows for file in files.values())
    if len(files) > _FOOTERS:
        return None
    rows = [_unmarked(storage, f"{table.folder}/{name}", column) for name in files]
    return None if None in rows else sum(filter(None, rows))


def _unmarked(storage: Storage, key: str, column: str) -> int | None:
    import pyarrow.parquet as pq  # here: few runs need it

    with storage.open(key) as file:
        footer = pq.read_metadata(file)
    if column not in footer.schema.names:
        return int(footer.num_rows)
    at = footer.schema.names.index(column)
    chunks = [footer.row_group(n).column(at).statistics for n in range(footer.num_row_groups)]
    if not all(facts and facts.has_null_count for facts in chunks):
        return None
    return sum(int(facts.null_count) for facts in chunks)
