"""The commit protocol, tried on the real code in every order of requests; and each part of it shown to be needed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .explorer import ENDS, explore
from .lives import World, explorable
from .variants import BROKEN, HARMLESS

ONE = ("upload",)
TWO = ("small", "upload")

KEPT = {
    "a half published commit, an upload purged": World(last=2, parts=TWO, purges=1),
    "two commits, an answer lost": World(last=2, loads=2, losses=1),
    "an overwrite, an upload purged": World(last=3, parts=TWO[::-1], purges=1, overwrite=True),
    "a STATE that comes back": World(last=4, loads=3, repeats=2, overwrite=True),
    "a STATE that never changes": World(last=3, loads=2, repeats=1, purges=1, overwrite=True),
    "a file rewritten, an upload purged": World(last=2, parts=("over", "over2"), purges=1),
    "a third run": World(runs=3),
}
DEEP = {
    "a half published commit, every mishap": World(last=2, loads=2, parts=TWO, purges=1, losses=1),
    "an overwrite, every mishap": World(last=3, loads=2, parts=TWO, purges=1, losses=1, overwrite=True),
    "a STATE that comes back, an upload purged": World(last=4, loads=3, repeats=2, purges=1, overwrite=True),
    "a file rewritten, every mishap": World(last=3, loads=2, parts=("over", "over2"), purges=1, losses=1),
    "a third run, two files": World(runs=3, parts=TWO),
    "a third run, a file rewritten": World(runs=3, last=2, parts=("over", "over2"), purges=1),
    "a third run, overwriting, an upload purged": World(runs=3, last=2, purges=1, overwrite=True),
    "a third run, an answer lost": World(runs=3, last=2, losses=1),
    "three alive at once": World(runs=3, alive=3, last=2, purges=1),
    "three alive at once, a STATE that comes back": World(runs=3, alive=3, last=3, repeats=2, overwrite=True),
}

VOIDED = "a commit was taken back though nothing was purged"
HIDDEN = "rows that the STATE covers are not visible"
GHOST = "a file is visible that no commit names"
AHEAD = "a STATE was seen before its rows"
GONE = "a run ends: a file of the lake is gone"
STRANGE = "the trash has bytes that its commit did not replace"
OLD_STATE, OLD_MANIFEST = "state.json is not what the log says", "the manifest is not what the log says"
NO_EDIT = "what a run wrote into state.json was taken for an edit by hand"

_SLOW = World(last=2, parts=TWO, purges=1)
_LOST = World(last=2, losses=1)
_OVERWRITE = World(last=3, loads=2, parts=TWO, overwrite=True)
_REWRITE = World(last=2, parts=("over", "over2"), purges=1)
_THIRD = World(runs=3, last=2, overwrite=True)

NEEDED = {
    "abort before the fence": (_THIRD, VOIDED),
    "abort whatever no commit names": (_THIRD, VOIDED),
    "no fence": (_THIRD, VOIDED),
    "no roll forward": (World(), AHEAD),
    "remove before add": (World(last=2, purges=1, overwrite=True), GONE),
    "trash before add": (World(runs=3, last=2, purges=1, overwrite=True), GHOST),
    "void without aborts": (_SLOW, GHOST),
    "void removes before it aborts": (_SLOW, GHOST),
    "visible before pending": (World(), VOIDED),
    "source stays": (_OVERWRITE, GHOST),
    "rebase": (World(last=2), "the STATE does not cover the rows that the log names, each once"),
    "no nonce": (_LOST, VOIDED),
    "abort after an unknown put": (_LOST, VOIDED),
    "n + 1 before n is published": (World(last=2, loads=2), AHEAD),
    "report before publish": (World(), AHEAD),
    "state.json written plainly": (World(last=2), OLD_STATE),
    "the witness before state.json": (World(last=2, loads=2), NO_EDIT),
    "state.json looked at before the witness": (World(last=2, loads=2), NO_EDIT),
    "a late STATE is an edit": (World(last=4, loads=3, repeats=2, overwrite=True), NO_EDIT),
    "manifest written plainly": (World(last=2), OLD_MANIFEST),
    "missing without the head": (_OVERWRITE, "a run ends: a committed file is gone"),
    "version without the head": (World(last=2), OLD_MANIFEST),
    "trash of whatever is there": (_REWRITE, STRANGE),
    "rewritten if it is there": (_REWRITE, AHEAD),
    "rewrite before trash": (_REWRITE, GONE),
    "void without settling": (_REWRITE, HIDDEN),
    "settle without aborts": (_REWRITE, "a run ends: a file of the lake is not what the log says"),
    "abort what is to replace a file": (World(runs=3, last=3, parts=("over",)), VOIDED),
}


@pytest.fixture(autouse=True, scope="module")
def _explorable() -> Iterator[None]:
    with explorable():
        yield


def _keeps(world: World) -> None:
    explored = explore(world)
    print(f"{explored.states:,} states, {len(explored.buckets):,} buckets: {world}")
    assert explored.broken is None, f"\n{explored.broken}"
    expected = ENDS - (set() if world.losses else {"unknown"})
    expected -= set() if world.purges else {"a pending file is gone", "a pending file is not what was written"}
    assert explored.ends == expected, "the exploration does not reach what it is for"
    assert explored.kinds == {"data", "fence"} | ({"void"} if world.purges else set())


@pytest.mark.parametrize("name", KEPT)
def test_every_order_of_steps_keeps_every_promise(name: str) -> None:
    """Two runs, killed or paused anywhere, uploads purged, answers lost: and from everywhere the next run mends all."""
    _keeps(KEPT[name])


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", DEEP)
def test_more_runs_keep_every_promise(name: str) -> None:
    """The same with a run that recovers from a recovery, and further bounds."""
    _keeps(DEEP[name])


LONG = {"trash before add"}
"""What takes more than a hundred thousand states to find."""


@pytest.mark.parametrize("broken", [pytest.param(name, marks=[pytest.mark.slow] * (name in LONG)) for name in BROKEN])
def test_each_part_of_the_protocol_is_needed(broken: str) -> None:
    """Left out or done wrong, some order of steps breaks just this promise; the part itself keeps it there."""
    world, promise = NEEDED[broken]
    with BROKEN[broken].applied() as life:
        found = explore(world, life, mend=promise == NO_EDIT).broken
    print(f"\n{broken}: {BROKEN[broken].what}\n{found}")
    assert found is not None
    assert found.promise.removeprefix("after the next run: ") == promise
    assert len(found.trace) > 5


@pytest.mark.parametrize("left_out", HARMLESS)
def test_some_parts_only_save_work(left_out: str) -> None:
    """Without them no row is lost, doubled or shown too early: a commit is taken back or rolled forward more often."""
    with HARMLESS[left_out].applied() as life:
        for world in (World(last=2, purges=1, losses=1), World(last=2, purges=1, overwrite=True)):
            found = explore(world, life).broken
            assert found is None, f"\n{left_out}: {HARMLESS[left_out].what}\n{found}"


APART = [World(last=2, losses=1), World(last=2, purges=1), World(last=3, overwrite=True)]


@pytest.mark.parametrize("world", [World(losses=1), *(pytest.param(one, marks=pytest.mark.slow) for one in APART)])
def test_runs_with_the_same_future_are_the_same(world: World) -> None:
    """What makes the exploration small leaves nothing out: told apart, runs bring up the same buckets and ends."""
    merged, apart = explore(world), explore(world, merge=False)
    assert apart.states > merged.states
    assert (apart.buckets, apart.ends) == (merged.buckets, merged.ends)
