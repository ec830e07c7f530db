"""The commit protocol, killed while it changes views: whatever commit a reader sees, its views fit its tables.

What is looked at after each death and each recovery: `invariants.py`. Spark's session is this process's, with which
each fork talks on a connection of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bridge.load.spark.session import Session

from .driver import PIPELINE
from .history import History
from .invariants import after_death, files_of_last_commit, kinds
from .places import InBucket, Place
from .scenes import Scene, Stage
from .test_every_step import SLOW, die, recover, steps
from .view_cases import VIEW_CASES

pytestmark = pytest.mark.timeout(1500)  # each step of a run that changes views is some seconds of Spark


@pytest.fixture(scope="module")
def stages(
    place_of: Callable[[str], Place], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[str], Stage]]:
    """A stage by the name of its place; all of them have one session, whose workers reach the server."""
    made: dict[str, Stage] = {}
    session: Any = None

    def stage(name: str) -> Stage:
        nonlocal session
        if name not in made:
            place = place_of(name)
            session = session or _session(place_of("s3"), tmp_path_factory.mktemp("spark"))
            place.spark = session.spark
            made[name] = Stage(place)
        return made[name]

    yield stage
    for each in made.values():
        each.place.spark = None
    if session:
        session.close(hurry=True)


def _session(bucket: Place, folder: Path) -> Session:
    assert isinstance(bucket, InBucket)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in bucket.environ.items():
            patch.setenv(name, value)
        conf = {"spark.sql.shuffle.partitions": "1", "spark.sql.codegen.wholeStage": "false"}
        conf["spark.driver.memory"] = "3g"  # processes that die leave behind what they broadcast
        return Session("local[1]", conf, folder / "scratch", folder / "log")


def _at(stage: Stage, scene: Scene, point: str) -> Iterator[int]:
    """Yield the step of the last instant of a scene's run that is this point, if it comes by; the lake is as before."""
    if hits := [instant.step for instant in stage.instants(scene) if point in instant.points]:
        with stage.place.thawed(stage.lake(scene)):
            yield hits[-1]


@pytest.mark.parametrize("case", [pytest.param(case, marks=SLOW) for case in VIEW_CASES])
@pytest.mark.parametrize("where", ["local", "s3"])
def test_no_death(where: str, case: str, stages: Callable[[str], Stage]) -> None:
    """Without any crash, and once more."""
    stage, scene = stages(where), Scene(case)
    with stage.place.thawed(stage.lake(scene)):
        for _ in range(2):
            recover(stage, scene)


CELLS = [
    ("local", "view, append, resumed", "publishing, with some files visible"),
    ("local", "view, upsert", "publishing, with some files visible"),
    ("local", "view of a view", "publishing, with some files visible"),
    ("local", "view, overwrite", "publishing, after the exchange"),
    ("local", "view, new", "after the commit record"),
    ("local", "view, dropped", "after the commit record"),
    ("s3", "view, append, resumed", "publishing, with some files visible"),
    ("s3", "view of a view", "publishing, with some files visible"),
    ("s3", "view, overwrite", "publishing, new files beside old ones"),
    ("s3", "view, new", "publishing, before the manifest"),
]


@pytest.mark.parametrize(("where", "case", "point"), CELLS)
def test_death_at_a_point(where: str, case: str, point: str, stages: Callable[[str], Stage]) -> None:
    """At the points at which a commit's tables and views are visible in part."""
    stage, scene, tried = stages(where), Scene(case), 0
    for step in _at(stage, scene, point):
        assert die(stage, scene.run, step)
        recover(stage, scene)
        tried += 1
    assert tried, "no run comes by"


@pytest.mark.parametrize("lost", ["a", "by_sign"])
@pytest.mark.parametrize("where", ["local", "s3"])
def test_a_commit_is_taken_back(where: str, lost: str, stages: Callable[[str], Stage]) -> None:
    """Whichever file is gone, the table's or the view's: both are those of the commit before, and loaded again."""
    stage, scene, tried = stages(where), Scene("view, upsert"), 0
    for step in _at(stage, scene, "after the commit record"):
        assert die(stage, scene.run, step)
        stage.place.lose(*_pending(stage, lost))
        after_death(stage.place.lake)
        recover(stage, scene)
        assert "void" in kinds(stage.place.lake)
        tried += 1
    assert tried


def _pending(stage: Stage, table: str) -> tuple[str, bool]:
    """Where a file is that the last commit adds to a table, and whether as an upload."""
    history = History(stage.place.lake, PIPELINE)
    history.head()
    add = next(add for entry in history.records[-1]["tables"] if entry["stream"] == table for add in entry["adds"])
    return (f"{PIPELINE}/{table}/{add['name']}", True) if add.get("upload") else (add["source"], False)


# every step


@pytest.mark.parametrize("case", [pytest.param(case, marks=SLOW) for case in VIEW_CASES])
@pytest.mark.parametrize("where", ["local", "s3", "s3-uploads"])
def test_one_death(where: str, case: str, stages: Callable[[str], Stage]) -> None:
    """Wherever a run dies, its views fit its tables, and so they do after the next one."""
    stage, scene = stages(where), Scene(case)
    for step in steps(stage, scene, 1 if where == "local" else 3):
        die(stage, scene.run, step)
        recover(stage, scene)


@pytest.mark.parametrize("case", [pytest.param(case, marks=SLOW) for case in VIEW_CASES])
@pytest.mark.parametrize("where", ["local", "s3"])
def test_death_of_the_recovery(where: str, case: str, stages: Callable[[str], Stage]) -> None:
    """A run that dies while it repairs the lake of a dead run leaves nothing that a third cannot repair."""
    stage, scene = stages(where), Scene(case)
    for first in steps(stage, scene, 5):
        die(stage, scene.run, first)
        if die(stage, scene.again, first * 13 % 61):
            recover(stage, scene)


@pytest.mark.parametrize("case", [pytest.param(case, marks=SLOW) for case in VIEW_CASES if case != "view, dropped"])
def test_death_and_a_lost_file(case: str, stages: Callable[[str], Stage]) -> None:
    """If a committed file of a table or a view is gone before its STATE was seen, the commit is taken back."""
    stage, scene = stages("local"), Scene(case)
    with stage.place.thawed(stage.lake(scene)):
        before, voided = len(kinds(stage.place.lake)), 0
    for step in steps(stage, scene, 2):
        die(stage, scene.run, step)
        lake = stage.place.lake
        closed = stage.instants(scene)[step].change == "closing"
        lost = files_of_last_commit(lake) if len(kinds(lake)) > before and not closed else []
        dead = stage.place.freeze() if lost else None
        for key, upload in lost:
            stage.place.put_back(dead)
            stage.place.lose(key, upload)
            recover(stage, scene)
            assert "void" in kinds(lake)
            voided += 1
    assert voided
