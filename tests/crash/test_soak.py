"""For as long as it takes: a run that never ends, runs that are killed again and again, a tap faster than its sink."""

from __future__ import annotations

import os
import random
import signal
import statistics
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path

import psutil
import pytest

from .campaign import CLEAN_EVERY, ORPHAN_SECONDS, RUN_SECONDS, Campaign, plan
from .oracle import check_bookmarks, check_clean, check_temporary
from .orchestrator import Orchestrator
from .project import APPEND, MIXED, Project, Shape

SEED = int(os.environ.get("SEED") or random.SystemRandom().randrange(10**6))
MINUTES = float(os.environ.get("SOAK_MINUTES") or 30)

_WARM = min(5.0, MINUTES / 3) * 60
"""Seconds until a run is as large as it should stay."""
_SAMPLE_SECONDS = 2.0
_ENDLESS = Shape(
    "endless", "append-only", {s: {**kind, "wide": 200} for s, kind in APPEND.streams.items()}, interleave=True
)


@dataclass(frozen=True)
class Sample:
    """A run at one moment. RSS in MiB; files are those of the spool, the temporary folder, the pending folder."""

    seconds: float
    rss: float
    descriptors: int
    threads: int
    jvm_rss: float
    workers_rss: float
    spool: int
    temporary: int
    pending: int
    checkpoint: int


def _sample(run: Orchestrator, project: Project, began: float) -> Sample:
    bridge, jvm = psutil.Process(run.process.pid), run.find("jvm")
    local = project.folder / ".singer-bridge"
    return Sample(
        time.monotonic() - began,
        bridge.memory_info().rss / 2**20,
        bridge.num_fds(),
        bridge.num_threads(),
        jvm.memory_info().rss / 2**20 if jvm else 0.0,
        sum(_worker_rss(process) for process in run.family()) / 2**20,
        _count(local / "spool"),
        _count(project.folder / "tmp"),
        len(project.lake.files(f"{project.meta}/pending")),
        _count(local / "checkpoint"),
    )


def _worker_rss(process: psutil.Process) -> int:
    with suppress(psutil.NoSuchProcess):  # it ends while we look
        if "pyspark.worker" in process.cmdline():
            return int(process.memory_info().rss)
    return 0


def _count(folder: Path) -> int:
    return sum(len(names) for _, _, names in os.walk(folder))


def _middle(samples: list[Sample], since: float, until: float) -> Sample:
    """Return the median of each figure between two moments."""
    chosen = [sample for sample in samples if since <= sample.seconds < until]
    return Sample(*(statistics.median(getattr(sample, field.name) for sample in chosen) for field in fields(Sample)))


def _kill_a_worker(run: Orchestrator) -> int:
    """Kill one of Spark's Python workers, if there is one; how many?"""
    victim = run.find("worker")
    if victim is None:
        return 0
    with suppress(psutil.NoSuchProcess):
        victim.kill()
    return 1


@pytest.mark.slow
@pytest.mark.timeout(MINUTES * 60 + 1200)
def test_a_run_that_goes_on_and_on_stays_as_large_as_it_was(tmp_path: Path) -> None:
    """Commits every few seconds, workers killed now and then, other runs killed beside it: no leak, every row once."""
    print(f"\nSEED={SEED} SOAK_MINUTES={MINUTES:g}")
    project = Project(tmp_path / "endless", _ENDLESS, added=10**9, commit={"every": "3s"})
    project.grow(pause_ms=500)
    samples: list[Sample] = []
    with _Siege(tmp_path / "siege") as siege, Orchestrator(project.folder) as run:
        killed = _accompany(run, project, samples)
        run.process.send_signal(signal.SIGTERM)
        assert run.wait(RUN_SECONDS) == 143, run.stderr
        assert run.survivors(ORPHAN_SECONDS) == []
    window = MINUTES * 60 / 10
    first, last = _middle(samples, _WARM, _WARM + window), _middle(samples, MINUTES * 60 - window, MINUTES * 60 + 60)
    print(f"after {_WARM:.0f} s: {first}\nat the end:  {last}")
    print(f"{project.history.head()} commits, {killed} workers killed; beside it {len(siege.campaign.findings)} kills")
    assert killed > 0
    assert last.rss <= 1.1 * first.rss
    assert last.descriptors <= first.descriptors + 2
    assert last.threads <= first.threads + 2
    assert last.temporary <= first.temporary
    assert last.spool <= first.spool + 4  # segments under way
    assert last.pending <= first.pending + killed + 4  # what a killed worker had begun is the next run's to abort
    check_bookmarks(project)
    check_temporary(project)
    project.added = 300
    Campaign(project).clean_run()


