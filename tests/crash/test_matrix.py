"""Every crash point by its name, in a folder and in a bucket: real processes, really killed."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

from .cases import CASES, Case
from .faults import Fault
from .invariants import after_death, after_success, pending
from .places import Place
from .points import POINTS, Point, points_of
from .scenes import SCENES, Instant, Stage

BACKENDS = ("local", "s3")


@pytest.fixture(scope="module")
def stages(place_of: Callable[[str], Place]) -> Callable[[str], list[Stage]]:
    """By backend; a bucket with small files, and one in which each pending file is an upload under way."""
    stage = cache(lambda name: Stage(place_of(name)))
    return lambda backend: [stage(name) for name in ({"local": ["local"], "s3": ["s3", "s3-uploads"]}[backend])]


def recover(place: Place, case: Case) -> None:
    """Let the next run do all that is left to do."""
    ending = place.run(case.again or case.run)
    assert ending.error is None, ending.text
    after_success(place.lake, case)
    assert pending(place.lake) == [], "what nobody can commit any more is deleted"


def die(stage: Stage, instant: Instant, point: Point, *, twice: bool) -> None:
    """Kill the run of a scene there, at this point, and if `twice` the next one there again; look after each run."""
    place, case = stage.place, CASES[instant.scene.case]
    with stage.killed(instant, point):
        after_death(place.lake)
        if twice:
            die_again(place, case, instant)
        recover(place, case)


def die_again(place: Place, case: Case, instant: Instant) -> None:
    """Kill the next run at a point that the first one died at, if it comes there."""
    dead = place.freeze()
    ending = place.run(case.again or case.run)
    assert ending.error is None, ending.text
    steps = [step for step, points in enumerate(points_of(ending.steps)) if set(points) & set(instant.points)]
    place.put_back(dead)
    if steps:
        assert place.run(case.again or case.run, Fault(steps[-1])).killed
        after_death(place.lake)


def chosen(stage: Stage, point: Point, *, everywhere: bool) -> Iterator[Instant]:
    """Yield instants that are this point: in one scene (two in a folder), another one for each point; or in all."""
    turn = 0 if everywhere else POINTS.index(point) % 5
    found = 0
    for scene in [*SCENES[turn : turn + 1], *SCENES]:
        come_by = [instant for instant in stage.instants(scene) if point.name in instant.points]
        if hits := [instant for instant in come_by if instant.change not in point.beside]:
            yield hits[-1]
            found += 1
            if everywhere and len(hits) > 1:
                yield hits[0]
            elif found == (2 if stage.place.name == "local" else 1):
                return


CELLS = [pytest.param(b, p, id=f"{b}-{p.id}") for p in POINTS for b in BACKENDS if b in p.where]


def try_all(stages: list[Stage], point: Point, *, everywhere: bool) -> None:
    """Die at a point. In a bucket it may matter how pending files are kept: the points take turns, or all try both."""
    turn = POINTS.index(point) % len(stages) if point.moves_files else 0
    tried = 0
    for stage in stages if everywhere else stages[turn : turn + 1]:
        for instant in chosen(stage, point, everywhere=everywhere):
            folder = stage.place.name == "local"
            die(stage, instant, point, twice=point.recovers and (folder or everywhere or point.moves_files))
            tried += 1
    assert tried, "no run comes by"


@pytest.mark.parametrize(("backend", "point"), CELLS)
def test_death(backend: str, point: Point, stages: Callable[[str], list[Stage]]) -> None:
    """A run that dies there leaves nothing that the next one does not repair: each record once, the tap's STATE.

    Where recovery comes by, the run after it dies there as well, and the third one repairs what both have left.
    """
    try_all(stages(backend), point, everywhere=False)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("backend", "point"), CELLS)
def test_death_in_every_scene(backend: str, point: Point, stages: Callable[[str], list[Stage]]) -> None:
    """The same in every history that comes by: the first time and the last."""
    try_all(stages(backend), point, everywhere=True)


def test_every_point_is_documented() -> None:
    """README.md beside this file has one row a point, with the ids of just the tests that there are."""
    text = Path(__file__).with_name("README.md").read_text()
    rows = re.findall(r"^\| ([^|]+) \| [^|]+ \| (`test_death\[[^|]+) \|$", text, re.MULTILINE)
    assert [name for name, _ in rows] == [point.name for point in POINTS]
    documented = [test for _, tests in rows for test in re.findall(r"`test_death\[([^\]]+)\]`", tests)]
    assert documented == [cell.id for cell in CELLS]
