"""The source and its tap: what a tap sends from a STATE, and what the tables have to hold for a STATE.

`a` and `b` are appended, `u` is merged by key, and some of its rows are deleted. `t` is replaced by each run, and `v`
by each version, which a tap can resume. The tap keeps to the protocol and to no
more: STATEs come at odd places, repeat themselves, leave a stream where it was; SCHEMAs come again, and wider; streams
are interleaved line by line.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Any

Rows = list[tuple[Any, ...]]
_KEYS = 4
"""The keys of `u`."""
_DELETED = "2026-01-01T00:00:00Z"
_ANEW = 100
"""The first version of `v`."""
CATALOG = {
    "streams": [
        {
            "tap_stream_id": stream,
            "stream": stream,
            "schema": {"properties": {}},
            "metadata": [{"breadcrumb": [], "metadata": {"replication-method": "FULL_TABLE", "selected": True}}],
        }
        for stream in "tv"
    ]
}


@dataclass(frozen=True)
class Source:
    """`grows` is how many rows each stream has gained when a run begins, by the number of runs before it."""

    streams: str = "a"
    grows: tuple[int, ...] = (4,)
    chunk: int = 3
    """The most rows of a stream between two messages of another kind."""
    states: float = 0.5
    """How often a STATE comes after them."""
    stays: float = 0.2
    """How often a stream's bookmark stays where it was until all of its rows are sent."""

    def last(self, run: int) -> int:
        """How many rows a stream has when this run begins, from 0."""
        return sum(self.grows[: run + 1]) + sum(self.grows[-1:]) * max(0, run + 1 - len(self.grows))

    def lines(self, run: int, state: Any, dice: Random) -> Iterator[bytes]:
        """The messages of a tap that starts from a STATE."""
        return _Tap(self, run, state, dice).lines()

    def row(self, stream: str, number: int, run: int) -> dict[str, Any]:
        """A row of a stream, from 1."""
        if stream in "tv":
            return {"id": number, "g": run}
        if stream == "u":
            deleted = {"_sdc_deleted_at": _DELETED} if _is_deleted(number) else {}
            return {"id": number, "k": number * 7 % _KEYS, "v": number} | deleted
        return {"id": number}

    def rows(self, stream: str, state: Any) -> Rows:
        """What the table of `a`, `b` or `u` holds for a STATE."""
        upto = mark(state, stream)
        if stream == "u":
            latest = {number * 7 % _KEYS: number for number in range(1, upto + 1)}
            return sorted((number, key, number) for key, number in latest.items() if not _is_deleted(number))
        return [(number,) for number in range(1, upto + 1)]

    def whole(self, run: int) -> Rows:
        """What the table of `t` holds after this run."""
        return [(number, run) for number in range(1, self.last(run) + 1)]

    def is_whole(self, stream: str, rows: Rows) -> bool:
        """Whether these are the rows of `t` after some run, or of a version of `v`."""
        if stream == "t":
            return rows in [self.whole(run) for run in {row[1] for row in rows}]
        return len({row[1] for row in rows}) == 1 and [row[0] for row in rows] == [*range(1, len(rows) + 1)]


COLUMNS = {"a": ("id",), "b": ("id",), "u": ("id", "k", "v"), "t": ("id", "g"), "v": ("id", "g")}


def _is_deleted(number: int) -> bool:
    """Whether this row of `u` deletes its key."""
    return number % 5 == 0


def mark(state: Any, stream: str) -> int:
    """The bookmark of a stream in a STATE, 0 for none."""
    return int(((state or {}).get("bookmarks", {}).get(stream) or {}).get("replication_key_value", 0))


class _Tap:
    def __init__(self, source: Source, run: int, state: Any, dice: Random) -> None:
        self._source, self._run, self._dice = source, run, dice
        self._last = source.last(run)
        self._sent = {stream: 0 if stream == "t" else mark(state, stream) for stream in source.streams}
        earlier = ((state or {}).get("bookmarks", {}).get("v")) or {}
        self._version = earlier.get("version", _ANEW + run)
        self._sent |= {"v": earlier.get("last_pk_fetched", 0)} if "v" in self._sent else {}
        self._said = dict(self._sent)
        self._activated = False
        self._stays = {stream for stream in source.streams if dice.random() < source.stays}
        self._wider = False

    def lines(self) -> Iterator[bytes]:
        dice = self._dice
        begun: list[str] = []
        if dice.random() < 0.5:
            begun = [*self._sent]
            yield from map(self._schema, begun)
        while left := [stream for stream, sent in self._sent.items() if sent < self._last]:
            stream = dice.choice(left)
            if stream not in begun:
                begun.append(stream)
                yield self._schema(stream)
            yield from self._chunk(stream)
            if dice.random() < self._source.states:
                yield self._state(all_of_it=False)
            if dice.random() < 0.1:
                self._wider = self._wider or dice.random() < 0.3
                yield self._schema(stream)
            if dice.random() < 0.05:
                yield b"not a message"
        yield from (self._schema(stream) for stream in self._sent if stream not in begun)
        if "v" in self._sent:
            self._activated = True
            yield _line(type="ACTIVATE_VERSION", stream="v", version=self._version)
        yield self._state(all_of_it=True)

    def _chunk(self, stream: str) -> Iterator[bytes]:
        first = self._sent[stream]
        last = min(self._last, first + self._dice.randint(1, self._source.chunk))
        for number in range(first + 1, last + 1):
            row = self._source.row(stream, number, self._version if stream == "v" else self._run)
            version = {"version": self._version} if stream == "v" else {}
            yield _line(type="RECORD", stream=stream, record=row, **version)
        self._sent[stream] = last

    def _schema(self, stream: str) -> bytes:
        names = [*COLUMNS[stream], *(["extra"] if self._wider else [])]
        properties = {name: {"type": ["null", "integer"]} for name in names}
        if stream == "u":
            properties["_sdc_deleted_at"] = {"type": ["null", "string"], "format": "date-time"}  # type: ignore[dict-item]
        facts: dict[str, Any] = {} if stream in "tv" else {"bookmark_properties": ["id"]}
        keys = ["k"] if stream == "u" else []
        return _line(type="SCHEMA", stream=stream, schema={"properties": properties}, key_properties=keys, **facts)

    def _state(self, *, all_of_it: bool) -> bytes:
        for stream, sent in self._sent.items():
            if all_of_it or stream not in self._stays or sent == self._last:
                self._said[stream] = sent
        marks = {
            stream: {"replication_key": "id", "replication_key_value": said}
            for stream, said in self._said.items()
            if said and stream not in "tv"
        }
        whole: dict[str, Any] = {"t": {}} if "t" in self._sent else {}
        if "v" in self._sent and (self._sent["v"] or self._activated):
            done = {"version": self._version, "last_pk_fetched": self._sent["v"]}
            whole["v"] = {"done": True} if self._activated else done
        return _line(type="STATE", value={"bookmarks": marks | whole})


def _line(**message: Any) -> bytes:
    return json.dumps(message).encode()
