"""The commit protocol, killed: at each point that has a name in `make test`, at every single step in `make crash`.

Real processes are really killed, at every change that they make to a folder, and at every request to a bucket.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from .cases import CASES
from .driver import PIPELINE, Run
from .faults import Fault
from .history import History
from .invariants import (
    META,
    after_death,
    after_success,
    files_of_last_commit,
    kinds,
    pending,
    readable_by_duckdb,
)
from .lakes import Folder
from .places import Place
from .points import POINTS, Point, points_of
from .scenes import SCENES, Instant, Scene, Stage
from .view_cases import VIEW_CASES

SLOW = [pytest.mark.slow, pytest.mark.timeout(3600)]
PLACES = ["local", *(pytest.param(name, marks=pytest.mark.slow) for name in ("s3", "s3-uploads"))]
EVERYWHERE = ("local", pytest.param("s3", marks=pytest.mark.slow), "s3-uploads")
"""`make test` tries one storage of each kind, a folder and a bucket; `make crash` all."""
CELLS = [pytest.param(b, p, id=f"{b}-{p.id}") for p in POINTS for b in ("local", "s3") if b in p.where]


@pytest.fixture(scope="module")
def stages(place_of: Callable[[str], Place]) -> Callable[[str], Stage]:
    made: dict[str, Stage] = {}
    return lambda name: made.setdefault(name, Stage(place_of(name)))


def die(stage: Stage, run: Run, at: int) -> bool:
    """Run until that step, or to the end; look at what a reader would see, and return whether it came there."""
    ending = stage.place.run(run, Fault(at))
    assert ending.killed or ending.error in (None, "TapError"), ending.text
    after_death(stage.place.lake)
    return ending.killed


def recover(stage: Stage, scene: Scene) -> None:
    """Let the next run do all that is left to do."""
    ending = stage.place.run(scene.again)
    assert ending.error is None, ending.text
    after_success(stage.place.lake, scene.of)
    assert pending(stage.place.lake) == [], "what nobody can commit any more is deleted"


def steps(stage: Stage, scene: Scene, every: int = 1) -> Iterator[int]:
    """Yield the numbers of steps, other ones for each case; before each the lake is as the scene's run finds it."""
    first = [*CASES, *VIEW_CASES].index(scene.case) % every
    for step in range(first, len(stage.instants(scene)), every):
        with stage.place.thawed(stage.lake(scene)):
            yield step


# each named point


@pytest.mark.parametrize(("backend", "point"), CELLS)
def test_death(backend: str, point: Point, stages: Callable[[str], Stage]) -> None:
    """A run that dies there leaves nothing that the next one does not repair: each record once, the tap's STATE.

    Where recovery comes by, the run after it dies there as well, and the third one repairs what both have left. In a
    bucket it may matter how pending files are kept: the points take turns.
    """
    uploads = backend == "s3" and point.moves_files and POINTS.index(point) % 2
    stage = stages("s3-uploads" if uploads else backend)
    tried = 0
    for instant in chosen(stage, point):
        with stage.killed(instant, point):
            after_death(stage.place.lake)
            if point.recovers and (backend == "local" or point.moves_files):
                die_again(stage, instant)
            recover(stage, instant.scene)
            tried += 1
    assert tried, "no run comes by"


def chosen(stage: Stage, point: Point) -> Iterator[Instant]:
    """Yield instants that are this point: the last one in a scene (in two, in a folder), others for each point."""
    turn = POINTS.index(point) % 5
    left = 2 if stage.place.name == "local" else 1
    for scene in [*SCENES[turn : turn + 1], *SCENES]:
        come_by = [instant for instant in stage.instants(scene) if point.name in instant.points]
        if left and (hits := [instant for instant in come_by if instant.change not in point.beside]):
            yield hits[-1]
            left -= 1
        if not left:
            return


def die_again(stage: Stage, instant: Instant) -> None:
    """Kill the next run at a point that the first one died at, if it comes there."""
    dead = stage.place.freeze()
    ending = stage.place.run(instant.scene.again)
    assert ending.error is None, ending.text
    come_by = [step for step, points in enumerate(points_of(ending.steps)) if set(points) & set(instant.points)]
    stage.place.put_back(dead)
    if come_by:
        assert die(stage, instant.scene.again, come_by[-1])


def test_every_point_is_documented() -> None:
    """README.md beside this file has one row a point."""
    text = Path(__file__).with_name("README.md").read_text()
    rows = re.findall(r"^\| ([^|]+) \| [^|]+ \|$", text.partition("## Every crash point")[2], re.MULTILINE)
    assert rows[1:] == [point.name for point in POINTS]


