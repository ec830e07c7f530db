"""The peers from PyPI, each pinned, in its own environment, configured as its documentation says.

Slow ones get fewer records: rates are per record and hardly depend on the size once a run takes many seconds.
"""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path

import pyarrow.fs as pafs

from .ours import tap_command
from .shape import STREAM
from .system import Job, Launch, Rows, System, count_ids
from .venvs import Environment, NotInstalled


class Peer(System):
    """A system with an environment of its own under the folder given."""

    requirements: tuple[str, ...]

    def __init__(self, venvs: Path) -> None:
        self.environment = Environment(venvs / self.name, self.requirements)

    def prepare(self) -> None:
        """Installs it unless it is there."""
        self.environment.ensure()


class DataSpoc(Peer):
    """The closest peer: starts the tap itself and writes Parquet, a file per 10,000 records."""

    name = "dataspoc"
    label = "DataSpoc Pipe 0.2.0"
    records = (1_000_000, 4_000_000)
    requirements = ("dataspoc-pipe==0.2.0",)

    def launch(self, job: Job) -> Launch:
        """Its settings live under HOME and nowhere else; JSON is YAML."""
        pipeline = {
            "source": {"tap": tap_command(), "config": {"path": str(job.input.singer)}},
            "destination": {"bucket": f"file://{job.out / 'lake'}", "path": "raw", "compression": "zstd"},
            "incremental": {"enabled": True},
        }
        folder = job.out / ".dataspoc-pipe" / "pipelines"
        folder.mkdir(parents=True)
        (folder / "bench.yaml").write_text(json.dumps(pipeline), encoding="utf-8")
        return Launch([self.environment.program("dataspoc-pipe"), "run", "bench"], environment={"HOME": str(job.out)})

    def rows(self, job: Job) -> Rows:
        """Partitions by day below raw/<tap>/<stream>."""
        return count_ids(sorted((job.out / "lake" / "raw").rglob("*.parquet")))


class TargetCsv(Peer):
    """The Singer SDK's sink loop with almost nothing behind it: what most targets spend before they store a byte."""

    name = "target-csv"
    label = "meltanolabs-target-csv 0.5.0 (CSV)"
    records = (100_000,)
    requirements = ("meltanolabs-target-csv==0.5.0",)

    def launch(self, job: Job) -> Launch:
        """Reads the input on stdin, with no tap beside it."""
        config = _write_config(job, {"output_path": str(job.out)})
        return Launch([self.environment.program("target-csv"), "--config", config], stdin=job.input.singer)

    def rows(self, job: Job) -> Rows:
        """One file a stream."""
        return count_ids(sorted(job.out.glob("*.csv")), file_format="csv")


class Dlt(Peer):
    """Not a Singer target: a generator of records feeds it (dlt_load.py)."""

    name = "dlt"
    label = "dlt 1.31.0 filesystem (Parquet)"
    records = (250_000,)
    requirements = ("dlt[filesystem,parquet]==1.31.0",)

    def launch(self, job: Job) -> Launch:
        """Its telemetry is off: it would reach for the network."""
        program = Path(__file__).with_name("dlt_load.py")
        command = [self.environment.program("python"), program, job.input.singer, job.out]
        return Launch(command, environment={"RUNTIME__DLTHUB_TELEMETRY": "false"})

    def rows(self, job: Job) -> Rows:
        """dlt's own bookkeeping tables are left out."""
        return count_ids(sorted((job.out / "lake" / STREAM).glob("*.parquet")))


class TargetS3(Peer):
    """The Parquet target on PyPI that loses nothing; it can only write to S3, so a server on loopback is beside it."""

    name = "target-s3"
    label = "plinxore-target-s3 0.1.7 (Parquet)"
    records = (25_000,)
    requirements = ("plinxore-target-s3==0.1.7",)
    _bucket = "lake"

    def __init__(self, venvs: Path) -> None:
        super().__init__(venvs)
        # The server's dependencies and the target's contradict each other.
        self._server = Environment(venvs / "s3-server", ("moto[server,s3]==5.2.5",))
        self._endpoint = ""

    def prepare(self) -> None:
        """Installs the target and the server."""
        super().prepare()
        self._server.ensure()

    @contextlib.contextmanager
    def around(self, job: Job) -> Iterator[None]:
        """A new, empty server a run; it keeps objects in memory. Its CPU is not counted."""
        port = _free_port()
        self._endpoint = f"http://127.0.0.1:{port}"
        with (job.out / "server.log").open("wb") as log:
            command = [str(self._server.program("moto_server")), "-H", "127.0.0.1", "-p", str(port)]
            server = subprocess.Popen(command, stdout=log, stderr=log)
            try:
                _await_server(server, self._endpoint)
                self._filesystem(create=True).create_dir(self._bucket)
                yield
            finally:
                server.terminate()
                server.wait()

    def launch(self, job: Job) -> Launch:
        """Types from the SCHEMA; everything else as it comes."""
        aws = {
            "aws_access_key_id": "x",
            "aws_secret_access_key": "x",
            "aws_region": "us-east-1",
            "aws_bucket": self._bucket,
            "aws_endpoint_override": self._endpoint,
        }
        settings = {
            "format": {"format_type": "parquet", "format_parquet": {"get_schema_from_tap": True}},
            "cloud_provider": {"cloud_provider_type": "aws", "aws": aws},
            "prefix": "bench",
        }
        config = _write_config(job, settings)
        program = self.environment.program("target-s3")
        keys = {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x", "AWS_DEFAULT_REGION": "us-east-1"}
        return Launch([program, "--config", config], stdin=job.input.singer, environment=keys)

    def rows(self, job: Job) -> Rows:
        """All Parquet objects of the bucket."""
        filesystem = self._filesystem()
        found = filesystem.get_file_info(pafs.FileSelector(self._bucket, recursive=True))
        return count_ids([one.path for one in found if one.path.endswith(".parquet")], filesystem=filesystem)

    def _filesystem(self, *, create: bool = False) -> pafs.S3FileSystem:
        return pafs.S3FileSystem(
            access_key="x",
            secret_key="x",
            endpoint_override=self._endpoint,
            region="us-east-1",
            allow_bucket_creation=create,
        )


def _write_config(job: Job, settings: Mapping[str, object]) -> Path:
    path = job.out / "config.json"
    path.write_text(json.dumps(settings), encoding="utf-8")
    return path


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _await_server(server: subprocess.Popen[bytes], endpoint: str) -> None:
    """Returns when the server answers; a server that died or says nothing for 30 s is not installed properly."""
    deadline = time.monotonic() + 30
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    while server.poll() is None and time.monotonic() < deadline:
        with contextlib.suppress(OSError), opener.open(endpoint, timeout=1):
            return
        time.sleep(0.1)
    raise NotInstalled("the S3 server beside target-s3 did not start")
