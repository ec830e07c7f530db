"""A run into a container dies at each of its requests; the next one leaves each record once and the tap's STATE."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.crash import faults
from tests.crash.scenes import Scene, Stage
from tests.crash.test_every_step import die, recover, steps
from tests.interop.azurite import Azurite
from tests.interop.container import InContainer, see_requests

SCENES = [
    Scene("append"),
    Scene("overwrite"),
    Scene("rewritten"),
    Scene("compact"),
    Scene("append", "publishing, with some files visible", lost="pending"),
    Scene("rewritten", "publishing, with some files rewritten", lost="pending"),
]


@pytest.fixture(scope="module")
def stages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Stage]]:
    """Whatever place a test asks for, it gets the container."""
    with Azurite() as server, pytest.MonkeyPatch.context() as patch:
        patch.setitem(faults.SEERS, "az", see_requests)
        stage = Stage(InContainer(tmp_path_factory.mktemp("steps"), server))
        yield lambda name: stage


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.name)
def test_one_death(scene: Scene, stages: Callable[[str], Stage]) -> None:
    """Wherever a run dies, the next one leaves each record exactly once and the tap's last STATE."""
    stage, died = stages("azurite"), 0
    for step in steps(stage, scene):
        died += die(stage, scene.run, step)
        recover(stage, scene)
    assert died > 20