# every step


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("where", PLACES)
def test_no_death(where: str, case: str, stages: Callable[[str], Stage]) -> None:
    """Without any crash, twice in a row, the lake holds each record exactly once and every reader can open it."""
    stage, scene = stages(where), Scene(case)
    with stage.place.thawed(stage.lake(scene)):
        for _ in range(2):
            recover(stage, scene)
        if isinstance(stage.place.lake, Folder):
            readable_by_duckdb(stage.place.lake, CASES[case])


@pytest.mark.parametrize(
    ("scene", "every"),
    [
        pytest.param(Scene("compact"), 13, id="compact, some steps"),
        *(pytest.param(scene, 1, id=scene.name, marks=SLOW) for scene in SCENES),
    ],
)
@pytest.mark.parametrize("where", EVERYWHERE)
def test_one_death(where: str, scene: Scene, every: int, stages: Callable[[str], Stage]) -> None:
    """Wherever a run dies, the next one leaves each record exactly once and the tap's last STATE."""
    for step in steps(stages(where), scene, every):
        die(stages(where), scene.run, step)
        recover(stages(where), scene)


@pytest.mark.parametrize("form", ["append", "key"])
def test_one_commit_is_all_or_nothing(form: str, stages: Callable[[str], Stage]) -> None:
    """With `commit.at: end`, wherever the run dies: no row of it is committed, or each; the next run has each once."""
    stage, scene = stages("local"), Scene("one commit" if form == "append" else "one commit, by key")
    found = set[int]()
    for step in steps(stage, scene, 3):
        die(stage, scene.run, step)
        history = History(stage.place.lake, PIPELINE)
        history.head()
        rows = {sum(history.live(stream).values()) for stream in history.streams}
        assert len(rows) == 1, "both streams, or none"
        found |= rows
        recover(stage, scene)
    assert found == {3, 6}


@pytest.mark.parametrize("case", [pytest.param(case, marks=SLOW) for case in CASES])
@pytest.mark.parametrize("where", EVERYWHERE)
def test_death_of_the_recovery(where: str, case: str, stages: Callable[[str], Stage]) -> None:
    """A run that dies while it repairs the lake of a dead run leaves nothing that a third cannot repair."""
    stage, scene = stages(where), Scene(case)
    for first in steps(stage, scene, 2):
        die(stage, scene.run, first)
        if die(stage, scene.again, first * 13 % 61):
            recover(stage, scene)


@pytest.mark.parametrize("case", [pytest.param(case, marks=SLOW) for case in CASES if case != "staged, the tap fails"])
def test_death_and_a_lost_file(case: str, stages: Callable[[str], Stage]) -> None:
    """If a committed file is gone before its STATE was seen, the commit is taken back and its rows come again."""
    stage, scene = stages("local"), Scene(case)
    with stage.place.thawed(stage.lake(scene)):
        before, voided = len(kinds(stage.place.lake)), 0
    for step in steps(stage, scene):
        die(stage, scene.run, step)
        lake = stage.place.lake
        closed = stage.instants(scene)[step].change == "closing"  # cleanly, perhaps: the next run looks at no file then
        lost = files_of_last_commit(lake)[::5] if len(kinds(lake)) > before and not closed else []
        dead = stage.place.freeze() if lost else None
        for key, upload in lost:
            stage.place.put_back(dead)
            stage.place.lose(key, upload)
            assert "void" not in kinds(lake)
            recover(stage, scene)
            assert "void" in kinds(lake)
            voided += 1
    assert voided


@pytest.mark.parametrize(
    "case", [pytest.param(c, marks=SLOW) for c in ("append", "overwrite", "staged, adopted", "rewritten")]
)
def test_death_of_the_taking_back(case: str, stages: Callable[[str], Stage]) -> None:
    """A commit that is being taken back when its run dies is taken back by the next one."""
    stage, scene = stages("local"), Scene(case)
    for step in steps(stage, scene, 3):
        die(stage, scene.run, step)
        lost = [key for key, upload in files_of_last_commit(stage.place.lake) if key.startswith(META)]
        if not lost:
            continue
        stage.place.lose(lost[0])
        dead = stage.place.freeze()
        for second in range(step % 7, 28, 7):  # fence and void are among the first steps
            stage.place.put_back(dead)
            if die(stage, scene.run, second):
                recover(stage, scene)


@pytest.mark.parametrize("case", ["overwrite", "--full", "staged, adopted"])
@pytest.mark.parametrize("every", [7, pytest.param(1, marks=SLOW)])
def test_death_without_exchange(every: int, case: str, stages: Callable[[str], Stage], monkeypatch: Any) -> None:
    """Where folders cannot be exchanged two renames do it: the table may be absent for an instant, never mixed."""
    monkeypatch.setattr("bridge.lake.storage.local.publish.exchange", lambda one, other: False)
    stage, scene = stages("local"), Scene(case)
    for step in steps(stage, scene, every):
        die(stage, scene.run, step)
        recover(stage, scene)
