"""What a hint tells the user to type."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bridge.settings.options import Pipeline


def pipeline_arguments(pipeline: str, bucket: str, *, piped: bool) -> str:
    """How to name a pipeline to a verb. A `piped` one is in no bridge.yaml: another program starts its tap."""
    return f"--to {bucket} --name {pipeline}" if piped else pipeline


def full_run(pipeline: str, streams: Iterable[str] = ()) -> str:
    """The command that loads a pipeline, or some of its streams, from the start."""
    return " ".join(["singer-bridge run", pipeline, "--full", *(f"-s {shlex.quote(stream)}" for stream in streams)])


def reload(pipeline: Pipeline, streams: Sequence[str], name: str = "") -> str:
    """How to load streams from the start without doubles; `name` is what to type to choose the pipeline.

    Each stream is named, as the others may be append-only, of which `--full` is refused. So it is of one of these.
    """
    appended = [stream for stream in streams if pipeline.appends_only([stream])]
    first = f"set load_method: auto for {', '.join(appended)}, then " if appended else ""
    return first + full_run(name or pipeline.name, streams)
