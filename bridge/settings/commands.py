"""The commands that a hint tells the user to type."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bridge.settings.options import Pipeline


def pipeline_arguments(pipeline: str, bucket: str, *, piped: bool) -> str:
    """How to name a pipeline to a verb. A `piped` one is in no bridge.yaml: another program starts its tap."""
    return f"--to {shlex.quote(bucket)} --name {pipeline}" if piped else pipeline


def full_run(pipeline: str, streams: Iterable[str] = ()) -> str:
    """The command that loads a pipeline, or some of its streams, from the start."""
    return " ".join(["singer-bridge run", pipeline, "--full", *(f"-s {shlex.quote(stream)}" for stream in streams)])


def selecting(pipeline: str, pattern: str) -> str:
    """The command that adds a pattern to `source.select`."""
    return f"singer-bridge select {pipeline} {shlex.quote(pattern)}"


def reload(pipeline: Pipeline, streams: Sequence[str], name: str = "", *, piped: bool = False, mark: str = "") -> str:
    """How to load streams from the start without doubles; `name` is what to type to choose the pipeline.

    Each stream is named, as the others may be append-only, of which `--full` is refused. So it is of one of these.
    `piped`: another program starts the tap. `mark`: what stands before and behind the command.
    """
    appended = [stream for stream in streams if pipeline.appends_only([stream])]
    method = "overwrite" if piped else "auto"
    first = f"set load_method: {method} for {', '.join(appended)}, then " if appended else ""
    if piped:
        return f"{first}start the tap without a STATE"
    return f"{first}{mark}{full_run(name or pipeline.name, streams)}{mark}"
