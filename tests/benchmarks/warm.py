"""What a small run takes cold and warm, and what waiting costs: `python -m tests.benchmarks.warm`.

By turns: the tap alone, `singer-bridge run` as a process, a run of the service that takes a warm runner, and DataSpoc
Pipe, all with the same tap and input, each into a lake of its own. Every run must store each record once. Times are
wall-clock medians. The exit code is 1 if a warm run misses its bar.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from bridge.serve.service.assignment import SparkSettings
from bridge.serve.service.current_settings import CurrentSettings
from bridge.serve.service.run_queue import RunQueue
from bridge.serve.service.runners import Runners
from bridge.serve.service.timetable import Timetable

from .bars import warm_bar
from .cli import HOME
from .inputs import prepare
from .ours import make_class_archive, search_path, tap_command
from .peers import DataSpoc
from .system import SMALL_RUN_RECORDS, Job, count_ids
from .venvs import NotInstalled

_CALM = 2.0
"""Seconds between two runs, so that the end of one is not the next one's."""


class _Quiet:
    """A log of the service that keeps what fails."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        if name in ("failed", "refused", "unreadable", "noted"):
            return lambda *facts: sys.exit(f"{name}: {facts}")
        return lambda *facts: None


class Small:
    """A project with one small pipeline."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.file = folder, folder / "bridge.yaml"
        self.tap, self.input = tap_command(), prepare(HOME / "input", SMALL_RUN_RECORDS)
        self.peer = DataSpoc(HOME / "venvs")
        config = {"path": str(self.input.singer)}
        source = {"tap": self.tap, "config": config}
        self.file.write_text(
            json.dumps(
                {"pipelines": {"small": {"source": source, "destination": {"bucket": "lake"}, "spark": {"small": 0}}}}
            )
        )
        (folder / "config.json").write_text(json.dumps(config))
        self.runners = Runners(folder / ".singer-bridge" / "warm", sys.exit)
        self.settings = CurrentSettings(self.file, None, lambda error, _: sys.exit(str(error)))
        home = folder / ".singer-bridge"
        self.queue = RunQueue(self.settings, Timetable(), self.runners, home, _Quiet(), lambda: None)

    def tap_alone(self) -> float:
        began = time.monotonic()
        subprocess.run([self.tap, "--config", "config.json"], cwd=self.folder, check=True, stdout=subprocess.DEVNULL)
        return time.monotonic() - began

    def cold(self) -> float:
        began = time.monotonic()
        subprocess.run([sys.executable, "-m", "bridge", "run", "small", "-q"], cwd=self.folder, check=True)
        return self._stored(time.monotonic() - began)

    def warm(self) -> float:
        self.warm_up()
        began = time.monotonic()
        self.queue.start("small")
        while not self.queue.is_empty:
            self.queue.dispatch()
            time.sleep(0.005)
        return self._stored(time.monotonic() - began)

    def dataspoc(self) -> float:
        job = Job(self.input, self.folder / "dataspoc")
        launch = self.peer.launch(job)
        began = time.monotonic()
        environ = os.environ | {"PATH": search_path()} | launch.environment
        subprocess.run(launch.command, env=environ, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        seconds = time.monotonic() - began
        rows = self.peer.rows(job)
        assert rows.count == rows.distinct == SMALL_RUN_RECORDS
        shutil.rmtree(job.out)
        time.sleep(_CALM)
        return seconds

    def warm_up(self) -> None:
        """Wait for a runner that is ready."""
        settings = [SparkSettings.of(self.settings.pipelines["small"])]
        while not any(runner.is_ready for runner in self.runners._ahead):
            self.runners.keep_warm(settings)
            time.sleep(0.2)
        time.sleep(_CALM)

    def _stored(self, seconds: float) -> float:
        lake = self.folder / "lake"
        rows = count_ids(sorted(lake.glob("small/*/*.parquet")))
        assert rows.count == rows.distinct == SMALL_RUN_RECORDS
        shutil.rmtree(lake)
        shutil.rmtree(self.folder / ".singer-bridge" / "lakes", ignore_errors=True)
        time.sleep(_CALM)
        return seconds

    def memory(self) -> dict[str, float]:
        """What the waiting processes need, in MB: pages that several share are counted once (PSS)."""
        self.warm_up()
        (runner,) = self.runners._ahead
        tree = [psutil.Process(runner.pid), *psutil.Process(runner.pid).children(recursive=True)]
        sizes: dict[str, float] = {}
        for process in tree:
            kind = "JVM" if "java" in process.name() else "runner" if process.pid == runner.pid else "workers"
            sizes[kind] = sizes.get(kind, 0.0) + process.memory_full_info().pss / 1e6
        return sizes


def _idle_service(small: Small) -> float:
    """What `serve` itself needs, without runners."""
    small.file.write_text(small.file.read_text().replace('{"pipelines"', '{"service": {"warm": 0}, "pipelines"'))
    service = subprocess.Popen([sys.executable, "-m", "bridge", "serve"], cwd=small.folder, stderr=subprocess.PIPE)
    assert service.stderr
    service.stderr.readline()
    time.sleep(_CALM)
    size = psutil.Process(service.pid).memory_full_info().pss / 1e6
    service.terminate()
    service.communicate()
    return size


def main() -> int:
    """Print a table, and whether a warm run is as fast as promised; 1 if it is not."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.warm", description=__doc__)
    parser.add_argument("--repeat", type=int, default=5, help="runs of each; times are their median")
    repeat = parser.parse_args().repeat
    with tempfile.TemporaryDirectory(prefix="bridge-warm-") as folder:
        small = Small(Path(folder))
        kinds = {"the tap alone": small.tap_alone, "cold": small.cold, "warm": small.warm}
        try:
            small.peer.prepare()
            kinds[small.peer.label] = small.dataspoc
        except NotInstalled as error:
            print(f"without DataSpoc Pipe: {error}")
        make_class_archive()
        times: dict[str, list[float]] = {kind: [] for kind in kinds}
        for run in kinds.values():
            run()  # byte code
        for _ in range(repeat):
            for kind, run in kinds.items():
                times[kind].append(run())
        tap = statistics.median(times["the tap alone"])
        for kind, seconds in times.items():
            middle = statistics.median(seconds)
            every: Any = " ".join(f"{each:.2f}" for each in seconds)
            print(f"{kind:19} {middle:6.2f} s   beyond the tap {middle - tap:5.2f} s   [{every}]")
        memory = small.memory()
        small.runners.close()
        print("idle:", ", ".join(f"{kind} {size:.0f} MB" for kind, size in memory.items()), end=", ")
        print(f"the service itself {_idle_service(small):.0f} MB")
        bar = warm_bar(tap, statistics.median(times["warm"]))
        print(f"{'passed' if bar.passed else 'FAILED'}: {bar.title}: {bar.figures}")
        return 0 if bar.passed else 1


if __name__ == "__main__":
    sys.exit(main())
