"""singer-bridge in the same table: as a run, and as a target behind a pipe."""

from __future__ import annotations

import json
from pathlib import Path

from bridge import __version__
from bridge.load.spark.jvm.class_archive import VARIABLE

from .counting import read
from .faults import STOP
from .source import STREAM, Source
from .system import Pipe, System

_PIPELINE = "proof"
_PROMISE = "exactly once"


class _Ours(System):
    def numbers(self, folder: Path) -> list[int | None]:
        """What a reader of the table's folder sees: published files only."""
        return read(sorted((folder / "lake" / _PIPELINE / STREAM).rglob("*.parquet")), "read_parquet(?)")

    def environ(self, folder: Path) -> dict[str, str]:
        """No run makes the cache for Spark's start behind those that are struck."""
        return super().environ(folder) | {VARIABLE: "off"}


class BridgeRun(_Ours):
    """`singer-bridge run`, append-only, from bridge.yaml; it commits every second, so that more commits are struck."""

    name = "bridge-run"
    label = f"singer-bridge {__version__}, `run`"
    promise = _PROMISE

    def set_up(self, source: Source) -> None:
        """One pipeline in bridge.yaml; YAML reads JSON."""
        tap = {"tap": str(source.command), "config": source.config_file.name}
        destination = {"bucket": "lake", "load_method": "append-only"}
        pipeline = {"source": tap, "destination": destination, "commit": {"every": "1s"}}
        text = json.dumps({"pipelines": {_PIPELINE: pipeline}})
        (source.folder / "bridge.yaml").write_text(text, encoding="utf-8")

    def line(self, source: Source) -> str:
        return f"singer-bridge run {_PIPELINE}"


class BridgeRunStopped(BridgeRun):
    """The same, told to stop."""

    name = "bridge-run-stop"
    fault = STOP


class BridgeTarget(_Ours):
    """`target-bridge` behind the same pipe as other targets, a commit every 2,000 rows."""

    name = "bridge-target"
    label = f"singer-bridge {__version__}, `target-bridge`"
    promise = _PROMISE
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
