"""Any tap, cut anywhere, resumed from the committed STATE: each row is in the lake once."""

from __future__ import annotations

import random
import tempfile
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import bridge.load.run.checks.commit_clock
from tests.unit.load.run.epoch_simulation import VERSION, Bridge, SimulatedLake, Source, Tap, doubled_and_lost

_APPEND = ("sorted", "late", "unsorted", "full")
_REPLACE = ("full", "resumable", "versioned", "early")


@st.composite
def _sources(draw: st.DrawFn) -> list[Source]:
    sources = []
    for number in range(draw(st.integers(1, 3))):
        replace = draw(st.booleans())
        habit = draw(st.sampled_from(_REPLACE if replace else _APPEND))
        child = f"c{number}" if habit == "sorted" and draw(st.booleans()) else None
        sources.append(Source(f"s{number}", habit, draw(st.integers(0, 5)), replace, child))
    return sources


def _wanted(sources: list[Source]) -> dict[str, list[int]]:
    wanted = {source.name: list(range(1, source.records + 1)) for source in sources}
    for source in sources:
        if source.children:
            wanted[source.children] = []
    return wanted


@pytest.fixture(autouse=True, scope="module")
def _no_pause_between_tries() -> Any:
    """A refused STATE must not make the next one untried: here they come within microseconds."""
    before, bridge.load.run.checks.commit_clock._RETRY = bridge.load.run.checks.commit_clock._RETRY, timedelta(0)
    yield
    bridge.load.run.checks.commit_clock._RETRY = before


@settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    sources=_sources(),
    seed=st.integers(0, 2**32),
    runs=st.lists(
        st.tuples(st.integers(0, 40), st.booleans(), st.sampled_from([1, 150, 400, 1 << 30]), st.booleans()),
        min_size=1,
        max_size=4,
    ),
    habits=st.tuples(*[st.booleans()] * 5),
)
def test_each_row_is_committed_once(
    sources: list[Source], seed: int, runs: list[tuple[int, bool, int, bool]], habits: tuple[bool, ...]
) -> None:
    """Whatever the taps' habits and wherever runs are cut, hard or with a last salvage: no row is lost or doubled.

    And no reader ever sees a table that an overwrite has filled in part.
    """
    dice = random.Random(seed)
    syncing, interleave, upfront, activate_first, flat = habits
    modes = {source.name: "overwrite" for source in sources if source.replace}
    replaced = {source.name: source.records for source in sources if source.replace and source.habit != "early"}

    def whole(lake: SimulatedLake) -> None:
        for name, records in replaced.items():
            assert lake.tables.get(name, []) in ([], list(range(1, records + 1))), f"a partial overwrite of {name}"

    lake = SimulatedLake(check=whole)
    with tempfile.TemporaryDirectory() as folder:
        for number, (cut, salvage, size, often) in enumerate([*runs, (None, False, 150, True)]):
            tap = Tap(
                sources,
                lake.state,
                dice,
                syncing=syncing and not interleave and not flat,
                interleave=interleave,
                upfront=upfront,
                activate_first=activate_first,
                flat=flat,
                version=number + 1,
            )
            every = timedelta(0) if often else timedelta(days=1)
            one = Bridge(lake, Path(folder) / "spool", modes, commit_bytes=size, commit_every=every)
            if one.run(tap.messages(), cut=cut, salvage=salvage):
                break
    for source in sources:
        assert doubled_and_lost(lake.tables.get(source.name, []), list(range(1, source.records + 1))) == ([], [])
        if source.children:
            rows = lake.tables.get(source.children, [])
            parents = {row // 10 for row in rows}
            assert len(rows) == len(set(rows)), "a child row came twice"
            assert parents == set(range(1, source.records + 1)), "a parent's children are missing"


@settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    streams=st.lists(st.tuples(st.booleans(), st.integers(0, 5)), min_size=1, max_size=3),
    seed=st.integers(0, 2**32),
    runs=st.lists(
        st.tuples(st.integers(0, 40), st.booleans(), st.sampled_from([1, 150, 1 << 30]), st.booleans()), max_size=5
    ),
    habits=st.tuples(*[st.booleans()] * 4),
)
def test_older_versions_go_when_a_newer_one_is_whole(
    streams: list[tuple[bool, int]], seed: int, runs: list[tuple[int, bool, int, bool]], habits: tuple[bool, ...]
) -> None:
    """Once a version was whole in the lake, a whole one is there at every commit; after a clean end no other is.

    Of append-only streams, and of upserts, whose taps may start a table again under the version it had.
    """
    dice = random.Random(seed)
    syncing, interleave, upfront, activate_first = habits
    upserts = {f"s{number}": upsert for number, (upsert, _) in enumerate(streams)}
    sources = [
        Source(f"s{number}", dice.choice(("resumable", "versioned")) if upsert else "resumable", records)
        for number, (upsert, records) in enumerate(streams)
    ]
    modes = {name: "upsert" if upsert else "append-only" for name, upsert in upserts.items()}
    whole: set[str] = set()

    def check(lake: SimulatedLake) -> None:
        for source in sources:
            wanted, rows = set(range(1, source.records + 1)), set(lake.tables.get(source.name, []))
            if upserts[source.name]:
                there = {row % VERSION for row in rows} == wanted
            else:
                there = any(
                    {row % VERSION for row in rows if row // VERSION == version} == wanted
                    for version in {row // VERSION for row in rows}
                )
            assert there or source.name not in whole, f"rows of {source.name} went too early"
            if there and source.records:
                whole.add(source.name)

    lake = SimulatedLake(check=check)
    with tempfile.TemporaryDirectory() as folder:
        for number, (cut, salvage, size, often) in enumerate([*runs, (None, False, 150, True)]):
            tap = Tap(
                sources,
                lake.state,
                dice,
                syncing=syncing and not interleave,
                interleave=interleave,
                upfront=upfront,
                activate_first=activate_first,
                version=number + 1,
            )
            every = timedelta(0) if often else timedelta(days=1)
            folder_ = Path(folder) / "spool"
            one = Bridge(lake, folder_, modes, commit_bytes=size, commit_every=every, sweeps=set(modes))
            if one.run(tap.messages(), cut=cut, salvage=salvage):
                break
    for source in sources:
        rows = lake.tables.get(source.name, [])
        assert sorted(row % VERSION for row in rows) == list(range(1, source.records + 1))
        assert len({row // VERSION for row in rows}) <= 1
