"""`singer-bridge ...`, typed for the user: a child process of the same Python, in the demo's folder and terminal."""

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
class Project:
    """A folder with a bridge.yaml, and the verbs that are run in it."""

    folder: Path
    console: Console

    def run(self, *words: str) -> None:
        """Show the command and run it with our stdin, stdout and stderr; a failure has already told its story there."""
        self.console.print(f"[dim]$[/] [green]singer-bridge {' '.join(words)}[/]")
        self._call(words)
        self.console.print()

    def read(self, *words: str) -> bytes:
        """Run a command whose stdout is for us; its stderr is shown."""
        return self._call(words, stdout=subprocess.PIPE)

    def _call(self, words: tuple[str, ...], stdout: int | None = None) -> bytes:
        self.console.file.flush()  # the child writes to the same place
        # The real environment wins over .env, so nobody's variable of that name may reach the child.
        environ = {name: value for name, value in os.environ.items() if name != "FLIGHTS_DATABASE_URL"}
        command = [sys.executable, "-m", "bridge", *words]
        with subprocess.Popen(command, cwd=self.folder, env=environ, stdout=stdout) as child:
            text = _output(child)
        self._check(child.returncode, words)
        return text

    def _check(self, code: int, words: tuple[str, ...]) -> None:
        if code != 0:
            raise BridgeError(
                f"the demo stopped: `singer-bridge {' '.join(words)}` failed",
                hint=f"what it said is above; its folder is kept: {self.folder}",
                exit_code=code,
            )


def _output(child: subprocess.Popen[bytes]) -> bytes:
    """Wait for the child; leave, for whatever reason, only when it has ended.

    Ctrl-C reaches the child as well, from the terminal: it gets time to stop as it does for a user. What else ends us
    is passed on.
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
