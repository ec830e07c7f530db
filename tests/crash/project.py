"""The pipelines that are killed: a source that grows before each run, and what the lake must hold in the end.

The tap is its own oracle: run once more without any bridge it says which records there are and which STATE is last.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb

from .history import History

TAP = Path(sys.executable).parent / "tap-smoke"
NEW_RECORDS = 1500
"""Records of each stream in one run, whatever was committed before."""

_INCREMENTAL: dict[str, Any] = {"replication_method": "INCREMENTAL", "wide": 2000}
_FULL: dict[str, Any] = {"replication_method": "FULL_TABLE", "wide": 2000, "version": 1}


@dataclass(frozen=True)
class Shape:
    """One way of loading. `method` is the pipeline's load method; `auto` comes with a catalog."""

    name: str
    method: str
    streams: dict[str, dict[str, Any]]
    interleave: bool = False

    def __str__(self) -> str:
        return self.name


APPEND = Shape("append", "append-only", {"orders": _INCREMENTAL, "events": _INCREMENTAL}, interleave=True)
"""Two bookmarks that move together: a commit every second."""
OVERWRITE = Shape("overwrite", "overwrite", {"items": _FULL, "parts": _FULL})
"""Two full tables, one after the other, a STATE in the middle: a swap when each is whole."""
MIXED = Shape(
    "mixed",
    "auto",
    {
        "orders": _INCREMENTAL,
        "pages": {**_FULL, "resumable": True},
        "events": {**_INCREMENTAL, "progress_markers": True},
    },
)
"""Append-only, a full table that a cut run goes on with (staged), and rows that no bookmark covers yet (held)."""

SHAPES = (APPEND, OVERWRITE, MIXED)


class Project:
    """A folder with bridge.yaml, the tap's settings and the lake."""

    def __init__(self, folder: Path, shape: Shape) -> None:
        self.folder, self.shape = folder, shape
        self.bucket = folder / "lake"
        self.history = History(self.bucket, "crash")
        self.commits = self.meta / "commits"
        self._config = folder / "tap.json"
        (folder / "tmp").mkdir(parents=True)
        self.grow()
        source: dict[str, Any] = {"tap": str(TAP), "config": "tap.json"}
        if shape.method == "auto":
            (folder / "catalog.json").write_bytes(self._tap("--discover"))
            source["catalog"] = "catalog.json"
        destination = {"bucket": "lake", "load_method": shape.method}
        pipeline = {"source": source, "destination": destination, "commit": {"every": "1s"}}
        # YAML reads JSON
        (folder / "bridge.yaml").write_text(json.dumps({"pipelines": {"crash": pipeline}}))

    @property
    def meta(self) -> Path:
        """The pipeline's own folder in the bucket."""
        return self.bucket / ".bridge" / "crash"

    @property
    def tables(self) -> list[tuple[str, Path]]:
        """Each stream with its table's folder."""
        return [(stream, self.bucket / "crash" / stream) for stream in self.shape.streams]

    def grow(self, *, pause_ms: int = 120) -> None:
        """Give the source as many new records as the next run shall load, seen from the committed STATE.

        The tap pauses after each STATE, so that a run lasts past Spark's start and makes several commits.
        """
        self.history.head()
        streams = [{"name": name, "records": self._records(name)} | kind for name, kind in self.shape.streams.items()]
        config = {"streams": streams, "interleave": self.shape.interleave, "state": {"every": 50}}
        config |= {"batch_delay_ms": pause_ms, "stderr_every": 50}
        self._config.write_text(json.dumps(config))

    def _records(self, stream: str) -> int:
        mark = self.bookmark(stream)
        return int(mark.get("replication_key_value", 0) + mark.get("last_pk_fetched", 0)) + NEW_RECORDS

    def bookmark(self, stream: str) -> dict[str, Any]:
        """The committed bookmark of a stream."""
        state = self.history.state or {"bookmarks": {}}
        return dict(state["bookmarks"].get(stream, {}))

    def _tap(self, *flags: str) -> bytes:
        command = [str(TAP), "--config", str(self._config), *flags]
        return subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout

    def next_state(self) -> Any:
        """Return the last STATE that the tap will say in the next run."""
        given = self.folder / "state.json"
        given.write_text(json.dumps(self.history.state or {}))
        lines = self._unhurried("--state", str(given))
        return [json.loads(line)["value"] for line in lines if line.startswith(b'{"type":"STATE"')][-1]

    def source_rows(self) -> dict[str, dict[int, int]]:
        """Return all there is in the source: `n` by `id`, by stream."""
        rows: dict[str, dict[int, int]] = {stream: {} for stream in self.shape.streams}
        for line in self._unhurried():
            message = json.loads(line)
            if message["type"] == "RECORD":
                rows[message["stream"]][message["record"]["id"]] = message["record"]["n"]
        return rows

    def _unhurried(self, *flags: str) -> Iterator[bytes]:
        paced = self._config.read_bytes()
        self._config.write_text(json.dumps(json.loads(paced) | {"batch_delay_ms": 0}))
        try:
            return iter(self._tap(*flags).splitlines())
        finally:
            self._config.write_bytes(paced)

    def lake_rows(self, stream: str) -> list[tuple[int, int]]:
        """Return the (id, n) of every row in a table's folder, as DuckDB lists it, in order."""
        query = "SELECT id, n FROM read_parquet(?) ORDER BY 1, 2"
        return duckdb.connect().execute(query, [str(self.bucket / "crash" / stream / "*.parquet")]).fetchall()
