"""What a start of the JVM leaves for the next: whose it is, when it is due, when it goes; never why a run fails."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bridge.load.preflight.machine import machine_checks
from bridge.load.spark.jvm.class_archive import VARIABLE, ClassArchive, JvmCommand, Noted, tidy
from bridge.load.spark.jvm.jvm import class_archive

DAY = 24 * 3600


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The machine's cache, empty."""
    monkeypatch.setattr("platformdirs.user_cache_path", lambda name: tmp_path / name)
    monkeypatch.delenv(VARIABLE, raising=False)
    return tmp_path / "singer-bridge" / "jvm"


@pytest.fixture
def java(tmp_path: Path) -> str:
    (tmp_path / "java").touch()
    return str(tmp_path / "java")


def spark(folder: Path) -> Path:
    """An installation's folder of jars."""
    folder.mkdir(parents=True)
    return folder


def made(java: str, jars: Path) -> ClassArchive:
    """The archive of an installation, as the maker leaves it."""
    archive = ClassArchive(java, jars)
    archive.begin()
    draft = archive.path.with_name("draft")
    draft.touch()
    archive.keep(draft)
    return archive


def grow_old(path: Path, days: float) -> None:
    os.utime(path, (0, time.time() - days * DAY))


def test_it_is_due_after_two_runs_without_it(cache: Path, java: str, tmp_path: Path) -> None:
    """A machine that is thrown away after one run never pays for it; whoever asks gets it at once."""
    archive = ClassArchive(java, spark(tmp_path / "jars"))
    assert (archive.is_due(asked=False), archive.is_due(asked=True)) == (False, True)
    assert archive.options() == []
    assert not archive.is_due(asked=False)
    assert archive.options() == []
    assert archive.is_due(asked=False)
    made(java, tmp_path / "jars")
    assert archive.options() == [f"-XX:SharedArchiveFile={archive.path}"]
    assert not archive.is_due(asked=True)
    assert {path.suffix for path in cache.iterdir()} == {".jsa", ".origin"}


def test_attempts_that_are_ended_are_not_repeated_for_ever(cache: Path, java: str, tmp_path: Path) -> None:
    """Where background processes are killed, as in a service of systemd, three of them are enough."""
    archive = ClassArchive(java, spark(tmp_path / "jars"))
    for _ in range(3):
        assert archive.is_due(asked=True)
        archive.begin()
    assert (archive.is_given_up(), archive.is_due(asked=True)) == (True, False)
    assert not made(java, tmp_path / "jars").is_given_up()


