"""Which windows of a view must be there, and closed, after each commit; the rows are DuckDB's."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from typing import Any, Protocol

from bridge.lake.records import CommitRecord, Watermark
from bridge.settings.sql.view import View
from bridge.settings.sql.window import words_of

Rows = list[tuple[Any, ...]]
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


class Tables(Protocol):
    """The tables of one commit, and the answers to queries over them."""

    tables: Mapping[str, Any]

    def ask(self, table: str, query: str, /) -> Rows: ...


def still_there(mark: Watermark | None, view: View, selected: Rows) -> Rows:
    """Of the rows that a view's SELECT gives, those whose window is kept at this watermark."""
    until = view.window.expired(mark.latest) if view.window and mark else None
    return [row for row in selected if until is None or _end(view, row) > until]


def check_closed(record: CommitRecord | None, before: Tables, now: Tables, view: View, query: str) -> None:
    """Hold the windows that a commit closed against what the view's SELECT, as `query`, gives after it."""

    def closed(at: Tables) -> Rows:
        columns = ", ".join(f'"{column}"' for column in view.columns)
        return at.ask(view.closes, f'SELECT {columns} FROM "{view.closes}"') if view.closes in at.tables else []

    rows = closed(now)
    keys = [[row[view.columns.index(key)] for key in view.keys] for row in rows]
    assert len(keys) == len(set(map(repr, keys))), f"{view.name}: a window closed twice"
    change = next((one for one in record.tables if one.stream == view.name), None) if record else None
    if record is None or record.kind != "data" or change is None:
        return
    assert change.watermark and change.watermark.closed is not None
    of_view, of_closed = before.tables.get(view.name), before.tables.get(view.closes)
    begins = of_closed is None or not _follows(of_view, view) or of_closed.schema != now.tables[view.closes].schema
    after = None if begins or not of_view or not of_view.watermark else of_view.watermark.closed
    if of_view and of_view.watermark and not begins:
        assert of_view.watermark.latest <= change.watermark.latest
        assert after is None or after <= change.watermark.closed
    earlier = [] if begins else closed(before)
    came = [row for row in rows if row not in earlier]
    assert len(came) == len(rows) - len(earlier), f"{view.name}: a closed window changed"
    ends = (change.watermark.closed, -math.inf if after is None else after)
    due = [row for row in now.ask(view.stream, query) if ends[1] < _end(view, row) <= ends[0]]
    assert in_order(came) == in_order(due), f"{view.name}: closed at commit {record.n}: {came[:5]} != {due[:5]}"


def in_order(rows: Rows) -> Rows:
    """Rows in one order, whatever the types of their values are."""
    return sorted(rows, key=lambda row: tuple((value is None, str(value)) for value in row))


def _follows(old: Any, view: View) -> bool:
    """Whether the view had this SELECT before the commit; one that was emptied may have had it."""
    return old is None or (old.watermark is not None and words_of(old.view or view.text) == view.words)


def _end(view: View, row: tuple[Any, ...]) -> int:
    """Where the window of a group ends, in microseconds since 1970."""
    assert view.window
    at = row[view.columns.index(view.window.key)].astimezone(timezone.utc)
    return int((at - _EPOCH) // timedelta(microseconds=1)) + view.window.to_end
