"""The lakes on which a run dies: fresh ones, and what runs left that died before it, or lost a file, or were edited."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from .cases import CASES, Case
from .driver import PIPELINE, Run
from .faults import Fault
from .invariants import EDITED, META, files_of_last_commit, pending
from .places import Place
from .points import POINTS, RECOVERED, Point, points_of
from .view_cases import VIEW_CASES


@dataclass(frozen=True)
class Scene:
    """A case's run, or the run after one that died at the last instant of the point `died` and then had bad luck.

    `lost`: a file of the last commit is gone, `"pending"` or `"visible"`; `"staged"`: one of a half loaded table.
    `edited`: somebody wrote another STATE into `state.json`.
    """

    case: str
    died: str = ""
    lost: str = ""
    edited: bool = False

    @property
    def name(self) -> str:
        luck = (f"died {self.died}" * bool(self.died), f"lost {self.lost}" * bool(self.lost), "edited" * self.edited)
        return ", ".join([self.case, *filter(None, luck)])

    @property
    def of(self) -> Case:
        """The case."""
        return CASES[self.case] if self.case in CASES else VIEW_CASES[self.case]

    @property
    def run(self) -> Run:
        """The run in which we look for points."""
        return self.again if self.died else self.of.run

    @property
    def again(self) -> Run:
        """The run after the one that dies."""
        return self.of.again or self.of.run


_TRIES = 5
"""How often a run is killed until it dies where it shall: its threads' requests come in any order."""

_TORN_OFF = "after the commit record"
_HALF = "publishing, with some files visible"

_REWRITTEN = "publishing, with some files rewritten"

_MAIN = ("append", "overwrite", "--full", "held", "staged, adopted")

SCENES = [
    *(Scene(case) for case in (*_MAIN, *(case for case in CASES if case not in _MAIN))),
    *(Scene(case, _TORN_OFF) for case in ("append", "overwrite", "--full", "held", "staged, adopted", "empty")),
    *(Scene(case, _HALF) for case in ("append", "--full")),
    *(Scene(case, "before state.json") for case in ("append", "overwrite", "held")),
    *(Scene(case, "before the commit record") for case in ("append", "overwrite", "held", "rejects")),
    *(Scene("rewritten", died) for died in (_TORN_OFF, _REWRITTEN, "before state.json")),
    *(Scene("rewritten", died, lost="pending") for died in (_TORN_OFF, _REWRITTEN)),
    *(Scene(case, _HALF, lost="pending") for case in ("append", "--full")),
    *(Scene(case, _TORN_OFF, lost="pending") for case in ("append", "overwrite", "staged, adopted")),
    *(Scene(case, "publishing, after the manifest", lost="visible") for case in ("append", "--full")),
    Scene("append, resumed", edited=True),
    Scene("staged, adopted", lost="staged"),
]


@dataclass
class Instant:
    """A step of a scene's run, counted from 0, the change it makes, and the points that the instant before it is."""

    scene: Scene
    step: int
    change: str
    points: list[str]


@dataclass
class Stage:
    """All scenes at one place. Lakes are made when they are asked for, and kept."""

    place: Place
    _frozen: dict[Scene, Any] = field(default_factory=dict)
    _instants: dict[Scene, list[Instant]] = field(default_factory=dict)

    def lake(self, scene: Scene) -> Any:
        """Return the frozen lake at which the scene's run starts, None if the scene cannot be: no such instant."""
        if scene not in self._frozen:
            self._frozen[scene] = self._dead(scene) if scene.died else self._before(scene)
        return self._frozen[scene]

    def _before(self, scene: Scene) -> Any:
        with self.place.thawed():
            for run in scene.of.before:
                ending = self.place.run(run)
                assert ending.error in (None, "TapError"), ending.text
            self._bad_luck(scene)
            return self.place.freeze()

    def _dead(self, scene: Scene) -> Any:
        alive = Scene(scene.case)
        at = [instant for instant in self.instants(alive) if scene.died in instant.points]
        if not at:
            return None
        with self.killed(at[-1], next(point for point in POINTS if point.name == scene.died)):
            return self.place.freeze() if self._bad_luck(scene) else None

    def _bad_luck(self, scene: Scene) -> bool:
        lake = self.place.lake
        if scene.edited:
            state = json.loads(lake.read(f"{META}/state.json") or b"")
            state["bookmarks"][EDITED] = {}
            self.place.put(f"{META}/state.json", json.dumps(state).encode())
        elif scene.lost == "staged":
            self.place.lose(*staged_file(self.place))
        elif scene.lost:
            shown = f"{PIPELINE}/"
            files = [
                (key, upload)
                for key, upload in files_of_last_commit(lake)
                if (key.startswith(shown) and not upload) == (scene.lost == "visible")
            ]
            for key, upload in files[:1]:
                self.place.lose(key, upload)
            return bool(files)
        return True

    def instants(self, scene: Scene) -> list[Instant]:
        """Return every instant of the scene's run: it is watched once, to its end."""
        if scene not in self._instants:
            frozen = self.lake(scene)
            if frozen is None:
                self._instants[scene] = []
                return []
            with self.place.thawed(frozen):
                ending = self.place.run(scene.run)
            assert ending.error in (None, "TapError"), ending.text
            found = points_of(ending.steps)
            self._instants[scene] = [
                Instant(scene, step, ending.steps[step].change, points) for step, points in enumerate(found)
            ]
        return self._instants[scene]

    @contextmanager
    def killed(self, instant: Instant, point: Point) -> Iterator[None]:
        """Have the lake of a scene's run that was killed there, which is this point."""
        fault = self._fault(instant, point)
        for _ in range(_TRIES):
            with self.place.thawed(self.lake(instant.scene)):
                ending = self.place.run(instant.scene.run, fault)
                if ending.killed and (fault.point or ending.steps[-1].change == instant.change):
                    yield
                    return
        raise AssertionError(f"the run never came by, as it did when it was watched: {point.name}, {instant.change}")

    def _fault(self, instant: Instant, point: Point) -> Fault:
        """Return a death there: at the step, in a bucket by how often a run has come by the point until then."""
        if self.place.name == "local" or instant.change == "..." or point is RECOVERED:
            return Fault(instant.step)
        before = self.instants(instant.scene)[: instant.step + 1]
        taken = [each for each in before if point.name in each.points and each.change not in ("...", *point.beside)]
        return Fault(point=point, nth=len(taken))


def staged_file(place: Place) -> tuple[str, bool]:
    """Return where a pending file is, and whether as an upload."""
    key = pending(place.lake)[0]
    upload = "/" in key
    return ("/".join(key.split("/")[-3:]) if upload else f"{META}/pending/{key}"), upload
