"""A venv for every tap, made whole or not at all.

```
.singer-bridge/taps/<package>-<hash of pip_url>/     shared by all pipelines with that pip_url
    requirements.lock     every version that was chosen; worth committing
    venv -> venv.k3f9...  replaced in one step, when the new venv is complete
    venv.k3f9.../         stays where it was built, since its programs name their own path
```

After a crash the old venv is still in use, and the next installation deletes what the crash left. The previous venv
also stays until then: a tap may be running in it. Of two installations at once the second waits, and finds the work
done.
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

from uv import find_uv_bin

from bridge.errors import SettingsError, TapError
from bridge.lake.storage.local.folders import draft_of
from bridge.settings.redact import redactor_of

_SHOWN_LINES = 15
_PACKAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_OF_A_VENV = re.compile(r"python|pip|activate|deactivate|pydoc")
_OTHER_PYTHON = re.compile(
    r"does not satisfy Python|Python[<>=~!].*not supported|Failed to build|Build backend failed|build_wheel"
)
"""How uv says that a package is for another Python, or cannot be built for this one: old ones, whose wheels are old."""
_HEADER = "# What `singer-bridge install` chose; `--upgrade` chooses anew.\n"
_WITH_VALUE = {"-i", "--index-url", "--extra-index-url", "-f", "--find-links", "--trusted-host", "--index-strategy"}
_REQUIRING = {"-e", "--editable", "-r", "--requirement", "-c", "--constraint"}


@dataclass(frozen=True, slots=True)
class Installation:
    """The packages to install, and how."""

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
        self._python, self._arguments = _with_python(shlex.split(pip_url))
        self.package = _slug(self._arguments)
        """A name that people recognise and that holds no secret: of the package or the repository."""
        self.root = home / "taps" / f"{self.package}-{sha256(pip_url.encode()).hexdigest()[:8]}"
        self.bin = self.root / "venv" / "bin"
        self.lock = self.root / "requirements.lock"

    def install(self, installation: Installation) -> bool:
        """Make the venv, from the lock file if there is one; False if it is up to date already.

        Raises `TapError` with the last lines of uv; the previous venv is then still in use.
        """
        if installation.locked and not self.lock.exists():
            hint = "run `singer-bridge install` once without --locked, and commit the lock file"
            raise SettingsError("there is no lock file", hint=hint, file=self.lock)
        with self._exclusively():
            if not installation.upgrade and self._is_current(installation.programs):
                return False
            self._delete_unused()
            draft = self.root / f"venv.{uuid.uuid4().hex[:8]}"
            try:
                lock = self._build(draft, installation)
                _check_programs(draft / "bin", installation.programs)
            except BaseException:
                shutil.rmtree(draft, ignore_errors=True)
                raise
            with draft_of(self.lock) as written:
                written.write_text(lock)
            (draft / "installed.json").write_text(json.dumps(self._facts()))
            self._switch(draft)
        return True

    def packages(self) -> list[str]:
        """The packages in the lock file, one `name==version` each; empty when there is none."""
        return _requirements(self.lock.read_text()) if self.lock.exists() else []

    def only_tap(self) -> str:
        """The program that is the tap, by its name `tap...`. Raises `TapError` if there are several, or none."""
        names = sorted(path.name for path in self.bin.iterdir() if os.access(path, os.X_OK) and path.is_file())
        taps = [name for name in names if name.startswith("tap")]
        if len(taps) == 1:
            return taps[0]
        if taps:
            raise TapError("the package has several taps", hint=f"say which one: --tap, one of {', '.join(taps)}")
        others = ", ".join(name for name in names if not _OF_A_VENV.match(name))
        hint = f"if its tap has another name, give it as --tap; it installed: {others or 'no program'}"
        raise TapError("the package has no program whose name begins with tap", hint=hint)

    @contextmanager
    def _exclusively(self) -> Iterator[None]:
        self.root.mkdir(parents=True, exist_ok=True)
        with (self.root / ".installing").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def _facts(self) -> dict[str, str]:
        python = self._python or f"{sys.executable} {sys.version}"
        return {"python": python, "lock": sha256(self.lock.read_bytes()).hexdigest()}

    def _is_current(self, programs: Sequence[str]) -> bool:
        """Whether the venv was made by this Python, from the current lock file, and has the programs."""
        try:
            facts = json.loads((self.bin.parent / "installed.json").read_text())
            return bool(facts == self._facts()) and all((self.bin / program).exists() for program in programs)
        except (OSError, ValueError):
            return False

    def _delete_unused(self) -> None:
        """Delete every venv but the one in use: unfinished ones, and the previous one."""
        used = (self.root / "venv").resolve()
        for folder in self.root.glob("venv.*"):
            if folder != used:
                shutil.rmtree(folder, ignore_errors=True)

    def _build(self, draft: Path, installation: Installation) -> str:
        """Make a venv, and return the text of the lock file that describes it."""
        python = self._python or sys.executable
        installer = _Installer(draft, installation.folder, redactor_of(self._pip_url), python)
        installer.make()
        if self.lock.exists() and not installation.upgrade:
            text = self.lock.read_text()
            requirements = draft / "requirements.txt"
            requirements.write_text(_local("\n".join(_requirements(text)), installation.folder))
            installer.install([*_flags(self._arguments), "--no-deps", "-r", str(requirements)])
            return text
        # Without `--refresh` uv takes a folder whose version has not changed for unchanged.
        refresh = ["--refresh"] if installation.upgrade else []
        installer.install([*refresh, *self._arguments])
        return _HEADER + _portable(installer.freeze(), installation.folder)

    def _switch(self, draft: Path) -> None:
        link = self.root / f".{draft.name}"
        link.symlink_to(draft.name)
        os.replace(link, self.root / "venv")


@dataclass(frozen=True, slots=True)
class _Installer:
    """uv, which comes with singer-bridge: the same installer on every machine."""

    venv: Path
    folder: Path
    redact: Callable[[bytes], bytes]
    python: str
    """A version, or the path of a program."""

    def make(self) -> None:
        """Make an empty venv. uv looks for a version on the machine, and fetches it if there is none."""
        self._run("venv", "--no-project", "--python", self.python, str(self.venv))

    def install(self, arguments: list[str]) -> None:
        """Install what the arguments say; byte code too, since a tap may not be allowed to write any."""
        self._run("pip", "install", "--compile-bytecode", *self._into, *arguments)

    def freeze(self) -> str:
        return self._run("pip", "freeze", *self._into)

    @property
    def _into(self) -> list[str]:
        return ["--python", str(self.venv / "bin" / "python")]

    def _run(self, *arguments: str) -> str:
        try:
            uv = find_uv_bin()
        except FileNotFoundError as error:
            raise TapError("uv is missing", hint="pip install --force-reinstall uv", looked=error) from error
        result = subprocess.run(
            [uv, *arguments, "--quiet"],
            cwd=self.folder,
            env=os.environ | _index_variables(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        if result.returncode:
            output = self.redact(_last_lines(result.stdout, result.stderr).encode()).decode("utf-8", "replace")
            hint = f"{_remedy(output)}; uv said:\n{output}"
            raise TapError("the tap cannot be installed", hint=hint)
        return result.stdout


def _index_variables() -> dict[str, str]:
    """The variables of pip for package indexes under uv's names, unless uv has its own."""
    if any(name.startswith("UV_") and "INDEX" in name for name in os.environ):
        return {}
    names = {"PIP_INDEX_URL": "UV_INDEX_URL", "PIP_EXTRA_INDEX_URL": "UV_EXTRA_INDEX_URL"}
    return {uv_name: os.environ[pip_name] for pip_name, uv_name in names.items() if os.environ.get(pip_name)}


