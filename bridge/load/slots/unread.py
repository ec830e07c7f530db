"""Which tables have changes in the log that a run has not read. Any other table is as the lake has it, row for row.

Asked after the tables were counted, up to the end of the log: whatever a count saw is in the log by then.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence

from bridge.load.slots.database import lsn
from bridge.load.tap.database.connection import NotAsked
from bridge.load.tap.database.source_database import Place, SourceDatabase
from bridge.load.tap.slot_source import slot_source
from bridge.settings.options import Pipeline

Position = int | tuple[str, int]
"""An LSN of PostgreSQL, or a file and a place in MySQL's log: what was committed before it has been read."""

_SECONDS = 2
"""So long the server may read its log; more was written since the run, and another run will know."""
_FLUSH_SECONDS = 1.0
"""A commit that waits for no disk is on it after so long."""
_EVENTS = 10_000
_PEEK = """
with log as (
  select xid::text, lsn, data::json as change from pg_logical_slot_peek_changes(
    %s, %s::pg_lsn, null, 'format-version', '2', 'include-types', 'false', 'include-transaction', 'true')
), commits as (select xid, max(lsn) as at from log where change->>'action' = 'C' group by xid)
select change->>'schema', change->>'table', max(at)
from log join commits using (xid) where change->>'action' in ('I', 'U', 'D', 'T') group by 1, 2
"""
_HARMLESS = re.compile(
    "anonymous_gtid|annotate_rows|binlog_checkpoint|format_desc|gtid|gtid_list|heartbeat|previous_gtids|rows_query"
    "|start_encryption|xid",
    re.IGNORECASE,
)
_ROWS = re.compile(r"(write|update|delete)_rows", re.IGNORECASE)
_TRANSACTION = re.compile(r"(begin|commit|savepoint|rollback|release)\b", re.IGNORECASE)
_TABLE = re.compile(r"table_id: (\d+)(?: \((.*)\))?", re.DOTALL)


def unread(pipeline: Pipeline, database: SourceDatabase, read_to: Mapping[Place, Position]) -> set[Place] | None:
    """The tables that have changes after their position; None if the server does not say."""
    if not read_to:
        return set()
    if database.kind == "mysql":
        return _unread_binlog(database, {p: at for p, at in read_to.items() if isinstance(at, tuple)})
    source = slot_source(pipeline, database.argv)
    if source is None or source.kind == "other":
        return None
    try:
        return _unread_slot(database, source.slot, {p: at for p, at in read_to.items() if isinstance(at, int)})
    except NotAsked:  # another plugin than wal2json, no rights, a standby, too much log
        return None


def _unread_slot(database: SourceDatabase, slot: str, read_to: Mapping[Place, int]) -> set[Place] | None:
    [[end]] = database.rows("select pg_current_wal_insert_lsn()::text", [], seconds=_SECONDS)
    if not _is_flushed(database, end):
        return None
    changes = database.rows(_PEEK, [slot, end], seconds=_SECONDS)
    ends = {(str(schema), str(table)): lsn(at) or 0 for schema, table, at in changes}
    return {place for place, at in read_to.items() if ends.get(place, 0) > at}


def _is_flushed(database: SourceDatabase, end: str) -> bool:
    """Whether the log is on disk up to there, after a moment: the server decodes no more than that."""
    latest = time.monotonic() + _FLUSH_SECONDS
    while not database.rows("select pg_current_wal_flush_lsn() >= %s::pg_lsn", [end], seconds=_SECONDS)[0][0]:
        if time.monotonic() > latest:
            return False
        time.sleep(0.05)
    return True


def _unread_binlog(database: SourceDatabase, read_to: Mapping[Place, tuple[str, int]]) -> set[Place] | None:
    files = {file for file, _ in read_to.values()}
    if len(files) != 1:
        return None
    start = min(position for _, position in read_to.values())
    try:
        sql = f"show binlog events in %s from %s limit {_EVENTS}"
        events = database.rows(sql, [*files, start], seconds=_SECONDS)
    except NotAsked:
        return None
    return None if len(events) == _EVENTS else changed_by(events, read_to)


def changed_by(events: Sequence[Sequence[object]], read_to: Mapping[Place, tuple[str, int]]) -> set[Place] | None:
    """The tables that these events of a binary log change after their position; None if an event may be of any table.

    A table's rows follow a map of its number to its name; a position may stand between the two.
    """
    names = {f"{schema}.{table}": (schema, table) for schema, table in read_to}
    changed, mapped = set[Place](), set[str]()
    for _, position, kind, _, _, info in events:
        table = _TABLE.match(str(info))
        if str(kind).lower() == "table_map" and table:
            mapped.add(table[1])
            place = names.get(table[2] or "")
            if place and int(str(position)) >= read_to[place][1]:
                changed.add(place)
        elif _ROWS.match(str(kind)) and table and table[1] in mapped:
            continue
        elif not (_HARMLESS.fullmatch(str(kind)) or (kind == "Query" and _TRANSACTION.match(str(info)))):
            return None
    return changed
