"""Targets from PyPI behind the pipe of the Singer guide, and in a real Meltano."""

from __future__ import annotations

import json
import signal
import sqlite3
from pathlib import Path
from typing import Any, ClassVar

from .counting import read, read_table
from .duckdb_extensions import ExtendedDuckdb
from .faults import Signal
from .source import STREAM, Source
from .system import Pipe, System

_DRAIN = Signal(signal.SIGTERM, word="Draining...", within=0.02)
"""The SDK logs this word when a batch is full; these sinks write one in some hundredths of a second."""
_SINGER = "at least once"
_BATCH = 5000
"""Rows of a batch: four drains a run. The SDK's own default is 10,000."""


class _Target(System):
    """A target whose settings are `settings`, in target.json."""

    promise = _SINGER
    pipe: Pipe
    settings: ClassVar[dict[str, Any]]

    def set_up(self, source: Source) -> None:
        """Its settings never change."""
        (source.folder / "target.json").write_text(json.dumps(self.settings), encoding="utf-8")

    def line(self, source: Source) -> str:
        return self.pipe.line(source)


class TargetCsv(_Target):
    """Built by MeltanoLabs with the Singer SDK. A run begins a new file, so each has a name of its own."""

    name = "target-csv"
    label = "target-csv 0.5.0 (Singer SDK 0.54.9)"
    requirements = ("meltanolabs-target-csv==0.5.0", "singer-sdk==0.54.9")
    pipe = Pipe("target-csv")
    settings: ClassVar[dict[str, Any]] = {
        "output_path": "lake",
        "file_naming_scheme": "{stream_name}-{timestamp}.csv",
        "batch_size_rows": _BATCH,
    }

    def numbers(self, folder: Path) -> list[int | None]:
        return read(sorted((folder / "lake").glob("*.csv")), "read_csv(?, header => true, all_varchar => true)")


class TargetCsvStopped(TargetCsv):
    """The same, told to stop while it drains: meltano/sdk#3775 says that the SDK's CSV sink loses nothing."""

    name = "target-csv-drain"
    fault = _DRAIN


class SdkSink(_Target):
    """The sink of meltano/sdk#3775: a BatchSink that writes a batch in one transaction, and takes an empty one."""

    name = "sdk-sink-drain"
    label = "a SQLite sink on the Singer SDK 0.54.9 ([program](../tests/proof/programs/sdk_target.py))"
    fault = _DRAIN
    requirements = ("singer-sdk==0.54.9",)
    pipe = Pipe(f"python {Path(__file__).parent / 'programs' / 'sdk_target.py'}")
    settings: ClassVar[dict[str, Any]] = {"path": "lake.sqlite", "batch_size_rows": _BATCH}

    def numbers(self, folder: Path) -> list[int | None]:
        """SQLite reads it: DuckDB would have to download an extension."""
        with sqlite3.connect(folder / "lake.sqlite") as database:
            return [number for (number,) in database.execute(f"SELECT id FROM {STREAM}")]


class TargetJsonl(_Target):
    """Each record is appended to a file of the run."""

    name = "target-jsonl"
    label = "target-jsonl 0.1.4"
    requirements = ("target-jsonl==0.1.4",)
    pipe = Pipe("target-jsonl")
    settings: ClassVar[dict[str, Any]] = {"destination_path": "lake"}

    def numbers(self, folder: Path) -> list[int | None]:
        reader = "read_json(?, format => 'newline_delimited', columns => {id: 'VARCHAR'}, ignore_errors => true)"
        return read(sorted((folder / "lake").glob("*.jsonl")), reader)


class TargetDuckdb(_Target):
    """It merges each batch by the stream's key."""

    name = "target-duckdb"
    label = "target-duckdb 0.8.0, merge by key"
    requirements = ("target-duckdb==0.8.0",)
    pipe = Pipe("target-duckdb")
    settings: ClassVar[dict[str, Any]] = {
        "path": "lake.duckdb",
        "default_target_schema": "main",
        "batch_size_rows": _BATCH,
    }

    def numbers(self, folder: Path) -> list[int | None]:
        return read_table(folder / "lake.duckdb", f"main.{STREAM}")


class TargetDucklake(ExtendedDuckdb, _Target):
    """It merges by the stream's key, its default, into a DuckLake with the catalog in a DuckDB file."""

    name = "target-ducklake"
    label = "target-ducklake 0.0.2, merge by key"
    released = "target-ducklake"
    pipe = Pipe("target-ducklake")
    extensions = ("ducklake", "postgres_scanner")
    requirements = ("duckdb==1.5.5", "duckdb-extension-ducklake==1.5.5", "duckdb-extension-postgres-scanner==1.5.5")
    settings: ClassVar[dict[str, Any]] = {
        "catalog_type": "duckdb",
        "catalog_url": "metadata.ducklake",
        "data_path": "lake",
        "storage_type": "local",
        "default_target_schema": "main",
        "max_batch_size": _BATCH,
    }

    def set_up(self, source: Source) -> None:
        """Its settings, and the extensions that it would download."""
        _Target.set_up(self, source)
        ExtendedDuckdb.set_up(self, source)

    def numbers(self, folder: Path) -> list[int | None]:
        """DuckDB's extension for DuckLake is in the environment, so its Python reads the lake."""
        table = (
            f"LOAD ducklake; ATTACH 'ducklake:metadata.ducklake' AS lake (READ_ONLY); SELECT id FROM lake.main.{STREAM}"
        )
        return self.select(folder, table)


class _MeltanoProject(_Target):
    """A project; its state is in Meltano's own database. After a kill it asks for `--force`, if it must."""

    loader: str

    def set_up(self, source: Source) -> None:
        """Both plugins are programs that are installed already."""
        tap = {"name": "tap-numbers", "namespace": "tap_numbers", "executable": str(source.command)}
        tap |= {"capabilities": ["catalog", "discover", "state"], "config": source.config}
        tap["settings"] = [{"name": "streams", "kind": "array"}, {"name": "state", "kind": "object"}]
        tap["settings"] += [{"name": "batch_delay_ms", "kind": "integer"}]
        assert self.environment
        target = {"name": self.loader, "namespace": self.loader.replace("-", "_"), "config": self.settings}
        target["executable"] = str(self.environment.program(self.loader))
        target["settings"] = [{"name": name} for name in self.settings]
        plugins = {"extractors": [tap], "loaders": [target]}
        project = {"version": 1, "project_id": "proof", "send_anonymous_usage_stats": False, "plugins": plugins}
        project |= {"default_environment": "dev", "environments": [{"name": "dev"}]}
        # YAML reads JSON
        (source.folder / "meltano.yml").write_text(json.dumps(project), encoding="utf-8")

    def line(self, source: Source) -> str:
        return f"meltano run tap-numbers {self.loader}"

    def line_again(self, source: Source) -> str:
        return f"meltano run --force tap-numbers {self.loader}"


class Meltano(_MeltanoProject, TargetCsv):
    """With a target that appends."""

    name = "meltano"
    label = "Meltano 4.4.1 with target-csv 0.5.0"
    loader = "target-csv"
    requirements = ("meltano==4.4.1", *TargetCsv.requirements)


class MeltanoDuckdb(_MeltanoProject, TargetDuckdb):
    """With a target that merges by key."""

    name = "meltano-duckdb"
    label = "Meltano 4.4.1 with target-duckdb 0.8.0, merge by key"
    loader = "target-duckdb"
    requirements = ("meltano==4.4.1", *TargetDuckdb.requirements)
