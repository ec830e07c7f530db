"""faucet, which starts the tap itself, into Parquet files and into SQLite."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any, ClassVar

from tests.benchmarks.peers import Faucet as BenchmarkedFaucet

from .counting import read
from .source import STREAM, Source
from .system import System


class _Built(BenchmarkedFaucet):
    name = "faucet-1.17.0"
    version = "1.17.0"
    features = "source-singer,sink-parquet,sink-sqlite"


class FaucetFiles(System):
    """A file for each STATE, in the mode that it has without further settings."""

    name = "faucet"
    label = f"faucet {_Built.version}, Parquet"
    promise = "at least once"
    more: ClassVar[dict[str, Any]] = {}

    def __init__(self, venvs: Path) -> None:
        super().__init__(venvs)
        self.built = _Built(venvs)

    def install(self) -> None:
        """Cargo builds it, in a quarter of an hour."""
        self.built.prepare()

    @property
    def sink(self) -> dict[str, Any]:
        """A directory."""
        return {"type": "parquet", "config": {"destination": {"type": "local_path", "path": "lake"}}}

    def set_up(self, source: Source) -> None:
        """JSON is YAML; the bookmark is in a file, as its docs say for one host."""
        tap = {"executable": str(source.command), "stream": STREAM, "tap_config": source.config}
        pipeline = {"source": {"type": "singer", "config": tap}, "sink": self.sink}
        pipeline |= {"state": {"type": "file", "config": {"path": "./state"}}}
        config = {"version": 1, "name": "proof", "pipeline": pipeline} | self.more
        (source.folder / "pipeline.yaml").write_text(json.dumps(config), encoding="utf-8")

    def line(self, source: Source) -> str:
        return f"{self.built.program} run pipeline.yaml"

    def numbers(self, folder: Path) -> list[int | None]:
        return read(sorted((folder / "lake").rglob("*.parquet")), "read_parquet(?)")


class FaucetUpsert(FaucetFiles):
    """`delivery: exactly_once` as its docs have it for any source: rows are merged by their key."""

    name = "faucet-upsert"
    label = f"faucet {_Built.version}, SQLite, `exactly_once` by key"
    promise = "effectively once"
    more: ClassVar[dict[str, Any]] = {"delivery": "exactly_once"}

    @property
    def sink(self) -> dict[str, Any]:
        """Its table has to be there."""
        keys = {"write_mode": "upsert", "key": ["id"], "column_mapping": "auto_map"}
        return {"type": "sqlite", "config": {"database_url": "lake.sqlite", "table_name": STREAM, **keys}}

    def set_up(self, source: Source) -> None:
        """The user makes the table, with its key."""
        super().set_up(source)
        with sqlite3.connect(source.folder / "lake.sqlite") as database:
            database.execute(f"CREATE TABLE IF NOT EXISTS {STREAM} (id INTEGER PRIMARY KEY, n INTEGER, name TEXT)")

    def numbers(self, folder: Path) -> list[int | None]:
        with sqlite3.connect(folder / "lake.sqlite") as database:
            return [number for (number,) in database.execute(f"SELECT id FROM {STREAM}")]
