"""Makes a schedule that fails smaller, as long as it fails: fewer runs, faults, streams and rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from .schedule import Life, Outcome, Schedule

_SAME = 20
"""Letters by which one promise is told from another."""
_OTHER_DICE = 4
"""With fewer of anything, moments are other ones: so many seeds are tried for them."""


def shrink(failed: Outcome, play: Callable[[Schedule], Outcome], most: int = 400) -> Outcome:
    """The smallest schedule that was found in so many tries, and what comes of it."""
    tries, smaller = 0, True
    while smaller:
        smaller = False
        for candidate in _candidates(failed.schedule):
            for more in range(_OTHER_DICE):
                if tries == most:
                    return failed
                tries += 1
                outcome = play(replace(candidate, seed=failed.schedule.seed + more))
                if outcome.broken[:_SAME] == failed.broken[:_SAME]:
                    failed, smaller = outcome, True
                    break
            if smaller:
                break
    return failed


def _candidates(schedule: Schedule) -> Iterator[Schedule]:
    lives, source = schedule.lives, schedule.source
    for number in range(len(lives) if len(lives) > 1 else 0):
        yield replace(schedule, lives=lives[:number] + lives[number + 1 :])
    for number, life in enumerate(lives):
        for smaller in _smaller(life):
            yield replace(schedule, lives=(*lives[:number], smaller, *lives[number + 1 :]))
    for stream in source.streams if len(source.streams) > 1 else ():
        yield replace(schedule, source=replace(source, streams=source.streams.replace(stream, "")))
    if sum(source.grows) > 1:
        yield replace(schedule, source=replace(source, grows=tuple(rows // 2 for rows in source.grows)))
        yield replace(schedule, source=replace(source, grows=source.grows[:1]))
    kept = {name: getattr(schedule, name) for name in ("lists_pending", "piped", "leases")}
    plain = Schedule(schedule.seed, source, lives, **kept)
    if plain != schedule:
        yield plain


def _smaller(life: Life) -> Iterator[Life]:
    for number in range(len(life.faults)):
        yield replace(life, faults=life.faults[:number] + life.faults[number + 1 :])
    plain = Life(life.after, life.beside, life.host, life.wait, 0.0, life.faults)
    if plain != life:
        yield plain
