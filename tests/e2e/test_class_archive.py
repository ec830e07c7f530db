"""The class-data archive is made behind the runs, by one process that nobody waits for and that leaves nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from bridge.load.spark.jvm.class_archive import VARIABLE

MAKER = [sys.executable, "-m", "bridge.load.spark.jvm.archive_maker"]
SECONDS = 400

pytestmark = pytest.mark.timeout(1200)


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "singer-bridge" / "jvm"


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """An environment whose cache is empty, with settings that are not for the maker's own run."""
    kept = {name: value for name, value in os.environ.items() if name != VARIABLE}
    return kept | {"XDG_CACHE_HOME": str(tmp_path / "cache"), "SINGER_BRIDGE_FILE": "/none/bridge.yaml"}


def processes(cache: Path) -> list[psutil.Process]:
    """Every process that works below the cache: the maker, its run, the JVM, the guard."""
    return [
        process
        for process in psutil.process_iter(["status", "cmdline", "cwd"])
        if process.info["status"] != psutil.STATUS_ZOMBIE
        and str(cache) in " ".join([process.info["cwd"] or "", *(process.info["cmdline"] or ())])
    ]


def wait(condition: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + SECONDS
    while not (result := condition()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return result


def run(environ: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    """A run as cron starts it: it reads all that the run prints, until nobody can print any more."""
    command = [sys.executable, "-m", "bridge", *words]
    environ = {name: value for name, value in environ.items() if name != "SINGER_BRIDGE_FILE"}
    environ |= {"SINGER_BRIDGE_HOME": str(Path(environ["XDG_CACHE_HOME"]).parent / "home")}
    return subprocess.run(command, env=environ, capture_output=True, text=True, timeout=SECONDS, check=True)


@pytest.mark.slow
def test_made_behind_the_second_run(environ: dict[str, str], cache: Path, tmp_path: Path) -> None:
    """The first run leaves nothing; the second announces it and ends at once; it is whole, and the third uses it."""
    tap = f"{sys.executable} -m tap_smoke"
    config = '{"streams": [{"name": "users", "records": 10}]}'
    load = ["run", "--tap", tap, "--tap-config", config, "--to", str(tmp_path / "lake"), "--name"]
    assert "a background process" not in run(environ, *load, "a").stderr
    assert processes(cache) == []
    second = run(environ, *load, "b")
    assert second.stderr.count("a background process prepares faster starts of Spark") == 1
    assert list(cache.glob("*.jsa")) == []
    (maker,) = wait(lambda: [each for each in processes(cache) if (each.info["cmdline"] or [""])[-1] == MAKER[-1]])
    assert (maker.nice(), maker.terminal()) == (19, None)
    during = run(environ, *load, "c")
    assert "a background process" not in during.stderr
    wait(lambda: not processes(cache))
    (archive,) = cache.glob("*.jsa")
    assert {path.name for path in cache.iterdir() if path.suffix != ".base"} == {
        archive.name,
        archive.with_suffix(".origin").name,
        "lock",
    }
    os.utime(archive, (0, 0))
    assert "a background process" not in run(environ, *load, "d").stderr
    assert archive.stat().st_mtime > time.time() - SECONDS


@pytest.mark.slow
@pytest.mark.parametrize("after", [0.5, 6.0, 12.0])
def test_a_maker_that_is_killed_leaves_nothing(environ: dict[str, str], cache: Path, after: float) -> None:
    """Its run, its JVM and its files go; the next one makes the archive."""
    maker = subprocess.Popen(MAKER, env=environ, start_new_session=True)
    wait((cache / "scratch" / "log").exists)
    time.sleep(after)  # anywhere: while Python imports, while the JVM starts, while it writes
    maker.send_signal(signal.SIGKILL)
    maker.wait()
    wait(lambda: not processes(cache))
    assert not (cache / "scratch").exists()
    assert list(cache.glob("*.jsa")) == []


@pytest.mark.slow
def test_one_maker_at_a_time(environ: dict[str, str], cache: Path) -> None:
    """Others end at once; what somebody left behind who could not clean up is deleted first."""
    (cache / "scratch" / "left").mkdir(parents=True)
    with subprocess.Popen(MAKER, env=environ) as first:
        wait((cache / "scratch" / "log").exists)
        assert not (cache / "scratch" / "left").exists()
        subprocess.run(MAKER, env=environ, check=True, timeout=60)
        assert first.poll() is None
        assert first.wait(timeout=SECONDS) == 0
    assert len(list(cache.glob("*.jsa"))) == 1
    subprocess.run(MAKER, env=environ, check=True, timeout=60)


def test_a_maker_that_fails_says_why(environ: dict[str, str], cache: Path) -> None:
    """Typed by hand, it prints what its run printed; it leaves nothing."""
    broken = environ | {"PYSPARK_SUBMIT_ARGS": "--no-such-option pyspark-shell"}
    done = subprocess.run(MAKER, env=broken, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == 1
    assert "no class-data archive was made: error: Spark did not start" in done.stderr
    assert {path.suffix or path.name for path in cache.iterdir()} == {"lock", ".tried"}


def test_an_idle_service_has_it_made(environ: dict[str, str], cache: Path, tmp_path: Path) -> None:
    """Once, and its log says so; without it each run of a container would start slowly for ever."""
    source = "{source: {tap: x}, destination: {bucket: lake}}"
    (tmp_path / "bridge.yaml").write_text(f"service: {{port: 0}}\npipelines: {{shop: {source}}}\n")
    broken = environ | {"PYSPARK_SUBMIT_ARGS": "--no-such-option pyspark-shell"}  # this maker ends soon
    command = [sys.executable, "-m", "bridge", "serve", "--file", str(tmp_path / "bridge.yaml")]
    log = tmp_path / "log"
    with log.open("wb") as writing, subprocess.Popen(command, env=broken, cwd=tmp_path, stderr=writing) as service:
        try:
            wait(lambda: list(cache.glob("*.tried")))
            wait(lambda: not processes(cache))
        finally:
            service.terminate()
    assert service.returncode == 0
    assert log.read_text().count("a background process prepares faster starts of Spark") == 1
