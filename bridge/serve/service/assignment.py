"""Messages between runner processes and their owner: a service, or a command that has several runs.

To the runner, over its stdin: any number of `Work`, pickled, one after another. The owner holds that pipe
open as long as it lives. From the runner, over a pipe of its own: one JSON object a line, `RunnerReport`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from msgspec import Struct


class Work(Protocol):
    """A run with its retries."""

    def do(self, report: Callable[[RunnerReport], None], stdout: int) -> int:
        """Do it in this process, the runner's; return the exit code. `stdout`: the owner's, while 1 is its stderr."""


class RunnerReport(Struct, frozen=True, omit_defaults=True):
    """News of a runner. What is absent is as before."""

    run_id: str = ""
    """The attempt that is under way."""
    attempt: int = 1
    """Its number."""
    stage: str = ""
    records: int = 0
    result: str = ""
    """An attempt has ended: the JSON that `run --json` prints, of the service's runs without any STATE."""
    loaded: bool = False
    """There comes no other attempt: it only waits for receivers of its news."""
    exit_code: int | None = None
    """The work is done."""