def _accompany(run: Orchestrator, project: Project, samples: list[Sample]) -> int:
    """Take samples, and kill a worker now and then, for as long as it takes; how many were killed?"""
    rng, killed = random.Random(SEED), 0
    run.wait_until(project.history.head)
    began = next_kill = time.monotonic()
    while (now := time.monotonic()) - began < MINUTES * 60:
        assert run.process.poll() is None, run.stderr
        samples.append(_sample(run, project, began))
        if now > next_kill:
            killed += _kill_a_worker(run)
            next_kill = now + rng.uniform(20, 60)
        time.sleep(_SAMPLE_SECONDS)
    return killed


class _Siege(threading.Thread):
    """Runs on a lake of their own that are killed, one after the other, while the context is open."""

    def __init__(self, folder: Path) -> None:
        super().__init__(name="siege")
        self.campaign = Campaign(Project(folder, MIXED, added=300))
        self._over = threading.Event()
        self._error: BaseException | None = None
        self._left: list[int] = []

    def __enter__(self) -> _Siege:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._over.set()
        self.join()
        if kind is None:
            if self._error:
                raise self._error
            assert self._left == sorted(self._left, reverse=True), f"temporary files pile up: {self._left}"

    def run(self) -> None:
        """Kill until it is time."""
        try:
            with self.campaign as campaign:
                campaign.clean_run(measure=True)
                for kill in plan(f"{SEED} soak", 10**4):
                    if self._over.is_set():
                        break
                    campaign.kill(kill)
                    if len(campaign.findings) % CLEAN_EVERY == 0:
                        campaign.clean_run()
                        self._left.append(_count(campaign.project.folder / "tmp"))
                campaign.clean_run()
        except BaseException as error:
            self._error = error


# a tap faster than its sink

LIMIT = 8 << 20
"""Bytes of `spool.max_bytes`."""


class _Gauge:
    """The largest that a folder and a process have been, looked at all the time."""

    def __init__(self, run: Orchestrator) -> None:
        self._run = run
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, name="gauge")
        self.spool = self.looks = 0
        self.rss = 0.0

    def __enter__(self) -> _Gauge:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        bridge = psutil.Process(self._run.process.pid)
        while not self._over.wait(0.005):
            if folder := self._run.scratch:
                self.spool = max(self.spool, _bytes(folder / "data" / "segments"))
                self.looks += 1
            with suppress(psutil.NoSuchProcess):
                self.rss = max(self.rss, bridge.memory_info().rss / 2**20)


def _bytes(folder: Path) -> int:
    total = 0
    with suppress(FileNotFoundError):
        for entry in os.scandir(folder):
            with suppress(FileNotFoundError):
                total += entry.stat().st_size
    return total


def _stand_still(run: Orchestrator, seconds: float, looked: Callable[[], None]) -> None:
    """Have the JVM do nothing for a while."""
    jvm = run.wait_for("jvm")
    jvm.suspend()
    try:
        time.sleep(seconds / 2)
        looked()
        time.sleep(seconds / 2)
    finally:
        jvm.resume()


@pytest.mark.timeout(300)
def test_a_tap_faster_than_its_sink_waits_and_the_spool_keeps_its_limit(tmp_path: Path) -> None:
    """The tap sends as fast as it can, Spark stands still now and then: disk and memory are bounded, no row is lost."""
    shape = Shape("flood", "append-only", {"flood": {"replication_method": "INCREMENTAL", "wide": 2000}})
    settings = {"commit": {"every": "1s", "bytes": "2MiB"}, "spool": {"max_bytes": f"{LIMIT >> 20}MiB"}}
    project = Project(tmp_path / "project", shape, added=15_000, **settings)
    project.grow(pause_ms=0)
    state = project.next_state()
    said: list[int] = []
    with Orchestrator(project.folder) as run:
        run.wait_until(lambda: run.said)
        with _Gauge(run) as gauge:
            run.wait_until(project.pending, seconds=0.01)
            _stand_still(run, 3.0, lambda: said.append(run.said))
            said.append(run.said)
            assert run.wait(RUN_SECONDS) == 0, run.stderr
        assert run.survivors(ORPHAN_SECONDS) == []
    print(f"spool at most {gauge.spool:,} bytes in {gauge.looks} looks, orchestrator at most {gauge.rss:.0f} MiB")
    assert LIMIT / 2 < gauge.spool <= LIMIT
    assert said[0] == said[1] < 15_000, "the tap was not kept waiting"
    assert gauge.rss < 300
    check_clean(project, state)