def _last_lines(*outputs: str) -> str:
    """The end of an installer's output."""
    lines = [line for output in outputs for line in output.splitlines() if line.strip()]
    return "\n".join(lines[-_SHOWN_LINES:])


def _remedy(output: str) -> str:
    """A hint that may help against a failure of the installer."""
    if "python-build-standalone" in output or "No interpreter" in output:
        return (
            "there is no such Python here, and none can be fetched: install it, or give its path, as in --python PATH"
        )
    if _OTHER_PYTHON.search(" ".join(output.split())):  # uv folds its lines at the width of the terminal
        return (
            f"it does not go with Python {sys.version_info[0]}.{sys.version_info[1]}, which runs singer-bridge; name "
            "another one at the end of pip_url, as in `pip_url: tap-x --python 3.12`"
        )
    return "check its name in pip_url and the network"


def _with_python(arguments: Sequence[str]) -> tuple[str | None, list[str]]:
    """The Python that pip's arguments ask for by `--python`, if they do, and the other arguments."""
    python, rest, words = None, [], iter(arguments)
    for word in words:
        if word in ("--python", "-p"):
            python = next(words, None)
        elif word.startswith("--python="):
            python = word.partition("=")[2]
        else:
            rest.append(word)
    return python, rest


def _slug(arguments: Sequence[str]) -> str:
    first = next((part for part in arguments if not part.startswith("-")), "tap")
    name = Path(urlsplit(first).path).name if "/" in first else first
    name = name.split("-")[0] if name.endswith(".whl") else name
    package = _PACKAGE.match(name.split("@")[0].removesuffix(".git"))
    return package[0].rstrip("._-")[:40] if package else "tap"


def _check_programs(folder: Path, programs: Sequence[str]) -> None:
    for program in programs:
        if not (folder / program).exists():
            taps = sorted(path.name for path in folder.glob("tap*"))
            hint = f"it installed: {', '.join(taps)}; set source.tap to it" if taps else "check source.pip_url"
            raise TapError("the package does not have this tap", hint=hint, tap=program)


def _flags(arguments: list[str]) -> list[str]:
    """The options among pip's arguments, such as `--index-url x`, without what they are to install."""
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
