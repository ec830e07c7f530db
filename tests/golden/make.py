"""Write the golden lakes anew: `python -m tests.golden.make FORMAT...`, with the code whose lakes are to be kept.

A lake is made by the real command in a folder whose path is always the same, as tables name their files by their URI.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path
from typing import Any

from tests.golden.scripts import RUNS, text

ROOT = Path("/tmp/singer-bridge-golden")
FORMATS = ("parquet", "delta", "iceberg")
_HERE = Path(__file__).parent
_TAP = _HERE / "tap.py"
_PAGED = _HERE.parent / "support" / "paged_tap.py"
_LOSE = """
import os
from bridge.lake.storage.local.storage import LocalStorage
publish = LocalStorage.publish
def die(storage, changes):
    publish(storage, changes) if "/orders/" not in repr(changes) else os._exit(9)
LocalStorage.publish = die
from bridge.cli import main
main()
"""
"""The command, which dies when a commit is there and none of its files is visible."""


def archive(format_: str) -> Path:
    """Return where the lake of a format is kept."""
    return _HERE.parent / "data" / "golden" / f"{format_}.tar.xz"


def unpack(format_: str) -> Path:
    """Put a golden lake where it was made, and return its project's folder."""
    shutil.rmtree(ROOT, ignore_errors=True)
    unpack_to(format_, ROOT)
    set_up(format_)
    return ROOT


def unpack_to(format_: str, folder: Path) -> Path:
    """Put a golden lake into a folder, to look at it, and return the bucket in it."""
    with tarfile.open(archive(format_)) as tar:
        tar.extractall(folder, filter="data") if hasattr(tarfile, "data_filter") else tar.extractall(folder)
    return folder / "lake"


def set_up(format_: str) -> None:
    """Write the project's settings: a pipeline of every load method, and one whose tap is two processes."""
    tap = {"tap": [sys.executable, str(_TAP)], "config": {"script": str(ROOT / "script")}}
    paged = {"tap": [sys.executable, str(_PAGED)], "config": {"source": str(ROOT / "source"), "given": str(ROOT)}}
    destination = {"bucket": "lake", "format": format_}
    methods = {"orders": "append-only", "people": "upsert", "full": "overwrite", "big": "overwrite"}
    pipelines = {
        "p": {
            "source": tap,
            "destination": destination,
            "streams": {stream: {"load_method": method} for stream, method in methods.items()},
            "commit": {"rows": 1},
        },
        "par": {"source": paged | {"select": ["*"], "parallelism": 2}, "destination": destination},
    }
    ROOT.mkdir(parents=True, exist_ok=True)
    (ROOT / "bridge.yaml").write_text(json.dumps({"pipelines": pipelines}))


def command(*arguments: str, code: int = 0) -> str:
    """Run `singer-bridge` there and return what it printed on stdout."""
    return _run(["-m", "bridge"], *arguments, code=code)


def _run(program: list[str], *arguments: str, code: int) -> str:
    argv = [sys.executable, *program, *arguments]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == code, (arguments, done.stdout, done.stderr)
    return done.stdout


def head() -> dict[str, Any]:
    """Return the latest record of the pipeline's commit log."""
    newest = max((ROOT / "lake/.bridge/p/commits").iterdir())
    record: dict[str, Any] = json.loads(newest.read_bytes())
    return record


def _make(format_: str) -> None:
    shutil.rmtree(ROOT, ignore_errors=True)
    set_up(format_)
    for name, code in {"first": 0, "second": 0, "lost": 9, "staged": 1}.items():
        (ROOT / "script").write_text(text(RUNS[name]))
        _run(["-c", _LOSE] if name == "lost" else ["-m", "bridge"], "run", "p", code=code)
        if name == "lost":
            for file in head()["tables"][0]["adds"]:
                (ROOT / "lake" / file["source"]).unlink()
    (ROOT / "script").write_text(text(RUNS["killed"]))
    _kill()
    (ROOT / "source").write_text(json.dumps({"streams": {"a": {"last": 4}, "b": {"last": 6}}}))
    command("run", "par")
    _pack(format_)


def _kill() -> None:
    """Run until the STATE is committed, and kill the run with all that it started."""
    argv = [sys.executable, "-m", "bridge", "run", "p"]
    with subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as run:
        until = time.monotonic() + 100
        while "late" not in head()["state"]["bookmarks"] and time.monotonic() < until:
            time.sleep(0.1)
        run.send_signal(signal.SIGKILL)
    assert "late" in head()["state"]["bookmarks"], head()
    time.sleep(3)  # its JVM and tap end themselves when they see that it is gone


def _pack(format_: str) -> None:
    archive(format_).parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(archive(format_), "w:xz") as tar:
        for name in ("lake", "source"):
            tar.add(ROOT / name, name, filter=_nobody)
    print(format_, archive(format_).stat().st_size)


def _nobody(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """Leave out who made the lake, and the logs of runs, which no later run reads."""
    if "/logs/" in member.name:
        return None
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


if __name__ == "__main__":
    for one in sys.argv[1:] or FORMATS:
        _make(one)
    shutil.rmtree(ROOT)
    os.sync()
