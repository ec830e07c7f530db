"""Whole runs in this process, on one Spark session for all of them: for tests of rows, bookmarks and texts.

The run is the real one, but for its JVM. A run with Spark settings of its own starts its own.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

from bridge.cli import main
from bridge.load.spark.query import Engine
from bridge.load.spark.session import Session
from bridge.settings.options import Spark

_MASTER, _OPEN = Spark().master, Engine._open_session


class KeptSession(Session):
    """A session that runs leave open. Between runs pyspark does not know it, so that a test may open another."""

    def __init__(self, folder: Path) -> None:
        self.log = folder / "spark.log"
        folder.mkdir(parents=True, exist_ok=True)
        super().__init__(_MASTER, {}, folder, self.log)
        self.put_aside()

    @property
    def is_alive(self) -> bool:
        """Whether the JVM has not ended."""
        return self._process is not None and self._process.poll() is None

    def put_aside(self) -> None:
        """Let pyspark forget it until `resume`."""
        self._hidden = SparkContext._active_spark_context, SparkContext._gateway, SparkContext._jvm
        self._forget()

    def resume(self) -> None:
        """Be pyspark's session again."""
        self._before = SparkContext._gateway, SparkContext._jvm
        SparkContext._active_spark_context, SparkContext._gateway, SparkContext._jvm = self._hidden

    def close(self, *, hurry: bool) -> None:
        """End what the run has started in it."""
        with suppress(Exception):  # a query that failed, a JVM that died
            for query in self.spark.streams.active:
                query.stop()
        self.put_aside()

    def end(self) -> None:
        """End the JVM."""
        self.resume()
        super().close(hurry=True)


class OneSpark:
    """Types commands in this process; what needs Spark gets the one session, which the first of them starts."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._session: KeptSession | None = None
        self._starts = 0

    def _kept(self) -> KeptSession:
        if not self._session or not self._session.is_alive:
            self._starts += 1
            self._session = KeptSession(self._folder / str(self._starts))
        self._session.resume()
        return self._session

    def _for_run(self, engine: Engine) -> Session:
        """As `Engine._open_session`; without its process, as a run that fails kills its JVM."""
        if (engine._master, engine._conf) != (_MASTER, {}):
            return _OPEN(engine)
        engine._session = session = self._kept()
        engine._jvm = SimpleNamespace(process=None)
        engine._log.unlink(missing_ok=True)
        engine._log.symlink_to(session.log)
        return session

    def _open(self, master: str, conf: dict[str, str], folder: Path, log: Path, **more: Any) -> Session:
        """As `Session(...)`, which verbs that are no runs open."""
        return Session(master, conf, folder, log, **more) if more or (master, conf) != (_MASTER, {}) else self._kept()

    @contextmanager
    def lent(self) -> Iterator[None]:
        """Within the block runs use the one session, for all rows."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Engine, "_open_session", lambda engine: self._for_run(engine))  # noqa: PLW0108 - it binds
            patch.setattr("bridge.load.spark.session.Session", self._open)
            patch.setattr(Spark, "small_bytes", 0)
            yield

    @contextmanager
    def session(self, settings: Mapping[str, str]) -> Iterator[SparkSession]:
        """Lend the session itself, with these settings of Spark SQL."""
        session = self._kept()
        for name, value in settings.items():
            session.spark.conf.set(name, value)
        yield session.spark
        for name in settings:
            session.spark.conf.unset(name)
        session.close(hurry=False)

    def end(self) -> None:
        """End the session."""
        if self._session and self._session.is_alive:
            self._session.end()


def type_here(arguments: Sequence[str], folder: Path, environ: Mapping[str, str]) -> int:
    """Type a command in a folder with exactly these variables, in this process; return its exit code."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for name in os.environ.keys() - environ.keys():
            patch.delenv(name)
        for name, value in environ.items():
            patch.setenv(name, value)
        with pytest.raises(SystemExit) as ended:
            main(list(arguments))
    return int(str(ended.value.code or 0))


@contextmanager
def printed_here(*, stderr: bool = True) -> Iterator[Callable[[], str]]:
    """Collect what the block prints on stdout, and on stderr, in the order in which it does."""
    numbers, text = (1, 2) if stderr else (1,), ""
    with tempfile.TemporaryFile("w+", buffering=1) as file, ExitStack() as stack:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        for number in numbers:
            stack.callback(os.close, kept := os.dup(number))
            stack.callback(os.dup2, kept, number)
            os.dup2(file.fileno(), number)
        stack.enter_context(redirect_stdout(file))
        if stderr:
            stack.enter_context(redirect_stderr(file))
        yield lambda: text
        file.flush()
        file.seek(0)
        text = file.read()
