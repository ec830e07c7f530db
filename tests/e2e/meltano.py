"""Meltano itself, from the package index, in a venv of its own, and a project in which our wheel is a plugin."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import duckdb
import psutil
import pytest
import yaml

from tests.support.shell import Done

ROOT = Path(__file__).parents[2]
UV = Path(sys.executable).with_name("uv")
_OURS = ("MELTANO_", "TARGET_", "TAP_", "SINGER_", "VIRTUAL_ENV", "PYTHONPATH")
_PATIENCE = 300
"""Seconds that a run may take to come to what is waited for."""
_COMMAND = 600
"""Seconds that a command may take where everything else runs, too."""


def _made(words: Sequence[str | Path], purpose: str) -> None:
    """Run what has to work for any test to be of use. Fails with what it said, never skips."""
    done = subprocess.run(words, capture_output=True, text=True, timeout=_COMMAND, check=False)
    if done.returncode:
        pytest.fail(f"{purpose}: {' '.join(map(str, words))}\n{done.stdout}{done.stderr}", pytrace=False)


def installed_meltano(folder: Path) -> Path:
    """Return the folder of Meltano's commands.

    Its uv, by which it installs plugins, is the one that made our own environment: they share what is downloaded.
    """
    _made([UV, "venv", "--quiet", "--python", sys.executable, folder], "no venv for Meltano")
    packages = ["meltano>=4", f"uv=={version('uv')}"]
    _made(
        [UV, "pip", "install", "--quiet", "--compile-bytecode", "--python", folder / "bin/python", *packages],
        "no Meltano to be had",
    )
    return folder / "bin"


def built_wheel(folder: Path) -> Path:
    """Return the wheel of this checkout, built as a release is."""
    _made([UV, "build", "--quiet", "--wheel", "--out-dir", folder, ROOT], "no wheel")
    (wheel,) = folder.glob("*.whl")
    return wheel


@dataclass(frozen=True)
class Meltano:
    """Meltano in a project folder; `environment` is where its runs are, `environ` what the shell adds."""

    folder: Path
    programs: Path
    environment: str = "dev"
    environ: tuple[tuple[str, str], ...] = ()

    def having(self, environment: str = "", **environ: Any) -> Meltano:
        """Return the same project with more in its environment; what is no text becomes JSON."""
        texts = {name: value if isinstance(value, str) else json.dumps(value) for name, value in environ.items()}
        return replace(
            self, environment=environment or self.environment, environ=tuple((dict(self.environ) | texts).items())
        )

    @property
    def shell(self) -> dict[str, str]:
        """All variables: nothing of the machine's own Meltano or of other taps."""
        clean = {name: value for name, value in os.environ.items() if not name.startswith(_OURS)}
        path = os.pathsep.join([str(self.programs), str(Path(sys.executable).parent), clean["PATH"]])
        quiet = {"MELTANO_CLI_DISABLE_VERSION_CHECK": "1", "MELTANO_SEND_ANONYMOUS_USAGE_STATS": "false"}
        own = {"PATH": path, "XDG_STATE_HOME": str(self.folder / ".logs"), "NO_COLOR": "1"}
        return clean | quiet | own | dict(self.environ)

    def type(self, line: str) -> Done:
        """Type a line in the project folder."""
        done = subprocess.run(
            line,
            shell=True,
            cwd=self.folder,
            env=self.shell,
            capture_output=True,
            text=True,
            timeout=_COMMAND,
            check=False,
        )
        return Done(done.returncode, done.stdout, done.stderr)

    def install(self) -> Done:
        """`meltano install`, of what is on this machine already, or else from the package index."""
        offline = self.having(UV_OFFLINE="1").type("meltano install")
        return self.type("meltano install") if offline.code else offline

    def run(self, line: str, code: int = 0) -> str:
        """`meltano run`; returns what it said on stderr."""
        done = self.type(f"meltano --environment={self.environment} run {line}")
        assert done.code == code, done.err + done.out
        return done.err + done.out

    def killed(self, line: str, word: str) -> None:
        """`kill -9` Meltano alone in the middle of a run, when `word` is in what it says; wait for its orphans."""
        with self._started(line, word) as running:
            running.kill()
            running.wait()
            deadline = time.monotonic() + _PATIENCE
            while _members(running.pid):
                assert time.monotonic() < deadline, "its tap or target would not end"
                time.sleep(0.1)

    def signalled(self, line: str, word: str, target: bool) -> tuple[int, str]:
        """Kill the target, or else ask Meltano to stop, when `word` is in what it says; its exit code and log."""
        with self._started(line, word) as running:
            if target:
                # Spark's processes and the test's tap live in its venv: the script's own name tells it from them.
                scripts = {Path(word).name: one for one in _members(running.pid) for word in one.cmdline()[1:2]}
                scripts["target-bridge"].kill()
            else:
                running.terminate()
            return running.wait(_PATIENCE), self._log.read_text()

    @property
    def _log(self) -> Path:
        return self.folder / f"{self.environment}.log"

    @contextmanager
    def _started(self, line: str, word: str) -> Iterator[subprocess.Popen[bytes]]:
        """A run in a process group of its own, from when it says the word."""
        words = ["meltano", f"--environment={self.environment}", "run", *line.split()]
        with self._log.open("w") as out:
            running = subprocess.Popen(
                words, cwd=self.folder, env=self.shell, stdout=out, stderr=out, start_new_session=True
            )
        try:
            deadline = time.monotonic() + _PATIENCE
            while word not in self._log.read_text():
                assert running.poll() is None, self._log.read_text()
                assert time.monotonic() < deadline, self._log.read_text()
                time.sleep(0.05)
            yield running
        finally:
            for process in _members(running.pid):
                process.kill()
            running.wait()

    def state(self, tap: str, suffix: str = "") -> Any:
        """What Meltano would start the tap from."""
        done = self.type(f"meltano state get {self.environment}:{tap}-to-target-bridge{suffix}")
        assert done.code == 0, done.err
        return json.loads(done.out).get("singer_state")

    def rows(self, table: Path, columns: str = "id") -> list[tuple[Any, ...]]:
        """A table's rows in order, as DuckDB reads its folder."""
        found: list[tuple[Any, ...]] = duckdb.sql(
            f"SELECT {columns} FROM read_parquet('{table}/*.parquet', union_by_name => true) ORDER BY ALL"
        ).fetchall()
        return found

    def edit(self, **sections: Any) -> None:
        """Set keys of meltano.yml."""
        file = self.folder / "meltano.yml"
        file.write_text(yaml.safe_dump(yaml.safe_load(file.read_text()) | sections))


def _members(group: int) -> list[psutil.Process]:
    """Return the processes of the group that run; one that nobody has buried does not."""
    found = []
    for process in psutil.process_iter(["status"]):
        with suppress(ProcessLookupError):
            if os.getpgid(process.pid) == group and process.info["status"] != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found
