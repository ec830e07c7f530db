"""Runs on a standalone Spark cluster; its executors' Python has what `bridge` needs, and no `bridge`."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest

from tests.cluster import EXECUTORS_NEED, Cluster, make_venv, running_cluster

RUN_SECONDS = 240
RECORDS = {"orders": 30_000, "users": 5_000}

pytestmark = pytest.mark.timeout(3 * RUN_SECONDS)

SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "10ms",
    "spark.speculation.multiplier": "1.01",
    "spark.speculation.quantile": "0.1",
}


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The executors' Python: what the documentation asks for, and no `bridge`."""
    return make_venv(tmp_path_factory.mktemp("executors") / "venv", *EXECUTORS_NEED)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, python: Path) -> Iterator[Cluster]:
    with running_cluster(tmp_path_factory.mktemp("cluster"), python=python) as cluster:
        yield cluster


class Job:
    """A pipeline in a folder of its own, run on the cluster."""

    def __init__(
        self, folder: Path, cluster: Cluster, *, more: int = 0, python: Path | None = None, **conf: str
    ) -> None:
        cluster.grow(2)
        self.folder = folder
        # Some 20 MB, many times what the spool takes: when the first rows are committed, most are still in the tap.
        streams = [{"name": name, "records": count + more, "wide": 400} for name, count in RECORDS.items()]
        tap = {"tap": [sys.executable, "-m", "tap_smoke"], "config": {"streams": streams, "state": {"every": 1000}}}
        ours = {"spark.executor.memory": "512m", "spark.driver.host": "127.0.0.1"}
        self.pipeline: dict[str, Any] = {
            "source": tap,
            "destination": {"bucket": "lake"},
            "commit": {"bytes": "1MiB"},
            "spool": {"dir": "spool", "max_bytes": "3MiB"},
            "spark": {
                "master": cluster.master,
                "conf": {**ours, "spark.pyspark.python": str(python or cluster.python), **conf},
            },
        }

    def start(self) -> subprocess.Popen[str]:
        """Start a run; its result will be on stdout."""
        (self.folder / "bridge.yaml").write_text(json.dumps({"pipelines": {"smoke": self.pipeline}}))
        words = [sys.executable, "-m", "bridge", "run", "smoke", "--json"]
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.Popen(words, cwd=self.folder, text=True, **streams)

    def records(self, run: subprocess.Popen[str]) -> dict[str, int]:
        """Wait for a run's success; return the records that it loaded of each stream."""
        stdout, stderr = run.communicate(timeout=RUN_SECONDS)
        assert run.returncode == 0, stdout + stderr
        return {name: stream["records"] for name, stream in json.loads(stdout)["streams"].items()}

    def error(self) -> dict[str, str]:
        """Run to a failure; return what went wrong."""
        with self.start() as run:
            stdout, stderr = run.communicate(timeout=RUN_SECONDS)
        assert run.returncode == 1, stdout + stderr
        return json.loads(stdout)["error"]

    def ids(self, stream: str) -> list[int]:
        """The numbers of a stream's records in the lake, sorted."""
        table = ds.dataset(self.folder / "lake" / "smoke" / stream, format="parquet").to_table(columns=["id"])
        return sorted(table["id"].to_pylist())

    def exact(self, more: int = 0) -> bool:
        """Whether the lake holds each record once."""
        return all(self.ids(name) == list(range(1, count + more + 1)) for name, count in RECORDS.items())

    def committed(self) -> bool:
        """Whether rows of it are visible already."""
        return any((self.folder / "lake" / "smoke").glob("*/*.parquet"))


def _until(happened: Callable[[], Any], run: subprocess.Popen[str]) -> Any:
    """Wait for something that a run does, without which it must not end."""
    while run.poll() is None and not happened():
        time.sleep(0.05)  # nothing tells of it but the lake and the process table
    assert run.poll() is None, run.communicate()
    return happened()


@pytest.mark.slow
def test_a_cluster_loads_each_record_once(tmp_path: Path, cluster: Cluster) -> None:
    """Driver and executors meet in lake and spool alone; two runs, the second resumed, hold every record once."""
    job = Job(tmp_path, cluster)
    assert job.records(job.start()) == RECORDS
    job = Job(tmp_path, cluster, more=100)
    assert job.records(job.start()) == dict.fromkeys(RECORDS, 100)
    assert job.exact(more=100)


@pytest.mark.slow
def test_a_lost_worker_costs_no_row(tmp_path: Path, cluster: Cluster) -> None:
    """A machine that goes away in the middle of a run leaves its work to the other; no record is lost or doubled."""
    job = Job(tmp_path, cluster)
    with job.start() as run:
        _until(job.committed, run)
        cluster.lose_worker()
        assert job.records(run) == RECORDS
    assert job.exact()


@pytest.mark.slow
def test_what_an_executor_lacks_is_said_in_one_line(tmp_path: Path, cluster: Cluster) -> None:
    """A Python that is not there, is another one, lacks a package or has a `bridge` of its own: each is named."""
    job = Job(tmp_path, cluster, python=tmp_path / "none" / "python")
    error = job.error()
    assert error["message"].startswith("an executor has no such Python host=127.0.0."), error

    error = Job(tmp_path, cluster, python=make_venv(tmp_path / "bare")).error()
    assert error["message"].startswith("an executor lacks a package host=127.0.0."), error
    assert "package=pyarrow" in error["message"].lower()

    old = make_venv(tmp_path / "old", "pyarrow")
    error = Job(tmp_path, cluster, python=old).error()
    assert error["message"].endswith("package=orjson"), error

    (site,) = old.parents[1].glob("lib/python*/site-packages")
    (site / "bridge").mkdir()
    (site / "bridge" / "__init__.py").write_text("__version__ = '0.0.1'")
    (site / "early.pth").write_text("import bridge")
    error = Job(tmp_path, cluster, python=old).error()
    assert "another singer-bridge" in error["message"], error
    assert f"there=0.0.1 at {site}/bridge/__init__.py" in error["message"], error


@pytest.mark.slow
def test_another_minor_version_is_said_in_one_line(tmp_path: Path, cluster: Cluster) -> None:
    """Pickled code runs in no other Python than the driver's."""
    others = (shutil.which(f"python3.{minor}") for minor in range(10, 15) if minor != sys.version_info.minor)
    usable = (path for path in others if path and subprocess.run([path, "-V"], capture_output=True).returncode == 0)
    if not (other := next(usable, None)):
        pytest.skip("this machine has one Python only")
    error = Job(tmp_path, cluster, python=Path(other)).error()
    assert error["message"].startswith("an executor has another Python host=127.0.0."), error
    assert f"here=3.{sys.version_info.minor}" in error["message"], error
