"""Files that a start of the JVM leaves in the cache for the next: Spark's classes, parsed, and the JVM's command.

The class-data archive saves more than a second of each start, and takes 170 MB of disk. `archive_maker.py` makes it.
The JVM checks an archive before use, and ignores one that does not fit. Each archive belongs to one Java and one
installation of Spark; beside it a file of the same name notes which, so that it is deleted when they are replaced or
removed.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from hashlib import sha256
from pathlib import Path

import platformdirs
from msgspec import MsgspecError, Struct, json

VARIABLE = "SINGER_BRIDGE_CLASS_DATA"
"""`off`: no archive is made. `archive_maker` names in it the file that the JVM of its own run has to write."""

_UNUSED = timedelta(days=10)
"""After so long without use an archive is deleted."""
_OF_NOBODY = timedelta(days=1)
"""The same, where no file beside it notes whose it is, such as one that an earlier version made."""
_SUFFIXES = (".jsa", ".base", ".origin", ".missed", ".tried", ".command", ".draft")
_ATTEMPTS = 3
"""After so many attempts that did not end with an archive, only a person starts another."""


def archives_folder() -> Path:
    """Where the archives of this user are."""
    return Path(platformdirs.user_cache_path("singer-bridge")) / "jvm"


class ClassArchive:
    """The archive of one Java and one Spark, whether it exists or not. `jars` is the folder of Spark's own jars."""

    def __init__(self, java: str, jars: Path) -> None:
        self._origin = [str(Path(java).resolve()), str(jars)]
        self.path = archives_folder() / f"{_key(self._origin)}.jsa"
        whole = (Path(java).resolve().parent.parent / "lib/server/classes.jsa").exists()
        self.base = None if whole else self.path.with_suffix(".base")
        """The archive of Java's own classes, where Java comes without: this one goes on from it, by its path."""
        self._misses, self._attempts = self.path.with_suffix(".missed"), self.path.with_suffix(".tried")

    def options(self) -> list[str]:
        """The options of a JVM that starts now: read the archive, or write one. Notes that it was used, or missed."""
        if draft := being_made():
            # It warns of each class that it leaves out: hundreds of lines in Spark's log that help nobody.
            base = [f"-XX:SharedArchiveFile={self.base}"] if self.base else []
            return [*base, f"-XX:ArchiveClassesAtExit={draft}", "-Xlog:cds*=error"]
        with suppress(OSError):  # there is none, or we may not change it
            os.utime(self.path)
        if self.path.exists():
            return [f"-XX:SharedArchiveFile={self.path}"]
        if _count(self._misses) < 2:
            _count_up(self._misses)
        return []

    def is_due(self, *, asked: bool) -> bool:
        """Whether it is to be made: two runs missed it, or somebody asked, and not every attempt before was ended.

        A container that is deleted after one run never pays for it.
        """
        if os.environ.get(VARIABLE) or self.path.exists():
            return False
        return (asked or _count(self._misses) >= 2) and not self.is_given_up()

    def is_given_up(self) -> bool:
        """Whether attempts to make it were ended again and again, as where background processes are killed."""
        return _count(self._attempts) >= _ATTEMPTS

    def begin(self) -> None:
        """Note that an attempt begins. Raises `OSError` if the cache cannot be written."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        _count_up(self._attempts)

    def keep(self, draft: Path) -> None:
        """Make a draft the archive, and forget misses and attempts."""
        _origin_of(self.path).write_text("\n".join(self._origin))
        os.replace(draft, self.path)
        for counter in (self._misses, self._attempts):
            counter.unlink(missing_ok=True)


_FOLDER = "@FOLDER@"
"""Stands in a noted command for the folder of the run's scratch."""
_ADDED = ("SPARK_", "PYTHONHASHSEED")
"""Variables that `spark-submit` sets."""
_PLAIN = re.compile(r"[\w/.-]+", re.ASCII)
"""A folder that no shell, and no option of Java, has to quote."""
_OTHERS = ("SPARK_", "PYSPARK_", "HADOOP_", "YARN_")
"""Variables that change what `spark-submit` does."""
_HARMLESS = {"SPARK_AUTH_SOCKET_TIMEOUT", "SPARK_BUFFER_SIZE"}
"""Those that pyspark sets in a process that has had a session: `run --every` starts one after the other."""


class Noted(Struct, frozen=True):
    """The command of a JVM, and the variables that `spark-submit` adds to its own."""

    words: list[str]
    variables: dict[str, str]


