"""An operator of Airflow 3 and 2 that runs a pipeline: `singer-bridge run`, as a process of its own.

A process, because then Airflow and Spark share no memory, singer-bridge may be installed in another environment than
Airflow (with Airflow 2 it must be), and a task that is killed ends the run as Ctrl-C does: what the tap's last STATE
covers is committed, and the run is recorded as interrupted. This module imports nothing of the bridge.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any, Literal

try:
    from airflow.sdk import BaseOperator
    from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException
except ImportError:  # Airflow 2
    from airflow.exceptions import AirflowException, AirflowFailException, AirflowSkipException
    from airflow.models import BaseOperator

__all__ = ["RunPipelineOperator"]

_USAGE, _HELD = 2, 4
"""Exit codes of `singer-bridge run`."""
_LAST = 10
"""Lines of stderr that an error shows if there is no result."""
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
# A line means that the run has ended, or was asked to; end-of-file, that Airflow's task died without a word.
_GUARD = 'read -r ended && exit; kill -s TERM "$1"'


class RunPipelineOperator(BaseOperator):  # type: ignore[misc]
    """Run a pipeline of a bridge.yaml; the task succeeds when all is committed.

    XCom has `run_id`, `pipeline`, `status`, `rows`, `rejected`, `commits`, `commit`, `warnings` and `streams` (rows by
    stream), also of a run that failed. Wrong settings fail the task without a retry; a pipeline that another run holds
    fails it, or skips it with `on_held="skip"`. A retry is a new run, which goes on from the last commit.
    """

    template_fields: Sequence[str] = ("pipeline", "file", "environment", "streams", "command", "env")
    template_fields_renderers = {"env": "json"}  # noqa: RUF012 - as Airflow's own operators have it
    ui_color = "#e0f2ef"

    _process: subprocess.Popen[str] | None = None
    _guard: subprocess.Popen[bytes] | None = None
    _stopped = False

    def __init__(
        self,
        *,
        pipeline: str | None = None,
        file: str = "bridge.yaml",
        environment: str | None = None,
        streams: Sequence[str] = (),
        full: bool = False,
        resume: bool = False,
        timeout: timedelta | None = None,
        wait: timedelta | None = None,
        on_held: Literal["fail", "skip"] = "fail",
        command: str | Sequence[str] | None = None,
        env: Mapping[str, str] | None = None,
        grace: timedelta = timedelta(minutes=1),
        **kwargs: Any,
    ) -> None:
        """`command`: singer-bridge in another environment, such as `/opt/bridge/bin/singer-bridge`.

        `env` is added to the environment of the process. `grace`: how long a killed task waits for its run to end.
        """
        super().__init__(**kwargs)
        self.pipeline, self.file, self.environment, self.streams = pipeline, file, environment, streams
        self.full, self.resume, self.timeout, self.wait = full, resume, timeout, wait
        self.on_held, self.command, self.env, self.grace = on_held, command, env, grace

    def execute(self, context: Any) -> dict[str, Any]:
        """Run, log what the run says, and return its result for XCom."""
        self._stopped, printed, lines = False, list[str](), deque[str](maxlen=_LAST)
        process = self._process = self._start()
        readers = [
            threading.Thread(target=lambda: printed.extend(process.stdout or ()), daemon=True),
            threading.Thread(target=lambda: self._log_lines(process.stderr or (), lines), daemon=True),
        ]
        for reader in readers:
            reader.start()
        try:
            self._guard = _guarding(process.pid)
            code = process.wait()
        except BaseException:  # Airflow 2 raises in a task that is killed, both do in one that takes too long
            self.on_kill()
            self._await_end(process)
            raise
        finally:
            self._end_guard()
        for reader in readers:
            reader.join()
        return self._result(context, code, "".join(printed), lines)

    def on_kill(self) -> None:
        """Ask the run to end, once: a second signal would end it before it commits. Airflow calls this in a handler."""
        process = self._process
        if process and not self._stopped and process.returncode is None:
            self._stopped = True
            self._end_guard()
            with suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGTERM)

    def _start(self) -> subprocess.Popen[str]:
        given = [sys.executable, "-m", "bridge"] if self.command is None else self.command
        argv = [*(shlex.split(given) if isinstance(given, str) else given), "run", "--json", "--no-progress"]
        argv += ["--file", self.file, *([self.pipeline] if self.pipeline else [])]
        argv += [word for stream in self.streams for word in ("--stream", stream)]
        argv += [f"--{name}" for name in ("full", "resume") if getattr(self, name)]
        for name, value in (("env", self.environment), ("timeout", self.timeout), ("wait", self.wait)):
            argv += (
                [f"--{name}", f"{value.total_seconds():.0f}s" if isinstance(value, timedelta) else value]
                if value
                else []
            )
        self.log.info("%s", shlex.join(argv))
        try:
            return subprocess.Popen(
                argv,
                env={**os.environ, **(self.env or {})},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                errors="backslashreplace",
                start_new_session=True,
            )
        except OSError as error:
            text = f"{argv[0]} cannot be started: {error.strerror}. Give `command`, the path of singer-bridge"
            raise AirflowFailException(text) from error

    def _log_lines(self, stderr: Iterable[str], last: deque[str]) -> None:
        for line in stderr:
            if text := _COLOUR.sub("", line).rstrip():
                last.append(text)
                self.log.info("%s", text)

    def _await_end(self, process: subprocess.Popen[str]) -> None:
        try:
            process.wait(timeout=self.grace.total_seconds())
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _end_guard(self) -> None:
        guard, self._guard = self._guard, None
        if guard:
            with suppress(OSError):
                guard.communicate(b"ended\n")

    def _result(self, context: Any, code: int, printed: str, lines: deque[str]) -> dict[str, Any]:
        """The value for XCom. If the run did not succeed, raises the error of which Airflow makes the task's state."""
        try:
            document = json.loads(printed)
        except ValueError:
            why = "killed by the system" if code < 0 else f"exit code {code}"
            raise AirflowException(f"singer-bridge ended without a result, {why}:\n" + "\n".join(lines)) from None
        streams = {name: stream["records"] for name, stream in document["streams"].items()}
        facts = {key: document.get(key) for key in ("run_id", "pipeline", "status", "commits", "commit", "warnings")}
        facts |= {"rows": sum(streams.values()), "streams": streams}
        facts["rejected"] = sum(stream["rejected"] for stream in document["streams"].values())
        self.log.info("run %s: %s, %s rows, commit %s", *(facts[key] for key in ("run_id", "status", "rows", "commit")))
        if code == 0:
            return facts
        context["ti"].xcom_push(key="return_value", value=facts)
        error = document.get("error") or {}
        text = ". ".join(filter(None, [error.get("message"), error.get("hint")])) or f"exit code {code}"
        if code == _HELD and self.on_held == "skip":
            raise AirflowSkipException(text)
        raise (AirflowFailException if code == _USAGE else AirflowException)(text)


def _guarding(run: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(["/bin/sh", "-c", _GUARD, "guard", str(run)], stdin=subprocess.PIPE, start_new_session=True)
