"""One run in a process of its own: `python -m bridge.service.runner`, started by the service, perhaps ahead of its run.

It ends with its run. If the service dies, it is killed at once, by its own hand: tap and JVM end as they do whenever a
run is killed, and the next run repairs.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
import threading
from contextlib import suppress
from typing import BinaryIO

from msgspec import to_builtins

from bridge.errors import BridgeError
from bridge.exact_json import dumps
from bridge.launch.launch import launch
from bridge.load.result import Result
from bridge.load.run import Run
from bridge.load.stop import Stop
from bridge.service.assignment import Ahead, Assignment, Report
from bridge.spark.warm import ahead

_EVERY = 0.5
"""Seconds between two reports of a run's progress."""
_LARGE = ("state", "state_before")
"""What the run record has, and no report."""


def main() -> int:
    """Do what comes on stdin; the exit code is the run's. Without a run it ends with 0."""
    reports = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)  # whatever a library prints is not a report
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # until there is a run to stop
    try:
        while True:
            order = pickle.load(sys.stdin.buffer)  # noqa: S301 - the service's own
            if isinstance(order, Ahead):
                _prepare(order, reports)
            else:
                return _Runner(order, reports).run()
    except EOFError:
        return 0
    finally:
        ahead.tidy()


def _prepare(order: Ahead, reports: BinaryIO) -> None:
    problem = ""
    try:
        ahead.prepare(order.spark.master, order.spark.conf, order.folder)
    except BridgeError as error:
        problem = f"{error.message}; {error.hint}"
    except OSError as error:
        problem = str(error)
    _write(reports, Report(ready=not problem, problem=problem))


def _write(reports: BinaryIO, report: Report) -> None:
    with suppress(OSError):  # the service is dead, and so will we be
        reports.write(dumps(to_builtins(report)) + b"\n")


class _Runner:
    """One run with its retries."""

    def __init__(self, assignment: Assignment, reports: BinaryIO) -> None:
        self._assignment, self._reports = assignment, reports

    def run(self) -> int:
        threading.Thread(target=_die_with_the_service, daemon=True).start()
        given = self._assignment
        with Stop() as stop:
            result = launch(
                given.pipeline,
                given.request,
                given.home,
                stop=stop,
                execute=self._execute,
                loaded=lambda: _write(self._reports, Report(loaded=True)),
            )
        code = result.error.exit_code if result.error else 0
        _write(self._reports, Report(exit_code=code))
        return code

    def _execute(self, run: Run) -> Result:
        ended = threading.Event()
        watcher = threading.Thread(target=self._watch, args=(run, ended), daemon=True)
        watcher.start()
        try:
            result = run.execute()
        finally:
            ended.set()
            watcher.join()
        facts = {key: value for key, value in result.to_json().items() if key not in _LARGE}
        _write(self._reports, Report(run_id=result.run_id, result=facts))
        return result

    def _watch(self, run: Run, ended: threading.Event) -> None:
        """Report the run's stage and how many records the tap has sent, whenever one of them has changed."""
        last = None
        while True:
            streams = list(run.result.streams.values())
            report = Report(run_id=run.result.run_id, stage=run.stage, records=sum(one.records for one in streams))
            if report != last:
                _write(self._reports, report)
                last = report
            if ended.wait(_EVERY):
                return


def _die_with_the_service() -> None:
    while os.read(0, 1):  # not by `sys.stdin`: its lock would be held when this process ends
        pass
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    ending = main()
    sys.stderr.flush()
    os._exit(ending)  # all is closed: to take every module apart would be a fifth of a small run
