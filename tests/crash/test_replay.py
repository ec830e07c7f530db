"""A replay of rejects, killed at every single change that it makes: each record is a row or a reject, exactly once."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from bridge.lake.commit.open import recover
from bridge.lake.storage import open_storage
from bridge.load.maintain.rejects.purge import purge
from bridge.load.maintain.rejects.replay import replay
from bridge.load.maintain.rejects.survey import Criteria
from bridge.settings.inline import inline_pipeline

from .cases import record, schema, started, state, stated
from .driver import PIPELINE, Line, Run
from .faults import Fault
from .history import History
from .invariants import after_death, files_of_last_commit, kinds, pending, rows_of, state_file, visible
from .places import Place

EVERY = [7, pytest.param(1, marks=[pytest.mark.slow, pytest.mark.timeout(3600)])]
"""Only each seventh step has its turn; or each one."""
PLACES = ["local", *(pytest.param(name, marks=pytest.mark.slow) for name in ("s3", "s3-uploads"))]
BIG = 10**20
STATE = stated(a=5, b=5)


def spoilt(value: Any) -> Iterator[Line]:
    """Two streams, each with two records that a wider column would hold, and one that nothing will."""
    for stream in ("a", "b"):
        yield schema(stream, "n")
        for number, n in enumerate([0, BIG, "x", 0, BIG + 1], 1) if not started(value, stream) else ():
            yield record(stream, number, n=n)
        yield state(**{name: 5 for name in ("a", "b") if name <= stream})


def widened(value: Any) -> Iterator[Line]:
    """The same streams, of which the columns now hold what did not fit; nothing new."""
    for stream in ("a", "b"):
        message = json.loads(schema(stream, "n"))
        message["schema"]["properties"]["n"]["maximum"] = 10**30
        yield json.dumps(message)
        yield record(stream, 6, n=6)
    yield state(a=6, b=6)


@dataclass
class Again:
    """One more process: it replays, purges, or only recovers."""

    work: Callable[[Any], object]
    mark: Callable[[str], None] = lambda name: None

    def execute(self, lake: str, scratch: Path) -> None:
        self.work(open_storage(lake))


def _replay(storage: Any) -> None:
    settings = inline_pipeline(name=PIPELINE, bucket=storage.uri, tap="tap", environ={})
    replay(storage, settings, Criteria())


REPLAY: Any = Again(_replay)
RECOVER: Any = Again(lambda storage: recover(storage, PIPELINE))
PURGE: Any = Again(lambda storage: purge(storage, PIPELINE, Criteria()))


def rows(place: Place, stream: str) -> list[int]:
    return sorted(number for (number,) in rows_of(place.lake, stream, ("id",)).elements())


def rejects(place: Place) -> Counter[tuple[str | None, int]]:
    """Stream and number of each reject that counts, as the log says without any of our code."""
    history, live = History(place.lake, PIPELINE), set[tuple[str | None, str]]()
    history.head()
    for said in history.records:
        live = {one for one in live if one[1] not in said.get("consumed", ())}
        live |= {(reject["stream"], reject["file"]) for reject in said.get("rejects", ())}
    found: Counter[tuple[str | None, int]] = Counter()
    for stream, file in live:
        found.update((stream, json.loads(line)["offset"]) for line in (place.lake.read(file) or b"").splitlines())
    return found


def whole(place: Place) -> None:
    """Each record is a row or a reject, once."""
    for stream in ("a", "b"):
        unfit = [number for (name, number), times in rejects(place).items() for _ in range(times) if name == stream]
        assert sorted(rows(place, stream) + unfit) == [1, 2, 3, 4, 5, 6], stream
    assert state_file(place.lake) == stated(a=6, b=6)


def replayed(place: Place) -> None:
    """All that fits is a row, the rest a reject, and nothing is left pending."""
    assert rows(place, "a") == rows(place, "b") == [1, 2, 4, 5, 6]
    assert rejects(place) == {("a", 3): 1, ("b", 3): 1}
    assert set(visible(place.lake)) == {"a", "b"}
    assert pending(place.lake) == []
    assert state_file(place.lake) == stated(a=6, b=6)


@pytest.fixture(scope="module")
def lakes(place_of: Callable[[str], Place]) -> Callable[[str], tuple[Place, Any]]:
    made: dict[str, tuple[Place, Any]] = {}

    def lake(name: str) -> tuple[Place, Any]:
        if name not in made:
            place = place_of(name)
            with place.thawed():
                for tap in (spoilt, widened):
                    ending = place.run(Run(tap))
                    assert ending.error is None, ending.text
                assert rows(place, "a") == [1, 4, 6]
                made[name] = place, place.freeze()
        return made[name]

    return lake


def steps(place: Place, frozen: Any, run: Any) -> int:
    with place.thawed(frozen):
        ending = place.run(run)
        assert ending.error is None, ending.text
        return len(ending.steps)


def finish(place: Place, run: Any) -> None:
    ending = place.run(run)
    assert ending.error is None, ending.text


@pytest.mark.parametrize("where", PLACES)
@pytest.mark.parametrize("every", EVERY)
def test_one_death(every: int, where: str, lakes: Callable[[str], tuple[Place, Any]]) -> None:
    """Wherever a replay dies, no reader sees half of it, the next opening makes it whole, and a replay ends it."""
    place, frozen = lakes(where)
    for step in range(0, steps(place, frozen, REPLAY), every):
        with place.thawed(frozen):
            assert place.run(REPLAY, Fault(step)).killed
            after_death(place.lake)
            finish(place, RECOVER)
            whole(place)
            finish(place, REPLAY)
            replayed(place)


@pytest.mark.parametrize("where", PLACES)
@pytest.mark.parametrize("every", [9, pytest.param(2, marks=[pytest.mark.slow, pytest.mark.timeout(3600)])])
def test_a_lost_file(every: int, where: str, lakes: Callable[[str], tuple[Place, Any]]) -> None:
    """A replay that lost a file before it was visible is taken back: its records are rejects again, none is gone."""
    place, frozen = lakes(where)
    voided = 0
    for step in range(every // 2, steps(place, frozen, REPLAY), every):
        with place.thawed(frozen):
            place.run(REPLAY, Fault(step))
            lost = files_of_last_commit(place.lake) if kinds(place.lake)[-1] == "replay" else []
            for key, upload in lost[:1]:
                place.lose(key, upload)
                finish(place, RECOVER)
                assert kinds(place.lake)[-1] == "void"
                whole(place)
                voided += 1
            finish(place, REPLAY)
            replayed(place)
    assert voided or every > 2


@pytest.mark.parametrize("every", EVERY)
def test_death_of_a_purge(every: int, lakes: Callable[[str], tuple[Place, Any]]) -> None:
    """Wherever a purge dies, all rejects are there or none is, and the next one leaves no file of them."""
    place, frozen = lakes("local")
    for step in range(0, steps(place, frozen, PURGE), every):
        with place.thawed(frozen):
            assert place.run(PURGE, Fault(step)).killed
            assert sum(rejects(place).values()) in (0, 6)
            finish(place, PURGE)
            assert rejects(place) == {}
            assert not place.lake.files(f".bridge/{PIPELINE}/rejects")
            assert rows(place, "a") == [1, 4, 6]
