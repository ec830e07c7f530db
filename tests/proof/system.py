"""What the harness asks of every system."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass, field
from pathlib import Path

from tests.benchmarks.venvs import Environment, NotInstalled, own_program

from .faults import KILL, Fault
from .source import Source


class System:
    """One row of the table. `promise` is what its documentation promises of rows after a crash, and where."""

    name: str
    label: str
    promise: str
    fault: Fault = KILL
    source: type[Source] = Source
    requirements: tuple[str, ...] = ()
    """What pip installs, pinned, into an environment of its own."""
    released: str = ""
    """A program that its makers release outside the registries: it is taken from `programs` beside the environments."""

    def __init__(self, venvs: Path) -> None:
        self.programs = venvs.parent / "programs"
        self.environment = Environment(venvs / self._venv, self.requirements) if self.requirements else None

    @property
    def _venv(self) -> str:
        """Systems with the same requirements share an environment."""
        return "-".join(self.requirements).replace("==", "-").translate(str.maketrans("[],", "---"))

    def install(self) -> None:
        """Makes the environment unless it is there. Raises `NotInstalled`."""
        if self.environment:
            self.environment.ensure()
        if self.released and not shutil.which(self.released, path=str(self.programs)):
            raise NotInstalled(f"put {self.released}, as its makers release it, into {self.programs}")

    def set_up(self, source: Source) -> None:
        """Write the pipeline's files into the source's folder. It is called again after the source has grown."""

    def line(self, source: Source) -> str:
        """What a user types, in bash, for every run."""
        raise NotImplementedError

    def line_again(self, source: Source) -> str:
        """What a user types after a run that failed twice, if the documentation names something else then."""
        return self.line(source)

    def numbers(self, folder: Path) -> list[int | None]:
        """The ids of all rows that a reader finds."""
        raise NotImplementedError

    def environ(self, folder: Path) -> dict[str, str]:
        """The variables of every run: its own programs first, and a home of its own."""
        programs = [str(own_program("python").parent), str(self.programs)]
        if self.environment:
            programs.insert(0, str(self.environment.folder / "bin"))
        path = os.pathsep.join([*programs, os.environ.get("PATH", "")])
        clean = {key: value for key, value in os.environ.items() if not key.startswith(_OTHERS)}
        return clean | {"PATH": path, "HOME": str(folder), "NO_COLOR": "1"}


def struck_by(system: type[System], fault: Fault) -> type[System]:
    """The same system under another fault; its name tells which."""
    name = f"{system.name}-{fault.suffix}"
    return type(f"{system.__name__}{type(fault).__name__}", (system,), {"name": name, "fault": fault})


_OTHERS = ("MELTANO_", "DLT_", "TAP_", "TARGET_", "SINGER_", "VIRTUAL_ENV", "PYTHONPATH", "XDG_")


@dataclass(frozen=True)
class Pipe:
    """A Singer pipe as the specification's guide types it: the target's last line is the next run's STATE."""

    target: str
    options: str = ""
    """More of the target's command line."""
    state: str = field(default="state.json")

    def line(self, source: Source) -> str:
        """`trap`: a SIGTERM ends tap and target; the shell outlives them, and tells the exit code."""
        state = f"$([ -s {self.state} ] && echo --state {self.state})"
        tap = f"./{source.command.name} --config {source.config_file.name} {state}"
        return (
            "trap : TERM; set -o pipefail\n"
            f"tail -n 1 states.jsonl > new.json 2> /dev/null && mv new.json {self.state}\n"
            f"{tap} | {self.target} --config target.json{self.options} >> states.jsonl"
        )
