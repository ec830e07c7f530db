"""The peers from PyPI and crates.io, each pinned, in its own environment, configured as its documentation says.

Slow ones get fewer records: rates are per record and hardly depend on the size once a run takes many seconds.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

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


class Faucet(System):
    """A program in Rust that starts the tap itself. It infers columns from records, and reads one stream a run."""

    name = "faucet"
    version = "1.8.0"
    features = "source-singer,sink-parquet"
    label = f"faucet {version}"
    records = (1_000_000, 4_000_000)

    def __init__(self, folder: Path) -> None:
        self._root = folder / self.name

    def prepare(self) -> None:
        """Has cargo build it, with its connectors alone, unless it is there: a quarter of an hour on two cores.

        It names a newer Rust than it needs.
        """
        if self.program.exists():
            return
        if shutil.which("cargo") is None:
            raise NotInstalled("faucet: it needs Rust's cargo")
        options = ("--version", self.version, "--locked", "--ignore-rust-version", "--root", self._root)
        features = ("--no-default-features", "--features", self.features)
        command = ["cargo", "install", "--quiet", "faucet-cli", *options, *features]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise NotInstalled(f"faucet: {done.stderr.strip()[-300:]}")

    @property
    def program(self) -> Path:
        """The command that cargo built."""
        return self._root / "bin" / "faucet"

    def launch(self, job: Job) -> Launch:
        """JSON is YAML. It writes a file at each STATE."""
        tap = {"executable": tap_command(), "stream": STREAM, "tap_config": {"path": str(job.input.singer)}}
        lake = {"compression": "zstd", "destination": {"type": "local_path", "path": str(job.out / "lake")}}
        pipeline = {
            "sources": {"default": {"type": "singer", "config": tap}},
            "sinks": {"default": {"type": "parquet", "config": lake}},
            "state": {"type": "file", "config": {"path": str(job.out / "state")}},
        }
        config = job.out / "bench.yaml"
        config.write_text(json.dumps({"version": 1, "name": "bench", "pipeline": pipeline}), encoding="utf-8")
        return Launch([self.program, "run", config])

    def rows(self, job: Job) -> Rows:
        """All files of its folder."""
        return count_ids(sorted((job.out / "lake").glob("*.parquet")))


class TargetCsv(Peer):
    """The Singer SDK's sink loop with almost nothing behind it: what most targets spend before they store a byte."""

    name = "target-csv"
    label = "meltanolabs-target-csv 0.5.0 (CSV)"
    records = (100_000,)
    requirements = ("meltanolabs-target-csv==0.5.0",)

    def launch(self, job: Job) -> Launch:
        """Reads the input on stdin, with no tap beside it."""
        config = job.out / "config.json"
        config.write_text(json.dumps({"output_path": str(job.out)}), encoding="utf-8")
        return Launch([self.environment.program("target-csv"), "--config", config], stdin=job.input.singer)

    def rows(self, job: Job) -> Rows:
        """One file a stream."""
        return count_ids(sorted(job.out.glob("*.csv")), file_format="csv")
