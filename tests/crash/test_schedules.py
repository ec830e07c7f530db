"""Schedules of the real loader: every seed keeps every promise, and is the same each time; what is done wrong is found.

Schedules are played in processes of their own, as stand-ins for threads and clocks are put into the product there.
"""

from __future__ import annotations

import os
import queue
import random
import subprocess
import sys
from functools import partial
from typing import Any

import pytest

from .schedules import stand_ins
from .schedules.bucket import Fault
from .schedules.schedule import Life, Schedule, drawn
from .schedules.source import Source
from .schedules.world import Endless, World
from .schedules.wrong import NEVER, WRONG

FIXED, SOME = 1, 50
"""The seeds of every test run; as many again are drawn."""
MANY = int(os.environ.get("SCHEDULES") or 3000)
FIRST = int(os.environ.get("SEED") or random.SystemRandom().randrange(10**9))
JOBS = os.environ.get("JOBS") or str(os.cpu_count())

SOON = (
    "report before publish",
    "STATE before its rows",
    "held rows",
    "no roll forward",
    "abort before the fence",
    "void without aborts",
    "remove before add",
)
"""What is done wrong, and found within a few schedules."""
WITHIN = 40


def _played(*words: str, seed: int, schedules: int, **environ: str) -> str:
    given = os.environ | {"SEED": str(seed), "SCHEDULES": str(schedules), "JOBS": "1"} | environ
    command = [sys.executable, "-m", "tests.crash.schedules", *words]
    done = subprocess.run(command, env=given, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stdout[-20_000:]}\n{done.stderr[-4000:]}"
    print(done.stderr, done.stdout)
    return done.stdout


@pytest.mark.heavy
@pytest.mark.parametrize("seed", [FIXED, FIRST], ids=["fixed", "drawn"])
def test_schedules_keep_every_promise(seed: int) -> None:
    """Runs are killed, paused and overtaken; requests fail, get lost and land late: no row is lost or doubled."""
    _played(seed=seed, schedules=SOME)


@pytest.mark.slow
@pytest.mark.timeout(36_000)
def test_many_schedules_keep_every_promise() -> None:
    """The same with `SCHEDULES` of them, from `SEED` on, in `JOBS` processes."""
    _played(seed=FIRST, schedules=MANY, JOBS=JOBS)


@pytest.mark.heavy
def test_a_seed_is_one_schedule() -> None:
    """It has the same operations each time, to the last request, in whatever order sets are gone through."""
    once, again = (_played("digest", seed=FIXED, schedules=12, PYTHONHASHSEED=chance) for chance in ("1", "2"))
    assert once == again
    assert len({line.split()[2] for line in once.splitlines()}) == 12


@pytest.mark.heavy
def test_what_is_done_wrong_is_found() -> None:
    """A part of the load or of the protocol that is left out or done wrong breaks a promise, and soon."""
    _played("aimed", seed=FIXED, schedules=0)
    _played("wrong", *SOON, seed=FIXED, schedules=WITHIN)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", sorted(WRONG.keys() - {*SOON} - NEVER.keys()))
def test_each_thing_done_wrong_is_found(name: str) -> None:
    """The same for those that fewer schedules see."""
    _played("wrong", name, seed=FIXED, schedules=3000)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_what_only_costs_work_breaks_nothing() -> None:
    _played("harmless", seed=FIXED, schedules=300)


def test_a_schedule_is_drawn_from_its_seed_alone() -> None:
    """What is printed of it is enough to play it again."""
    names = {kind.__name__: kind for kind in (Schedule, Source, Life, Fault)}
    for seed in range(200):
        assert drawn(seed) == drawn(seed) == eval(repr(drawn(seed)), names)
    assert len({repr(drawn(seed)) for seed in range(200)}) == 200


# the world


def _world() -> World:
    World.now_there = World(1)
    return World.now_there


@pytest.fixture(autouse=True)
def _no_world_is_left() -> object:
    yield
    World.now_there = None


def test_threads_go_on_one_at_a_time_and_in_time() -> None:
    world, said = _world(), list[Any]()
    process = world.process("p")

    def count(name: str, seconds: float) -> None:
        for _ in range(3):
            stand_ins.sleep(seconds)
            said.append((name, round(stand_ins.now())))

    world.start(process, lambda: count("slow", 10.0), "slow")
    world.start(process, lambda: count("fast", 4.0), "fast")
    world.run(lambda: False)
    assert said == [("fast", 4), ("fast", 8), ("slow", 10), ("fast", 12), ("slow", 20), ("slow", 30)]


def test_a_queue_hands_over_and_a_wait_has_an_end() -> None:
    world, said, things = _world(), list[Any](), stand_ins.SimpleQueue()
    process = world.process("p")

    def give() -> None:
        stand_ins.sleep(7.0)
        things.put("thing")

    def take() -> None:
        said.append(things.get())
        with pytest.raises(queue.Empty):
            things.get(timeout=5.0)
        said.append(round(stand_ins.now()))

    world.start(process, take, "taker")
    world.start(process, give, "giver")
    world.run(lambda: False)
    assert said == ["thing", 12]


def test_only_one_has_a_lock() -> None:
    world, lock, inside, most = _world(), stand_ins.Lock(), list[int](), list[int]()
    process = world.process("p")

    def work(number: int) -> None:
        with lock:
            inside.append(number)
            most.append(len(inside))
            stand_ins.sleep(1.0)
            inside.remove(number)

    for number in range(5):
        world.start(process, partial(work, number), "worker")
    world.run(lambda: False)
    assert most == [1] * 5


def test_who_is_killed_does_nothing_more_and_who_sleeps_goes_on_later() -> None:
    world, said = _world(), list[Any]()
    dead, asleep = world.process("dead"), world.process("asleep")

    def say(name: str) -> None:
        try:
            stand_ins.sleep(1.0)
            said.append((name, round(stand_ins.now())))
        finally:
            stand_ins.sleep(1.0)
            said.append((name, "cleans up"))

    for process in (dead, asleep):
        world.start(process, partial(say, process.name), "main")
    world.at(0.5, lambda: world.kill(dead))
    world.at(0.5, lambda: setattr(asleep, "until", 60.0))
    world.run(lambda: False)
    world.end()
    assert said == [("asleep", 60), ("asleep", "cleans up")]


def test_a_world_without_an_end_is_an_error() -> None:
    world = _world()

    def spin() -> None:
        while True:
            stand_ins.sleep(0.0)

    world.start(world.process("p"), spin, "spinner")
    with pytest.raises(Endless):
        world.run(lambda: False)
    world.end()


def test_the_results_of_a_pool_are_in_order_and_its_errors_are_raised() -> None:
    world, said = _world(), list[Any]()

    def halve(number: int) -> int:
        stand_ins.sleep(float(10 - number))
        if number == 7:
            raise ValueError
        return number // 2

    def work() -> None:
        with stand_ins.ThreadPoolExecutor(3) as pool:
            said.append(list(pool.map(halve, [2, 4, 6])))
            failed = pool.submit(halve, 7)
        with pytest.raises(ValueError):
            failed.result()
        said.append("raised")

    world.start(world.process("p"), work, "main")
    world.run(lambda: False)
    assert said == [[1, 2, 3], "raised"]
