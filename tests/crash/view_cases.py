"""Pipelines with views over which every step is a place to die; `cases.py` has those without."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .cases import (
    FULL_TABLE,
    Case,
    Generations,
    another_type,
    by_key,
    full_rows,
    half_of_them,
    ids,
    one_stream,
    record,
    schema,
    started,
    state,
    stated,
    two_streams,
)
from .driver import Line, Run
from .rewriting import RollsBack, nothing_said

BY_PARITY = {
    "by_parity": "SELECT id % 2 AS parity, count(*) AS n, sum(id) AS total, max(id) AS last FROM a GROUP BY parity"
}
_FIRST = {"by_parity": "SELECT id % 2 AS parity, min(id) AS first FROM a WHERE id > 1 GROUP BY parity"}
_LATEST = {"latest": "SELECT id % 2 AS parity, count(*) AS n, max(g) AS g FROM t GROUP BY parity"}
_BY_SIGN = {
    "by_sign": "SELECT CASE WHEN g > 0 THEN id ELSE 0 END AS place, count(*) AS n, sum(g) AS total, "
    "max(g) AS most, max_by(id, g) AS best FROM a GROUP BY place"
}
_SIGNS = _BY_SIGN | {
    "a_most": "SELECT most > 0 AS gained, count(*) AS places, sum(total) AS total, max(place) AS last, "
    "min_by(place, most) AS least FROM by_sign GROUP BY 1"
}
_VISITS = {
    "visits": "SELECT g > 0 AS gained, session_window(timestamp_seconds(id), '1 second').start AS since, "
    "count(*) AS n, sum(g) AS total, max_by(id, g) AS best FROM a GROUP BY gained, since",
    "a_scope": "SELECT gained, sum(n) AS n, count(DISTINCT best) AS bests, median(n) AS middle FROM visits GROUP BY 1",
}
_OTHER_SIGNS = _SIGNS | {"by_sign": _BY_SIGN["by_sign"].replace("g > 0", "g > 10")}
_CLOSING = {
    "per_day": "SELECT window(timestamp_seconds(id * 43200), '1 day').start AS day, count(*) AS n, max(id) AS last "
    "FROM a GROUP BY 1\n-- singer-bridge: keep: 2d, lateness: 12h"
}
_BY_VALUE = {"by_value": "SELECT v, count(*) AS n FROM a GROUP BY v"}


def changing(value: Any, last: int = 3) -> Iterator[Line]:
    """Each STATE brings a row and changes the two before it: groups go, and lose the row that is their extreme."""
    yield schema("a", "g")
    for number in range(started(value, "a") + 1, last + 1):
        yield record("a", number, g=number * 10)
        for age, g in ((1, -number), (2, -9 - number)):
            if number > age:
                yield record("a", number - age, g=g)
        yield state(a=number)


def changing_at_first(value: Any) -> Iterator[Line]:
    return changing(value, last=1)


def _appending(run: Run, *before: Run, tables: tuple[str, ...] = ("by_parity",), last: int = 6) -> Case:
    """Of two streams that advance together, one has the view."""
    rows: dict[str, list[tuple[Any, ...]]] = {"a": [*ids(last)], "b": [*ids(last)]}
    return Case(run, rows, stated(a=last, b=last), before=before, views=tables)


VIEW_CASES: dict[str, Case] = {
    "view, append": _appending(Run(two_streams, views=BY_PARITY)),
    "view, append, resumed": _appending(Run(two_streams, views=BY_PARITY), Run(half_of_them, views=BY_PARITY)),
    "windows that close": _appending(Run(two_streams, views=_CLOSING), tables=("per_day", "per_day_closed")),
    "view, upsert": Case(
        Run(by_key(changing), load_method="upsert", views=_BY_SIGN),
        {"a": [(1, -12), (2, -3), (3, 30)]},
        stated(a=3),
        before=[Run(by_key(changing_at_first), load_method="upsert", views=_BY_SIGN)],
        columns=("g",),
        views=("by_sign",),
    ),
    "view of a view": Case(
        Run(by_key(changing), load_method="upsert", views=_VISITS),
        {"a": [(1, -12), (2, -3), (3, 30)]},
        stated(a=3),
        before=[Run(by_key(changing_at_first), load_method="upsert", views=_VISITS)],
        columns=("g",),
        views=("visits", "a_scope"),
    ),
    "view of a view, another SELECT": Case(
        Run(by_key(changing), load_method="upsert", views=_OTHER_SIGNS),
        {"a": [(1, -12), (2, -3), (3, 30)]},
        stated(a=3),
        before=[Run(by_key(changing_at_first), load_method="upsert", views=_SIGNS)],
        columns=("g",),
        views=("by_sign", "a_most"),
    ),
    "view, overwrite": Case(
        Run(Generations(3), catalog=FULL_TABLE, views=_LATEST),
        {"t": full_rows(3, 3), "a": [*ids(3)]},
        stated(t={}, a=3),
        before=[Run(Generations(2), catalog=FULL_TABLE, views=_LATEST)],
        columns=("g",),
        views=("latest",),
    ),
    "view, --full": _appending(Run(two_streams, full=True, views=BY_PARITY), Run(half_of_them, views=BY_PARITY)),
    "view, new": Case(
        Run(one_stream, views=BY_PARITY),
        {"a": [*ids(3)]},
        stated(a=3),
        before=[Run(one_stream)],
        views=("by_parity",),
    ),
    "view, new, with rows": _appending(Run(two_streams, views=BY_PARITY), Run(half_of_them)),
    "view, another SELECT": _appending(Run(two_streams, views=_FIRST), Run(half_of_them, views=BY_PARITY)),
    "view, dropped": _appending(Run(two_streams), Run(half_of_them, views=BY_PARITY)),
    "view, another type": Case(
        Run(another_type, views=_BY_VALUE),
        {"a": [(1, "10"), (2, "20"), (3, "30"), (4, "v4"), (5, "v5")]},
        stated(a=5),
        columns=("v",),
        views=("by_value",),
    ),
    "view, rolled back": _appending(RollsBack(nothing_said, to=1), Run(two_streams, views=BY_PARITY), last=3),
}
