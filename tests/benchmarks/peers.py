"""The peers from PyPI, each pinned, in its own environment, configured as its documentation says.

Slow ones get fewer records: rates are per record and hardly depend on the size once a run takes many seconds.
"""

from __future__ import annotations

import json
from pathlib import Path

from .ours import tap_command
from .system import Job, Launch, Rows, System, count_ids
from .venvs import Environment


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
        config = job.out / "config.json"
        config.write_text(json.dumps({"output_path": str(job.out)}), encoding="utf-8")
        return Launch([self.environment.program("target-csv"), "--config", config], stdin=job.input.singer)

    def rows(self, job: Job) -> Rows:
        """One file a stream."""
        return count_ids(sorted(job.out.glob("*.csv")), file_format="csv")
