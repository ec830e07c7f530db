"""The taps and histories over which every step is a place to die. A tap here is a function of its STATE."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from bridge.errors import TapError

from .driver import Line, Run
from .parallel import Parallel
from .rewriting import Compacts, Recovers, Rewrites, RollsBack, nothing_said

_METADATA = [{"breadcrumb": [], "metadata": {"replication-method": "FULL_TABLE"}}]
FULL_TABLE = {"streams": [{"tap_stream_id": "t", "metadata": _METADATA}]}


@dataclass
class Case:
    """`before` makes the lake, `run` dies somewhere in it, `again` (the same by default) is the next run.

    Afterwards each stream's `rows` are exactly these, in any order, and the STATE is `state`.
    """

    run: Run
    rows: dict[str, list[tuple[Any, ...]]]
    state: Any
    before: Sequence[Run] = ()
    again: Run | None = None
    columns: tuple[str, ...] = ()
    rejected: int = 0
    files: int = 0
    """How many each table has; 0: any number."""
    views: tuple[str, ...] = ()
    """The tables that views have made, beside those of streams."""
    covered: dict[str, Callable[[Any], list[tuple[Any, ...]]]] = field(default_factory=dict)
    """By the first stream of each process: its rows, of what its own STATE says, at every commit."""

    def columns_of(self, stream: str) -> tuple[str, ...]:
        """The columns that `rows` gives: `id` and, where rows are wider, the case's own."""
        width = max((len(row) for row in self.rows[stream]), default=1)
        return ("id", *self.columns)[:width]


def schema(stream: str, *columns: str, replication_key: bool = True) -> str:
    """A SCHEMA with an integer `id` and integer columns; a replication key unless the stream is a full table."""
    properties = {name: {"type": ["null", "integer"]} for name in ("id", *columns)}
    message = {"type": "SCHEMA", "stream": stream, "schema": {"properties": properties}, "key_properties": []}
    return json.dumps(message | ({"bookmark_properties": ["id"]} if replication_key else {}))


def record(stream: str, number: int, version: int | None = None, **columns: Any) -> str:
    """A RECORD with this id."""
    message: dict[str, Any] = {"type": "RECORD", "stream": stream, "record": {"id": number, **columns}}
    return json.dumps(message | ({} if version is None else {"version": version}))


def state(**bookmarks: Any) -> str:
    """A STATE with these bookmarks; a number is a replication key's value."""
    return json.dumps({"type": "STATE", "value": stated(**bookmarks)})


def stated(**bookmarks: Any) -> Any:
    """The value of that STATE."""
    return {"bookmarks": {s: at(b) if isinstance(b, int) else b for s, b in bookmarks.items()}}


def at(value: int) -> dict[str, Any]:
    """A sorted stream's bookmark."""
    return {"replication_key": "id", "replication_key_value": value}


def started(value: Any, stream: str) -> int:
    """The number after which a tap given this STATE goes on."""
    return int(((value or {}).get("bookmarks", {}).get(stream) or {}).get("replication_key_value", 0))


def ids(last: int) -> list[tuple[int]]:
    return [(number,) for number in range(1, last + 1)]


def two_streams(value: Any, *, last: int = 6, every: int = 3) -> Iterator[Line]:
    """Two incremental streams that advance together, a STATE each three records."""
    yield schema("a")
    yield schema("b")
    done = started(value, "a")
    while done < last:
        for number in range(done + 1, done + every + 1):
            yield record("a", number)
            yield record("b", number)
        done += every
        yield state(a=done, b=done)


def half_of_them(value: Any) -> Iterator[Line]:
    return two_streams(value, last=3)


def by_key(tap: Callable[[Any], Iterator[Line]]) -> Callable[[Any], Iterator[Line]]:
    """The same tap, with a key."""
    keys = '"key_properties": []', '"key_properties": ["id"]'
    return lambda value: (line.replace(*keys) if isinstance(line, str) else line for line in tap(value))


class Generations:
    """A full table whose every run writes its own number into `g`, beside an incremental stream that makes STATEs."""

    def __init__(self, last: int) -> None:
        self.last = last

    def __call__(self, value: Any) -> Iterator[Line]:
        generation = self.last
        yield schema("t", "g", replication_key=False)
        for number in range(1, self.last + 1):
            yield record("t", number, g=generation)
        yield schema("a")
        done = started(value, "a")
        for number in range(done + 1, self.last + 1):
            yield record("a", number)
            yield state(t={}, a=number)


def unsorted(value: Any) -> Iterator[Line]:
    """A stream that cannot resume until its end, and one after it that can."""
    marks = {"progress_markers": {"replication_key": "id", "replication_key_value": 2}}
    done = started(value, "w")
    yield schema("u")
    if not started(value, "u"):
        for number in range(1, 4):
            yield record("u", number)
        yield state(u=marks, **({"w": done} if done else {}))
    yield schema("w")
    for number in range(done + 1, 5):
        yield record("w", number)
        yield state(u=at(3) if started(value, "u") else marks, w=number)
    yield state(u=3, w=4)


