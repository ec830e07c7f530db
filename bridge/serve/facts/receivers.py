"""Tell receivers, each in a thread of its own. One that hangs or fails costs a warning and at most the deadline."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping

from bridge.durations import duration

DEADLINE = 10.0
"""Seconds that all receivers of a run have together. After that their threads are left behind."""


def tell_all(receivers: Mapping[str, Callable[[], bool]], deadline: float = DEADLINE) -> list[str]:
    """Call all at once, and return a warning for each that failed or did not answer in time.

    A key describes its receiver without a secret. An error's text may hold its URL, so a warning has only its type.
    """
    outcomes: dict[str, str] = {}

    def call(name: str, send: Callable[[], bool]) -> None:
        try:
            outcomes[name] = "" if send() else "did not take it"
        except Exception as error:  # noqa: BLE001 - whatever a receiver does must not fail the run
            outcomes[name] = f"failed with {type(error).__name__}"

    # Daemons: the process does not wait for them at its end.
    threads = [
        threading.Thread(target=call, args=(name, send), name=f"receiver {name}", daemon=True)
        for name, send in receivers.items()
    ]
    for thread in threads:
        thread.start()
    end = time.monotonic() + deadline
    for thread in threads:
        thread.join(max(0.0, end - time.monotonic()))
    silent = f"did not answer within {duration(deadline)}"
    results = {name: outcomes.get(name, silent) for name in receivers}
    return [f"{name} {text}; the run itself is not affected" for name, text in results.items() if text]
