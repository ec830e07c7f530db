"""A standalone Spark cluster, as docker-compose.yml starts one: a master, two workers, a shared lake and spool."""

from __future__ import annotations

import json
import os
import queue
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pyarrow.dataset as ds
import pytest

STARTS_WITHIN_SECONDS = 60
RUN_SECONDS = 240
RECORDS = {"orders": 30_000, "users": 5_000}

# Three JVMs and, for each run, three more: a minute on a small machine.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(3 * RUN_SECONDS)]

BRIDGE_YAML = """\
pipelines:
  smoke:
    source:
      tap: [{python}, -m, tap_smoke]
      config: {config}
    destination: {{bucket: lake}}
    commit: {{bytes: 1MiB}}
    spool: {{dir: spool, max_bytes: 3MiB}}
    spark:
      master: {master}
      conf: {{spark.executor.memory: 512m, spark.driver.host: 127.0.0.1}}
"""


@dataclass(frozen=True)
class Cluster:
    """A running cluster: where drivers find it, and its workers' processes."""

    master: str
    workers: list[Daemon]


class Daemon:
    """A process of the cluster whose log lines can be waited for."""

    def __init__(self, folder: Path, *words: str) -> None:
        binaries = Path(sys.executable).parent
        environ = os.environ | {
            "PYSPARK_PYTHON": sys.executable,  # finds Spark's folder; what executors start is the driver's to say
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_LOCAL_DIRS": str(folder),
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
        self.process = subprocess.Popen(
            [str(binaries / "spark-class"), *words],
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._lines: queue.Queue[str | None] = queue.Queue()
        threading.Thread(target=self._drain, daemon=True).start()

    def _drain(self) -> None:
        assert self.process.stderr is not None
        with self.process.stderr as lines:
            for line in lines:
                self._lines.put(line)
        self._lines.put(None)

    def said(self, pattern: str) -> str:
        """Wait for a line that matches; return its first group."""
        deadline, seen = time.monotonic() + STARTS_WITHIN_SECONDS, []
        while (line := self._lines.get(timeout=max(0.0, deadline - time.monotonic()))) is not None:
            seen.append(line)
            if match := re.search(pattern, line):
                return match[1]
        raise AssertionError(f"it ended without saying {pattern!r}:\n{''.join(seen)}")

    def kill(self) -> None:
        """SIGKILL it and all it started, executors and their Python workers, as if the machine were lost."""
        if self.process.poll() is None:
            leader = psutil.Process(self.process.pid)
            for member in [*leader.children(recursive=True), leader]:
                with suppress(psutil.NoSuchProcess):
                    member.kill()
        self.process.wait()


@contextmanager
def _daemon(folder: Path, *words: str) -> Iterator[Daemon]:
    """Run a daemon for the block; its children, executors with their Python workers, end with it."""
    daemon = Daemon(folder, *words)
    try:
        yield daemon
    finally:
        daemon.kill()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A master and two workers of one core each, on loopback, on ports that are free."""
    folder = tmp_path_factory.mktemp("cluster")
    local = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
    with ExitStack() as stack:
        master = stack.enter_context(_daemon(folder, "org.apache.spark.deploy.master.Master", *local))
        url = master.said(r"Starting Spark master at (spark://\S+)")
        sizes = ("--cores", "1", "--memory", "512m")
        workers = [
            stack.enter_context(
                _daemon(
                    folder,
                    "org.apache.spark.deploy.worker.Worker",
                    *local,
                    *sizes,
                    "--work-dir",
                    str(folder / str(number)),
                    url,
                )
            )
            for number in (1, 2)
        ]
        for worker in workers:
            worker.said(r"(Successfully registered) with master")
        yield Cluster(url, workers)


class Job:
    """A pipeline in a folder of its own, run on the cluster."""

    def __init__(self, folder: Path, cluster: Cluster, **config: Any) -> None:
        self.folder = folder
        yaml = BRIDGE_YAML.format(python=sys.executable, config=json.dumps(config), master=cluster.master)
        (folder / "bridge.yaml").write_text(yaml)

    def start(self) -> subprocess.Popen[str]:
        """Start a run; its result will be on stdout."""
        return subprocess.Popen(
            [sys.executable, "-m", "bridge", "run", "smoke", "--json"],
            cwd=self.folder,
            env=os.environ | {"PYSPARK_PYTHON": sys.executable},  # the Python that executors start; bridge is in it
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def records(self, run: subprocess.Popen[str]) -> dict[str, int]:
        """Wait for a run's success; return the records that it loaded of each stream."""
        stdout, stderr = run.communicate(timeout=RUN_SECONDS)
        assert run.returncode == 0, stdout + stderr
        return {name: stream["records"] for name, stream in json.loads(stdout)["streams"].items()}

    def ids(self, stream: str) -> list[int]:
        """The numbers of a stream's records in the lake, sorted."""
        table = ds.dataset(self.folder / "lake" / "smoke" / stream, format="parquet").to_table(columns=["id"])
        return sorted(table["id"].to_pylist())

    def committed(self) -> bool:
        """Whether rows of it are visible already."""
        return any((self.folder / "lake" / "smoke").glob("*/*.parquet"))


def _streams(more: int = 0) -> list[dict[str, Any]]:
    """Some 20 MB, many times what the spool takes: when the first rows are committed, most are still in the tap."""
    return [{"name": name, "records": records + more, "wide": 400} for name, records in RECORDS.items()]


def test_a_cluster_loads_each_record_once(tmp_path: Path, cluster: Cluster) -> None:
    """Driver and executors meet in lake and spool alone; two runs, the second resumed, hold every record once."""
    job = Job(tmp_path, cluster, streams=_streams(), state={"every": 1000})
    assert job.records(job.start()) == RECORDS
    job = Job(tmp_path, cluster, streams=_streams(more=100), state={"every": 1000})
    assert job.records(job.start()) == dict.fromkeys(RECORDS, 100)
    for name, records in RECORDS.items():
        assert job.ids(name) == list(range(1, records + 101))


def test_a_lost_worker_costs_no_row(tmp_path: Path, cluster: Cluster) -> None:
    """A machine that goes away in the middle of a run leaves its work to the other; no record is lost or doubled."""
    job = Job(tmp_path, cluster, streams=_streams(), state={"every": 1000})
    with job.start() as run:
        while run.poll() is None and not job.committed():
            time.sleep(0.05)  # nothing tells of a commit but the lake
        assert run.poll() is None, "the worker was to be lost in the middle"
        cluster.workers.pop().kill()
        assert job.records(run) == RECORDS
    for name, records in RECORDS.items():
        assert job.ids(name) == list(range(1, records + 1))
