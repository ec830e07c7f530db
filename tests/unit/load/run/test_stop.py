"""A signal or a time-out ends a wait and a run in good order, and nothing else."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from datetime import timedelta

import pytest

from bridge.errors import BridgeError, Interrupted, TimedOut
from bridge.load.run.stop import Stop


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_is_told_by_tick(number: int) -> None:
    """The first signal raises nowhere but in `tick`, with the exit code of its kind; afterwards all is as before."""
    before = signal.getsignal(number)
    with Stop() as stop:
        stop.tick()
        os.kill(os.getpid(), number)
        with pytest.raises(Interrupted) as raised:
            stop.tick()
    assert raised.value.exit_code == 128 + number
    assert signal.getsignal(number) is before


def test_a_signal_ends_a_wait_at_once() -> None:
    """Nobody who presses Ctrl-C waits for a backoff to pass."""
    with Stop() as stop:
        threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
        with pytest.raises(Interrupted):
            stop.sleep(timedelta(hours=1))


def test_a_wait_that_nobody_ends_is_as_long_as_it_says() -> None:
    """Not shorter, and no signal of before is made up."""
    began = time.monotonic()
    with Stop() as stop:
        stop.sleep(timedelta(milliseconds=250))
    assert time.monotonic() - began >= 0.25


def test_a_stop_inside_itself_is_one() -> None:
    """A run inside a batch shares its stop: leaving the run leaves the handlers, and the signal, to the batch."""
    with Stop() as stop:
        with stop:
            os.kill(os.getpid(), signal.SIGTERM)
        with pytest.raises(Interrupted):
            stop.tick()


def test_a_limit_holds_for_its_block_only() -> None:
    """Inside, `tick` raises once the time is up, exit code 1 and the limit in its words; outside it never does."""
    with Stop() as stop:
        with stop.within(timedelta(milliseconds=50)), pytest.raises(TimedOut, match="timeout=50 ms") as raised:
            stop.sleep(timedelta(minutes=5))
        assert raised.value.exit_code == 1
        stop.tick()
        with stop.within(None):
            stop.tick()


def test_a_second_signal_ends_the_process_at_once() -> None:
    """Who asks twice is not kept waiting, whatever we do in between."""
    program = """
import os, signal, time
from bridge.load.run.stop import Stop
with Stop():
    os.kill(os.getpid(), signal.SIGTERM)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(60)
"""
    done = subprocess.run([sys.executable, "-c", program], timeout=30, check=False, capture_output=True)
    assert (done.returncode, done.stderr) == (143, b"stopped at once; what was committed stays, run again\n")


def test_a_block_that_hangs_is_ended_after_its_limit() -> None:
    """Without a sign of life for the grace: the reason is told, the exit code is 1; a record that hangs waits not."""
    program = """
import time
from contextlib import suppress
from datetime import timedelta
import bridge.load.run.stop
from bridge.load.run.stop import Stop

def give_up(error):
    print(error.message, flush=True)
    time.sleep(60)

bridge.load.run.stop._LAST_WORDS = 0.2
stop = Stop()
stop.grace = 0.2
with stop, stop.within(timedelta(seconds=0.1), give_up):
    time.sleep(60)
"""
    done = subprocess.run([sys.executable, "-c", program], timeout=30, check=False, capture_output=True, text=True)
    message = "the run took longer than its time-out timeout=0.1 s"
    assert (done.returncode, done.stdout) == (1, f"{message}\n")
    assert done.stderr.startswith(f"error: {message}\nhint: what was committed stays")


def test_a_block_with_signs_of_life_may_end_by_itself() -> None:
    """After its limit it may take longer than the grace, as long as it asks; so may one that is not to end."""
    given_up = list[BridgeError]()
    stop = Stop()
    stop.grace = 0.3
    with stop, stop.within(timedelta(milliseconds=50), given_up.append):
        end = time.monotonic() + 1
        while time.monotonic() < end:
            with suppress(TimedOut):
                stop.sleep(timedelta(milliseconds=100))
            time.sleep(0.02)
    with stop, stop.within(timedelta(minutes=5), given_up.append):
        time.sleep(0.6)
    assert given_up == []


def test_work_aside() -> None:
    """Its error is raised; where it never ends, a limit ends the wait."""
    never = threading.Event()
    with Stop(signals=False) as stop:
        with pytest.raises(ZeroDivisionError):
            stop.aside(lambda: 1 // 0)
        with stop.within(timedelta(milliseconds=50)), pytest.raises(TimedOut):
            stop.aside(never.wait)
    never.set()
