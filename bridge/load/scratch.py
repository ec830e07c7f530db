"""A run's scratch on this machine: spool, Spark's folders, logs until they are in the bucket."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import IO

from bridge.lake.runs import log_key
from bridge.settings.load import Pipeline
from bridge.storage import Storage
from bridge.tap.process import Log

_LOG_LIMIT = 32 << 20
"""Bytes kept of the end of a log."""


class Scratch:
    """One run's own folders, apart from every other run's: a dead run's JVM may live on for some seconds."""

    def __init__(self, home: Path, pipeline: Pipeline, run: str) -> None:
        s3 = pipeline.destination.s3_options  # one name of a bucket may be two at two stores
        bucket = f"{s3.endpoint_url if s3 and s3.endpoint_url else ''}{pipeline.destination.bucket}"
        key = f"{pipeline.name}-{sha256(bucket.encode()).hexdigest()[:8]}"
        self._pipeline, self._run = pipeline.name, run
        self._siblings = ((pipeline.spool.dir or home / "spool") / key, home / "checkpoint" / key)
        self.spool, self.spark = (sibling / run / "data" for sibling in self._siblings)
        self.tap_log, self.spark_log = self.spool.parent / "tap.log", self.spool.parent / "spark.log"

    def prepare(self, storage: Storage) -> None:
        """Delete what dead runs left, keeping their logs; make our own folders."""
        for sibling in self._siblings:
            for old in sibling.iterdir() if sibling.exists() else ():
                self._keep(storage, old, old.name)
                shutil.rmtree(old, ignore_errors=True)
        for folder in (self.spool, self.spark):
            folder.mkdir(parents=True, exist_ok=True)

    def keep_logs(self, storage: Storage) -> None:
        """Copy the logs into the bucket."""
        self._keep(storage, self.spool.parent, self._run)

    def _keep(self, storage: Storage, folder: Path, run: str) -> None:
        for name, suffix in (("tap.log", ""), ("spark.log", ".spark")):
            path = folder / name
            if path.exists() and path.stat().st_size:
                with path.open("rb") as file:
                    file.seek(max(0, path.stat().st_size - _LOG_LIMIT))
                    storage.write(log_key(self._pipeline, run + suffix), file.read())

    def delete(self) -> None:
        """Delete this run's folders, and those of the pipeline if they are empty then."""
        for folder in (self.spool.parent, self.spark.parent):
            shutil.rmtree(folder, ignore_errors=True)


@dataclass(frozen=True, slots=True)
class Tee:
    """The run's log, and a terminal if somebody wants to watch."""

    log: IO[bytes]
    echo: Log | None

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
    """A log in which lines say of which process of the tap they are."""

    log: Log
    label: str

    def write(self, data: bytes) -> None:
        """Take a line; a write of its own, so that lines of several processes do not mix."""
        self.log.write(b"[%s] %s" % (self.label.encode(), data))

    def flush(self) -> None:
        """Let others see them."""
        self.log.flush()
