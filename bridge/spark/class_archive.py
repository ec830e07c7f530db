"""The JVM's class-data archive: Spark's classes, already parsed, in the machine's cache for the next start.

It saves more than a second of each start and takes 170 MB of disk. It is made once, at the end of the second run on a
machine, in about fifteen seconds, so a container that is deleted after one run never pays for it. The JVM checks an
archive before use, and ignores one that does not fit. An archive that was not used for a month, as after a new
installation, is deleted when another one is made.
"""

from __future__ import annotations

import os
import subprocess
import time
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

import platformdirs

# At end-of-file we have died: then the JVM must neither spend its last seconds on this nor leave half an archive.
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
        with suppress(OSError):  # there is none, or we may not change it
            os.utime(self._path)
        if self._path.exists():
            self.options = [f"-XX:SharedArchiveFile={self._path}"]
        if self.wanted:
            # It warns of each class that it leaves out: hundreds of lines in Spark's log that help nobody.
            self.options = [f"-XX:ArchiveClassesAtExit={self._draft}", "-Xlog:cds*=error"]

    def _missed(self) -> bool:
        """Return whether the archive is missing for the second time. False if the cache cannot be written."""
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
        """Delete archives that were not used for long, and half written ones."""
        for path in self._path.parent.iterdir():
            if time.time() - path.stat().st_mtime > _UNUSED:
                path.unlink()
