"""SQL for sessions: of which one each row is.

Spark's own GROUP BY session_window counts wrong beside two DISTINCT. A row on its own is a session of one row to Spark:
its window starts with the time of the row, and ends with that and the gap.
"""

from __future__ import annotations

from collections.abc import Sequence

SESSION = "_view_session"
"""The column with the `time` of the first row of a session, which says which one it is among those of its keys."""


def with_sessions(rows: str, keys: Sequence[str], time: str, gap: int) -> str:
    """Rows and the column `SESSION`. `time`: the start, or the end, of a row's own window; `gap`: microseconds."""
    over = f"OVER (PARTITION BY {', '.join(keys)} ORDER BY {time})"
    follows = f"unix_micros({time}) - unix_micros(lag({time}) {over}) <= {gap}"
    first = f"SELECT *, IF({follows}, NULL, {time}) AS _view_first FROM ({rows})"
    return f"SELECT *, max(_view_first) {over} AS {SESSION} FROM ({first})"
