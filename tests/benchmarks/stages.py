"""Where the time of a small run goes, stage by stage: `python -m tests.benchmarks.stages`.

The stages are those that the product shows while it works. A run of 1,000 records, as often as `--repeat` says; the
first is not counted. Writes `.bench/stages.json`: the median seconds of each stage, in their order.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from statistics import median

from rich.console import Console

from .bench import Folders
from .cli import HOME
from .inputs import prepare
from .ours import Ours, make_class_archive, search_path
from .system import SMALL_RUN_RECORDS, Job


def measured(folders: Folders, repeat: int) -> dict[str, float]:
    """Return the median seconds of each stage, over runs of their own."""
    source, out = prepare(folders.inputs, SMALL_RUN_RECORDS), folders.out / "stages"
    found: list[dict[str, float]] = []
    make_class_archive()
    for _ in range(repeat + 1):  # the first makes byte code
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir(parents=True)
        launch = Ours().launch(Job(source, out.resolve()))
        words = [sys.executable, Path(__file__).with_name("clock.py"), out / "seconds.json", *launch.command[1:]]
        environ = {**os.environ, "PATH": search_path(), **launch.environment}
        subprocess.run([str(word) for word in words], env=environ, check=True, stdout=subprocess.DEVNULL)
        found.append(json.loads((out / "seconds.json").read_text(encoding="utf-8")))
    shutil.rmtree(out)
    return {name: median([run.get(name, 0.0) for run in found[1:]]) for name in found[-1]}


def main() -> None:
    """Measure, print and keep."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.stages")
    parser.add_argument("--repeat", type=int, default=5)
    options = parser.parse_args()
    folders = Folders(HOME)
    stages = measured(folders, options.repeat)
    (folders.home / "stages.json").write_text(json.dumps(stages, indent=2) + "\n", encoding="utf-8")
    console = Console()
    for name, seconds in (*stages.items(), ("all", sum(stages.values()))):
        console.print(f"{seconds:6.2f} s  {name}", highlight=False)


if __name__ == "__main__":
    main()
