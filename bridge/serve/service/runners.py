"""A runner process, as its owner has it."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from msgspec import DecodeError, json

from bridge.serve.service.assignment import RunnerReport, Work


class Runner:
    """One runner process, in a process group of its own, for one thing at a time. It ends with `close`."""

    def __init__(self, folder: Path) -> None:
        """Start it. `folder` is only for who looks at processes."""
        reading, writing = os.pipe()
        self._reports_pipe = os.fdopen(reading, "rb")
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "bridge.serve.service.runner", str(folder), str(writing)],
                stdin=subprocess.PIPE,
                pass_fds=[writing],
                start_new_session=True,
            )
        except BaseException:
            self._reports_pipe.close()
            raise
        finally:
            os.close(writing)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def run(self, work: Work, report: Callable[[RunnerReport], None]) -> int:
        """Let it do a run, and pass on its reports; return the exit code, negative if a signal killed it."""
        self._send(work)
        for each in self._reports():
            report(each)
            if each.exit_code is not None:
                return each.exit_code
        return self._process.wait()

    def signal(self, number: int) -> None:
        """Send it a signal, unless it has ended."""
        self._process.send_signal(number)

    def close(self) -> None:
        """Let it end, if it has no run. It is not waited for."""
        assert self._process.stdin
        with suppress(OSError):
            self._process.stdin.close()

    def wait(self) -> None:
        """Wait until one that was closed has ended."""
        self._process.wait()
        self._reports_pipe.close()

    def _send(self, order: Work) -> None:
        assert self._process.stdin
        with suppress(BrokenPipeError):  # it has died: its exit code says so
            self._process.stdin.write(pickle.dumps(order))
            self._process.stdin.flush()

    def _reports(self) -> Iterator[RunnerReport]:
        while not self._reports_pipe.closed and (line := self._reports_pipe.readline()):
            with suppress(DecodeError):  # half of one, if the process was killed
                yield json.decode(line, type=RunnerReport)
                continue
        self._reports_pipe.close()
