"""What a person waits for: `python -m tests.benchmarks.commands`. Writes `.bench/commands.json`.

Commands that only look, on a lake with a run in it, and a run of a tap that sends no RECORD beside that tap alone:
by turns, the median of `--repeat` each.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import time
from pathlib import Path
from statistics import median

from rich.console import Console

from .bench import Folders
from .cli import HOME
from .inputs import prepare
from .ours import PIPELINE, search_path
from .system import SMALL_RUN_RECORDS
from .venvs import own_program

_STATE = '{"type":"STATE","value":{"bookmarks":{"orders":{"replication_key_value":1}}}}\n'


def project(folder: Path, small: Path) -> tuple[Path, Path]:
    """Make a project whose lake has a run in it; return its folder and the file of a tap that sends a STATE only."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    quiet = folder / "quiet.singer"
    quiet.write_text(_STATE, encoding="utf-8")
    for name, source in ((PIPELINE, small), ("quiet", quiet)):
        run(folder, *loads(name, source))
    return folder, quiet


def loads(name: str, source: Path) -> tuple[str, ...]:
    """Return the words of a load of one file."""
    tap = ("--tap", str(own_program("tap-replay")), "--tap-config", json.dumps({"path": str(source)}))
    return ("run", *tap, "--to", "lake", "--name", name)


def run(folder: Path, *words: str) -> float:
    """Return the seconds of one command."""
    environment = {**os.environ, "PATH": search_path(), "SINGER_BRIDGE_HOME": str(folder / "home")}
    return timed([str(own_program("singer-bridge")), *words], folder, environment)


def timed(command: list[str], folder: Path, environment: dict[str, str] | None = None) -> float:
    began = time.perf_counter()
    subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True)
    return time.perf_counter() - began


def main() -> None:
    """Measure, print and keep."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.commands")
    parser.add_argument("--repeat", type=int, default=7)
    options = parser.parse_args()
    folders, console = Folders(HOME), Console()
    folder, quiet = project(
        folders.out.resolve() / "commands", prepare(folders.inputs, SMALL_RUN_RECORDS, zoned=False).singer.resolve()
    )
    lake = ("--to", "lake", "--name", PIPELINE)
    looks = {
        "--help": ("--help",),
        "run --help": ("run", "--help"),
        "state get": ("state", "get", *lake),
        "runs list": ("runs", "list", *lake),
        "status": ("status", *lake),
        "a run without records": loads("quiet", quiet),
    }
    tap = [str(own_program("tap-replay")), "--config", str(folder / "tap.json")]
    (folder / "tap.json").write_text(json.dumps({"path": str(quiet)}), encoding="utf-8")
    seconds: dict[str, list[float]] = {name: [] for name in (*looks, "its tap alone", "python -c pass")}
    for _ in range(options.repeat):
        for name, words in looks.items():
            seconds[name].append(run(folder, *words))
        seconds["its tap alone"].append(timed(tap, folder))
        seconds["python -c pass"].append(timed([str(own_program("python")), "-c", "pass"], folder))
    found = {name: median(times) for name, times in seconds.items()}
    for name, took in found.items():
        console.print(f"{took:6.2f} s  {name}", highlight=False)
    (folders.home / "commands.json").write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
