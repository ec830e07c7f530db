"""`target-bridge` in this process, without Spark: its command line, its settings, its lake."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from target_bridge import TargetBridge

from bridge.lake.log import Log, Snapshot
from bridge.lake.storage import open_storage
from tests.support.pipe import InProcess, plain


@contextmanager
def without_spark(folder: Path) -> Iterator[None]:
    """Decode in this process what Spark's workers would; scratch goes into `folder`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bridge.load.run.execution.Loader", InProcess)
        patch.setenv("SINGER_BRIDGE_HOME", str(folder / "home"))
        yield


@dataclass
class Typed:
    """What came of one command."""

    code: int
    states: list[Any]
    out: str


def target(folder: Path, text: bytes, **config: Any) -> Typed:
    """Type `target-bridge --config config.json --input input.singer` in a folder whose lake is `lake`."""
    (folder / "config.json").write_text(json.dumps({"bucket": str(folder / "lake")} | config))
    (folder / "input.singer").write_bytes(text)
    out = io.StringIO()
    argv = ["--config", str(folder / "config.json"), "--input", str(folder / "input.singer")]
    with without_spark(folder), redirect_stdout(out):
        try:
            code = TargetBridge.get_singer_command().main(argv, standalone_mode=False) or 0
        except SystemExit as ended:
            code = int(ended.code or 0)
    lines = out.getvalue().splitlines()
    return Typed(code, [json.loads(line) for line in lines], out.getvalue())


def lake_of(folder: Path, pipeline: str = "target-bridge") -> Snapshot:
    """The lake as its log says it is."""
    log = Log(open_storage(str(folder / "lake")), pipeline)
    return log.snapshot(log.head())


def rows_of(folder: Path, stream: str, pipeline: str = "target-bridge") -> list[dict[str, Any]]:
    """The rows of a table's folder, in the order of its files' names and of rows."""
    table = lake_of(folder, pipeline).tables[stream]
    files = sorted((folder / "lake" / table.folder).glob("**/*.parquet"))
    assert {str(file.relative_to(folder / "lake" / table.folder)) for file in files} == set(table.files)
    found: list[dict[str, Any]] = [row for file in files for row in pq.ParquetFile(file).read().to_pylist()]
    return [plain(row) for row in found]
