"""Holders of a pipeline in processes of their own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from bridge.lake.storage import Storage

_HOLD = """
import sys
from datetime import timedelta
from bridge.errors import BridgeError
from bridge.lake.lease import take
from bridge.lake.storage import open_storage
lease = take(open_storage(sys.argv[1]), "p", "run-of-another", ttl=timedelta(seconds=float(sys.argv[2])))
print("held", flush=True)
for line in sys.stdin:
    try:
        lease.check()
        print("ours", flush=True)
    except BridgeError as error:
        print(type(error).__name__, error.message, flush=True)
lease.close(head=7, clean=True)
"""

Hold = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def hold(lake: Storage) -> Iterator[Hold]:
    """Start processes that take the lease, check it at each line, and keep it until there are no more."""
    started: list[subprocess.Popen[str]] = []

    def start(ttl: float = 60) -> subprocess.Popen[str]:
        words = [sys.executable, "-c", _HOLD, lake.uri, str(ttl)]
        process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        started.append(process)
        assert process.stdout
        assert process.stdout.readline() == "held\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()
