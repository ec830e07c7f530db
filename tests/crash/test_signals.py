"""Polite ends and rivals: SIGTERM and SIGINT at any time, once and twice; a tap asked to stop; two runs at once."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from .campaign import ORPHAN_SECONDS, RUN_SECONDS, Campaign
from .lakes import Bucket
from .oracle import check_bookmarks, check_temporary
from .orchestrator import Missed, Orchestrator
from .project import APPEND, NEW_RECORDS, TAP, Project

SEED = int(os.environ.get("SEED") or random.SystemRandom().randrange(10**6))
SIGNALS = int(os.environ.get("SIGNALS") or 40)
CODES = {signal.SIGTERM: 143, signal.SIGINT: 130}
AT_ONCE = 2.0
"""Seconds that a second signal may take on a machine with other things to do."""


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """Two append-only streams over an empty lake."""
    return Project(tmp_path / "project", APPEND)


@pytest.fixture
def bucket(request: pytest.FixtureRequest) -> Iterator[Bucket]:
    """An empty bucket of the S3 server."""
    server = request.getfixturevalue("s3")
    server.bucket("signals")
    bucket = Bucket("s3://signals/team", server.environ)
    yield bucket
    bucket.close()


def _last_said(project: Project) -> int:
    """Return how many records the tap had counted on stderr when it was stopped, over both streams."""
    folder = f"{project.meta}/logs"
    logs = sorted(name for name in project.lake.files(folder) if name.endswith(".log") and ".spark" not in name)
    text = (project.lake.read(f"{folder}/{logs[-1]}") or b"").decode()
    return int([line.split()[-2] for line in text.splitlines() if line.endswith(" records")][-1])


def _committed(project: Project) -> int:
    project.history.head()
    return sum(sum(project.history.live(stream).values()) for stream, _ in project.tables)


@pytest.mark.parametrize(
    ("send", "number", "code"),
    [
        (os.killpg, signal.SIGTERM, 143),
        pytest.param(os.killpg, signal.SIGHUP, 129, marks=pytest.mark.slow),
        pytest.param(os.kill, signal.SIGTERM, 143, marks=pytest.mark.slow),
        pytest.param(os.kill, signal.SIGINT, 130, marks=pytest.mark.slow),
    ],
)
def test_a_signal_ends_the_run_with_all_that_its_last_state_covers(
    project: Project, send: Callable[[int, int], None], number: signal.Signals, code: int
) -> None:
    """What the tap had said before the signal is committed, nobody lives on, the next run completes the lake.

    Also where the signal is to the whole process group, as a supervisor and a terminal that is closed send it.
    """
    with Orchestrator(project.folder) as run:
        run.wait_until(lambda: run.said)
        run.wait_for("jvm")
        send(run.process.pid, number)
        assert run.wait(RUN_SECONDS) == code, run.stderr
        assert run.survivors(ORPHAN_SECONDS) == []
        assert run.result["status"] == "interrupted"
    check_bookmarks(project)
    said, committed = _last_said(project), _committed(project)
    # a STATE follows every 50th record of a stream; what was in the pipe when we stopped reading is extracted again
    assert said - 300 <= committed <= said + 100
    assert 0 < committed < 2 * NEW_RECORDS
    assert project.needs_recovery(), "an interrupted run does not close its lease"
    Campaign(project).clean_run()


@pytest.mark.slow
def test_a_signal_to_all_its_processes(project: Project) -> None:
    """As systemd ends a service by default: tap, JVM and workers die of it, and the run was stopped, not failed."""
    with Orchestrator(project.folder) as run:
        run.wait_until(lambda: run.said)
        run.wait_for("jvm")
        for process in run.family():
            with suppress(psutil.NoSuchProcess):
                process.terminate()
        assert run.wait(RUN_SECONDS) == 143, run.stderr
        assert run.survivors(ORPHAN_SECONDS) == []
        assert run.result["status"] == "interrupted"
    check_bookmarks(project)
    Campaign(project).clean_run()


def test_a_second_ctrl_c_ends_it_now(project: Project) -> None:
    """The second SIGINT does not wait for anything, and still leaves no process; the lake is as after any crash."""
    with Orchestrator(project.folder) as run:
        run.wait_until(lambda: run.said)
        run.wait_for("jvm")
        run.process.send_signal(signal.SIGINT)
        time.sleep(0.2)  # two signals at once are one
        run.process.send_signal(signal.SIGINT)
        assert run.wait(AT_ONCE) == 130
        assert run.survivors(ORPHAN_SECONDS) == []
    check_bookmarks(project)
    Campaign(project).clean_run()


# at any time

Moment = Callable[[Orchestrator, Project], None]
"""Waits until the run is so far. Raises `Missed`."""


def _after(seconds: float) -> Moment:
    return lambda run, project: time.sleep(seconds)


def _discovering(run: Orchestrator, project: Project) -> None:
    run.wait_until(lambda: any("--discover" in line for line in run.survivors(0)))


def _extracting(run: Orchestrator, project: Project) -> None:
    run.wait_until(lambda: run.said)


def _starting_spark(run: Orchestrator, project: Project) -> None:
    run.wait_for("jvm")


def _writing(run: Orchestrator, project: Project) -> None:
    run.wait_until(project.pending, seconds=0.005)


def _committing(run: Orchestrator, project: Project) -> None:
    run.wait_until(lambda: run.said)
    head = project.history.head()
    run.wait_until(lambda: project.history.head() > head, seconds=0.002)


def _closing(run: Orchestrator, project: Project) -> None:
    state = project.next_state()
    run.wait_until(lambda: project.history.head() and project.history.state == state, seconds=0.01)


_MOMENTS: dict[str, Moment] = {
    "Python starts": _after(0.03),
    "imports": _after(0.3),
    "the tap's discovery": _discovering,
    "extracting": _extracting,
    "Spark starts": _starting_spark,
    "writing": _writing,
    "committing": _committing,
    "closing": _closing,
}


def _discovers(project: Project) -> None:
    """Have each run ask the tap for its catalog first, which takes a while."""
    tap = project.folder / "slow-to-discover"
    tap.write_text(f'#!/bin/sh\ncase "$*" in *--discover*) sleep 1;; esac\nexec {TAP} "$@"\n')
    tap.chmod(0o755)
    file = project.folder / "bridge.yaml"
    file.write_text(
        file.read_text().replace(f'"{TAP}"', f'"{tap}"').replace('"source": {', '"source": {"select": ["*"], ')
    )


def _interrupted(project: Project, moment: Moment, number: signal.Signals, *, twice: bool, pause_ms: int) -> str:
    """Run, send the signal at that moment, hold what must hold; return what came of it."""
    before = _committed(project)
    project.grow(pause_ms=pause_ms)
    with Orchestrator(project.folder, environ=project.environ, flags=("--refresh-catalog",)) as run:
        try:
            moment(run, project)
            said = run.said
            run.process.send_signal(number)
            if twice:
                time.sleep(0.2)
                run.process.send_signal(number)
        except Missed:
            said = 0
        code = run.wait(AT_ONCE if twice else RUN_SECONDS)
        assert run.survivors(ORPHAN_SECONDS) == []
        check_temporary(project)
        check_bookmarks(project)
        if code == 0:  # all was committed already
            assert run.result["status"] == "success"
            assert _committed(project) == before + 2 * project.added
            return "success"
        if _before_us(run, code, number):
            return f"exit {code}, before our own code"
        assert code == CODES[number], run.stderr
        assert "Traceback" not in run.stderr, run.stderr
        if twice:
            return f"exit {code}"
        if run.silent and not run.said:
            assert _committed(project) == before
            return f"exit {code}, before the run began"
        assert run.result["status"] == "interrupted", run.result
        # the tap had said so much before the signal, but for what no STATE covered yet or was still in the pipe
        assert _committed(project) - before >= said - 300
        return "interrupted"


def _before_us(run: Orchestrator, code: int, number: signal.Signals) -> bool:
    """Return whether Python was still starting, or importing: a signal ends it by itself.

    To a shell that is the same number. While Python imports `site` or `runpy`, Ctrl-C is an error of its own, exit 1.
    """
    starting = ("Failed to import the site module", "Could not import runpy module")
    return code == -number or (code == 1 and any(words in run.stderr for words in starting))


@pytest.mark.timeout(600)
@pytest.mark.parametrize("moments", [2, pytest.param(len(_MOMENTS), marks=pytest.mark.slow)])
def test_a_signal_may_come_at_any_moment(project: Project, moments: int) -> None:
    """From Python's first breath to the last commit, run after run: each ends as it should, the last is whole."""
    print(f"\nSEED={SEED}")
    rng = random.Random(SEED)
    _discovers(project)
    for name in rng.sample(list(_MOMENTS), moments):
        number, pause_ms = rng.choice(list(CODES)), 0 if name == "closing" else 120
        outcome = _interrupted(project, _MOMENTS[name], number, twice=False, pause_ms=pause_ms)
        print(name, number.name, outcome, flush=True)
    Campaign(project).clean_run()


