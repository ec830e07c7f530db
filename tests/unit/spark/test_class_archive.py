"""The JVM's class-data archive: missed twice, made once, used from then on; never the reason why a run fails."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from bridge.spark.class_archive import ClassData
from bridge.spark.java import find_java


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The machine's cache, empty."""
    monkeypatch.setattr("platformdirs.user_cache_path", lambda name: tmp_path / name)
    return tmp_path / "singer-bridge" / "jvm"


def test_made_by_the_second_run_and_used_by_the_third(cache: Path) -> None:
    """A real JVM writes the archive while it ends, and a later one starts from it."""
    first = ClassData(find_java(), "4.0")
    assert (first.wanted, first.options) == (False, [])
    second = ClassData(find_java(), "4.0")
    assert second.wanted
    java = subprocess.Popen([find_java(), *second.options, "-version"], stderr=subprocess.PIPE)
    second.begin(java)
    assert b"[warning]" not in java.communicate(timeout=60)[1]
    second.end(java)
    third = ClassData(find_java(), "4.0")
    (archive,) = cache.glob("*.jsa")
    assert (third.wanted, third.options) == (False, [f"-XX:SharedArchiveFile={archive}"])
    command = [find_java(), "-Xshare:on", *third.options, "-version"]
    assert subprocess.run(command, capture_output=True, check=False).returncode == 0
    assert {path.suffix for path in cache.iterdir()} == {".jsa", ".missed"}


def test_one_for_each_java_and_spark(cache: Path) -> None:
    """Another Spark starts without the archive of this one."""
    for spark in ("4.0", "4.1"):
        assert not ClassData(find_java(), spark).wanted
    assert ClassData(find_java(), "4.0").wanted


def test_what_nobody_used_for_a_month_goes(cache: Path) -> None:
    """When another archive is made; one that a run started from stays."""
    ClassData(find_java(), "4.0")
    for name in ("old", "used", "half"):
        (cache / name).touch()
        os.utime(cache / name, (0, 0))
    made = ClassData(find_java(), "4.0")
    os.utime(cache / "used")
    with subprocess.Popen(["/bin/sh", "-c", f'echo whole > "{made._draft}"']) as java:
        made.begin(java)
    made.end(java)
    assert {path.name for path in cache.iterdir()} == {"used", made._path.name, made._path.with_suffix(".missed").name}
    os.utime(made._path, (0, 0))
    assert ClassData(find_java(), "4.0").options
    assert made._path.stat().st_mtime > time.time() - 60


def test_a_jvm_that_failed_leaves_nothing(cache: Path) -> None:
    """What a JVM wrote before it failed is no archive."""
    ClassData(find_java(), "4.0")
    made = ClassData(find_java(), "4.0")
    draft = Path(made.options[0].split("=")[1])
    with subprocess.Popen(["/bin/sh", "-c", f'echo half > "{draft}"; exit 1']) as java:
        made.begin(java)
    made.end(java)
    assert [path.suffix for path in cache.iterdir()] == [".missed"]


def test_a_cache_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs go on without an archive."""
    (tmp_path / "singer-bridge").write_text("a file where the folder should be")
    monkeypatch.setattr("platformdirs.user_cache_path", lambda name: tmp_path / name)
    for _ in range(3):
        found = ClassData(find_java(), "4.0")
        assert (found.wanted, found.options) == (False, [])


def test_the_jvm_does_not_outlive_us(cache: Path) -> None:
    """When we are killed a JVM that would write its archive now goes at once, and leaves no draft."""
    cache.mkdir(parents=True)
    draft = cache / "draft"
    program = (
        "import subprocess, sys, time; from bridge.spark.class_archive import ClassData\n"
        "made = ClassData(sys.executable, 'x'); made.wanted, made._draft = True, sys.argv[1]\n"
        "slow = subprocess.Popen(['/bin/sh', '-c', 'echo half > \"$0\"; exec sleep 100', sys.argv[1]])\n"
        "made.begin(slow); print(slow.pid, flush=True); slow.wait()\n"
    )
    environ = os.environ | {"XDG_CACHE_HOME": str(cache)}
    with subprocess.Popen([sys.executable, "-c", program, draft], stdout=subprocess.PIPE, env=environ) as us:
        assert us.stdout
        slow = psutil.Process(int(us.stdout.readline()))
        us.send_signal(signal.SIGKILL)
        us.wait()
    deadline = time.monotonic() + 10
    while (slow.is_running() and slow.status() != psutil.STATUS_ZOMBIE) or draft.exists():
        assert time.monotonic() < deadline, "the JVM lives on"
        time.sleep(0.05)
