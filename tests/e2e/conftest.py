"""A project folder and the real command in it, as a user has them; rows are read back with DuckDB."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import psutil
import pytest

from tests.support.one_spark import OneSpark, type_here
from tests.support.shell import Done

TAP = str(Path(sys.executable).with_name("tap-smoke"))


@dataclass
class Project:
    """A folder with a lake; `run` is `singer-bridge run --tap tap-smoke` into it."""

    folder: Path
    environ: dict[str, str] = field(default_factory=lambda: dict(os.environ))

    @property
    def lake(self) -> Path:
        return self.folder / "lake"

    def command(self, *arguments: str, timeout: float = 120) -> Done:
        argv = [sys.executable, "-m", "bridge", *arguments]
        done = subprocess.run(
            argv, cwd=self.folder, env=self.environ, capture_output=True, text=True, timeout=timeout, check=False
        )
        return Done(done.returncode, done.stdout, done.stderr)

    def run(self, config: dict[str, Any], *arguments: str, tap: str = TAP) -> Done:
        (self.folder / "config.json").write_text(json.dumps(config))
        return self.command(
            "run", "--tap", tap, "--tap-config", "config.json", "--to", "lake", "--name", "smoke", "--json", *arguments
        )

    def rows(self, stream: str, columns: str = "*", order: str = "id") -> list[tuple[Any, ...]]:
        folder = self.lake / "smoke" / stream
        if not folder.exists():
            return []
        query = f"select {columns} from read_parquet('{folder}/*.parquet', union_by_name=true) order by {order}"
        return duckdb.sql(query).fetchall()

    def ids(self, stream: str) -> list[int]:
        return [row[0] for row in self.rows(stream, "id")]

    def state(self) -> Any:
        return json.loads((self.lake / ".bridge/smoke/state.json").read_bytes())


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


@pytest.fixture
def in_process(
    one_spark: OneSpark, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Iterator[None]:
    """The project's commands are typed in this process, and their runs share one Spark session with other tests'."""

    def command(self: Project, *arguments: str, timeout: float = 0) -> Done:
        capfd.readouterr()
        code = type_here(arguments, self.folder, self.environ)
        return Done(code, *capfd.readouterr())

    monkeypatch.setattr(Project, "command", command)
    with one_spark.lent():
        yield


def stream(name: str = "users", records: int = 100, **settings: Any) -> dict[str, Any]:
    return {"name": name, "records": records, **settings}


def processes_of(folder: Path) -> list[psutil.Process]:
    found = psutil.process_iter(["cmdline"])
    return [one for one in found if any(str(folder) in word for word in one.info["cmdline"] or ())]


def wait_until_gone(folder: Path, seconds: float) -> None:
    end = time.monotonic() + seconds
    while processes_of(folder) and time.monotonic() < end:
        time.sleep(0.2)
    assert processes_of(folder) == []