def _sweep(project: Project, count: int) -> None:
    rng = random.Random(SEED)
    print(f"\nSEED={SEED}")
    _discovers(project)
    began = time.monotonic()
    Campaign(project).clean_run()
    life = time.monotonic() - began
    for _ in range(count):
        seconds, number, twice = rng.random() * life, rng.choice(list(CODES)), rng.random() < 0.3
        outcome = _interrupted(project, _after(seconds), number, twice=twice, pause_ms=rng.choice([0, 120]))
        print(f"{seconds:.2f} s, {number.name}{' twice' if twice else ''}: {outcome}", flush=True)
    Campaign(project).clean_run()


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_sweep_of_signals_over_a_run_s_whole_life(project: Project) -> None:
    """`SIGNALS` random moments, SIGTERM or SIGINT, a third of them twice."""
    _sweep(project, SIGNALS)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_sweep_of_signals_over_runs_into_s3(tmp_path: Path, bucket: Bucket) -> None:
    """The same with a third as many, the lake in a bucket."""
    _sweep(Project(tmp_path / "project", APPEND, bucket), -(-SIGNALS // 3))


# others


def test_a_tap_that_is_asked_to_stop_is_taken_at_its_word(project: Project) -> None:
    """A tap that answers SIGTERM with its STATE and exit 0 has ended well: that is committed, the rest comes later."""
    with Orchestrator(project.folder) as run:
        run.wait_until(lambda: run.said)
        run.wait_for("tap").terminate()
        assert run.wait(RUN_SECONDS) == 0, run.stderr
        assert run.survivors(ORPHAN_SECONDS) == []
    check_bookmarks(project)
    assert 0 < project.bookmark("orders")["replication_key_value"] < NEW_RECORDS
    Campaign(project).clean_run()


def test_the_second_of_two_runs_stops_at_once_and_names_the_first(project: Project) -> None:
    """Exit 4, who holds it, and no process left, while the first is still at work and does not notice."""
    state = project.next_state()
    with Orchestrator(project.folder) as first:
        first.wait_until(lambda: first.said)
        with Orchestrator(project.folder) as second:
            assert second.wait(RUN_SECONDS) == 4
            assert first.process.poll() is None
            error = second.result["error"]
            assert error["type"] == "PipelineHeld"
            assert f"pid={first.process.pid}" in error["message"]
            assert second.survivors(0) == []
        assert first.wait(RUN_SECONDS) == 0, first.stderr
        assert first.result["run_id"] in error["message"]
    check_bookmarks(project)
    assert project.history.state == state
