"""`serve`: what a team leaves running."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any

import click

from bridge.cli import events
from bridge.cli.options import file_options
from bridge.cli.plain import echo
from bridge.cli.selection import environment, settings_file
from bridge.cli.show import count_of, records_of
from bridge.durations import duration
from bridge.errors import BridgeError, SettingsError


@click.command()
@file_options
@click.option("--host", metavar="HOST", help="The address of its page; default: `service.host`.")
@click.option("--port", type=click.IntRange(0, 65535), metavar="PORT", help="Its port; default: `service.port`.")
def serve(file: Path | None, *, host: str | None, port: int | None) -> int:
    """Run pipelines when their schedules say so, until Ctrl-C; changed settings count at once.

    \b
    singer-bridge serve
    singer-bridge serve --env prod --port 9000
    """
    from bridge.serve.service.service import PipelineService
    from bridge.serve.service.web.server import page_served

    path = settings_file(file)
    log = _Log(path.name)
    service = PipelineService(path, environment(), log)
    flags = {key: value for key, value in (("host", host), ("port", port)) if value is not None}
    settings = service.settings.service.model_copy(update=flags)
    with _logged(log):
        service.run(beside=page_served(path, environment(), service.runs, settings, log.shown))
    return 0


@contextmanager
def _logged(log: _Log) -> Iterator[None]:
    """Print what our modules log, while the block runs: a traceback that no page shows."""

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            log.logged(record.levelname.lower(), self.format(record))

    logger, handler = logging.getLogger("bridge"), Handler()
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


class _Log:
    """Prints on stderr: a line with the time for people, or one JSON object."""

    def __init__(self, file: str) -> None:
        self._file, self._lock = file, threading.Lock()

    def _print(self, text: str, event: str, *, level: str = "info", **facts: Any) -> None:
        with suppress(OSError):  # nobody reads it any more, as under `| head`: the service goes on
            if events.is_json():
                events.emit(level, event, **facts)
                return
            with self._lock:
                echo(f"{datetime.now():%Y-%m-%d %H:%M:%S}  {text}", err=True)

    def begun(self, pipelines: int, scheduled: int) -> None:
        text = f"serving {count_of(pipelines, 'pipeline')}, {scheduled} with a schedule"
        self._print(text, "service_started", pipelines=pipelines, scheduled=scheduled)

    def shown(self, url: str) -> None:
        self._print(f"the page: {url}", "page_served", url=url)

    def started(self, pipeline: str, run_id: str, reason: str) -> None:
        why = {"schedule": "", "missed": ", was missed", "request": ", as requested"}[reason]
        self._print(f"{pipeline}: run {run_id}{why}", "run_started", pipeline=pipeline, run_id=run_id, reason=reason)

    def finished(self, pipeline: str, run_id: str, result: dict[str, Any] | None, code: int) -> None:
        facts = {"pipeline": pipeline, "run_id": run_id, "exit_code": code}
        if result is None:
            end = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
            self._print(f"{pipeline}: its process {end}", "run_died", level="error", **facts)
            return
        read, committed = (sum(one[key] for one in result["streams"].values()) for key in ("read", "records"))
        records = records_of(result["status"], read, committed)
        text = f"{pipeline}: {result['status']}, {records} in {duration(result['seconds'].get('total', 0))}"
        error = result["error"]
        if error:
            text += f"; {error['message']}"
        level = "error" if error else "info"
        facts |= {
            "status": result["status"],
            "read": read,
            "records": committed,
            "seconds": result["seconds"],
            "error": error,
        }
        self._print(text, "run_finished", level=level, **facts)
        for warning in result["warnings"]:
            self._print(f"{pipeline}: {warning}", "warning", level="warning", pipeline=pipeline, message=warning)

    def waits(self, pipeline: str, held: BridgeError) -> None:
        self._print(f"{pipeline}: waits, {held.message}", "run_waits", pipeline=pipeline, message=held.message)

    def left_out(self, pipeline: str, reason: str) -> None:
        self._print(f"{pipeline}: not run, {reason}", "run_left_out", pipeline=pipeline, reason=reason)

    def failed(self, pipeline: str, text: str) -> None:
        self._print(f"{pipeline}: {text}", "run_not_started", level="error", pipeline=pipeline, message=text)

    def compared(self, pipeline: str, text: str, level: str = "info") -> None:
        self._print(f"{pipeline}: {text}", "comparison", level=level, pipeline=pipeline, message=text)

    def refused(self, error: SettingsError, stays: bool) -> None:
        outcome = "those from before stay" if stays else "the pipeline is left out"
        text = f"settings refused, {outcome}: {error.message}; {error.hint}"
        facts = {"message": error.message, "hint": error.hint, "is_left_out": not stays}
        self._print(text, "settings_refused", level="error", **facts)

    def unreadable(self, pipeline: str, error: BridgeError) -> None:
        text = f"{pipeline}: its schedule waits, its bucket cannot be read: {error.message}; {error.hint}"
        facts = {"pipeline": pipeline, "message": error.message, "hint": error.hint}
        self._print(text, "bucket_unreadable", level="error", **facts)

    def changed(self) -> None:
        self._print(f"{self._file} was read again", "settings_read")

    def logged(self, level: str, text: str) -> None:
        """A module has logged something, perhaps with a traceback."""
        self._print(text, "log", level=level, message=text)

    def noted(self, text: str) -> None:
        self._print(text, "warning", level="warning", message=text)

    def ending(self, runs: int) -> None:
        text = f"ending; {count_of(runs, 'run')} to wait for" if runs else "ending"
        self._print(text, "service_ending", runs=runs)
