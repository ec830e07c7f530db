"""The JVM's class-data archive: what it worked out about Spark's classes, kept in the machine's cache for the next one.

It takes more than a second off each start and costs 170 MB of disk. It is made once, at the end of the second run on a
machine, in some fifteen seconds: a container that is thrown away after one run never pays for it. The JVM checks an
archive before it uses it, and does without one that is not of its kind. One that nobody used for a month is deleted
when another one is made: an environment that was installed anew, or is gone, leaves its own behind.
"""

from __future__ import annotations

import os
import subprocess
import time
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

import platformdirs

# End-of-file says that we died: the JVM shall not spend its last seconds on this then, nor leave half of it behind.
_GUARD = 'read -r ended || kill -s KILL "$1"; rm -f "$2"'


_UNUSED = 30 * 24 * 3600
"""Seconds after which an archive that was not used is deleted."""


class ClassData:
    """The archive of one Java and one Spark. `options` are the JVM's; `wanted` says that this JVM is to make it."""

    def __init__(self, java: str, spark: str) -> None:
        program = Path(java).resolve()
        key = sha256(f"{program} {program.stat().st_mtime_ns} {spark}".encode()).hexdigest()[:16]
        self._path = platformdirs.user_cache_path("singer-bridge") / "jvm" / f"{key}.jsa"
        self._draft = self._path.with_suffix(f".{os.getpid()}")
        self.wanted = not self._path.exists() and self._missed()
        self._guard: subprocess.Popen[bytes] | None = None
        self.options: list[str] = []
        with suppress(OSError):  # there is none, or it is not ours to touch
            os.utime(self._path)
        if self._path.exists():
            self.options = [f"-XX:SharedArchiveFile={self._path}"]
        if self.wanted:
            # It warns of each class that it leaves out: hundreds of lines in Spark's log that help nobody.
            self.options = [f"-XX:ArchiveClassesAtExit={self._draft}", "-Xlog:cds*=error"]

    def _missed(self) -> bool:
        """Return whether the archive is missed for the second time; a cache that cannot be written is no cache."""
        missed = self._path.with_suffix(".missed")
        with suppress(OSError):
            if missed.exists():
                return True
            missed.parent.mkdir(parents=True, exist_ok=True)
            missed.touch()
        return False

    def begin(self, process: subprocess.Popen[bytes]) -> None:
        """Take note of the JVM. One that is to make the archive does not outlive us, whatever ends us."""
        if self.wanted:
            command = ["/bin/sh", "-c", _GUARD, "guard", str(process.pid), str(self._draft)]
            self._guard = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)

    def end(self, process: subprocess.Popen[bytes]) -> None:
        """Keep the archive of a JVM that has ended, if it wrote it whole."""
        if self._guard:
            if process.returncode == 0:
                with suppress(OSError):
                    os.replace(self._draft, self._path)
                    self._tidy()
            self._guard.communicate(b"ended\n")
            self._guard = None

    def _tidy(self) -> None:
        """Delete what was not used for long, and what a JVM left half written."""
        for path in self._path.parent.iterdir():
            if time.time() - path.stat().st_mtime > _UNUSED:
                path.unlink()
