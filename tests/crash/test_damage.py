"""What is not a crash: flipped bits, torn files, a full disk, a clock that jumps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, tzinfo
from typing import Any

import pytest

from .cases import CASES, record, schema, state, two_streams
from .driver import PIPELINE, Line, Run
from .faults import Fault, Watcher
from .invariants import META, after_death, after_success, shown
from .places import Place

CASE = CASES["append"]


@pytest.fixture(params=["local", "s3"])
def place(request: pytest.FixtureRequest, place_of: Callable[[str], Place]) -> Place:
    return place_of(request.param)


def everything(place: Place) -> dict[str, bytes | None]:
    return {key: place.lake.read(key) for key in place.lake.files("") if not key.endswith("lease.json")}


def test_a_flipped_bit_in_the_spool(place_of: Callable[[str], Place]) -> None:
    """A segment that changes before it is read fails the run: nothing of it is skipped, and nothing committed."""
    place = place_of("local")

    def tap(value: Any) -> Iterator[Line]:
        for line in two_streams(value):
            yield line
            for file in (place.scratch / "segments").glob("*.jsonl"):
                data = bytearray(file.read_bytes())
                if b'"id": 2' in data:  # valid JSON before and after
                    data[data.index(b'"id": 2') + 6] ^= 1
                    file.write_bytes(data)

    with place.thawed():
        ending = place.run(Run(tap, lag=1))
        assert ending.error == "EngineError"
        assert "a segment changed on disk" in ending.text
        after_death(place.lake)
        assert place.lake.files(PIPELINE) == {}
        assert place.run(CASE.run).error is None
        after_success(place.lake, CASE)


@pytest.mark.parametrize("bad", [b"", b'{"format": 1, "to', b"[]"])
@pytest.mark.parametrize("name", ["state.json", "commits/00000000000000000002.json"])
@pytest.mark.parametrize("dead", [False, True])
def test_damaged_truth(dead: bool, name: str, bad: bytes, place: Place) -> None:
    """A record or a STATE that cannot be read stops each run; nothing is guessed, loaded again, or changed."""
    with place.thawed():
        assert place.run(CASE.run).error is None
        whole = place.lake.read(f"{META}/{name}") or b""
        if dead:
            place.lose(f"{META}/lease.json")
        place.put(f"{META}/{name}", bad)
        before = everything(place)
        for _ in range(2):
            ending = place.run(CASE.run)
            assert ending.error == "CorruptLake", ending.text
        after = everything(place)
        fences = {key for key in after.keys() - before.keys() if name == "state.json" and "/commits/" in key}
        assert {key: data for key, data in after.items() if key not in fences} == before
        place.put(f"{META}/{name}", whole)
        assert place.run(CASE.run).error is None
        after_success(place.lake, CASE)


@pytest.mark.parametrize("case", ["append", "overwrite", "rejects"])
@pytest.mark.parametrize("every", [11, pytest.param(1, marks=[pytest.mark.slow, pytest.mark.timeout(3600)])])
def test_a_full_disk(every: int, case: str, place_of: Callable[[str], Place]) -> None:
    """From any step on nothing can be written: the run says so and fails, and the next one has lost nothing."""
    place, told = place_of("local"), CASES[case]
    with place.thawed():
        for run in told.before:
            place.run(run)
        frozen = place.freeze()
    with place.thawed(frozen):
        steps = len(place.run(told.run).steps)
    failed = 0
    for step in range(0, steps, every):
        with place.thawed(frozen):
            ending = place.run(told.run, Fault(step, full=True))
            assert ending.error in (None, "LakeError"), ending.text
            assert ending.error is None or "No space left on device" in ending.text
            failed += ending.error is not None
            after_death(place.lake)
            ending = place.run(told.again or told.run)
            assert ending.error is None, ending.text
            after_success(place.lake, told)
    assert failed > steps // every // 2


class Jumping(datetime):
    """The clock of this process, which its tap can set."""

    offset = timedelta()

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> Jumping:
        return super().now(tz) + cls.offset


@pytest.mark.parametrize("jump", [timedelta(hours=-1), timedelta(days=8)], ids=["back", "ahead"])
def test_a_clock_that_jumps(jump: timedelta, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the time is said to be while a run goes on, and in the runs after it, nothing is lost or doubled."""
    for module in (
        "bridge.lake.commit.committer",
        "bridge.lake.lease.remote",
        "bridge.lake.lease.process",
        "bridge.lake.lease.flock",
    ):
        monkeypatch.setattr(f"{module}.datetime", Jumping, raising=False)

    def tap(value: Any) -> Iterator[Line]:
        for number, line in enumerate(two_streams(value)):
            if number == 6:
                Jumping.offset = jump
            yield line

    with place.thawed():
        assert (ending := place.run(Run(tap))).error is None, ending.text
        killed = place.run(Run(more), Fault(len(place.run(Run(more)).steps) // 2))
        assert killed.error is None or killed.killed
        assert (ending := place.run(Run(tap))).error is None, ending.text
        after_success(place.lake, CASE)


def more(value: Any) -> Iterator[Line]:
    """Nothing new."""
    yield schema("a")
    yield schema("b")
    yield state(a=6, b=6)


def test_times_of_commits_do_not_order_them(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run whose clock is an hour behind goes on from the commit of one whose clock was right."""

    def half(value: Any) -> Iterator[Line]:
        yield schema("a")
        yield schema("b")
        for number in (1, 2, 3):
            yield record("a", number)
            yield record("b", number)
        yield state(a=3, b=3)

    def behind(watcher: Watcher) -> None:
        from bridge.lake.commit import committer

        committer.datetime = Jumping  # type: ignore[attr-defined]
        Jumping.offset = timedelta(hours=-1)
        CASE.run.execute(place.uri, place.scratch)

    with place.thawed():
        assert place.run(Run(half)).error is None
        seen = shown(place.lake)
        assert (ending := place.child(behind).wait()).error is None, ending.text
        assert shown(place.lake) != seen
        after_success(place.lake, CASE)
