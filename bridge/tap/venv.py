"""A venv of its own for every tap, made whole or not at all.

```
.singer-bridge/taps/<package>-<hash of pip_url>/     shared by all pipelines with that pip_url
    requirements.lock     every version that was chosen; worth committing
    venv -> venv.k3f9...  exchanged in one step, when the new one is complete
    venv.k3f9.../         it stays where it was built, since its programs name their own path
```

After a crash the old venv stands; what the crash left is deleted by the next installation. The venv before is kept
until then, too: a tap may be running in it. Two installations at once: the second waits, and finds the work done.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from urllib.parse import urlsplit

from bridge.errors import SettingsError, TapError
from bridge.settings.redact import learn, redactor, worth_hiding
from bridge.storage.local.folders import draft_of

_SHOWN_LINES = 15
_PACKAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_HEADER = "# What `singer-bridge install` chose; `--upgrade` chooses anew.\n"
_WITH_VALUE = {"-i", "--index-url", "--extra-index-url", "-f", "--find-links", "--trusted-host", "--index-strategy"}
_REQUIRING = {"-e", "--editable", "-r", "--requirement", "-c", "--constraint"}


@dataclass(frozen=True, slots=True)
class Wanted:
    """What an installation is asked for."""

    folder: Path
    """Where relative paths in `pip_url` start: the folder of bridge.yaml."""
    programs: Sequence[str] = ()
    """Programs that must be there afterwards."""
    locked: bool = False
    """Never choose a version: without a lock file it is an error."""
    upgrade: bool = False
    """Choose the versions anew, whatever the lock file says."""


class Venv:
    """The venv of one `pip_url` below a project's `.singer-bridge`."""

    def __init__(self, home: Path, pip_url: str) -> None:
        self._pip_url = pip_url
        self.root = home / "taps" / f"{_slug(pip_url)}-{sha256(pip_url.encode()).hexdigest()[:8]}"
        self.bin = self.root / "venv" / "bin"
        self.lock = self.root / "requirements.lock"

    def install(self, wanted: Wanted) -> bool:
        """Make the venv, from the lock file if there is one; False when it is as wanted already.

        Raises `TapError` with the installer's last lines, after which the venv before still stands.
        """
        if wanted.locked and not self.lock.exists():
            hint = "run `singer-bridge install` once without --locked, and commit the lock file"
            raise SettingsError("there is no lock file", hint=hint, file=self.lock)
        with self._alone():
            if not wanted.upgrade and self._is_current(wanted.programs):
                return False
            self._sweep()
            draft = self.root / f"venv.{uuid.uuid4().hex[:8]}"
            try:
                lock = self._build(draft, wanted)
                _check_programs(draft / "bin", wanted.programs)
            except BaseException:
                shutil.rmtree(draft, ignore_errors=True)
                raise
            with draft_of(self.lock) as written:
                written.write_text(lock)
            (draft / "installed.json").write_text(json.dumps(self._facts()))
            self._switch(draft)
        return True

    def packages(self) -> list[str]:
        """Return what the lock file lists, one `name==version` each; nothing when there is none."""
        return _requirements(self.lock.read_text()) if self.lock.exists() else []

    @contextmanager
    def _alone(self) -> Iterator[None]:
        self.root.mkdir(parents=True, exist_ok=True)
        with (self.root / ".installing").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def _facts(self) -> dict[str, str]:
        return {"python": f"{sys.executable} {sys.version}", "lock": sha256(self.lock.read_bytes()).hexdigest()}

    def _is_current(self, programs: Sequence[str]) -> bool:
        """Whether the venv is of this Python and of the lock file as it is now, and has the programs."""
        try:
            facts = json.loads((self.bin.parent / "installed.json").read_text())
            return bool(facts == self._facts()) and all((self.bin / program).exists() for program in programs)
        except (OSError, ValueError):
            return False

    def _sweep(self) -> None:
        """Delete every venv but the one in use: unfinished ones, and the one before."""
        used = (self.root / "venv").resolve()
        for folder in self.root.glob("venv.*"):
            if folder != used:
                shutil.rmtree(folder, ignore_errors=True)

    def _build(self, draft: Path, wanted: Wanted) -> str:
        """Make a venv and return its lock file's text: the one it was made from, else what was chosen."""
        installer = _Installer(draft, wanted.folder, redactor(worth_hiding(learn(self._pip_url))))
        installer.make()
        if self.lock.exists() and not wanted.upgrade:
            text = self.lock.read_text()
            requirements = draft / "requirements.txt"
            requirements.write_text(_local("\n".join(_requirements(text)), wanted.folder))
            installer.install([*_flags(shlex.split(self._pip_url)), "--no-deps", "-r", str(requirements)])
            return text
        installer.install([*(installer.look_again if wanted.upgrade else []), *shlex.split(self._pip_url)])
        return _HEADER + _portable(installer.freeze(), wanted.folder)

    def _switch(self, draft: Path) -> None:
        link = self.root / f".{draft.name}"
        link.symlink_to(draft.name)
        os.replace(link, self.root / "venv")


