"""`SEED=4711 SCHEDULES=1000 JOBS=2 python -m tests.crash.schedules`; see `tests/crash/README.md`.

`digest`: a line for each schedule that tells what happened. `wrong NAME`: the first that finds what is done wrong.
"""

from __future__ import annotations

import hashlib
import os
import random
import sys

from .campaign import campaign, circumstances, first_broken, folder, outcomes
from .schedule import drawn
from .wrong import AIMED, COSTS_WORK, NEVER, WRONG


def _digests(seeds: range) -> None:
    with folder() as homes:
        for outcome in outcomes(map(drawn, seeds), homes):
            text = "\n".join([*outcome.operations, outcome.broken])
            print(outcome.schedule.seed, len(outcome.operations), hashlib.sha256(text.encode()).hexdigest())


def _wrong(first: int, count: int, names: list[str]) -> int:
    missed = 0
    for name in names or [*WRONG.keys() - NEVER.keys()]:
        found = first_broken(first, count, name)
        missed += found is None
        said = f"schedule {found[1]}, seed {found[0].schedule.seed}: {found[0].broken}" if found else "not found"
        print(f"{name}: {said}", flush=True)
    return missed


def _aimed() -> int:
    """How many of the schedules that are made by hand break a promise, with nothing done wrong."""
    with folder() as homes:
        broken = [outcome for outcome in outcomes(AIMED.values(), homes) if outcome.broken]
    for outcome in broken:
        print(outcome)
    return len(broken)


def _harmless(first: int, count: int) -> int:
    """How many of those that only cost work break a promise all the same."""
    found = [broken for name in COSTS_WORK if (broken := first_broken(first, count, name))]
    for outcome, _ in found:
        print(outcome)
    return len(found)


def main(words: list[str]) -> int:
    """Do what the words say; without any, play schedules."""
    first = int(os.environ.get("SEED") or random.SystemRandom().randrange(10**9))
    count = int(os.environ.get("SCHEDULES") or 300)
    seeds = range(first, first + count)
    print(f"SEED={first} SCHEDULES={count}; {circumstances()}", file=sys.stderr, flush=True)
    if words[:1] == ["digest"]:
        _digests(seeds)
        return 0
    if words[:1] == ["wrong"]:
        return _wrong(first, count, words[1:])
    if words[:1] == ["aimed"]:
        return _aimed()
    if words[:1] == ["harmless"]:
        return _harmless(first, count)
    return campaign(first, count, int(os.environ.get("JOBS") or 1))


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stdout.flush()
    os._exit(code)
