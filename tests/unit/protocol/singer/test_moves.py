"""How bookmarks moved, for people: of a bookmark with parts, the value that moved."""

from __future__ import annotations

from typing import Any

import pytest

from bridge.protocol.singer.moves import moves, short_bookmark


def part(repo: str | None, value: Any, **more: Any) -> dict[str, Any]:
    context = {"context": {"repo": repo}} if repo else {}
    return {**context, "replication_key": "at", "replication_key_value": value, **more}


def parts(**values: Any) -> dict[str, Any]:
    return {"partitions": [part(repo, value) for repo, value in values.items()]}


def texts(before: Any, after: Any) -> list[str]:
    return [f"{move.of('s')}: {move.before} -> {move.after}" for move in moves(before, after)]


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (part(None, 1), part(None, 2), ["s: 1 -> 2"]),
        (None, part(None, 2), ["s: the beginning -> 2"]),
        (part(None, 2), part(None, 2, version=5), []),
        (parts(a=1, b=5, c=7), parts(a=2, b=5, c=7), ["s (repo a): 1 -> 2"]),
        (parts(a=1), parts(a=2, b=3), ["s (repo a): 1 -> 2", "s (repo b): the beginning -> 3"]),
        (parts(b=1, a=2), parts(a=2, b=1), []),
        (None, parts(a=1), ["s (repo a): the beginning -> 1"]),
        ({"partitions": [part("a", 1)]}, {"partitions": [part("a", 1, progress_markers={"Note": "x"})]}, []),
        ({"partitions": [{"context": {"repo": "a"}}]}, parts(a=1), ["s (repo a): the beginning -> 1"]),
        (parts(a=1), {"partitions": []}, []),
        ({"partitions": "none"}, {"partitions": [3, part("a", 1)]}, ["s (repo a): the beginning -> 1"]),
        ({"lsn": 1, "file": "f"}, {"lsn": 2, "file": "f"}, ["s: 1 -> 2"]),
        ({"pos": 1, "file": "f"}, {"pos": 2, "file": "g"}, ['s: {"pos": 1, "file": "f"} -> {"pos": 2, "file": "g"}']),
        ({"lsn": 1}, {"last_replication_method": "FULL_TABLE", "version": 3}, []),
        ("2024-01-01", "2024-01-02", ["s: 2024-01-01 -> 2024-01-02"]),
        ([1], [2], ["s: [1] -> [2]"]),
    ],
)
def test_what_moved_is_shown(before: Any, after: Any, expected: list[str]) -> None:
    """Only that: parts and values that stayed are left out, and so are notes of the tap."""
    assert texts(before, after) == expected


def test_contexts_of_several_keys_and_long_values() -> None:
    """Each key with its value, cut as values are."""
    long = {"partitions": [{"context": {"org": "o", "repo": "r" * 60}, "replication_key_value": "x" * 60}]}
    (move,) = moves(None, long)
    assert move.of("s") == f"s (org o, repo {'r' * 37}...)"
    assert move.after == f"{'x' * 37}..."


def test_a_short_bookmark_of_parts() -> None:
    """The value of the only one, else how many there are, and the highest value."""
    assert [short_bookmark(parts(a=1)), short_bookmark(parts(a=1, b=2)), short_bookmark({})] == [
        "1",
        "2 partitions, up to 2",
        "",
    ]
