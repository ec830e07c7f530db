"""Java, the one thing that pip cannot install: an error of one line if it is missing or too old."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path

from bridge.errors import SettingsError

_OLDEST = 17
_PATIENCE = 20.0
"""Seconds for a JVM to tell its version."""
_HINT = "install Java 17 or newer (Debian: apt-get install openjdk-17-jre-headless; macOS: brew install openjdk@17)"


def find_java() -> str:
    """The Java that Spark will use, as it looks for it. Raises `SettingsError` when there is none."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which(f"{home}/bin/java" if home else "java")
    if not java:
        hint = f"{_HINT}, or correct JAVA_HOME" if home else f"{_HINT}, or set JAVA_HOME"
        raise SettingsError("Java was not found", hint=hint, **({"JAVA_HOME": home} if home else {}))
    return java


def check_version() -> None:
    """Raise `SettingsError` when Java is too old for Spark; one whose version cannot be read is left to Spark."""
    match = re.match(r"(?:1\.)?(\d+)", java_version())
    if match and int(match[1]) < _OLDEST:
        raise SettingsError("Java is too old", hint=_HINT, found=match[1], needed=_OLDEST)


def java_version() -> str:
    """The version of the Java that Spark will use, such as `17.0.9`; empty if it cannot be read.

    Mostly a file beside it says so: to ask a JVM takes a tenth of a second.
    """
    with suppress(OSError):
        release = (Path(find_java()).resolve().parents[1] / "release").read_text()
        if match := re.search(r'^JAVA_VERSION="([^"]+)"', release, re.MULTILINE):
            return match[1]
    command = [find_java(), "-version"]
    with suppress(subprocess.TimeoutExpired):
        output = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_PATIENCE).stderr
        if match := re.search(r'version "([^"]+)"', output):
            return match[1]
    return ""
