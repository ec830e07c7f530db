"""What the log tells of the STATE's past."""

from __future__ import annotations

from typing import Any

from bridge.lake.log import Log
from bridge.lake.state.history import last_move, steps
from tests.support.lake import DEAD, FIRST, Lake


def of(**bookmarks: Any) -> dict[str, Any]:
    return {"bookmarks": bookmarks}


def test_only_changes_of_the_state_are_told(lake: Lake) -> None:
    """Commits that left the STATE as it was, and fences, are no step of its history; the newest comes first."""
    committer = lake.open(FIRST)
    lake.load(committer, of(a=1))
    lake.load(committer, of(a=1))
    committer.set_state(of(a=2, b=1), "by hand")
    lake.load(lake.open(DEAD), of(a=2, b=5))
    log = Log(lake.storage, "p")
    told = [(s.commit, s.kind, s.reason, [(c.stream, c.before, c.after) for c in s.changes]) for s in steps(log, 5)]
    assert lake.kinds == ["data", "data", "state", "fence", "data"]
    assert told == [
        (5, "data", "", [("b", 1, 5)]),
        (3, "state", "by hand", [("a", 1, 2), ("b", None, 1)]),
        (1, "data", "", [("a", None, 1)]),
    ]


def test_an_empty_past(lake: Lake) -> None:
    """A log without commits has no history, and a fence alone is none."""
    log = Log(lake.storage, "p")
    assert list(steps(log, 0)) == []
    lake.open(DEAD)
    assert list(steps(log, 1)) == []


def test_the_commit_of_a_bookmark(lake: Lake) -> None:
    """The commit that gave a bookmark is found by its time, also where the same value had been there before."""
    committer = lake.open(FIRST)
    for number, state in enumerate([of(a=1), of(a=1, b=1), of(a=2, b=1), of(a=1, b=1), of(a=1, b=1, c=0)] * 30):
        committer.set_state(state | {"n": number}, "test")
    log = Log(lake.storage, "p")
    head = log.head()
    moved = log.snapshot(head).bookmark_changed_at
    assert head == 150
    assert {stream: last_move(log, head, stream, at) for stream, at in moved.items()} == {"a": 149, "b": 147, "c": 150}
    assert last_move(log, head, "a", "1999-01-01T00:00:00.000+00:00") is None
    assert last_move(log, head, "a", "2999-01-01T00:00:00.000+00:00") is None