class _Installer:
    """uv where it is on PATH, since it takes seconds off each installation; else venv and pip."""

    def __init__(self, venv: Path, folder: Path, redact: Callable[[bytes], bytes]) -> None:
        self._venv, self._folder, self._redact = venv, folder, redact
        self._uv = shutil.which("uv")
        self.look_again = ["--refresh"] if self._uv else []  # it takes a folder whose version stands for unchanged
        python = str(venv / "bin" / "python")
        if self._uv:
            self._pip, self._target = [self._uv, "pip"], ["--python", python]
        else:
            self._pip, self._target = [python, "-m", "pip", "--disable-pip-version-check"], []

    def make(self) -> None:
        """Make an empty venv of our own Python."""
        if self._uv:
            self._run([self._uv, "venv", "--quiet", "--no-project", "--python", sys.executable, str(self._venv)])
        else:
            self._run([sys.executable, "-m", "venv", str(self._venv)])

    def install(self, arguments: list[str]) -> None:
        """Install what the arguments say."""
        compiled = ["--compile-bytecode"] if self._uv else []  # as pip does: a tap may not be allowed to write any
        self._run([*self._pip, "install", "--quiet", *compiled, *self._target, *arguments])

    def freeze(self) -> str:
        """Return what is installed, as requirements."""
        return self._run([*self._pip, "freeze", "--quiet", *self._target])

    def _run(self, command: list[str]) -> str:
        done = subprocess.run(
            command, cwd=self._folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
        )
        if done.returncode:
            said = self._redact(_last_words(done.stdout, done.stderr).encode()).decode("utf-8", "replace")
            hint = f"check source.pip_url and the network; {'uv' if self._uv else 'pip'} said:\n{said}"
            raise TapError("the tap cannot be installed", hint=hint)
        return done.stdout


def _last_words(*outputs: str) -> str:
    """Return the end of what an installer said; its retries and warnings only if there is nothing else."""
    lines = [line for output in outputs for line in output.splitlines() if line.strip()]
    telling = [line for line in lines if not line.startswith("WARNING:")]
    return "\n".join((telling or lines)[-_SHOWN_LINES:])


def _slug(pip_url: str) -> str:
    """Return a name that people recognise and that holds no secret: the package's, or the repository's."""
    first = next((part for part in shlex.split(pip_url) if not part.startswith("-")), "tap")
    name = Path(urlsplit(first).path).name if "/" in first else first
    name = name.split("-")[0] if name.endswith(".whl") else name
    found = _PACKAGE.match(name.split("@")[0].removesuffix(".git"))
    return found[0].rstrip("._-")[:40] if found else "tap"


def _check_programs(folder: Path, programs: Sequence[str]) -> None:
    for program in programs:
        if not (folder / program).exists():
            found = sorted(path.name for path in folder.glob("tap*"))
            hint = f"it installed: {', '.join(found)}; set source.tap to it" if found else "check source.pip_url"
            raise TapError("the package does not have this tap", hint=hint, tap=program)


def _flags(arguments: list[str]) -> list[str]:
    """Return the options among pip's arguments, such as `--index-url x`, without what they are to install."""
    flags, rest = [], iter(arguments)
    for argument in rest:
        if argument in _REQUIRING:
            next(rest, None)
        elif argument.startswith("-"):
            flags += [argument, *([next(rest, "")] if argument in _WITH_VALUE else [])]
    return flags


def _requirements(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.strip() and not line.startswith("#")]


def _portable(frozen: str, folder: Path) -> str:
    """Write paths in the project so that they hold on another machine."""
    return frozen.replace(folder.as_uri(), "${PROJECT_URI}").replace(str(folder), "${PROJECT}")


def _local(lock: str, folder: Path) -> str:
    return lock.replace("${PROJECT_URI}", folder.as_uri()).replace("${PROJECT}", str(folder))
