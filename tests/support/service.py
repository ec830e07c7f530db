"""The runs of a service without its loop, for tests that take its turns themselves."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bridge.serve.service.current_settings import CurrentSettings
from bridge.serve.service.run_queue import RunQueue
from bridge.serve.service.timetable import Timetable


def until(true: Callable[[], Any], seconds: float = 120) -> Any:
    """Wait until something is true, and return it."""
    end = time.monotonic() + seconds
    while not (result := true()):
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.05)
    return result


class Log:
    """A log of the service that keeps all texts, and the names of what else happens."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def noted(self, text: str) -> None:
        self.texts.append(text)

    def compared(self, pipeline: str, text: str, level: str = "info") -> None:
        self.texts.append(f"{pipeline}: {text}" if level == "info" else f"{pipeline}: {level}: {text}")

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *facts: self.texts.append(name)


class Queue:
    """The runs of a service, without its loop: `turn` is what the loop does."""

    def __init__(self, folder: Path) -> None:
        self.settings = CurrentSettings(folder / "bridge.yaml", None, pytest.fail)
        self.log: list[tuple[Any, ...]] = []
        home = folder / ".singer-bridge"
        self.runs = RunQueue(self.settings, Timetable(), home, self, lambda: None)

    def turn(self) -> bool:
        self.runs.dispatch()
        return self.runs.is_empty

    def until_empty(self) -> None:
        until(self.turn)

    def status(self, run_id: str) -> str:
        return next((live.status for live in self.runs.live() if live.run_id == run_id), "ended")

    def begun(self, *facts: Any) -> None: ...
    def changed(self) -> None: ...
    def ending(self, runs: int) -> None: ...
    def refused(self, error: Any) -> None: ...
    def unreadable(self, *facts: Any) -> None: ...

    def started(self, *facts: Any) -> None:
        self.log.append(("started", *facts))

    def finished(self, *facts: Any) -> None:
        self.log.append(("finished", *facts))

    def waits(self, *facts: Any) -> None:
        self.log.append(("waits", *facts))

    def left_out(self, *facts: Any) -> None:
        self.log.append(("left_out", *facts))

    def failed(self, *facts: Any) -> None:
        self.log.append(("failed", *facts))

    def noted(self, text: str) -> None:
        self.log.append(("noted", text))
