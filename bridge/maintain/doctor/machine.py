"""What Spark needs on this machine: Python's packages, Java, a session that starts, room in the cache."""

from __future__ import annotations

import os
import platform
import tempfile
import time
from collections.abc import Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import platformdirs

from bridge.errors import SettingsError
from bridge.maintain.doctor.finding import Check, Finding, fine, warning
from bridge.spark.java import check_version, find_java, java_version


def machine_checks() -> list[Check]:
    """Return the checks of everything but Spark's start, which takes seconds."""
    return [("python", _python), ("packages", _packages), ("java", _java), ("jvm archive", _archive)]


def spark_check(master: str, conf: Mapping[str, str]) -> Check:
    """Return the check that Spark starts as a pipeline sets it, and works."""
    return "spark", lambda: _spark(master, dict(conf))


def _python() -> Iterator[Finding]:
    yield fine("python", f"{platform.python_version()}, {platform.system()} {platform.machine()}")


def _packages() -> Iterator[Finding]:
    found = {}
    for name in ("pyspark", "pyarrow", "pandas"):
        try:
            found[name] = version(name)
        except PackageNotFoundError as error:
            raise SettingsError(f"{name} is not installed", hint="pip install --upgrade singer-bridge") from error
    if int(found["pandas"].split(".")[0]) >= 3:
        hint = "pip install 'pandas<3'; Spark's Python workers do not work with pandas 3"
        raise SettingsError("pandas is too new for Spark", hint=hint, found=found["pandas"])
    yield fine("packages", ", ".join(f"{name} {number}" for name, number in found.items()))


def _java() -> Iterator[Finding]:
    check_version()
    yield fine("java", f"{java_version() or 'of an unknown version'} at {find_java()}")


def _archive() -> Iterator[Finding]:
    """The archive is a matter of speed only, so nothing here is an error."""
    folder = platformdirs.user_cache_path("singer-bridge") / "jvm"
    archives = list(folder.glob("*.jsa"))
    there = next(place for place in (folder, *folder.parents) if place.exists())
    if archives:
        size = sum(path.stat().st_size for path in archives) >> 20
        yield fine("jvm archive", f"there, {size} MiB in {folder}")
    elif os.access(there, os.W_OK | os.X_OK):
        yield fine("jvm archive", f"not there yet: the second run on this machine makes it, in {folder}")
    else:
        fix = f"make {there} writable, or set XDG_CACHE_HOME to a folder that is; Spark then starts in half the time"
        yield warning("jvm archive", f"cannot be kept: {there} is not writable", fix)


def _spark(master: str, conf: dict[str, str]) -> Iterator[Finding]:
    from bridge.spark.session import Session

    with tempfile.TemporaryDirectory(prefix="singer-bridge-", ignore_cleanup_errors=True) as folder:
        began = time.monotonic()
        session = Session(master, conf, Path(folder) / "spark", Path(folder) / "spark.log")
        try:
            rows, seconds = session.spark.range(3).count(), time.monotonic() - began
            number = session.spark.version
        finally:
            session.close(hurry=True)
    if rows != 3:
        raise SettingsError("Spark cannot count to three", hint="look at spark.conf", counted=rows)
    yield fine("spark", f"{number} on {master} started in {seconds:.1f} s")
