"""The history of the STATE, read from the commit log."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from bridge.lake.log import Log, bookmarks
from bridge.lake.records import CommitRecord
from bridge.protocol.singer.state_edits import StateDifference, differences, same


@dataclass(frozen=True, slots=True)
class StateStep:
    """A commit that changed the STATE. `run` made it; `reason` says why, if an operator did it."""

    commit: int
    kind: str
    at: str
    run: str
    reason: str
    changes: list[StateDifference]


def steps(log: Log, head: int, until: int = 1) -> Iterator[StateStep]:
    """Yield the commits from `head` back to `until` that changed the STATE, as far back as the log is kept."""
    newer: CommitRecord | None = None
    for record in log.history(head, fences=False):
        if newer is not None and not same(record.state, newer.state):
            yield _step(newer, record.state)
        if record.n < until:
            return
        newer = record
    if newer is not None and newer.n == 1 and newer.state is not None:
        yield _step(newer, None)


def _step(record: CommitRecord, before: Any) -> StateStep:
    changes = differences(before, record.state)
    return StateStep(record.n, record.kind, record.at, record.run, record.reason or "", changes)


def last_move(log: Log, head: int, stream: str, at: str) -> int | None:
    """The commit that gave a stream its bookmark at `head`; `at` is the time of the change that the log notes.

    A search by that time takes a few reads, however long the log is. None if the log no longer has the commit.
    """
    low, high = log.beginning().first, head
    while low < high:
        middle = (low + high) // 2
        if _at(log, middle) < at:
            low = middle + 1
        else:
            high = middle
    latest = None
    while low <= head and _at(log, low) == at:  # two commits may have the same time
        if _moved(log, low, stream):
            latest = low
        low += 1
    return latest


def _at(log: Log, n: int) -> str:
    record = log.record(n)
    return record.at if record else ""


def _moved(log: Log, n: int, stream: str) -> bool:
    records = (log.record(number) for number in (n, n - 1))
    now, before = (bookmarks(record.state if record else None) for record in records)
    return stream in now and (stream not in before or not same(now[stream], before[stream]))
