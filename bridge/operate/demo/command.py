"""`singer-bridge ...` as the user would type it: a child process of the same Python, in the demo's folder."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from bridge.errors import BridgeError

STOP_SECONDS = 20  # a run that was asked to stop has a tap and a JVM to end


@dataclass(frozen=True, slots=True)
class DemoProject:
    """A folder with a bridge.yaml, and the verbs that are run in it."""

    folder: Path
    console: Console

    def run(self, *words: str) -> None:
        """Show the command and run it with our stdin, stdout and stderr; a failure is explained there."""
        self.console.print(f"[dim]$[/] [green]singer-bridge {' '.join(words)}[/]")
        self._call(words)
        self.console.print()

    def read(self, *words: str) -> bytes:
        """Run a command and return its stdout; its stderr is shown."""
        return self._call(words, stdout=subprocess.PIPE)

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        """Start a command in a process group of its own; nothing of its output is shown."""
        quiet = subprocess.DEVNULL
        return subprocess.Popen(
            _command(words), cwd=self.folder, env=_environ(), stdout=quiet, stderr=quiet, start_new_session=True
        )

    def _call(self, words: tuple[str, ...], stdout: int | None = None) -> bytes:
        self.console.file.flush()  # the child writes to the same place
        with subprocess.Popen(_command(words), cwd=self.folder, env=_environ(), stdout=stdout) as child:
            text = _output(child)
        if child.returncode:
            hint = f"its output is above; the demo's folder remains: {self.folder}"
            message = f"the demo stopped: `singer-bridge {' '.join(words)}` failed"
            raise BridgeError(message, hint=hint, exit_code=child.returncode)
        return text


def _command(words: tuple[str, ...]) -> list[str]:
    return [sys.executable, "-m", "bridge", *words]


def _environ() -> dict[str, str]:
    """Ours, without the variable of .env: the real environment overrides it."""
    return {name: value for name, value in os.environ.items() if name != "FLIGHTS_DATABASE_URL"}


def _output(child: subprocess.Popen[bytes]) -> bytes:
    """Wait for the child; whatever happens, return only when it has ended.

    Ctrl-C in the terminal reaches the child as well, which gets time to stop. What else ends us is passed on.
    """
    try:
        return child.communicate()[0] or b""
    except BaseException as error:
        if not isinstance(error, KeyboardInterrupt):
            child.terminate()
        try:
            child.wait(STOP_SECONDS)
        except (subprocess.TimeoutExpired, KeyboardInterrupt):
            child.kill()
        raise
