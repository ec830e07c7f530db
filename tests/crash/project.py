"""The pipelines that are killed: a source that grows before each run, and what the lake must hold in the end.

The tap is its own oracle: run once more without any bridge it says which records there are and which STATE is last.
"""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq

from .history import History
from .lakes import Bucket, Folder
from .orchestrator import TARGETS

TAP = Path(sys.executable).parent / "tap-smoke"
SMALL = os.environ.get("SMALL") or "0"
"""`spark.small` of each pipeline: 0, Spark writes all rows; `ALL`, the run itself does; 20KiB: they change over.

Arrow of the same rows has a third of the bytes: there it is 6KiB.
"""
ALL = "1TiB"
FORM = os.environ.get("FORM") or "RECORD"
"""How taps send rows: `BATCH`, as files of Arrow."""
_FILTER = Path(__file__).parents[1] / "support/arrow_filter.py"
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
    transform: str = ""
    """Spark SQL that every stream goes through: it makes one more of `n`."""
    processes: int = 1
    """How many of the tap read the streams at the same time."""
    views: dict[str, str] = field(default_factory=dict)
    methods: dict[str, str] = field(default_factory=dict)
    """The load methods of streams that have one of their own."""

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

UPSERT = Shape("upsert", "upsert", {"orders": {**_INCREMENTAL, "inclusive": True}, "items": _FULL}, interleave=True)
"""A stream that says the row at its bookmark again, and a whole table whose rows come again with each run."""

TRANSFORM = replace(
    APPEND, name="transform", transform="SELECT id, n + 1 AS n, upper(name) AS name, payload FROM stream"
)
"""Two streams whose rows go through Spark SQL, each in a job of its own beside the batch's."""

PARALLEL = Shape(
    "parallel",
    "auto",
    {
        "orders": _INCREMENTAL,
        "pages": {**_FULL, "resumable": True},
        "events": {**_INCREMENTAL, "progress_markers": True},
        "items": _FULL,
    },
    processes=2,
)
"""Two processes of the tap: one has rows that no bookmark covers yet, the other full tables, one of which is staged."""

VIEWS = Shape(
    "views",
    "auto",
    {"orders": _INCREMENTAL, "items": _FULL},
    interleave=True,
    views={
        "by_name": "SELECT name, count(*) AS many, sum(n) AS total, max(id) AS id FROM orders GROUP BY name",
        "by_activity": "SELECT active, count(*) AS many, sum(n) AS total, min(n) AS least, max_by(name, n) AS last, "
        "max(id) AS id FROM items GROUP BY active",
        "by_hour": "SELECT window(timestamp_seconds(id * 6), '1 hour').start AS hour, count(*) AS many, "
        "max(id) AS id FROM orders GROUP BY 1\n-- singer-bridge: keep: 4h, lateness: 30m",
        "by_many": "SELECT many, count(*) AS names, sum(total) AS total, max(id) AS id FROM by_name GROUP BY many",
    },
    methods={"orders": "append-only", "items": "upsert"},
)
"""Rows that are appended, and rows that come again with each run to be merged by key: each stream with a view.
One is a view of a view, and of one the windows close."""

SHAPES = (APPEND, OVERWRITE, MIXED, UPSERT, TRANSFORM, PARALLEL, VIEWS)


