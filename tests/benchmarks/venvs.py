"""One virtual environment a peer, made once under `.bench/venvs` and reused: peers never meet our dependencies."""

from __future__ import annotations

import subprocess
import sys
import venv
from dataclasses import dataclass
from pathlib import Path


class NotInstalled(Exception):
    """A peer's environment could not be made; its row says so and the others go on."""


@dataclass(frozen=True, slots=True)
class Environment:
    """What one peer needs, pinned; the versions that pip chose below it are kept in `installed.txt`."""

    folder: Path
    requirements: tuple[str, ...]

    def program(self, name: str) -> Path:
        """A command of this environment."""
        return self.folder / "bin" / name

    def ensure(self) -> None:
        """Makes the environment unless the same one is there; a half-made one is made again."""
        done = self.folder / "installed.txt"
        wanted = "\n".join(("# " + " ".join(self.requirements), ""))
        if done.exists() and done.read_text(encoding="utf-8").startswith(wanted):
            return
        venv.create(self.folder, clear=True, with_pip=True)
        python = str(self.program("python"))
        _run(python, "-m", "pip", "install", "--quiet", *self.requirements)
        done.write_text(wanted + _run(python, "-m", "pip", "freeze"), encoding="utf-8")


def _run(*command: str) -> str:
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        raise NotInstalled(f"{' '.join(command[1:])}: {result.stderr.strip()[-300:]}")
    return result.stdout


def own_program(name: str) -> Path:
    """A command installed beside the Python that runs the benchmark."""
    return Path(sys.executable).with_name(name)
