"""Checks of this machine for Spark: Python's packages, Java, a session that starts, room in the cache."""

from __future__ import annotations

import os
import platform
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from bridge.durations import duration
from bridge.errors import SettingsError
from bridge.findings import Check, Finding, fine, warning
from bridge.lake.storage.local.folders import nearest
from bridge.load.spark.jvm.archive_maker import ANNOUNCEMENT, make_in_background
from bridge.load.spark.jvm.class_archive import VARIABLE, archives_folder
from bridge.load.spark.jvm.java import find_java
from bridge.load.spark.jvm.jvm import class_archive


def machine_checks(*, spark: bool) -> list[Check]:
    """The checks of everything but Spark's start, which takes seconds. `spark`: a missing archive is made meanwhile."""
    archive: Check = ("jvm archive", _archive if spark else _archive_as_it_is)
    return [
        ("python", _python),
        ("packages", _packages),
        ("compiled reader", _compiled_reader),
        ("java", _java),
        archive,
    ]


def spark_check(master: str, conf: Mapping[str, str]) -> Check:
    """The check that Spark starts with a pipeline's settings, and works."""
    return "spark", lambda: _spark(master, dict(conf))


def _python() -> Iterator[Finding]:
    yield fine("python", f"{platform.python_version()}, {platform.system()} {platform.machine()}")


def _packages() -> Iterator[Finding]:
    versions = {}
    for name in ("pyspark", "pyarrow"):
        try:
            versions[name] = version(name)
        except PackageNotFoundError as error:
            raise SettingsError(f"{name} is not installed", hint="pip install --upgrade singer-bridge") from error
    yield fine("packages", ", ".join(f"{name} {number}" for name, number in versions.items()))


def _compiled_reader() -> Iterator[Finding]:
    """Nothing is wrong without one: only speed depends on it."""
    from bridge.protocol.decode import native  # here: it loads pyarrow

    if not native.PROBLEM:
        yield fine("compiled reader", "it reads the tap's lines")
        return
    fix = (
        "where speed matters: pip install --force-reinstall --no-deps singer-bridge, whose wheel for this platform has "
        "it; an installation from a clone builds it where Rust's cargo is on PATH"
    )
    yield warning("compiled reader", f"large loads are slower without it: {native.PROBLEM}", fix)


def _java() -> Iterator[Finding]:
    java = find_java()
    passed_over = f"; {java.passed_over}" if java.passed_over else ""
    yield fine("java", f"{java.version or 'of an unknown version'} by {java.named_by}, {java.program}{passed_over}")


def _archive() -> Iterator[Finding]:
    if make_in_background(asked=True):
        yield fine("jvm archive", f"none yet: {ANNOUNCEMENT}")
    else:
        yield from _archive_as_it_is()


def _archive_as_it_is() -> Iterator[Finding]:
    """Only speed depends on the archive, so nothing here is an error."""
    archive, folder = class_archive(), archives_folder()
    if archive is None:  # another check says that Java is missing
        return
    existing = nearest(folder)
    if archive.path.exists():
        yield fine("jvm archive", f"{archive.path.stat().st_size >> 20} MiB in {folder}")
    elif not os.access(existing, os.W_OK | os.X_OK):
        fix = f"make {existing} writable, or set XDG_CACHE_HOME to a folder that is; Spark then starts in half the time"
        yield warning("jvm archive", f"cannot be stored: {existing} is not writable", fix)
    elif os.environ.get(VARIABLE) == "off":
        yield fine("jvm archive", f"none, and none is made: {VARIABLE} is off")
    elif archive.is_given_up():
        fix = f"type {sys.executable} -m bridge.load.spark.jvm.archive_maker, which makes it while you wait"
        yield warning("jvm archive", "none yet: each time something ended the background process that makes it", fix)
    else:
        yield fine("jvm archive", f"none yet: a background process makes it in {folder}, after the second run")


def _spark(master: str, conf: dict[str, str]) -> Iterator[Finding]:
    from bridge.load.spark.session import Session

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
    yield fine("spark", f"{number} on {master} started in {duration(seconds)}")
