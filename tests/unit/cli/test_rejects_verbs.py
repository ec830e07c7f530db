"""`rejects` as it is typed: what is printed, asked, refused, and what programs get."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bridge.lake.lease import take
from tests.support.shelf import BIG, WIDE, Shelf, record, schema, state
from tests.support.shell import Typed

SETTINGS = """\
pipelines:
  p:
    source: {tap: tap-x, config: {password: "${NOBODY_SET_THIS}"}}
    destination: {bucket: lake}
"""


@pytest.fixture
def shelf(folder: Path) -> Shelf:
    """A project whose lake has three rejects, two of which fit by now."""
    (folder / "bridge.yaml").write_text(SETTINGS)
    shelf = Shelf(folder)
    shelf.say(schema(), record(1), record(2, BIG), record(3, "x" * 300), record(4, BIG), state(4))
    shelf.say(schema(n=WIDE), record(5), state(5))
    return shelf


def test_list(shelf: Shelf, typed: Typed) -> None:
    """A line for each stream, run and reason, with counts and sizes; chosen, and as JSON."""
    lines = typed("rejects list").out.splitlines()
    assert lines[0].split() == ["stream", "run", "reason", "records", "size"]
    assert [line.split()[:2] for line in lines[1:]] == [["s", "run"]] * 2
    found = json.loads(typed("rejects list p --json").out)
    assert [(one["reason"], one["records"]) for one in found] == [("integer beyond 64 bits", 2), ("not an integer", 1)]
    assert json.loads(typed("rejects list p --json --reason beyond").out) == found[:1]
    assert typed("rejects list p -s t").out == "no rejects\n"


def test_show(shelf: Shelf, typed: Typed) -> None:
    """A table has the value that was to blame, cut to size; JSON lines have the tap's own bytes."""
    lines = typed("rejects show").out.splitlines()
    assert lines[1].split()[:2] == ["s", "2"]
    assert f"/n        {BIG}" in lines[1]
    assert "xxx..." in lines[2]
    assert "x" * 101 not in lines[2]
    one, *rest = (json.loads(line) for line in typed("rejects show -s s --run run --json").out.splitlines())
    assert json.loads(one["raw"])["record"] == {"id": 2, "n": BIG}
    assert {*one} == {"format", "run_id", "stream", "reason", "pointer", "offset", "raw"}
    assert len(rest) == 2
    assert len(typed("rejects show -n 1 --json").out.splitlines()) == 1


def test_replay(shelf: Shelf, typed: Typed) -> None:
    """What it would do is shown first; what it did says the commit, and doing it again does nothing."""
    head = shelf.log.head()
    assert typed("rejects replay p --dry-run").out.splitlines() == [
        "s: 2 fit, 1 do not",
        "  1: not a number",
        "dry run: nothing was changed",
    ]
    assert shelf.log.head() == head
    done = json.loads(typed("rejects replay p --json --yes").out)
    assert (done["loaded"], done["commit"], done["dry_run"]) == (2, head + 1, False)
    assert done["streams"] == [{"stream": "s", "fit": 2, "left": {"not a number": 1}, "why": ""}]
    assert typed("rejects replay p").out.splitlines()[-1] == "p: nothing to load"


def test_purge(shelf: Shelf, typed: Typed) -> None:
    """Nobody there to be asked: refused without --yes. Then they are gone, and it says how many."""
    refused = typed("rejects purge p")
    assert (refused.code, len(shelf.kept())) == (2, 3)
    assert "--yes" in refused.err
    assert "dry run" in typed("rejects purge p --dry-run").out
    assert len(shelf.kept()) == 3
    assert typed("rejects purge p --reason beyond --yes").out == "p: 2 rejects deleted\n"
    gone = json.loads(typed("rejects purge p --yes --json").out)
    assert (gone["records"], gone["purged"][0]["reason"]) == (1, "not an integer")
    assert shelf.kept() == []


@pytest.mark.parametrize("verb", ["replay", "purge"])
def test_while_a_run_is_alive(shelf: Shelf, typed: Typed, verb: str) -> None:
    """What changes the lake waits for nobody: exit 4; looking is always possible."""
    lease = take(shelf.storage, "p", "20260101T000000Z-aaaa")
    try:
        assert typed(f"rejects {verb} p --yes").code == 4
        assert typed("rejects list p").code == 0
    finally:
        lease.close(head=shelf.log.head(), clean=True)


def test_without_any_commit(shelf: Shelf, typed: Typed) -> None:
    """A pipeline that never ran is an error with the way on, not an empty list."""
    assert typed("rejects list --to elsewhere --name p").code == 2
