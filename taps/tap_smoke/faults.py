"""Faults, and when they happen: counted in records of this run, over all streams."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable

from tap_smoke.settings import Fail, Settings
from tap_smoke.wire import STDERR, Wire, log, write_all

NEVER = 2**63
NOISE_LINE_BYTES = 120
TRACE = 'Traceback (most recent call last):\n  File "tap.py", line 1, in sync\nConnectionError: the server went away\n'


class Ended(Exception):
    """The run stops here with this exit code; `state` says whether the STATE is still written."""

    def __init__(self, code: int, *, state: bool = False) -> None:
        self.code, self.state = code, state
        super().__init__(code)


class Sigterm:
    """Turns SIGTERM into `Ended`, but only between messages: a bookmark must not lead what was written."""

    def __init__(self) -> None:
        self._asked = self._asleep = False
        signal.signal(signal.SIGTERM, self._on_signal)

    def check(self) -> None:
        """Raise Ended if somebody asked us to stop."""
        if self._asked:
            raise Ended(0, state=True)

    def _on_signal(self, *_: object) -> None:
        self._asked = True
        # a sleep would continue after the handler; raising here is safe, as all is written
        if self._asleep:
            self.check()

    def sleep(self, seconds: float) -> None:
        """Sleep; SIGTERM ends it."""
        self._asleep = True
        try:
            self.check()
            time.sleep(seconds)
        finally:
            self._asleep = False


class Faults:
    """Knows the next record count at which something happens, and does it."""

    def __init__(self, settings: Settings, wire: Wire, sleep: Callable[[float], None]) -> None:
        self._settings, self._wire, self._sleep = settings, wire, sleep
        self._fail = settings.fail if _armed(settings) else None
        self._last_count = -1

    def room(self, count: int) -> int:
        """How many records may be sent in one go after `count` of them."""
        settings, stops = self._settings, [NEVER]
        if settings.stderr_every:
            stops.append((count // settings.stderr_every + 1) * settings.stderr_every)
        if settings.stdout_noise:
            stops.append(settings.stdout_noise - 1)
        if self._fail:
            stops.append(self._fail.at)
        return min(stop for stop in stops if stop > count) - count

    def reached(self, count: int, next_line: Callable[[], str]) -> None:
        """Do what is due after `count` records; `next_line` gives the line that half a line is cut from."""
        if count == self._last_count:
            return
        self._last_count = count
        settings = self._settings
        if count and settings.stderr_every and count % settings.stderr_every == 0:
            self._wire.flush()
            log(f"{count} records")
        if settings.stdout_noise and count == settings.stdout_noise - 1:
            self._wire.add("hello\n")
            self._wire.flush()
        if self._fail and count == self._fail.at:
            self._strike(self._fail, next_line)

    def _strike(self, fail: Fail, next_line: Callable[[], str]) -> None:
        if self._settings.fail_once_file:
            _touch(self._settings.fail_once_file)
        if fail.how.startswith("half_line"):
            line = next_line()
            self._wire.add(line[: len(line) // 2])
        self._wire.flush()
        if fail.how == "term":
            raise Ended(0, state=True)
        if fail.how == "signal":
            os.kill(os.getpid(), signal.SIGKILL)
        while fail.how == "hang":
            self._sleep(3600)
        if fail.how == "exit":
            write_all(STDERR, TRACE.encode())
            raise Ended(3)
        raise Ended(0 if fail.how == "half_line_ok" else 1)


def make_noise(settings: Settings) -> None:
    """Everything that goes to stderr before the first record: the secret, then the log lines."""
    if settings.secret is not None:
        log(f"connecting with password {settings.secret}")
    line = b"tap-smoke: log noise ".ljust(NOISE_LINE_BYTES - 1, b".") + b"\n"
    whole, rest = divmod(settings.stderr_bytes, NOISE_LINE_BYTES)
    write_all(STDERR, line * whole + (line[-rest:] if rest else b""))


def _armed(settings: Settings) -> bool:
    return not (settings.fail_once_file and os.path.exists(settings.fail_once_file))


def _touch(path: str) -> None:
    """Leave the mark before failing, durable in the eyes of the next process even if this one is killed."""
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o644))
