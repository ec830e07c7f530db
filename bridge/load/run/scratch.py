"""A run's scratch on this machine: spool, Spark's folders, logs until they are in the bucket."""

from __future__ import annotations

import os
import re
import shutil
import threading
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from bridge.errors import SettingsError
from bridge.lake.runs import log_key
from bridge.lake.storage import Storage
from bridge.load.tap.process import TapLog
from bridge.settings.options import Pipeline, is_local

_PATTERN = re.compile(r"[\\\[\]{}*?]")
_LOG_LIMIT = 32 << 20
"""Bytes kept of the end of a log."""
_SHOWN = 1 << 20
"""Bytes of the end of the tap's log that the bucket has while the run is under way."""


def check_paths(home: Path, pipeline: Pipeline) -> None:
    """Raise `SettingsError` if the project, the spool or the lake is in a folder that Spark cannot open."""
    for path in (home, pipeline.spool.folder, pipeline.destination.bucket):
        try:
            str(path).encode()
        except UnicodeEncodeError:
            hint = "rename the folder, or move the project: Spark cannot open files in it"
            raise SettingsError("a folder's name is not UTF-8", hint=hint, folder=path) from None
    spool = str(pipeline.spool.folder or home)
    if ":" in spool and _PATTERN.search(spool):  # Hadoop takes each part of a pattern for a URI
        hint = "set spool.dir to another folder, or rename this one: Spark cannot open it"
        raise SettingsError(
            "a folder's path has a colon, and a bracket, brace, *, ? or backslash", hint=hint, folder=spool
        )


class Scratch:
    """One run's own folders, apart from every other run's: a dead run's JVM may live on for some seconds."""

    def __init__(self, home: Path, pipeline: Pipeline, run: str) -> None:
        key = f"{pipeline.name}-{sha256(''.join(pipeline.destination.place).encode()).hexdigest()[:8]}"
        self._pipeline, self._run = pipeline.name, run
        # The spool holds rows in plain text. Executors of a cluster that share it may run as another user.
        self._mode = 0o700 if is_local(pipeline.spark.master) or pipeline.spool_in_bucket else 0o777
        self._siblings = ((pipeline.spool.folder or home / "spool") / key, home / "checkpoint" / key)
        self.spool, self.spark = (sibling / run / "data" for sibling in self._siblings)
        self.tap_log, self.spark_log = self.spool.parent / "tap.log", self.spool.parent / "spark.log"
        self._shown = 0

    def prepare(self, storage: Storage) -> None:
        """Delete what dead runs left, keeping their logs; make our own folders."""
        for sibling in self._siblings:
            for old in sibling.iterdir() if sibling.exists() else ():
                self._keep(storage, old, old.name)
                shutil.rmtree(old, ignore_errors=True)
        for folder in (self.spool, self.spark):
            folder.parent.mkdir(mode=self._mode, parents=True, exist_ok=True)
            folder.mkdir(exist_ok=True)

    def keep_logs(self, storage: Storage) -> None:
        """Copy the logs into the bucket."""
        self._keep(storage, self.spool.parent, self._run)

    def show_log(self, storage: Storage) -> None:
        """Copy the end of the tap's log into the bucket, if there is more of it than last time."""
        size = self.tap_log.stat().st_size if self.tap_log.exists() else 0
        if size != self._shown:
            storage.write(log_key(self._pipeline, self._run), _end_of(self.tap_log, _SHOWN))
            self._shown = size

    def _keep(self, storage: Storage, folder: Path, run: str) -> None:
        for name, suffix in (("tap.log", ""), ("spark.log", ".spark")):
            path = folder / name
            if path.exists() and path.stat().st_size:
                storage.write(log_key(self._pipeline, run + suffix), _end_of(path, _LOG_LIMIT))

    def delete(self) -> None:
        """Delete this run's folders, and those of the pipeline if they are empty then."""
        for folder in (self.spool.parent, self.spark.parent):
            shutil.rmtree(folder, ignore_errors=True)


def _end_of(path: Path, limit: int) -> bytes:
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - limit))
        return file.read()


class EndOfLog:
    """A log on disk of which only the end is kept: at least the last `limit` bytes, never more than twice as many."""

    def __init__(self, path: Path, limit: int = _LOG_LIMIT) -> None:
        self._file, self._limit, self._size = path.open("w+b"), limit, 0
        self._lock = threading.Lock()

    def write(self, data: bytes) -> None:
        """Take whole lines, of any thread."""
        with self._lock:
            if self._size + len(data) > 2 * self._limit:
                self._file.seek(-self._limit, os.SEEK_END)
                rest = self._file.read()
                self._file.seek(0)
                self._size = self._file.write(rest[rest.find(b"\n") + 1 :])
                self._file.truncate()
            self._size += self._file.write(data)

    def flush(self) -> None:
        """Let others see them."""
        with self._lock:
            self._file.flush()

    def close(self) -> None:
        """End it."""
        self._file.close()


@dataclass(frozen=True, slots=True)
class Tee:
    """The run's log, and a terminal if somebody wants to watch."""

    log: TapLog
    echo: TapLog | None

    def write(self, data: bytes) -> None:
        """Take whole lines."""
        self.log.write(data)
        if self.echo:
            self.echo.write(data)

    def flush(self) -> None:
        """Let others see them."""
        self.log.flush()
        if self.echo:
            self.echo.flush()


@dataclass(frozen=True, slots=True)
class Marked:
    """A log in which each line is marked with its process of the tap."""

    log: TapLog
    label: str

    def write(self, data: bytes) -> None:
        """Take a line; a write of its own, so that lines of several processes do not mix."""
        self.log.write(b"[%s] %s" % (self.label.encode(), data))

    def flush(self) -> None:
        """Let others see them."""
        self.log.flush()
