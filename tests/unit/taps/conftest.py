"""Run the taps as a runner would: as processes, from files, judged by what they write and how they exit."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.tables import Shop
from tests.support.tap_bridge import rows, upsert


@dataclass(frozen=True)
class Outcome:
    """What one process left."""

    code: int
    stdout: bytes
    stderr: str

    @property
    def messages(self) -> list[dict[str, Any]]:
        """All lines, parsed."""
        return [json.loads(line) for line in self.stdout.splitlines()]

    def of(self, kind: str, stream: str | None = None) -> list[dict[str, Any]]:
        """The messages of one type, of one stream if given."""
        return [m for m in self.messages if m["type"] == kind and stream in (None, m.get("stream"))]

    def ids(self, stream: str | None = None) -> list[int]:
        """The numbers of the records, in the order of the wire."""
        return [m["record"]["id"] for m in self.of("RECORD", stream)]

    @property
    def states(self) -> list[Any]:
        """The values of the STATEs."""
        return [m["value"] for m in self.of("STATE")]

    @property
    def committed(self) -> Outcome:
        """What a bridge keeps of a run that was cut: the lines up to the last STATE."""
        end = self.stdout.rfind(b'{"type":"STATE"')
        return Outcome(self.code, self.stdout[: self.stdout.find(b"\n", end) + 1 if end >= 0 else 0], self.stderr)


Tap = Callable[..., Outcome]


def _runner(module: str, folder: Path) -> Tap:
    def run(config: Any, *switches: str, state: Any = None, catalog: Any = None) -> Outcome:
        command = [sys.executable, "-m", module, *switches]
        for name, value in (("config", config), ("state", state), ("catalog", catalog)):
            if value is not None:
                path = folder / f"{name}.json"
                path.write_text(json.dumps(value))
                command += [f"--{name}", str(path)]
        done = subprocess.run(command, capture_output=True, timeout=60, check=False)
        return Outcome(done.returncode, done.stdout, done.stderr.decode())

    return run


@pytest.fixture
def smoke(tmp_path: Path) -> Tap:
    """Run tap-smoke with these files' contents."""
    return _runner("tap_smoke", tmp_path)


@pytest.fixture
def replay(tmp_path: Path) -> Tap:
    """Run tap-replay with these files' contents."""
    return _runner("tap_replay", tmp_path)


@pytest.fixture
def users(tmp_path: Path) -> Shop:
    """A pipeline with a table that is merged by its key."""
    shop = Shop(tmp_path)
    upsert(shop, rows(*range(1, 7)))
    return shop