class Project:
    """A folder with bridge.yaml and the tap's settings; its lake is in it, or `bucket`. `added`: records a run."""

    def __init__(
        self,
        folder: Path,
        shape: Shape,
        bucket: Bucket | None = None,
        *,
        added: int = NEW_RECORDS,
        **pipeline: Any,
    ) -> None:
        """`pipeline` are more keys of the pipeline in bridge.yaml."""
        self.folder, self.shape, self.added = folder, shape, added
        self.lake = bucket or Folder(folder / "lake")
        self.environ = bucket.environ if bucket else {}
        self.history = History(self.lake, "crash")
        self.meta = ".bridge/crash"
        self.checked = 0
        """The last commit whose views were compared with their SELECTs."""
        self._config = folder / "tap.json"
        (folder / "tmp").mkdir(parents=True)
        self.grow()
        source: dict[str, Any] = {"tap": str(self._tap_program()), "config": "tap.json", "parallelism": shape.processes}
        if shape.method == "auto":
            (folder / "catalog.json").write_bytes(self._tap("--discover"))
            source["catalog"] = "catalog.json"
        destination = {"bucket": bucket.uri if bucket else "lake", "load_method": shape.method}
        settings = {"source": source, "destination": destination, "commit": {"every": "1s"}, "spark": {"small": SMALL}}
        settings |= pipeline
        if shape.transform:
            settings["streams"] = {"*": {"transform": shape.transform}}
        if shape.views:
            streams = {stream: {"load_method": method} for stream, method in shape.methods.items()}
            settings |= {"views": shape.views, "streams": streams}
        # YAML reads JSON
        (folder / "bridge.yaml").write_text(json.dumps({"pipelines": {"crash": settings}}))

    def _tap_program(self) -> Path:
        if FORM == "RECORD":
            return TAP
        program = self.folder / "arrow-tap"
        program.write_text(f'#!/bin/sh\nexec {sys.executable} {_FILTER} {self.folder}/batches {TAP} "$@"\n')
        program.chmod(0o755)
        return program

    @property
    def targets(self) -> tuple[str, ...]:
        """The processes that each run has."""
        needs_spark = SMALL != ALL or self.shape.transform  # few rows of a view are merged without it
        return tuple(target for target in TARGETS if needs_spark or target not in ("jvm", "worker"))

    @property
    def never(self) -> Collection[tuple[str, str]]:
        """The aims that no kill meets: a merge of few rows, whose workers write spills only."""
        return [("worker", "writing")] if SMALL != "0" and self.shape.method == "upsert" else []

    @property
    def name(self) -> str:
        """How the lake is called in a report."""
        store = f"{self.lake.uri.partition('://')[0]}-" if self.environ else ""
        return f"{store}{self.shape.name}"

    @property
    def tables(self) -> list[tuple[str, str]]:
        """Each stream, and each view, with its table's folder in the lake."""
        return [(name, f"crash/{name}") for name in (*self.shape.streams, *self.shape.views)]

    def table(self, stream: str) -> set[str]:
        """Return the names of the files in a table's folder."""
        return set(self.lake.files(f"crash/{stream}"))

    def manifest(self, stream: str) -> list[str]:
        """Return the URIs that a table's manifest names, in order."""
        return (self.lake.read(f".bridge/tables/crash/{stream}.manifest") or b"").decode().splitlines()

    def pending(self) -> set[str]:
        """Return the names of what is pending, uploads under way too; staged files are to stay, they do not count."""
        kept = {file["name"] for stage in self.history.staged.values() for file in stage["files"]}
        keys = [*self.lake.files(f"{self.meta}/pending"), *self.lake.uploads("")]
        return {key.rpartition("/")[2].removesuffix(".pending") for key in keys} - kept

    def json(self, name: str) -> Any:
        """Return one of the pipeline's own files in the bucket, None if there is none or a torn one."""
        try:
            return json.loads(self.lake.read(f"{self.meta}/{name}") or b"null")
        except json.JSONDecodeError:
            return None

    def needs_recovery(self) -> bool:
        """Whether the last run did not end as it should."""
        return bool((self.json("lease.json") or {}).get("closed") != self.history.head())

    def grow(self, *, pause_ms: int = 120) -> int:
        """Give the source as many new records as the next run shall load, seen from the committed STATE; how many?

        The tap pauses after each STATE: with 120 ms a run lasts past Spark's start and makes several commits.
        """
        self.history.head()
        there = {name: self._reached(name) for name in self.shape.streams}
        streams = [{"name": name, "records": there[name] + self.added} | self.shape.streams[name] for name in there]
        config = {"streams": streams, "interleave": self.shape.interleave, "state": {"every": 50}}
        config |= {"batch_delay_ms": pause_ms, "stderr_every": 50}
        self._config.write_text(json.dumps(config))
        return self.added * len(streams)

    def _reached(self, stream: str) -> int:
        mark = self.bookmark(stream)
        return int(mark.get("replication_key_value", 0) + mark.get("last_pk_fetched", 0))

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
        """Return all there is in the source, as the tables are to have it: `n` by `id`, by stream."""
        rows: dict[str, dict[int, int]] = {stream: {} for stream in self.shape.streams}
        for line in self._unhurried():
            message = json.loads(line)
            if message["type"] == "RECORD":
                rows[message["stream"]][message["record"]["id"]] = message["record"]["n"] + bool(self.shape.transform)
        return rows

    def _unhurried(self, *flags: str) -> Iterator[bytes]:
        paced = self._config.read_bytes()
        self._config.write_text(json.dumps(json.loads(paced) | {"batch_delay_ms": 0}))
        try:
            return iter(self._tap(*flags).splitlines())
        finally:
            self._config.write_bytes(paced)

    def lake_rows(self, stream: str) -> list[tuple[int, int]]:
        """Return the (id, n) of every row in a table's folder, in order: DuckDB's word, or pyarrow's for a bucket."""
        if isinstance(self.lake, Folder):
            query = "SELECT id, n FROM read_parquet(?) ORDER BY 1, 2"
            folder = self.lake.root / "crash" / stream / "*.parquet"
            return duckdb.connect().execute(query, [str(folder)]).fetchall()
        rows: list[tuple[int, int]] = []
        for name in self.table(stream):
            data = self.lake.read(f"crash/{stream}/{name}") or b""
            table = pq.read_table(io.BytesIO(data), columns=["id", "n"])
            rows += zip(table["id"].to_pylist(), table["n"].to_pylist(), strict=True)
        return sorted(rows)