class Versions:
    """A full table that its tap can resume: each start from nothing takes the next version."""

    def __init__(self, fails_after: int | None = None) -> None:
        self.fails_after = fails_after
        self.versions = count(100)

    def __call__(self, value: Any) -> Iterator[Line]:
        mark = ((value or {}).get("bookmarks", {}).get("t")) or {}
        version, done = mark.get("version"), mark.get("last_pk_fetched", 0)
        if version is None:
            version = next(self.versions) + (1000 if self.fails_after else 0)
        yield schema("t", replication_key=False)
        for number in range(done + 1, 7):
            if number - 1 == self.fails_after:
                raise_at: Line = TapError("the source went away")
                yield raise_at
            yield record("t", number, version)
            yield state(t={"version": version, "last_pk_fetched": number})
        yield json.dumps({"type": "ACTIVATE_VERSION", "stream": "t", "version": version})
        yield state(t={"done": True})


def old_table(value: Any) -> Iterator[Line]:
    """Rows that a later full load must leave no trace of."""
    yield schema("t", replication_key=False)
    for number in range(1, 10):
        yield record("t", number)
    yield state(t={})


def wider(value: Any) -> Iterator[Line]:
    """An incremental stream that gains a column between two STATEs."""
    done = started(value, "a")
    yield schema("a")
    for number in range(done + 1, 5):
        yield record("a", number)
        yield state(a=number)
    yield schema("a", "extra")
    for number in range(max(done, 4) + 1, 7):
        yield record("a", number, extra=number * 10)
        yield state(a=number)


def another_type(value: Any) -> Iterator[Line]:
    """An incremental stream with a column that is text from the fourth record on."""
    done = started(value, "a")
    yield schema("a", "v")
    for number in range(done + 1, 4):
        yield record("a", number, v=number * 10)
        yield state(a=number)
    yield schema("a", "v").replace('"v": {"type": ["null", "integer"]}', '"v": {"type": ["null", "string"]}')
    for number in range(max(done, 3) + 1, 6):
        yield record("a", number, v=f"v{number}")
        yield state(a=number)


def nothing(value: Any) -> Iterator[Line]:
    """Streams that have a SCHEMA and no rows."""
    yield schema("t", replication_key=False)
    yield schema("a")
    yield schema("n")


def noisy(value: Any) -> Iterator[Line]:
    """Lines that are no messages, and a record that does not fit its SCHEMA."""
    done = started(value, "a")
    yield "hello"
    yield schema("a")
    for number in range(done + 1, 5):
        yield record("a", number).replace("2", '"two"')
        yield state(a=number)
    yield "bye"


def one_stream(value: Any) -> Iterator[Line]:
    """An incremental stream."""
    yield schema("a")
    for number in range(started(value, "a") + 1, 4):
        yield record("a", number)
        yield state(a=number)


def file_by_file(value: Any) -> Iterator[Line]:
    """A row at a time, each in a commit, and so in a file, of its own; a column comes later."""
    yield schema("t")
    for number in range(1, 4):
        yield record("t", number)
        yield state(t=number)
    yield schema("t", "g")
    yield record("t", 4, g=7)
    yield state(t=4)


def parents(value: Any) -> Iterator[Line]:
    """A stream that another one hangs on, read by a process of its own."""
    yield schema("p")
    for number in range(started(value, "p") + 1, 4):
        yield record("p", number)
        yield state(p=number)


def children(value: Any, last: int = 3) -> Iterator[Line]:
    """Two records a parent, from the parent's own bookmark on, as taps find them; without the parent's records."""
    yield schema("c")
    for number in range(started(value, "p") + 1, last + 1):
        yield record("c", number * 10 + 1)
        yield record("c", number * 10 + 2)
        yield state(p=number, c=number)


def few_children(value: Any) -> Iterator[Line]:
    """The process dies while the other one, of the parents, comes to its end."""
    yield from children(value, last=1)
    yield record("c", 21)
    gone: Line = TapError("the source went away")
    yield gone


def full_rows(last: int, generation: int) -> list[tuple[int, int]]:
    return [(number, generation) for number in range(1, last + 1)]


def generations() -> Case:
    return Case(
        before=[Run(Generations(4), catalog=FULL_TABLE)],
        run=Run(Generations(6), catalog=FULL_TABLE),
        rows={"t": full_rows(6, 6), "a": ids(6)},
        columns=("g",),
        state=stated(t={}, a=6),
    )


def compacted(again: Run, files: int) -> Case:
    rows: list[tuple[Any, ...]] = [(1, None), (2, None), (3, None), (4, 7)]
    return Case(
        before=[Run(file_by_file)],
        run=Compacts(nothing_said),
        again=again,
        rows={"t": rows},
        columns=("g",),
        state=stated(t=4),
        files=files,
    )


_DONE = {"t": {"done": True}}
_PROCESSES = Parallel(nothing_said, taps={"p": parents, "c": children}, order="pcppcc" * 3)
_BY_PROCESS = {
    "p": lambda state: ids(started(state, "p")),
    "c": lambda state: [(number * 10 + child,) for number in range(1, started(state, "p") + 1) for child in (1, 2)],
}
_BOTH = {stream: rows(stated(p=3)) for stream, rows in _BY_PROCESS.items()}

