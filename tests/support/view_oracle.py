"""What a view must hold: the answer of DuckDB to its SELECT, over the table of its stream, at each commit."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Any

import duckdb

import bridge
from bridge.lake.log import Log
from bridge.lake.records import TableState
from bridge.lake.storage import open_storage
from bridge.read.query.pipelines import log_of
from bridge.read.query.snapshot import TablesAt
from bridge.settings.sql.view import Key, View, read_view
from tests.support.view_formats import check_own_logs
from tests.support.window_oracle import check_closed, in_order, still_there


class AtCommit:
    """The tables of one commit, and DuckDB's answers over them. Each table is read once."""

    def __init__(self, uri: str, pipeline: str, n: int) -> None:
        self._read = TablesAt.of(log_of(open_storage(uri), pipeline), n)
        self.tables = self._read.snapshot.tables
        self._answers = _duckdb().cursor()
        self._known: set[str] = set()

    def ask(self, table: str, query: str) -> list[Any]:
        """The rows that a query over one of the tables gives."""
        if table not in self._known:
            # A whole table: DuckDB may wait for ever for a dataset whose files Python opens.
            self._answers.register(table, self._read.dataset(table).to_table())
            self._known.add(table)
        return self._answers.execute(query).fetchall()

    def both(self, name: str, query: str) -> tuple[list[Any], list[Any]]:
        """The visible rows of a view, and those that its SELECT gives over the stream's table."""
        view = read_view(name, query)
        columns = ", ".join(f'"{column}"' for column in view.columns)
        stored = self.ask(name, f'SELECT {columns} FROM "{name}"')
        selected = self.ask(view.stream, _in_duckdb(query, view))
        return in_order(stored), in_order(still_there(self.tables[name].watermark, view, selected))


@cache
def _duckdb() -> duckdb.DuckDBPyConnection:
    """One database for all; each who asks has a cursor, and so temporary tables, of their own."""
    connection = duckdb.connect(config={"threads": 1})
    connection.execute("SET GLOBAL TimeZone = 'UTC'")
    connection.execute("CREATE MACRO count_if(c) AS count(CASE WHEN c THEN 1 END)")  # its own is NULL where all are
    connection.execute("CREATE MACRO timestamp_seconds(x) AS to_timestamp(x)")
    # Of rows that tie for the first place its own take any; a view takes the least value, or the greatest.
    connection.execute("CREATE MACRO min_by(x, y) AS arg_min(x, row(y, x)) FILTER (WHERE y IS NOT NULL)")
    connection.execute("CREATE MACRO max_by(x, y) AS arg_max(x, row(y, x)) FILTER (WHERE y IS NOT NULL)")
    return connection


def views_at(uri: str, pipeline: str, n: int) -> dict[str, str]:
    """The tables that are views after commit `n`, each with its SELECT."""
    return _views(Log(open_storage(uri), pipeline).snapshot(n).tables)


def _views(tables: Mapping[str, TableState]) -> dict[str, str]:
    return {name: table.view for name, table in tables.items() if table.view}


def rows_of(uri: str, pipeline: str, n: int, name: str, query: str) -> tuple[list[Any], list[Any]]:
    """The visible rows of a view at commit `n`, and those that its SELECT gives over the stream's table."""
    return AtCommit(uri, pipeline, n).both(name, query)


def _in_duckdb(query: str, view: View) -> str:
    """A query with a window of whole days that slides by one, by a row for each window that a row is in."""
    stream = view.stream
    if view.session:
        return _by_session(query, view)
    if not (window := re.search(r"window\((\w+), '(\d+) days', '1 day'\)\.start", query)):
        bucket = r"time_bucket(INTERVAL '\2', \1, TIMESTAMPTZ '1970-01-01 00:00:00+00')"
        return re.sub(r"window\((.+?), '(\w+ \w+)'\)\.start", bucket, query)
    at, days = window.groups()
    starts = f"unnest([date_trunc('day', {at}) - to_days(n) FOR n IN range({days})])"
    rows = f"(SELECT *, {starts} AS _start FROM {stream} WHERE {at} IS NOT NULL) AS {stream}"
    return query.replace(window[0], "_start").replace(f"FROM {stream}", f"FROM {rows}")


def _by_session(query: str, view: View) -> str:
    """A query with sessions: one starts where no row is in the gap before; a row is of the last that has started."""
    window = re.search(r"session_window\((.+?), '(.+?)'\)\.start", query)
    assert window and view.session
    others = [item.text for item in view.items if isinstance(item, Key) and item.name not in view.session.keys]
    rows = f"(SELECT *, {window[1]} AS _at, row({', '.join(others)}) AS _of FROM {view.stream} "
    rows += f"WHERE {window[1]} IS NOT NULL AND ({view.where or 'true'}))"
    near = f"o._of IS NOT DISTINCT FROM p._of AND p._at < o._at AND p._at >= o._at - INTERVAL '{window[2]}'"
    starts = f"(SELECT _of, _at FROM {rows} AS o WHERE NOT EXISTS (SELECT 1 FROM {rows} AS p WHERE {near}))"
    start = f"(SELECT max(s._at) FROM {starts} AS s WHERE s._of IS NOT DISTINCT FROM r._of AND s._at <= r._at)"
    of_sessions = f"(SELECT *, {start} AS _start FROM {rows} AS r) AS {view.stream}"
    return query.replace(window[0], "_start").replace(f"FROM {view.stream}", f"FROM {of_sessions}")


def check_commits(uri: str, pipeline: str, first: int = 1) -> Mapping[str, int]:
    """Compare all views at each commit from `first` on that was not taken back; return how often each was compared."""
    counts: dict[str, int] = {}
    log, head = Log(open_storage(uri), pipeline), bridge.Lake(uri).commit(pipeline)
    voids = [record for record in log.history(head, fences=False) if record.voids is not None]
    taken_back = {n for record in voids for n in range(record.voids or 0, record.n)}  # and the fence in between
    for n in (n for n in range(first, head + 1) if n not in taken_back):
        at = AtCommit(uri, pipeline, n)
        for name, query in _views(at.tables).items():
            stored, selected = at.both(name, query)
            assert stored == selected, f"{name} at commit {n}: {stored[:5]} != {selected[:5]}"
            counts[name] = counts.get(name, 0) + 1
            if (view := read_view(name, query)).closes:
                before = AtCommit(uri, pipeline, n - 1)
                check_closed(log.record(n), before, at, view, _in_duckdb(query, view))
        check_own_logs(log, n)
    return counts
