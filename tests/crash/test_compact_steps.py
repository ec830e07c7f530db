"""`compact` in a bucket, killed at every single change that it makes there; for a folder see `unit/test_compact.py`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bridge.commit.recover import recover
from bridge.maintain.compact import Wish, compact
from bridge.settings.options import Pipeline
from bridge.storage import open_storage

from .cases import Case, record, schema, state, stated
from .driver import PIPELINE, Line, Run
from .faults import Fault
from .invariants import after_death, after_success, kinds, pending, visible
from .places import Place
from .process import Ending

LAST = 4
SLOW = [pytest.mark.slow, pytest.mark.timeout(3600)]
EVERY = [13, pytest.param(1, marks=SLOW)]


def tap(value: Any) -> Iterator[Line]:
    """A row at a time, each in a commit, and so in a file, of its own; a column comes later."""
    yield schema("t")
    for number in range(1, LAST + 1):
        if number == LAST:
            yield schema("t", "g")
        yield record("t", number, **({"g": 7} if number == LAST else {}))
        yield state(t=number)


class Compacts(Run):
    """Join what there is to be joined, as the command does."""

    def execute(self, lake: str, scratch: Path) -> None:
        settings = {"name": PIPELINE, "source": {"tap": "tap"}, "destination": {"bucket": lake}}
        compact(open_storage(lake), Pipeline.model_validate(settings), Wish())


class Recovers(Run):
    def execute(self, lake: str, scratch: Path) -> None:
        recover(open_storage(lake), PIPELINE)


LOADS, COMPACTS, RECOVERS = Run(tap), Compacts(tap), Recovers(tap)
CASE = Case(LOADS, {"t": [*((n, None) for n in range(1, LAST)), (LAST, 7)]}, stated(t=LAST), columns=("g",))


@pytest.fixture(scope="module", params=["s3", "s3-uploads"])
def place(request: pytest.FixtureRequest, place_of: Callable[[str], Place]) -> Place:
    return place_of(request.param)


@pytest.fixture(scope="module")
def loaded(place: Place) -> Any:
    """The bucket with a table of small files."""
    with place.thawed():
        ended_well(place.run(LOADS))
        assert len(visible(place.lake)["t"]) == LAST
        return place.freeze()


def ended_well(ending: Ending) -> None:
    assert ending.error is None, ending.text
    assert not ending.killed


def is_whole(place: Place) -> None:
    after_success(place.lake, CASE)
    assert pending(place.lake) == []


@pytest.mark.parametrize("every", EVERY)
def test_one_death(every: int, place: Place, loaded: Any) -> None:
    """Wherever it dies, recovery leaves the same rows and STATE, of many files or of one, and the next one ends it."""
    with place.thawed(loaded):
        whole = place.run(COMPACTS)
        ended_well(whole)
        is_whole(place)
        assert len(visible(place.lake)["t"]) == 1
    done = 0
    for at in range(every // 2, len(whole.steps), every):
        with place.thawed(loaded):
            assert place.run(COMPACTS, Fault(at)).killed, whole.steps[at]
            after_death(place.lake)
            committed = kinds(place.lake)[-1] == "compact"
            ended_well(place.run(RECOVERS))
            is_whole(place)
            assert len(visible(place.lake)["t"]) == (1 if committed else LAST), whole.steps[at]
            ended_well(place.run(COMPACTS))
            is_whole(place)
            assert len(visible(place.lake)["t"]) == 1
            done += 1
    assert done


@pytest.mark.parametrize("every", [pytest.param(3, marks=SLOW)])
def test_death_of_the_recovery(every: int, place: Place, loaded: Any) -> None:
    """A recovery that dies over a compact commit leaves nothing that a third run cannot repair."""
    with place.thawed(loaded):
        steps = place.run(COMPACTS).steps
    for first in range(1, len(steps), every):
        with place.thawed(loaded):
            assert place.run(COMPACTS, Fault(first)).killed
            dead = place.freeze()
            steps = place.run(RECOVERS).steps
            for second in range(first % every, len(steps), every):
                place.put_back(dead)
                assert place.run(RECOVERS, Fault(second)).killed
                after_death(place.lake)
                ended_well(place.run(COMPACTS))
                is_whole(place)
            dead.close()