CASES: dict[str, Case] = {
    "append": Case(Run(two_streams), {"a": ids(6), "b": ids(6)}, stated(a=6, b=6)),
    "append, delivered late": Case(Run(two_streams, lag=1), {"a": ids(6), "b": ids(6)}, stated(a=6, b=6)),
    "append, resumed": Case(Run(two_streams), {"a": ids(6), "b": ids(6)}, stated(a=6, b=6), before=[Run(half_of_them)]),
    "one commit": Case(
        Run(two_streams, at_end=True), {"a": ids(6), "b": ids(6)}, stated(a=6, b=6), before=[Run(half_of_them)]
    ),
    "one commit, by key": Case(
        Run(by_key(two_streams), load_method="upsert", at_end=True),
        {"a": ids(6), "b": ids(6)},
        stated(a=6, b=6),
        before=[Run(by_key(half_of_them), load_method="upsert")],
    ),
    "spool in the bucket": Case(
        Run(two_streams, in_bucket=True, lag=1),
        {"a": ids(6), "b": ids(6)},
        stated(a=6, b=6),
        before=[Run(half_of_them)],
    ),
    "spool in the bucket, by key": Case(
        Run(by_key(two_streams), load_method="upsert", in_bucket=True),
        {"a": ids(6), "b": ids(6)},
        stated(a=6, b=6),
        before=[Run(by_key(half_of_them), load_method="upsert")],
    ),
    "overwrite": generations(),
    "--full": Case(
        Run(two_streams, full=True), {"a": ids(6), "b": ids(6)}, stated(a=6, b=6), before=[Run(half_of_them)]
    ),
    "--full, then a plain run": Case(
        Run(two_streams, full=True),
        {"a": ids(6), "b": ids(6)},
        stated(a=6, b=6),
        before=[Run(half_of_them)],
        again=Run(two_streams),
    ),
    "held": Case(Run(unsorted), {"u": ids(3), "w": ids(4)}, stated(u=3, w=4)),
    "staged, the tap fails": Case(
        Run(Versions(fails_after=3), load_method="overwrite"),
        {"t": ids(6)},
        {"bookmarks": _DONE},
        before=[Run(old_table, load_method="overwrite")],
        again=Run(Versions(), load_method="overwrite"),
    ),
    "staged, adopted": Case(
        Run(Versions(), load_method="overwrite"),
        {"t": ids(6)},
        {"bookmarks": _DONE},
        before=[Run(old_table, load_method="overwrite"), Run(Versions(fails_after=3), load_method="overwrite")],
    ),
    "a new column": Case(
        Run(wider),
        {"a": [(n, n * 10 if n > 4 else None) for n in range(1, 7)]},
        stated(a=6),
        columns=("extra",),
    ),
    "another type": Case(
        Run(another_type),
        {"a": [(1, "10"), (2, "20"), (3, "30"), (4, "v4"), (5, "v5")]},
        stated(a=5),
        columns=("v",),
    ),
    "empty": Case(
        Run(nothing, catalog=FULL_TABLE),
        {"t": [], "a": ids(3), "n": []},
        stated(t={}, a=3),
        before=[Run(Generations(3), catalog=FULL_TABLE)],
    ),
    "rewritten": Case(
        Rewrites(nothing_said),
        {"t": [(file, g) for file in (1, 2) for g in (1, 2, 3)], "n": ids(3)},
        stated(t=3),
        before=[Rewrites(nothing_said, last=1)],
        columns=("g",),
    ),
    "rewritten, rolled back": Case(
        RollsBack(nothing_said, to=2),
        {"t": [(file, g) for file in (1, 2) for g in (1, 2)], "n": ids(2)},
        stated(t=2),
        before=[Rewrites(nothing_said)],
        columns=("g",),
    ),
    "parallel": Case(_PROCESSES, _BOTH, stated(p=3, c=3), covered=_BY_PROCESS),
    "parallel, one failed": Case(
        _PROCESSES,
        _BOTH,
        stated(p=3, c=3),
        before=[Parallel(nothing_said, taps={"p": parents, "c": few_children}, order="c" + "p" * 9 + "c" * 9)],
        covered=_BY_PROCESS,
    ),
    "parallel, staged": Case(
        Parallel(nothing_said, taps={"a": one_stream, "t": Versions()}, order="aatat" * 6),
        {"a": ids(3), "t": ids(6)},
        {"bookmarks": _DONE | {"a": at(3)}},
        before=[
            Run(old_table, load_method="overwrite"),
            Parallel(nothing_said, taps={"a": nothing_said, "t": Versions(fails_after=3)}),
        ],
        covered={"a": lambda state: ids(started(state, "a"))},
    ),
    "compact": compacted(Compacts(nothing_said), 1),
    "compact, only recovered": compacted(Recovers(nothing_said), 0),
    "rejects": Case(Run(noisy), {"a": [(1,), (3,), (4,)]}, stated(a=4), rejected=1),
}
