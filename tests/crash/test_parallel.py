"""Several processes of one tap in one run: what is kept for each of them is what saves the rows.

The runs themselves are killed at every step in `test_every_step.py`, where this is one of the cases.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest.mock import patch

from bridge.lake.pipeline_state import starting_groups
from bridge.lake.records import TapGroup

from .cases import CASES
from .faults import Fault
from .invariants import after_death, after_success
from .places import Place
from .scenes import Scene, Stage

CASE = CASES["parallel"]


def merged(streams: Any, stored: Any) -> Any:
    """The divided streams as they would start if each were given the STATE that is shown for all."""
    groups, idle, _ = starting_groups(streams, stored)
    return [TapGroup(group.streams, stored.shown) for group in groups], idle, []


def test_a_state_put_together_loses_rows(place_of: Callable[[str], Place]) -> None:
    """A run that dies between its processes' ends shows why: only with a STATE of their own nothing is missing."""
    stage = Stage(place_of("local"))
    steps, lost = len(stage.instants(Scene("parallel"))), 0
    for step in range(steps // 3, steps * 4 // 5, steps // 10):
        for start in (starting_groups, merged):
            with stage.place.thawed():
                assert stage.place.run(CASE.run, Fault(step)).killed
                after_death(stage.place.lake)
                with patch("bridge.load.run.planning.division.starting_groups", start):
                    assert stage.place.run(CASE.run).error is None
                if start is starting_groups:
                    after_success(stage.place.lake, CASE)
                else:
                    lost += _misses_rows(stage.place)
    assert lost, "no death came between the two"


def _misses_rows(place: Place) -> bool:
    try:
        after_success(place.lake, CASE)
    except AssertionError as error:
        assert "rows of c" in str(error)
        return True
    return False
