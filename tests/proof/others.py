"""DataSpoc Pipe, which starts its tap itself, and dlt, whose source is a Python function."""

from __future__ import annotations

import json
from pathlib import Path

from tests.benchmarks.peers import DataSpoc as BenchmarkedDataSpoc

from .counting import read, read_table
from .source import STREAM, Source
from .system import System


class DataSpoc(System):
    """An incremental pipeline, as `dataspoc-pipe add` writes it."""

    name = "dataspoc"
    label = BenchmarkedDataSpoc.label
    promise = "the next run fetches only new data"
    requirements = BenchmarkedDataSpoc.requirements

    def set_up(self, source: Source) -> None:
        """Its settings live under HOME and nowhere else; JSON is YAML."""
        pipeline = {
            "source": {"tap": str(source.command), "config": str(source.config_file)},
            "destination": {"bucket": f"file://{source.folder / 'lake'}", "path": "raw", "compression": "zstd"},
            "incremental": {"enabled": True},
        }
        folder = source.folder / ".dataspoc-pipe" / "pipelines"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "proof.yaml").write_text(json.dumps(pipeline), encoding="utf-8")

    def line(self, source: Source) -> str:
        return "dataspoc-pipe run proof"

    def numbers(self, folder: Path) -> list[int | None]:
        """Partitions by day below raw/<tap>/<stream>."""
        return read(sorted((folder / "lake" / "raw").rglob("*.parquet")), "read_parquet(?)")


class DltFiles(System):
    """`append` into Parquet files, with dlt's own incremental cursor."""

    name = "dlt-append"
    label = "dlt 1.31.0, filesystem, `append`"
    promise = "what a killed run left is loaded first"
    requirements = ("dlt[duckdb,filesystem,parquet]==1.31.0",)
    arguments = "filesystem append"

    def line(self, source: Source) -> str:
        """The tap's records come from the same command, started by dlt's resource."""
        return f"python {Path(__file__).parent / 'programs' / 'dlt_pipeline.py'} {self.arguments}"

    def environ(self, folder: Path) -> dict[str, str]:
        """Without this variable it sends what it did to its makers."""
        return super().environ(folder) | {"RUNTIME__DLTHUB_TELEMETRY": "false"}

    def numbers(self, folder: Path) -> list[int | None]:
        return read(sorted((folder / "lake" / "proof" / STREAM).rglob("*.parquet")), "read_parquet(?)")


class DltMerge(DltFiles):
    """`merge` by the primary key into DuckDB, which its docs advise for incremental loads."""

    name = "dlt-merge"
    label = "dlt 1.31.0, DuckDB, `merge` by key"
    arguments = "duckdb merge"

    def numbers(self, folder: Path) -> list[int | None]:
        return read_table(folder / "lake.duckdb", f"proof.{STREAM}")
