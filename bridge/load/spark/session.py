"""A Spark session and its JVM: how it is opened and closed, and how we know that the JVM has died."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from socket import gethostname
from typing import Any

from py4j.protocol import Py4JNetworkError
from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from bridge.errors import EngineError
from bridge.load.spark.jvm.jvm import Jvm
from bridge.load.spark.log import tail
from bridge.load.spark.shipping import ship

_QUERY_LOGS = ("DataFrameQueryContextLogger", "SQLQueryContextLogger")
"""Where pyspark prints a statement's error, with Java's stack, before it raises it. We report what it raises."""

_ENDS = 10.0
"""Seconds in which a JVM whose socket broke has ended: the system takes back its memory first."""


class Session:
    """An open session: `spark` is the `SparkSession`, `shipped` what executors import us from, None on this machine."""

    def __init__(self, master: str, conf: dict[str, str], folder: Path, log: Path, *, jvm: Jvm | None = None) -> None:
        """Take a JVM that starts with these settings, or start one. Raises `EngineError` when it does not come up."""
        jvm = jvm or Jvm(master, conf, folder, log)
        self._local, self._process = jvm.local, jvm.process
        self._jvm = jvm
        logging.getLogger().addFilter(_not_of_py4j)
        _silence_query_logs()
        # A session that the program has ended leaves its JVM to pyspark, which would use it instead of ours.
        self._before = SparkContext._gateway, SparkContext._jvm
        SparkContext._gateway = SparkContext._jvm = None
        try:
            with _gateway_variables(jvm):
                gateway = launch_gateway()
            _pass_no_numpy(gateway)
            settings = SparkConf(loadDefaults=False).setAll(list(jvm.conf.items()))
            context = SparkContext(conf=settings, gateway=gateway)
            context._accumulatorServer.handle_error = lambda *_: None  # it would print that its JVM is gone
            context.pythonExec = _executors_python(self._local, jvm.wanted_python)
            self.shipped = None if self._local else ship(context, folder)
            self.spark = SparkSession(context)
        except Exception as error:  # pyspark, py4j and the system each have their own
            jvm.kill()
            jvm.end()
            self._forget()
            cause = str(error) if isinstance(error, ChildProcessError) else type(error).__name__
            # With AWS_ACCESS_KEY_ID in its environment, Spark asks for it, whatever SPARK_LOCAL_HOSTNAME says.
            named = f"give this machine's name an address: `127.0.0.1 {gethostname()}` in /etc/hosts\n"
            hint = (named if "UnknownHostException" in cause else "") + tail(log)
            raise EngineError("Spark did not start", hint=hint, cause=cause) from error

    def exit_code(self, error: BaseException) -> int | None:
        """The JVM's exit code, None while it lives. Its socket, which may be the `error`, breaks before it ends."""
        if not self._process:
            return None
        is_broken = isinstance(error, (Py4JNetworkError, ConnectionError))
        try:
            return int(self._process.wait(timeout=_ENDS if is_broken else 0.5))
        except subprocess.TimeoutExpired:
            return None

    def close(self, *, hurry: bool) -> None:
        """End the JVM. A local one is just killed, unless it is to write a class-data archive."""
        gateway, updates = self.spark.sparkContext._gateway, self.spark.sparkContext._accumulatorServer
        process = self._process if self._local else None
        if process and (hurry or not self._jvm.leaves_class_data):
            process.kill()
            updates.shutdown()
        else:
            with suppress(Exception):  # the JVM may be dead already; it dies with us in any case
                self.spark.stop()
        with suppress(Exception):
            gateway.shutdown()
        self._jvm.end()
        self._forget()

    def _forget(self) -> None:
        """Leave pyspark as it was: it would give what is gone to the next session of this process."""
        SparkContext._active_spark_context = None
        SparkContext._gateway, SparkContext._jvm = self._before
        SparkSession._instantiatedSession = SparkSession._activeSession = None


def _not_of_py4j(record: logging.LogRecord) -> bool:
    """Whether a record of the root logger is not py4j's, which raises what it logs there.

    py4j logs errors when we kill the JVM during its clean-up. Users must not see them.
    """
    return Path(record.pathname).parent.name != "py4j"


def _pass_no_numpy(gateway: Any) -> None:
    """Keep pyspark from looking for numpy in what goes to the JVM: that imports numpy's test tools, and pandas."""
    client = gateway._gateway_client
    client.converters = [each for each in client.converters or () if not type(each).__name__.startswith("Numpy")]


@contextmanager
def _gateway_variables(jvm: Jvm) -> Iterator[None]:
    """Let pyspark use our JVM, as it uses one that somebody else started."""
    if not jvm.process:
        yield
        return
    port, secret = jvm.address()
    variables = {"PYSPARK_GATEWAY_PORT": str(port), "PYSPARK_GATEWAY_SECRET": secret}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name in variables:
            del os.environ[name]


def _executors_python(local: bool, configured: str | None) -> str:
    """The Python that executors start: by default pyspark takes whatever `python3` is on their PATH."""
    return sys.executable if local else configured or os.environ.get("PYSPARK_PYTHON") or sys.executable


def _silence_query_logs() -> None:
    from pyspark.logger import PySparkLogger

    for name in _QUERY_LOGS:
        PySparkLogger.getLogger(name).disabled = True
