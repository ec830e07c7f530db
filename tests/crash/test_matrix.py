"""Every crash point by its name, in a folder and in a bucket: real processes, really killed."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path

import pytest

from .cases import CASES
from .faults import Fault
from .invariants import after_death, after_success, kinds, pending
from .places import InBucket, InFolder
from .points import POINTS, Point
from .s3copies import server
from .scenes import SCENES, Instant, Stage

BACKENDS = ("local", "s3")


@pytest.fixture(scope="module")
def stages() -> Iterator[dict[str, list[Stage]]]:
    """By backend; a bucket with small files, and one in which each pending file is an upload under way."""
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with ExitStack() as stack:
        name = stack.enter_context(tempfile.TemporaryDirectory(dir=memory, ignore_cleanup_errors=True))
        folders = {part: Path(name, part) for part in ("local", "small", "large", "s")}
        for folder in folders.values():
            folder.mkdir()
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        # A tap that ends within milliseconds would otherwise have one barrier.
        patch.setattr("bridge.intake._RETRY", timedelta(0))
        root = stack.enter_context(server(folders["s"]))
        small, large = (InBucket(folders[part], root, uploads=part == "large") for part in ("small", "large"))
        yield {"local": [Stage(InFolder(folders["local"]))], "s3": [Stage(small), Stage(large)]}
        small.lake.close()
        large.lake.close()


def die(stage: Stage, instant: Instant) -> None:
    """Kill the run of a scene there and look; let the next one run and look."""
    place, case = stage.place, CASES[instant.scene.case]
    with place.thawed(stage.lake(instant.scene)):
        ending = place.run(instant.scene.run, Fault(instant.step))
        assert ending.killed, (ending.error, ending.text)
        after_death(place.lake)
        ending = place.run(case.again or case.run)
        assert ending.error is None, ending.text
        after_success(place.lake, case)
        assert pending(place.lake) == [], "what nobody can commit any more is deleted"


CELLS = [pytest.param(b, p, id=f"{b}-{p.id}") for p in POINTS for b in BACKENDS if b in p.where]


@pytest.mark.parametrize(("backend", "point"), CELLS)
def test_death(backend: str, point: Point, stages: dict[str, list[Stage]]) -> None:
    """A run that dies there leaves nothing that the next one does not repair: each record once, the tap's STATE."""
    tried = 0
    for stage in stages[backend]:
        hits = [
            [instant for instant in stage.instants(scene) if point.name in instant.points] for scene in SCENES
        ]
        for instants in list(filter(None, hits))[:2]:
            die(stage, instants[-1])
            tried += 1
    assert tried
