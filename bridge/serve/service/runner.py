"""Runs in a process of their own: `python -m bridge.serve.service.runner`, started by their owner.

It ends when its owner closes its stdin. If the owner dies during a run, it is killed at once, by its own hand: tap and
JVM end as they do whenever a run is killed, and the next run repairs.
"""

from __future__ import annotations

import os
import pickle
import select
import signal
import sys
import threading
from contextlib import suppress

from msgspec import to_builtins

from bridge.exact_json import dumps
from bridge.serve.service.assignment import RunnerReport


def main(descriptor: int) -> None:
    """Do what comes on stdin, one after another; reports go to the descriptor."""
    pipe = os.fdopen(descriptor, "wb", buffering=0)
    stdout = os.dup(1)
    os.dup2(2, 1)  # whatever a library prints is no result
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # until there is a run to stop
    lifeline = _Lifeline()

    def report(news: RunnerReport) -> None:
        with suppress(OSError):  # the owner is dead, and so will we be
            pipe.write(dumps(to_builtins(news)) + b"\n")

    try:
        while True:
            work = pickle.load(sys.stdin.buffer)  # noqa: S301 - the owner's own
            with lifeline:
                code = work.do(report, stdout)
            report(RunnerReport(exit_code=code))
    except EOFError:
        pass


class _Lifeline:
    """Kills this process when its owner dies within the block."""

    def __init__(self) -> None:
        self._is_needed = False
        threading.Thread(target=self._hold, name="lifeline", daemon=True).start()

    def __enter__(self) -> None:
        self._is_needed = True
        if _is_cut(timeout=0):
            os.kill(os.getpid(), signal.SIGKILL)

    def __exit__(self, *error: object) -> None:
        self._is_needed = False

    def _hold(self) -> None:
        if _is_cut(timeout=None) and self._is_needed:
            os.kill(os.getpid(), signal.SIGKILL)


def _is_cut(timeout: float | None) -> bool:
    """Whether nobody holds the other end of stdin; waits for that."""
    poll = select.poll()
    poll.register(0, 0)  # only for the end: what comes is read elsewhere
    return bool(poll.poll(timeout))


if __name__ == "__main__":
    main(int(sys.argv[2]))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # all is closed: to take every module apart would be a fifth of a small run
