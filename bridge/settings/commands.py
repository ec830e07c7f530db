"""What a hint tells the user to type."""

from __future__ import annotations

from collections.abc import Iterable


def pipeline_arguments(pipeline: str, bucket: str, *, piped: bool) -> str:
    """How to name a pipeline to a verb. A `piped` one is in no bridge.yaml: another program starts its tap."""
    return f"--to {bucket} --name {pipeline}" if piped else pipeline


def full_run(pipeline: str, streams: Iterable[str] = ()) -> str:
    """The command that loads a pipeline, or some of its streams, from the start."""
    return " ".join(["singer-bridge run", pipeline, "--full", *(f"-s {stream}" for stream in streams)])
