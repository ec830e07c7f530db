"""A project with real pipelines, and how a program of another venv is typed in it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.support.s3server import ROOT

OWN = ("--editable", str(ROOT))
"""What installs singer-bridge itself into a venv, with its dependencies."""


def tap(orders: int = 100, users: int = 10, **facts: Any) -> dict[str, Any]:
    """`tap-smoke` with so many records."""
    program = str(Path(sys.executable).with_name("tap-smoke"))
    streams = [{"name": "orders", "records": orders}, {"name": "users", "records": users}]
    return {"tap": program, "config": {"seed": 1, "streams": streams, **facts}}


SLEEPER = {"tap": ["sh", "-c", "exec sleep 600"], "discover": "never"}
"""A tap that says nothing: its run starts no Spark."""


@dataclass(frozen=True)
class ToolProject:
    """A folder with a bridge.yaml, a lake, and whatever another tool needs."""

    folder: Path

    @property
    def lake(self) -> Path:
        return self.folder / "lake"

    def settle(self, **pipelines: dict[str, Any]) -> None:
        """Write bridge.yaml. A pipeline that names no bucket goes to the lake."""
        bucket = {"destination": {"bucket": str(self.lake)}}
        settings = {"pipelines": {name: {**bucket, **one} for name, one in pipelines.items()}}
        (self.folder / "bridge.yaml").write_text(yaml.safe_dump(settings))

    def type(self, *words: str | Path, code: int = 0, environ: Mapping[str, str] | None = None) -> str:
        """Run a program in the folder; fail unless it exits so; return what it printed."""
        done = subprocess.run(
            list(map(str, words)),
            cwd=self.folder,
            env={**clean_environ(), **(environ or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=600,
            check=False,
        )
        assert done.returncode == code, f"{words} ended with {done.returncode}\n{done.stdout}"
        return done.stdout

    def bridge(self, *words: str | Path, code: int = 0) -> str:
        """Type `singer-bridge` as it is installed here."""
        return self.type(Path(sys.executable).with_name("singer-bridge"), *words, code=code)


def clean_environ() -> dict[str, str]:
    """This environment without what would choose a pipeline or a run."""
    ours = ("SINGER_BRIDGE_", "AIRFLOW_", "DAGSTER_", "DBT_")
    return {key: value for key, value in os.environ.items() if not key.startswith(ours)}


def until(condition: Callable[[], object], process: subprocess.Popen[bytes] | None = None) -> None:
    """Look again and again, for two minutes at most; fail if the process ends meanwhile."""
    end = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < end, "it never came"
        assert process is None or process.poll() is None, "the process ended"
        time.sleep(0.05)
