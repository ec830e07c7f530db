"""Makes the class-data archive of this Java and Spark: in the background, or by
`python -m bridge.load.spark.jvm.archive_maker`.

The maker does a run of its own, of a few records and a view into a scratch lake, whose JVM writes its classes as it
ends: about twenty seconds. Nobody waits for it: it has the lowest priority, no terminal and no pipe of the process that
started it, and one works at a time. If it is killed, a guard ends its run and deletes the scratch folder.
"""

from __future__ import annotations

import fcntl
import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bridge.load.spark.jvm.class_archive import VARIABLE, archives_folder, tidy
from bridge.load.spark.jvm.java import find_java
from bridge.load.spark.jvm.jvm import class_archive
from bridge.settings.options import is_local

ANNOUNCEMENT = "a background process prepares faster starts of Spark: about 20 s, once for this installation"
_SECONDS = 600
"""After so many seconds the maker gives up."""
_TAP_CONFIG = {"streams": [{"name": "users", "records": 100, "types": True}]}
_VIEW = (
    "SELECT id % 9 AS k, count(*) AS n, sum(id) AS total, avg(id) AS mean, max(name) AS last,"
    " max_by(name, at) AS newest, bool_or(active) AS some FROM users GROUP BY 1"
)
"""So that the classes with which Spark aggregates are in the archive, too: a view saves a second of a run."""
# At end-of-file the maker has died. A process may still write while it dies.
_GUARD = """
read -r ended && exit
kill -s KILL -- "-$1" 2>/dev/null
for _ in 1 2 3 4 5 6 7 8 9 10; do
    rm -rf "$2"
    kill -s 0 -- "-$1" 2>/dev/null || exit
    sleep 0.2
done
"""
# The shell ends at once, so the maker has no parent that would have to wait for it.
_DETACHED = '"$@" </dev/null >/dev/null 2>&1 &'


def make_in_background(master: str = "local[*]", *, asked: bool) -> bool:
    """Start the maker if the archive is missing, and nobody makes it; return whether it was started.

    Without `asked` two runs must have missed the archive. Whatever keeps it from being made is no error.
    """
    tidy()
    archive = class_archive()
    others = os.environ.get("SPARK_REMOTE") or "PYSPARK_GATEWAY_PORT" in os.environ
    if archive is None or others or not is_local(master) or not archive.is_due(asked=asked):
        return False
    try:
        archives_folder().mkdir(parents=True, exist_ok=True)
        with _only_one():
            pass
        words = ["nice", "-n", "19", sys.executable, "-m", "bridge.load.spark.jvm.archive_maker"]
        shell = ["/bin/sh", "-c", _DETACHED, "maker", *words]
        subprocess.run(shell, check=True, stdin=subprocess.DEVNULL, start_new_session=True, cwd=archives_folder())
    except (OSError, subprocess.SubprocessError):
        return False
    return True


def slow_start(master: str) -> str:
    """Why Spark is not up at once, and what shortens that, in one line."""
    text = "Spark is a JVM of this run's own, which takes some seconds to start"
    archive = class_archive() if is_local(master) and os.environ.get(VARIABLE) != "off" else None
    if archive is None or archive.path.exists():
        return text
    if archive.is_given_up():
        return f"{text}. `singer-bridge doctor` says why no faster start is prepared on this machine"
    return f"{text}. The first two starts are the slowest; after them a background process prepares faster ones"


def make() -> None:
    """Make the archive, unless it exists. Raises `BlockingIOError` if it is being made, and `RuntimeError`."""
    archive = class_archive()
    if archive is None:
        raise RuntimeError("there is no Java, or no Spark: see `singer-bridge doctor`")
    archives_folder().mkdir(parents=True, exist_ok=True)
    tidy()
    with _only_one() as scratch:
        if archive.path.exists():
            return
        archive.begin()
        draft = scratch / "classes.jsa"
        try:
            if archive.base:
                _dump(archive.base)
            _run(scratch, draft)
            archive.keep(draft)
        except BaseException:
            if archive.base:
                archive.base.unlink(missing_ok=True)
            raise
        tidy()


@contextmanager
def _only_one() -> Iterator[Path]:
    """A scratch folder for the one maker. Raises `BlockingIOError` if there is another."""
    scratch = archives_folder() / "scratch"
    with (archives_folder() / "lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(scratch, ignore_errors=True)  # of one that was killed together with its guard
        try:
            yield scratch
        finally:
            shutil.rmtree(scratch, ignore_errors=True)


def _dump(base: Path) -> None:
    """Write the classes of Java itself: that takes a second. Only G1 writes objects, too, which every JVM can read."""
    command = [find_java().program, "-Xshare:dump", "-XX:+UseG1GC", f"-XX:SharedArchiveFile={base}"]
    dump = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
    if dump.returncode:
        raise RuntimeError(dump.stdout + dump.stderr)


def _run(scratch: Path, draft: Path) -> None:
    scratch.mkdir()
    tap = shlex.join([sys.executable, "-m", "tap_smoke"])
    source = {"tap": tap, "config": _TAP_CONFIG, "discover": "never"}
    pipeline = {"source": source, "destination": {"bucket": "lake"}, "views": {"of_users": _VIEW}}
    (scratch / "bridge.yaml").write_text(json.dumps({"pipelines": {"classes": pipeline}}), encoding="utf-8")
    command = [sys.executable, "-m", "bridge", "run", "classes", "--quiet"]
    # Settings of the user's own runs are not for this one.
    environ = {name: value for name, value in os.environ.items() if not name.startswith("SINGER_BRIDGE_")}
    with (scratch / "log").open("wb") as log:
        run = subprocess.Popen(
            command,
            cwd=scratch,
            env=environ | {VARIABLE: str(draft)},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    guard = subprocess.Popen(
        ["/bin/sh", "-c", _GUARD, "guard", str(run.pid), str(scratch)], stdin=subprocess.PIPE, start_new_session=True
    )
    try:
        if run.wait(timeout=_SECONDS) or not draft.exists():
            raise RuntimeError((scratch / "log").read_text(errors="replace"))
    finally:
        guard.communicate(b"ended\n" if run.poll() == 0 else b"")
        run.wait()


if __name__ == "__main__":
    try:
        make()
    except BlockingIOError:
        sys.exit(0)  # another one makes it
    except (OSError, RuntimeError, subprocess.TimeoutExpired) as problem:
        sys.exit(f"no class-data archive was made: {problem}")
