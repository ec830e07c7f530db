"""singer-bridge in the same table: as a run, and as a target behind a pipe."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from bridge import __version__
from bridge.load.spark.jvm.class_archive import VARIABLE

from .counting import read
from .faults import STOP
from .source import STREAM, Source
from .system import Pipe, System

_PIPELINE = "proof"
_PROMISE = "exactly once"


class Ours(System):
    """Its table is in a lake in a folder."""

    promise = _PROMISE
    table = STREAM
    run_line = f"singer-bridge run {_PIPELINE}"

    def write_pipeline(self, source: Source, pipeline: dict[str, Any]) -> None:
        """It commits every second, so that more commits are struck; YAML reads JSON."""
        text = json.dumps({"pipelines": {_PIPELINE: pipeline | {"commit": {"every": "1s"}}}})
        (source.folder / "bridge.yaml").write_text(text, encoding="utf-8")

    def numbers(self, folder: Path) -> list[int | None]:
        """What a reader of the table's folder sees: published files only."""
        return read(sorted((folder / "lake" / _PIPELINE / self.table).rglob("*.parquet")), "read_parquet(?)")

    def environ(self, folder: Path) -> dict[str, str]:
        """No run makes the cache for Spark's start behind those that are struck."""
        return super().environ(folder) | {VARIABLE: "off"}


class BridgeRun(Ours):
    """`singer-bridge run`, append-only, from bridge.yaml; it commits every second, so that more commits are struck."""

    name = "bridge-run"
    label = f"singer-bridge {__version__}, `run`"

    def set_up(self, source: Source) -> None:
        """One pipeline in bridge.yaml; YAML reads JSON."""
        tap = {"tap": str(source.command), "config": source.config_file.name}
        destination = {"bucket": "lake", "load_method": "append-only"}
        self.write_pipeline(source, {"source": tap, "destination": destination})

    def line(self, source: Source) -> str:
        return self.run_line


class BridgeRunStopped(BridgeRun):
    """The same, told to stop."""

    name = "bridge-run-stop"
    fault = STOP


class BridgeTarget(Ours):
    """`target-bridge` behind the same pipe as other targets, a commit every 2,000 rows."""

    name = "bridge-target"
    label = f"singer-bridge {__version__}, `target-bridge`"
    pipe = Pipe("target-bridge")

    def set_up(self, source: Source) -> None:
        """`start_state` is the file that the tap gets."""
        settings = {"bucket": "lake", "pipeline": _PIPELINE, "batch_size_rows": 2000, "start_state": self.pipe.state}
        (source.folder / "target.json").write_text(json.dumps(settings), encoding="utf-8")

    def line(self, source: Source) -> str:
        return self.pipe.line(source)


class BridgeTargetStopped(BridgeTarget):
    """The same, told to stop."""

    name = "bridge-target-stop"
    fault = STOP
