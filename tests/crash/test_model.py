"""The commit protocol, tried in every order of steps; and each part of it, left out, shown to be needed."""

from __future__ import annotations

import pytest

from .explorer import explore
from .model import BROKEN, HARMLESS, World

ONE = ("upload",)
TWO = ("small", "upload")

KEPT = {
    "a half published commit, every mishap": World(last=2, loads=2, parts=TWO, purges=1, losses=1),
    "an overwrite, every mishap": World(last=3, loads=2, parts=TWO, purges=1, losses=1, overwrite=True),
    "the upload first": World(last=3, parts=TWO[::-1], purges=1, overwrite=True),
    "a STATE that comes back": World(last=4, loads=3, parts=ONE, repeats=2, purges=1, overwrite=True),
    "a STATE that never changes": World(last=3, loads=2, parts=ONE, repeats=1, purges=1, overwrite=True),
    "a third run": World(runs=3, parts=TWO),
    "a file rewritten, every mishap": World(last=3, loads=2, parts=("over", "small"), purges=1, losses=1),
    "a file rewritten, a third run": World(runs=3, last=2, parts=("over", "upload"), purges=1),
    "a third run, overwriting, an upload purged": World(runs=3, last=2, parts=ONE, purges=1, overwrite=True),
}
DEEP = {
    "a third run, an upload purged": World(runs=3, last=2, parts=TWO, purges=1),
    "a third run, an answer lost": World(runs=3, last=2, parts=TWO, losses=1),
    "a third run, overwriting half published": World(runs=3, last=3, parts=TWO, purges=1, overwrite=True),
    "a third run, overwriting, every mishap": World(runs=3, last=2, parts=ONE, purges=1, losses=1, overwrite=True),
    "three alive at once": World(runs=3, alive=3, last=2, parts=ONE, purges=1),
    "three alive at once, a STATE that comes back": World(
        runs=3, alive=3, last=3, parts=ONE, repeats=2, overwrite=True
    ),
    "a fourth run": World(runs=4, last=2, parts=ONE, purges=1),
}

VOIDED = "a commit was taken back though nothing was purged"
HIDDEN = "rows that the STATE covers are not visible"
GHOST = "a file is visible that no commit names"
AHEAD = "a STATE was seen before its rows"
GONE = "a run ends: corrupt: a file of the lake is gone"
STRANGE = "the trash has bytes that its commit did not replace"
OLD_STATE, OLD_MANIFEST = "state.json is not what the log says", "the manifest is not what the log says"

_SLOW = World(last=2, parts=TWO, purges=1)
_LOST = World(last=2, losses=1)
_OVERWRITE = World(last=3, loads=2, parts=TWO, overwrite=True)
_REWRITE = World(last=3, loads=2, parts=("over", "upload"), purges=1)
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
    "n + 1 before n is published": (World(last=2, loads=2), HIDDEN),
    "report before publish": (World(), AHEAD),
    "state.json written plainly": (World(last=2), OLD_STATE),
    "manifest written plainly": (World(last=2), OLD_MANIFEST),
    "the same bytes twice": (World(last=4, loads=3, repeats=2, overwrite=True), OLD_STATE),
    "missing without the head": (_OVERWRITE, "a run ends: corrupt: a committed file is gone"),
    "version without the head": (World(last=2), OLD_MANIFEST),
    "trash of whatever is there": (_REWRITE, STRANGE),
    "rewritten if it is there": (_REWRITE, AHEAD),
    "rewrite before trash": (_REWRITE, GONE),
    "void without settling": (_REWRITE, AHEAD),
    "settle without aborts": (_REWRITE, AHEAD),
    "abort what is to replace a file": (World(runs=3, last=3, parts=("over",)), VOIDED),
}


def _keeps(world: World) -> None:
    explored = explore(world)
    print(f"{explored.states:,} states, {len(explored.buckets):,} buckets: {world}")
    assert explored.broken is None, f"\n{explored.broken}"
    expected = {"closed", "lost"} | ({"unknown"} if world.losses else set())
    expected |= {"a pending file is gone", "a pending file is not what was written"} if world.purges else set()
    assert explored.ends == expected, "the exploration does not reach what it is for"
    assert explored.kinds == {"data", "fence"} | ({"void"} if world.purges else set())


@pytest.mark.parametrize("name", KEPT)
def test_every_order_of_steps_keeps_every_promise(name: str) -> None:
    """Two runs, killed or paused anywhere, uploads purged, answers lost: and from everywhere the next run mends all."""
    _keeps(KEPT[name])


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", DEEP)
def test_more_runs_keep_every_promise(name: str) -> None:
    """The same with a run that recovers from a recovery, and further bounds."""
    _keeps(DEEP[name])


@pytest.mark.parametrize("broken", BROKEN)
def test_each_part_of_the_protocol_is_needed(broken: str) -> None:
    """Left out or done wrong, some order of steps breaks just this promise; the part itself keeps it there."""
    world, promise = NEEDED[broken]
    found = explore(world, broken, mend=False).broken
    print(f"\n{broken}: {BROKEN[broken]}\n{found}")
    assert found is not None
    assert found.promise == promise
    assert len(found.trace) > 5


@pytest.mark.parametrize("left_out", HARMLESS)
def test_some_parts_only_save_work(left_out: str) -> None:
    """Without them no row is lost, doubled or shown too early: a commit is taken back or rolled forward more often."""
    for world in (World(last=2, loads=2, purges=1, losses=1), World(last=3, purges=1, losses=1, overwrite=True)):
        found = explore(world, left_out).broken
        assert found is None, f"\n{left_out}: {HARMLESS[left_out]}\n{found}"


def test_runs_with_the_same_future_are_the_same() -> None:
    """What makes the exploration small leaves nothing out: told apart, runs bring up the same buckets and ends."""
    world = World(last=2, loads=2, losses=1)
    merged, apart = explore(world), explore(world, merge=False)
    assert apart.states > 2 * merged.states
    assert (apart.buckets, apart.ends) == (merged.buckets, merged.ends)
