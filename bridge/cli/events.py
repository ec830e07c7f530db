"""Everything that a verb prints beside its result. It goes to stderr: as text, or as one JSON object a line."""

from __future__ import annotations

import threading
import traceback
from datetime import datetime, timezone
from typing import Any

import click

from bridge.cli.plain import echo
from bridge.errors import BridgeError
from bridge.exact_json import dumps

FORMATS = ("text", "json")

_lock = threading.Lock()
_chosen = "text"


def use(log_format: str) -> None:
    """Choose the format for the rest of this process."""
    global _chosen  # noqa: PLW0603 - a process has one stderr, and errors reach it after the command line is gone
    _chosen = log_format


def chosen() -> str:
    """The format."""
    return _chosen


def is_json() -> bool:
    """Whether stderr is for a program."""
    return _chosen == "json"


def emit(level: str, event: str, **facts: Any) -> None:
    """Print one JSON object on a line. Threads may call this at the same time."""
    now = datetime.now(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    line = dumps({"time": now, "level": level, "event": event, **facts}).decode().rstrip("\n")
    with _lock:
        click.echo(line, err=True)


def report(error: BridgeError) -> int:
    """Print an error on stderr and return its exit code."""
    if is_json():
        facts = {"type": type(error).__name__, "message": error.message, "hint": error.hint}
        emit("error", "error", **facts, exit_code=error.exit_code)
        return error.exit_code
    echo("error: ", fg="red", bold=True, err=True, nl=False)
    echo(error.message, err=True)
    if error.hint:
        echo("hint: ", fg="yellow", err=True, nl=False)
        echo(error.hint, err=True)
    return error.exit_code


def trace(error: BridgeError) -> None:
    """Print where an error came from."""
    text = "".join(traceback.format_exception(error))
    if is_json():
        emit("error", "traceback", text=text)
    else:
        echo(text, err=True)


class TapLines:
    """Prints each line of the tap's stderr as an event."""

    def __init__(self, pipeline: str) -> None:
        self._pipeline = pipeline

    def write(self, data: bytes) -> None:
        for line in data.decode("utf-8", "replace").splitlines():
            emit("info", "tap", pipeline=self._pipeline, line=line)

    def flush(self) -> None:
        """Do nothing: `write` prints at once."""
