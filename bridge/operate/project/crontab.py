"""A pipeline's lines in the user's crontab, recognised by their marks. All other lines stay as they are.

The crontab is edited as bytes, so other lines keep their last space. A line does not depend on the shell that
installed it: its paths are absolute, and it sets the variables that a run needs.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from bridge.errors import SettingsError

ENVIRONMENT = ("PATH", "JAVA_HOME", "SINGER_BRIDGE_ENV", "SINGER_BRIDGE_HOME")
"""The variables of the shell that a run needs; cron starts it with almost none."""

_COMMAND_LIMIT = 998
"""Longest command that Debian's cron and macOS's take, in bytes."""


@dataclass(frozen=True, slots=True)
class Job:
    """One job of cron: a pipeline of a settings file, in an environment. Its output goes to a log.

    `name`: with the environment, `prod.flights` or `prod.flights:reconcile`; `pipeline`: the name in the file.
    """

    cron: str
    file: Path
    name: str
    pipeline: str
    environment: str | None
    log: Path
    words: tuple[str, ...] = ("run",)
    """The verb and its flags."""

    @property
    def mark(self) -> str:
        return _mark(self.file.parent, self.name)

    @property
    def argv(self) -> list[str]:
        chosen = ["--env", self.environment] if self.environment else []
        flags = ["--no-progress", "--file", str(self.file), *chosen]
        return [sys.executable, "-m", "bridge", *self.words, self.pipeline, *flags]

    def line(self, environ: Mapping[str, str]) -> str:
        """The crontab's line, without a line end. Raises `SettingsError` for a path with a line break."""
        environment = {name: environ[name] for name in ENVIRONMENT if environ.get(name)}
        if "PATH" in environment:
            environment["PATH"] = os.pathsep.join(dict.fromkeys(environment["PATH"].split(os.pathsep)))
        words = ["/usr/bin/env", *(f"{name}={value}" for name, value in environment.items()), *self.argv]
        # The folder of logs may be deleted at any time; without it the shell would start nothing.
        made = shlex.join(["mkdir", "-p", str(self.log.parent)])
        command = f"{made} && {shlex.join(words)} >> {shlex.quote(str(self.log))} 2>&1 {self.mark}"
        if re.search(r"[\r\n]", command):
            raise SettingsError("a crontab cannot hold a line break", hint="rename the folder", file=self.file)
        return f"{self.cron} {_escaped(command)}"


def _mark(folder: Path, pipeline: str) -> str:
    return f"# singer-bridge:{folder}:{pipeline}"


def _escaped(command: str) -> str:
    return command.replace("%", r"\%")  # cron reads a bare one as the end of the line


def _lines(crontab: bytes) -> list[bytes]:
    return re.findall(rb"[^\n]*\n|[^\n]+", crontab)


def _marked(line: bytes, folder: Path) -> str | None:
    """The pipeline of this line; None for other lines, and for one that was made a comment."""
    start = _escaped(_mark(folder, "")).encode(errors="surrogateescape")
    text = line.rstrip(b"\r\n")
    at = text.rfind(start)
    if at < 0 or text.lstrip().startswith(b"#"):
        return None
    name = text[at + len(start) :].decode(errors="replace")
    return name if re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*(:reconcile)?", name) else None


def installed(crontab: bytes, folder: Path) -> dict[str, str]:
    """The lines of a project's pipelines, by their names."""
    marked = ((_marked(line, folder), line) for line in _lines(crontab))
    return {name: line.decode(errors="replace").rstrip("\r\n") for name, line in marked if name}


def with_jobs(crontab: bytes, jobs: Mapping[str, str], folder: Path) -> bytes:
    """The crontab with these lines, by pipeline. They replace older ones; new ones come last."""
    waiting = {name: line.encode(errors="surrogateescape") + b"\n" for name, line in jobs.items()}
    result = []
    for line in _lines(crontab):
        name = _marked(line, folder)
        if name and name in jobs:
            result.append(waiting.pop(name, b""))  # a second line of one pipeline goes
        else:
            result.append(line)
    if waiting and result and not result[-1].endswith(b"\n"):
        result[-1] += b"\n"
    return b"".join([*result, *waiting.values()])


def without(crontab: bytes, names: set[str] | None, folder: Path) -> bytes:
    """The crontab without the lines of these pipelines; None means all of the project."""
    return b"".join(line for line in _lines(crontab) if not _goes(_marked(line, folder), names))


def _goes(name: str | None, names: set[str] | None) -> bool:
    return name is not None and (names is None or name in names)


def read_crontab() -> bytes:
    """The user's crontab, empty if there is none. Raises SettingsError if it cannot be read."""
    result = _crontab(["-l"])
    output = result.stderr.decode(errors="replace").strip()
    if result.returncode == 0:
        return result.stdout
    if re.search(r"no crontab for|no such file", output, re.IGNORECASE):
        return b""
    raise SettingsError("the crontab cannot be read", hint=f"crontab says: {output or result.returncode}")


def write_crontab(crontab: bytes) -> None:
    """Replace the user's crontab. If cron refuses it, the old one stays, and `SettingsError` is raised."""
    result = _crontab(["-"], crontab)
    if result.returncode == 0:
        return
    output = result.stderr.decode(errors="replace").strip()
    longest = max((len(line) for line in _lines(crontab)), default=0)
    if longest > _COMMAND_LIMIT:
        output += f"; a line has {longest} bytes, and some crons take {_COMMAND_LIMIT}: install it with a shorter PATH"
    raise SettingsError("cron refuses the crontab", hint=f"crontab says: {output or result.returncode}")


def _crontab(arguments: list[str], data: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    program = shutil.which("crontab")
    if program is None:
        hint = "install cron; or give a systemd timer, or another scheduler, what `schedule install --dry-run` prints"
        raise SettingsError("there is no crontab program on this machine", hint=hint)
    environ = os.environ | {"LC_ALL": "C"}
    return subprocess.run([program, *arguments], input=data, capture_output=True, check=False, env=environ)