class JvmCommand:
    """The command that `spark-submit` makes of these `words`, as an earlier start has noted it.

    `spark-submit` is two shell scripts and a JVM that only print the JVM's command: a fifth of a second. Where Spark
    has settings of its own beside our words, in variables or in files, nothing is noted.
    """

    def __init__(self, java: str, home: Path, words: Sequence[str], folder: Path) -> None:
        """`home` is where Spark is, `folder` that of the run's scratch, which is in many words."""
        self._folder = str(folder)
        self._path: Path | None = None
        others = any(name.startswith(_OTHERS) for name in os.environ.keys() - _HARMLESS)
        if others or (home / "conf").exists() or being_made() or not _PLAIN.fullmatch(self._folder):
            return
        with suppress(OSError):
            origin = [str(Path(java).resolve()), str(home / "jars")]
            noted = [_key(origin), os.environ.get("LD_LIBRARY_PATH"), *(self._general(word) for word in words)]
            self._path = archives_folder() / f"{sha256(json.encode(noted)).hexdigest()[:16]}.command"

    def read(self) -> Noted | None:
        """The note of an earlier start; None if there is none."""
        with suppress(OSError, MsgspecError):
            if self._path:
                noted = json.decode(self._path.read_bytes(), type=Noted)
                os.utime(self._path)
                return Noted([word.replace(_FOLDER, self._folder) for word in noted.words], noted.variables)
        return None

    def note(self, pid: int, given: Mapping[str, str]) -> None:
        """Note how a JVM that listens was started, by `spark-submit` with the variables in `given`."""
        with suppress(OSError, ValueError):  # no /proc, or a cache that cannot be written
            if self._path:
                command, environ = (Path(f"/proc/{pid}/{name}").read_text() for name in ("cmdline", "environ"))
                variables = dict(each.partition("=")[::2] for each in environ.split("\0"))
                own = {name: value for name, value in variables.items() if name.startswith(_ADDED)}
                added = {name: value for name, value in own.items() if given.get(name) != value}
                draft = self._path.with_suffix(f".{pid}.draft")
                draft.parent.mkdir(parents=True, exist_ok=True)
                words = [self._general(word) for word in command.split("\0")[:-1]]
                draft.write_bytes(json.encode(Noted(words, added)))
                os.replace(draft, self._path)

    def forget(self) -> None:
        """Delete the note: a JVM that was started by it failed."""
        with suppress(OSError):
            if self._path:
                self._path.unlink(missing_ok=True)

    def _general(self, word: str) -> str:
        return word.replace(self._folder, _FOLDER)


def being_made() -> str | None:
    """The file into which the JVM of this run has to write its class data; None for every run but the maker's own."""
    value = os.environ.get(VARIABLE)
    return None if value in (None, "", "off") else value


def tidy() -> None:
    """Delete the archives of environments that were replaced or removed, and those that nobody used for long."""
    with suppress(OSError):
        paths = list(archives_folder().iterdir())
        for path in paths:
            if path.suffix in _SUFFIXES and path.exists() and _is_useless(path):
                path.unlink(missing_ok=True)
                if path.suffix == ".jsa":
                    for beside in (_origin_of(path), path.with_suffix(".base")):
                        beside.unlink(missing_ok=True)


def _is_useless(path: Path) -> bool:
    unused = timedelta(seconds=time.time() - path.stat().st_mtime)
    if path.suffix in (".origin", ".base"):  # they stand a moment before their archive
        return not path.with_suffix(".jsa").exists() and unused > _OF_NOBODY
    if path.suffix != ".jsa":
        return unused > _UNUSED
    try:
        return unused > _UNUSED or _key(_origin_of(path).read_text().split("\n")) != path.stem
    except FileNotFoundError:  # there is no note, or no such Java or Spark
        return _origin_of(path).exists() or unused > _OF_NOBODY


def _origin_of(path: Path) -> Path:
    return path.with_suffix(".origin")


def _key(origin: list[str]) -> str:
    """The identity of a Java and a Spark: an archive fits these files only. Raises `FileNotFoundError`."""
    files = (f"{path} {Path(path).stat().st_mtime_ns}" for path in origin)
    return sha256(" ".join(files).encode()).hexdigest()[:16]


def _count(counter: Path) -> int:
    try:
        return counter.stat().st_size
    except OSError:
        return 0


def _count_up(counter: Path) -> None:
    """Count one more, if the cache can be written."""
    with suppress(OSError):
        counter.parent.mkdir(parents=True, exist_ok=True)
        with counter.open("ab") as file:
            file.write(b".")
