"""Runs on a standalone Spark cluster; its executors' Python has what `bridge` needs, and no `bridge`."""

from __future__ import annotations

import io
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from bridge.load.spark.session import Session
from tests.support.cluster import EXECUTORS_NEED, Cluster, can_hide, make_venv, running_cluster
from tests.support.s3server import S3Server
from tests.support.view_oracle import check_commits

ROOT = Path(__file__).parents[2]
RUN_SECONDS = 300
RECORDS = {"orders": 24_000, "users": 4_000}

pytestmark = pytest.mark.timeout(4 * RUN_SECONDS)

SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "10ms",
    "spark.speculation.multiplier": "1.01",
    "spark.speculation.quantile": "0.1",
}
PENDING = "PUT /[^/]+/team/.bridge/smoke/pending/"


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The executors' Python: what the documentation asks for, and no `bridge`."""
    return make_venv(tmp_path_factory.mktemp("executors") / "venv", *EXECUTORS_NEED)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, python: Path) -> Iterator[Cluster]:
    with running_cluster(tmp_path_factory.mktemp("cluster"), python=python) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def old_spark(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python with this very project and the oldest pyspark."""
    folder = tmp_path_factory.mktemp("spark-4.0") / "venv"
    return make_venv(folder, "pyspark==4.0.1", "--editable", str(ROOT), "numpy", "pandas", *EXECUTORS_NEED)


class Job:
    """A pipeline in a folder of its own, run on the cluster by the `driver`'s Python."""

    def __init__(self, folder: Path, cluster: Cluster | None = None, *, driver: Path = Path(sys.executable)) -> None:
        self.folder, self.driver = folder, driver
        self.conf = {"spark.executor.memory": "512m", "spark.driver.host": "127.0.0.1"}
        self.pipeline: dict[str, Any] = {
            "source": {"tap": [str(driver), "-m", "tap_smoke"]},
            "destination": {"bucket": "lake"},
            "commit": {"bytes": "3MiB"},
            "spool": {"dir": "spool", "max_bytes": "9MiB"},
            "spark": {"conf": self.conf},
        }
        self.tap()
        if cluster:
            cluster.grow(2)
            self.pipeline["spark"]["master"] = cluster.master
            self.conf["spark.pyspark.python"] = str(cluster.python)

    def tap(self, *, times: int = 1, more: int = 0) -> None:
        """Have the tap send so many records: more than the spool takes at once."""
        streams = [{"name": name, "records": count * times + more, "wide": 400} for name, count in RECORDS.items()]
        self.pipeline["source"]["config"] = {"streams": streams, "state": {"every": 1000}}

    def start(self) -> subprocess.Popen[str]:
        """Start a run; its result will be on stdout."""
        (self.folder / "bridge.yaml").write_text(json.dumps({"pipelines": {"smoke": self.pipeline}}))
        words = [str(self.driver), "-m", "bridge", "run", "smoke", "--json"]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.Popen(words, cwd=self.folder, text=True, **pipes)

    def records(self, run: subprocess.Popen[str]) -> dict[str, int]:
        """Wait for a run's success; return the records that it loaded of each stream."""
        stdout, stderr = run.communicate(timeout=RUN_SECONDS)
        assert run.returncode == 0, stdout + stderr
        return {name: stream["records"] for name, stream in json.loads(stdout)["streams"].items()}

    def error(self) -> str:
        """Run to a failure; return what went wrong."""
        with self.start() as run:
            stdout, stderr = run.communicate(timeout=RUN_SECONDS)
        assert run.returncode == 1, stdout + stderr
        return str(json.loads(stdout)["error"]["message"])

    def ids(self, stream: str) -> list[int]:
        """The numbers of a stream's records in the lake, sorted."""
        table = ds.dataset(self.folder / "lake" / "smoke" / stream, format="parquet").to_table(columns=["id"])
        return sorted(table["id"].to_pylist())

    def exact(self, *, times: int = 1, more: int = 0) -> bool:
        """Whether the lake holds each record once."""
        return all(self.ids(name) == list(range(1, n * times + more + 1)) for name, n in RECORDS.items())

    def committed(self) -> bool:
        """Whether rows of it are visible already."""
        return any((self.folder / "lake" / "smoke").glob("*/*.parquet"))


class S3Job(Job):
    """The same into a bucket. Only the driver's environment has the keys; executors get them as the manual says."""

    def __init__(self, folder: Path, cluster: Cluster, s3: S3Server, name: str) -> None:
        super().__init__(folder, cluster)
        self._client, self._bucket = s3.client(), s3.bucket(name)
        self.pipeline["destination"] |= {"bucket": f"s3://{name}/team", "s3": {"endpoint_url": s3.endpoint}}
        self.conf |= {f"spark.executorEnv.{key}": value for key, value in s3.environ.items()}

    def keys(self, prefix: str) -> list[str]:
        pages = self._client.get_paginator("list_objects_v2").paginate(Bucket=self._bucket, Prefix=f"team/{prefix}")
        return [found["Key"] for page in pages for found in page.get("Contents", ())]

    def ids(self, stream: str) -> list[int]:
        found: list[int] = []
        for key in self.keys(f"smoke/{stream}/"):
            whole = self._client.get_object(Bucket=self._bucket, Key=key)["Body"].read()
            found += pq.read_table(io.BytesIO(whole), columns=["id"])["id"].to_pylist()
        return sorted(found)

    def committed(self) -> bool:
        return bool(self.keys("smoke/"))

    def pending(self) -> list[str]:
        """What is neither visible nor gone."""
        uploads = self._client.list_multipart_uploads(Bucket=self._bucket).get("Uploads", ())
        return self.keys(".bridge/smoke/pending/") + [upload["Key"] for upload in uploads]


def _until(happened: Callable[[], Any], run: subprocess.Popen[str]) -> None:
    """Wait for something that a run does, and must do before it ends."""
    while run.poll() is None and not happened():
        time.sleep(0.05)  # nothing tells of it but the lake
    assert run.poll() is None, run.communicate()


def _second_attempts(events: Path) -> int:
    """How many tasks a run of Spark started that another host had already."""
    (log,) = (path for path in events.rglob("*") if path.is_file() and not path.name.startswith("."))
    starts = (json.loads(line) for line in log.read_text().splitlines() if "SparkListenerTaskStart" in line)
    return sum(start["Task Info"]["Speculative"] for start in starts)


@pytest.mark.slow
def test_slow_tasks_and_a_lost_worker_cost_no_row(tmp_path: Path, cluster: Cluster, s3: S3Server) -> None:
    """Of a task done twice one attempt counts, a lost machine's work is done by the other; the next run cleans up.

    The store keeps a writer waiting for its answer: that is what makes a task slow, and a batch last until its
    worker is killed.
    """
    job = S3Job(tmp_path, cluster, s3, "cluster")
    events = tmp_path / "events"
    events.mkdir()
    logged = {"enabled": "true", "dir": events.as_uri(), "rolling.enabled": "false", "compress": "false"}
    job.conf |= SPECULATION | {f"spark.eventLog.{key}": value for key, value in logged.items()}
    s3.fault("hold", PENDING, times=1)
    with job.start() as run:
        _until(s3.held, run)
        _until(job.committed, run)  # without that writer: somebody else did its work
        s3.clear()
        s3.fault("hold", PENDING, times=1)
        _until(s3.held, run)
        cluster.lose_worker()
        s3.clear()
        assert job.records(run) == RECORDS
    assert _second_attempts(events) > 0
    assert job.exact()
    assert job.pending() != []  # of the attempts that did not count

    job.tap(more=100)
    job.pipeline["spark"] = {"master": "local[2]"}
    assert job.records(job.start()) == dict.fromkeys(RECORDS, 100)
    assert job.exact(more=100)
    assert job.pending() == []


@pytest.mark.slow
def test_a_lost_executor_costs_no_row(tmp_path: Path, cluster: Cluster, s3: S3Server) -> None:
    """An executor that dies in the middle of large files is replaced, and its unfinished uploads are never seen."""
    job = S3Job(tmp_path, cluster, s3, "executor")
    job.tap(times=8)
    job.pipeline["destination"]["compression"] = "none"
    job.pipeline |= {"commit": {"bytes": "90MiB"}, "spool": {"dir": "spool", "max_bytes": "200MiB"}}
    s3.fault("hold", r"uploadId=.*partNumber=|partNumber=.*uploadId=", times=1)
    with job.start() as run:
        _until(s3.held, run)
        for worker in cluster.workers:
            for executor in worker.family("CoarseGrainedExecutorBackend")[:1]:
                executor.kill()
                break
        s3.clear()
        assert job.records(run) == {name: count * 8 for name, count in RECORDS.items()}
    assert job.exact(times=8)


@pytest.mark.slow
def test_a_cluster_loads_each_record_once(tmp_path: Path, cluster: Cluster) -> None:
    """Driver and executors meet in lake and spool alone; two runs, the second resumed, hold every record once."""
    job = Job(tmp_path, cluster)
    assert job.records(job.start()) == RECORDS
    job.tap(more=100)
    assert job.records(job.start()) == dict.fromkeys(RECORDS, 100)
    assert job.exact(more=100)


@pytest.mark.slow
def test_a_cluster_keeps_views(tmp_path: Path, cluster: Cluster) -> None:
    """Executors without `bridge` fill them from a table and add to them; each is its SELECT at each commit."""
    job = Job(tmp_path, cluster)
    assert job.records(job.start()) == RECORDS
    text = "SELECT id % 7 AS part, count(*) AS n, sum(id) AS total, max(id) AS last FROM {} GROUP BY part"
    job.pipeline["views"] = {f"{name}_by_part": text.format(name) for name in RECORDS}
    job.tap(more=100)
    assert job.records(job.start()) == dict.fromkeys(RECORDS, 100)
    assert job.exact(more=100)
    compared = check_commits(str(tmp_path / "lake"), "smoke")
    assert all(compared[view] > 1 for view in job.pipeline["views"])


@pytest.mark.slow
def test_a_cluster_needs_no_shared_folder(tmp_path: Path, python: Path, s3: S3Server) -> None:
    """Without `spool.dir` driver and executors meet in the bucket alone: rows, upserts, SQL and views get there."""
    project = tmp_path / "project"
    project.mkdir()
    if not can_hide(project):
        pytest.skip("only root may give a process its own view of the files")
    with running_cluster(tmp_path, python=python) as cluster:
        cluster.grow(2, hidden=project)
        job = S3Job(project, cluster, s3, "unshared")
        del job.pipeline["spool"]["dir"]
        job.pipeline["streams"] = {"orders": {"transform": "SELECT * FROM stream"}, "users": {"load_method": "upsert"}}
        text = "SELECT id % 7 AS part, count(*) AS n, sum(id) AS total, max(id) AS last FROM {} GROUP BY part"
        job.pipeline["views"] = {f"{name}_by_part": text.format(name) for name in RECORDS}
        assert job.records(job.start()) == RECORDS
        job.tap(more=100)
        assert job.records(job.start()) == dict.fromkeys(RECORDS, 100)
    assert job.exact(more=100)
    compared = check_commits("s3://unshared/team", "smoke")
    assert all(compared[view] > 1 for view in job.pipeline["views"])
    assert job.pending() == []


@pytest.mark.slow
def test_a_worker_lost_from_a_shared_folder_costs_no_row(tmp_path: Path, cluster: Cluster) -> None:
    """A machine that goes away in the middle of a run leaves its work to the other; no record is lost or doubled."""
    job = Job(tmp_path, cluster)
    with job.start() as run:
        _until(job.committed, run)
        cluster.lose_worker()
        assert job.records(run) == RECORDS
    assert job.exact()


@pytest.mark.slow
def test_what_an_executor_lacks_is_said_in_one_line(tmp_path: Path, cluster: Cluster) -> None:
    """A Python that is not there, lacks a package or has a `bridge` of its own: each is named, with the host."""
    job = Job(tmp_path, cluster)
    job.conf["spark.pyspark.python"] = "/none/python"
    assert job.error().startswith("an executor has no such Python host=127.0.0."), job.error()

    job.conf["spark.pyspark.python"] = str(make_venv(tmp_path / "bare"))
    error = job.error()
    assert error.startswith("an executor lacks a package host=127.0.0."), error
    assert "package=pyarrow" in error.lower(), error

    python = make_venv(tmp_path / "old", "pyarrow")
    job.conf["spark.pyspark.python"] = str(python)
    assert job.error().endswith("package=orjson"), job.error()

    (site,) = python.parents[1].glob("lib/python*/site-packages")
    (site / "bridge").mkdir()
    (site / "bridge" / "__init__.py").write_text("__version__ = '0.0.1'")
    (site / "early.pth").write_text("import bridge\n")
    error = job.error()
    assert "another singer-bridge" in error, error
    assert f"there=0.0.1 at {site}/bridge/__init__.py" in error, error


@pytest.mark.slow
def test_another_minor_version_is_said_in_one_line(tmp_path: Path, cluster: Cluster) -> None:
    """Pickled code runs in no other Python than the driver's."""
    names = (f"python3.{minor}" for minor in range(10, 15) if minor != sys.version_info.minor)
    paths = [path for name in names if (path := shutil.which(name))]
    works = [path for path in paths if subprocess.run([path, "-V"], check=False, capture_output=True).returncode == 0]
    if not works:
        pytest.skip("this machine has one Python only")
    job = Job(tmp_path, cluster)
    job.conf["spark.pyspark.python"] = works[0]
    error = job.error()
    assert error.startswith("an executor has another Python host=127.0.0."), error
    assert error.endswith(f"here=3.{sys.version_info.minor}"), error


@pytest.mark.slow
def test_a_folder_that_is_not_shared_is_named(tmp_path: Path, python: Path) -> None:
    """An executor that does not see the spool says so; what it wrote and the driver does not see is not committed."""
    spool, lake = tmp_path / "spool", tmp_path / "lake"
    spool.mkdir()
    lake.mkdir()
    if not can_hide(spool):
        pytest.skip("only root may give a process its own view of the files")
    with running_cluster(tmp_path, python=python) as cluster:
        cluster.grow(2, hidden=spool)
        error = Job(tmp_path, cluster).error()
        assert error.startswith("an executor cannot read the spool host=127.0.0."), error
        assert f"folder={spool}/" in error, error
        cluster.lose_worker()
        cluster.lose_worker()
        cluster.grow(2, hidden=lake)
        error = Job(tmp_path, cluster).error()
        assert "a pending file is not what was written" in error, error
    assert not (lake / "smoke").exists()


@pytest.mark.slow
def test_a_users_own_modules_and_python_reach_executors(tmp_path: Path, cluster: Cluster) -> None:
    """`spark.submit.pyFiles` and `spark.archives` work as ever: ours is handed out beside them."""
    cluster.grow(2)
    (tmp_path / "theirs.py").write_text("ANSWER = 42\n")
    packed = shutil.make_archive(str(tmp_path / "packed"), "gztar", make_venv(tmp_path / "venv").parents[1])
    conf = {
        "spark.submit.pyFiles": str(tmp_path / "theirs.py"),
        "spark.archives": f"{packed}#environment",
        "spark.pyspark.python": "./environment/bin/python",
        "spark.driver.host": "127.0.0.1",
        "spark.executor.memory": "512m",
    }
    session = Session(cluster.master, conf, tmp_path / "spark", tmp_path / "log")
    try:
        numbers = session.spark.sparkContext.parallelize([0], 1)
        wanted = ("theirs", "bridge")
        found = numbers.map(lambda _: [sys.prefix, *(import_module(name).__file__ for name in wanted)]).collect()
    finally:
        session.close(hurry=True)
    ((prefix, theirs, ours),) = found
    assert Path(prefix).name == "environment"
    assert theirs.endswith("/theirs.py")
    assert f"/{session.shipped}/bridge/" in ours


@pytest.mark.parametrize(
    "where", ["local", *(pytest.param(one, marks=pytest.mark.slow) for one in ("bucket", "cluster"))]
)
def test_spark_4_0_loads_each_record_once(tmp_path: Path, old_spark: Path, python: Path, where: str) -> None:
    """The oldest Spark that is supported does what the newest does: here, by a spool in the bucket, on a cluster."""
    if where != "cluster":
        job = Job(tmp_path, driver=old_spark)
        if where == "bucket":
            job.pipeline["spool"]["dir"] = "bucket"
            job.pipeline["streams"] = {"users": {"load_method": "upsert"}}
        assert job.records(job.start()) == RECORDS
    else:
        with running_cluster(tmp_path, spark=old_spark, python=python) as cluster:
            job = Job(tmp_path, cluster, driver=old_spark)
            with job.start() as run:
                _until(job.committed, run)
                cluster.lose_worker()
                assert job.records(run) == RECORDS
    assert job.exact()
