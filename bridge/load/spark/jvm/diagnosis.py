"""Says in plain words why Spark, or a load in this process, failed; and what an operator can fix on a cluster."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from bridge import __version__
from bridge.errors import BridgeError, EngineError
from bridge.load.spark.log import tail
from bridge.load.spark.shipping import OTHER_BRIDGE
from bridge.load.spark.worker import SHARE_SPOOL

_HOST = re.compile(r"\((\S+) executor \S+?\)")
_VERSION = re.compile(r"\[PYTHON_VERSION_MISMATCH\][^\d]*([\d., ]*\d)")
_NO_PYTHON = re.compile(r'Cannot run program "([^"]+)"')
_NO_MODULE = re.compile(r"No module named '?([\w.]+)|(\w+) >= [\d.]+ must be installed")
_OTHER = re.compile(rf"{OTHER_BRIDGE}: (.+)")
_NO_BATCH = re.compile(r"/batches/\d+\.json does not exist")

_HERE = ".".join(map(str, sys.version_info[:2]))
_PYTHON = f"give every executor Python {_HERE}, its path in PYSPARK_PYTHON or in spark.pyspark.python of spark.conf"


def of_spark(error: BaseException, log: Path, spool: str, code: int | None) -> EngineError:
    """An error of Spark in plain words. `code`: with which the JVM has ended, if it has."""
    if code is not None:
        hint = "the system may have been short of memory; what was committed stays, run again\n" + tail(log)
        return EngineError("Spark's JVM is gone", hint=hint, exit_code=code)
    if diagnosis := diagnose(str(error), log.read_text(errors="replace") if log.exists() else "", spool):
        return diagnosis
    return EngineError("Spark failed", hint=tail(log), cause=_first_line(error))


def of_this_process(error: BaseException) -> BridgeError:
    """An error of a load without Spark in plain words."""
    if isinstance(error, BridgeError):
        return error
    hint = "what was committed stays; run again, and report it if it comes back"
    return EngineError("rows could not be written", hint=hint, cause=f"{type(error).__name__}: {_first_line(error)}")


def _first_line(error: BaseException) -> str:
    return next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)[:300]


def diagnose(text: str, log: str, spool: str) -> EngineError | None:
    """The error if Spark's `text` says that an executor lacks something, otherwise None.

    On which machine that was is often only in Spark's `log`.
    """
    hosts = _HOST.findall(text) or _HOST.findall(log)
    host = {"host": hosts[-1]} if hosts else {}
    if match := _VERSION.search(text):
        version = match[1].strip(" ,").replace(", ", ".")
        return EngineError("an executor has another Python", hint=_PYTHON, **host, there=version, here=_HERE)
    if match := _NO_PYTHON.search(text):
        return EngineError("an executor has no such Python", hint=_PYTHON, **host, program=match[1])
    if match := _OTHER.search(text):
        hint = "a run brings its own: take singer-bridge out of the executors' Python and its start-up files"
        return EngineError(OTHER_BRIDGE, hint=hint, **host, there=match[1], here=__version__)
    if match := _NO_MODULE.search(text):
        needs = "msgspec, pyarrow, orjson, simplejson, numpy and the library of the bucket's store"
        hint = f"executors need the driver's {needs}"
        return EngineError("an executor lacks a package", hint=hint, **host, package=match[1] or match[2])
    if _NO_BATCH.search(text):
        return EngineError("an executor cannot read the spool", hint=SHARE_SPOOL, **host, folder=spool)
    return None