def test_doctor_says_why_there_is_none(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not yet, switched off, or ended each time: then with what to type."""
    archive = class_archive()
    assert archive
    check = dict(machine_checks(spark=False))["jvm archive"]

    def finding() -> tuple[str, str]:
        [one] = check()
        return one.status, one.text + one.fix

    assert finding() == ("ok", f"none yet: a background process makes it in {cache}, after the second run")
    monkeypatch.setenv(VARIABLE, "off")
    assert finding() == ("ok", f"none, and none is made: {VARIABLE} is off")
    monkeypatch.delenv(VARIABLE)
    for _ in range(3):
        archive.begin()
    status, text = finding()
    assert (status, "-m bridge.load.spark.jvm.archive_maker" in text) == ("warning", True)


def test_it_can_be_switched_off(cache: Path, java: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs still start from one that exists."""
    archive = ClassArchive(java, spark(tmp_path / "jars"))
    monkeypatch.setenv(VARIABLE, "off")
    assert (archive.is_due(asked=True), archive.options()) == (False, [])
    made(java, tmp_path / "jars")
    assert archive.options() == [f"-XX:SharedArchiveFile={archive.path}"]


def test_an_archive_goes_with_its_installation(cache: Path, java: str, tmp_path: Path) -> None:
    """Replaced or removed: the archive is of no use to anybody, however new. Those of others stay."""
    installations = {name: spark(tmp_path / name / "jars") for name in ("same", "replaced", "removed")}
    archives = {name: made(java, jars) for name, jars in installations.items()}
    os.utime(installations["replaced"], (0, 0))
    installations["removed"].rmdir()
    tidy()
    assert set(cache.glob("*.jsa")) == {archives["same"].path}
    assert {path.stem for path in cache.iterdir()} == {archives["same"].path.stem}
    newer = made(java, installations["replaced"])
    assert newer.path != archives["replaced"].path


def test_what_nobody_uses_goes(cache: Path, java: str, tmp_path: Path) -> None:
    """After ten days; after one where nothing says whose it is. A run that starts from it uses it."""
    archives = [made(java, spark(tmp_path / name)) for name in ("a", "b", "c")]
    for archive, days in zip(archives, (11, 9, 11), strict=True):
        grow_old(archive.path, days)
    assert archives[2].options()
    for name, days in (("old", 2.0), ("new", 0.5)):
        (cache / f"{name}.jsa").touch()
        grow_old(cache / f"{name}.jsa", days)
    tidy()
    assert set(cache.glob("*.jsa")) == {archives[1].path, archives[2].path, cache / "new.jsa"}


def test_a_cache_that_cannot_be_written(cache: Path, java: str, tmp_path: Path) -> None:
    """Runs go on without an archive."""
    (tmp_path / "singer-bridge").write_text("a file where the folder should be")
    archive = ClassArchive(java, spark(tmp_path / "jars"))
    for _ in range(3):
        assert archive.options() == []
    assert not archive.is_due(asked=False)
    tidy()


GIVEN = {"PATH": "/usr/bin:/bin", "TOKEN": "secret", "PYTHONHASHSEED": "7"}
ADDED = {"SPARK_SCALA_VERSION": "2.13", "PYTHONHASHSEED": "0"}


@pytest.fixture
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing but our words says how Spark is to start."""
    for name in [name for name in os.environ if name.startswith(("SPARK_", "PYSPARK_", "HADOOP_", "YARN_"))]:
        monkeypatch.delenv(name)


@pytest.fixture
def started(tmp_path: Path) -> Iterator[int]:
    """A process as `spark-submit` leaves it: another command than ours, with the scratch folder in it."""
    command = ["tail", "-f", "/dev/null", "--", str(tmp_path / "one/empty")]
    (tmp_path / "one").mkdir()
    (tmp_path / "one/empty").touch()
    with subprocess.Popen(command, env=GIVEN | ADDED | {"SHLVL": "2"}, stdout=subprocess.PIPE) as process:
        assert process.stdout
        assert process.stdout.readline()  # it runs
        yield process.pid
        process.kill()


def command_in(java: str, tmp_path: Path, folder: str, *words: str) -> JvmCommand:
    home = tmp_path / "spark"
    (home / "jars").mkdir(parents=True, exist_ok=True)
    return JvmCommand(java, home, ["spark-submit", f"-Dtmp={tmp_path / folder}", *words], tmp_path / folder)


def test_the_next_start_has_the_command(cache: Path, java: str, tmp_path: Path, clean: None, started: int) -> None:
    """It names the scratch folder of its own run, and the variables that were added; nobody's secrets are noted."""
    first = command_in(java, tmp_path, "one")
    assert first.read() is None
    first.note(started, GIVEN)
    words = ["tail", "-f", "/dev/null", "--", str(tmp_path / "two/empty")]
    assert command_in(java, tmp_path, "two").read() == Noted(words, ADDED)
    (note,) = cache.iterdir()
    assert "secret" not in note.read_text()
    first.forget()
    assert command_in(java, tmp_path, "two").read() is None


def test_a_command_is_of_the_same_words_java_and_spark(
    cache: Path, java: str, tmp_path: Path, clean: None, started: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where something differs, or Spark has settings of its own, `spark-submit` is asked; a torn note is none."""
    command_in(java, tmp_path, "one").note(started, GIVEN)
    assert command_in(java, tmp_path, "two", "--conf").read() is None
    assert command_in(java, tmp_path, "a b").read() is None
    with monkeypatch.context() as patch:
        patch.setenv("SPARK_BUFFER_SIZE", "65536")  # pyspark's own, after an earlier session of this process
        assert command_in(java, tmp_path, "two").read()
        patch.setenv("SPARK_CONF_DIR", "/etc/spark")
        assert command_in(java, tmp_path, "two").read() is None
    (tmp_path / "spark/conf").mkdir()
    assert command_in(java, tmp_path, "two").read() is None
    (tmp_path / "spark/conf").rmdir()
    assert command_in(java, tmp_path, "two").read()
    (note,) = cache.iterdir()
    note.write_bytes(note.read_bytes()[:20])
    assert command_in(java, tmp_path, "two").read() is None
    command_in(java, tmp_path, "one").note(started, GIVEN)
    assert command_in(java, tmp_path, "two").read()
    os.utime(tmp_path / "spark/jars", (0, 0))
    assert command_in(java, tmp_path, "two").read() is None
    command_in(java, tmp_path, "one").note(started, GIVEN)
    assert command_in(java, tmp_path, "two").read()
