"""Java, the one thing that pip cannot install."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bridge.errors import SettingsError
from bridge.load.spark.jvm.java import check_version, find_java, java_version


def fake(folder: Path, version: str) -> None:
    java = folder / "bin/java"
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-04-15' >&2\n")
    java.chmod(0o755)


def test_a_missing_java_is_told_with_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No Java: one line that names the package, and JAVA_HOME where it is wrong."""
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(SettingsError, match=f"Java was not found JAVA_HOME={tmp_path}") as caught:
        find_java()
    assert "openjdk-17" in caught.value.hint
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SettingsError, match=r"Java was not found$"):
        find_java()


@pytest.mark.parametrize(("version", "old"), [("1.8.0_392", "8"), ("11.0.22", "11"), ("17.0.15", None), ("25", None)])
def test_an_old_java_is_told(version: str, old: str | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Spark needs 17; the message says what was found."""
    fake(tmp_path, version)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert java_version() == version
    if old is None:
        check_version()
        return
    with pytest.raises(SettingsError, match=f"too old found={old} needed=17"):
        check_version()


def test_workers_keep_zips_that_are_not_sparks_own() -> None:
    """Of the workers' path only the zips with pyspark and py4j go, whatever else a name begins with."""
    paths = ["/x/pyspark.zip", "/x/py4j-0.10.9.9-src.zip", "/x/pyspark_jobs.zip"]
    code = "import sys, bridge.load.spark.daemon; print([path for path in sys.path if path.startswith('/x/')])"
    environ = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
    done = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['/x/pyspark_jobs.zip']"
