"""What a cluster costs against one machine: `python -m tests.benchmarks.cluster`. Writes `.bench/cluster.json`.

The same records on `local[2]`, and on a standalone master with two workers of one core each, all on this machine, spool
and lake in its folders: the executors' work is the same, so the rate beyond the start should be, too.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.table import Table

from tests.support.cluster import EXECUTORS_NEED, Cluster, make_venv, running_cluster

from .bench import Case, Folders, Run, run_one
from .cli import HOME
from .inputs import Input, prepare
from .ours import PIPELINE, Ours, tap_command
from .system import SMALL_RUN_RECORDS, Job, Launch
from .venvs import own_program


@dataclass
class On(Ours):
    """A run of a project whose Spark is somewhere; None: on this machine, with two cores."""

    cluster: Cluster | None
    name: str

    def launch(self, job: Job) -> Launch:
        """A new project each time."""
        spark: dict[str, object] = {"master": "local[2]"}
        if self.cluster:
            conf = {"spark.driver.host": "127.0.0.1", "spark.pyspark.python": str(self.cluster.python)}
            spark = {"master": self.cluster.master, "conf": {"spark.executor.memory": "512m", **conf}}
        pipeline = {
            "source": {"tap": [tap_command()], "config": {"path": str(job.input.singer)}},
            "destination": {"bucket": str(job.out / "lake")},
            "spool": {"dir": str(job.out / "spool")},
            "spark": spark,
        }
        settings = job.out / "bridge.yaml"
        settings.write_text(json.dumps({"pipelines": {PIPELINE: pipeline}}), encoding="utf-8")  # JSON is YAML
        command = [own_program("singer-bridge"), "run", PIPELINE, "--file", settings, "--json"]
        return Launch(command, environment={"SINGER_BRIDGE_HOME": str(job.out / "home")})


def main() -> int:
    """Measure, print and keep; 1 where a run failed or lost a row."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.cluster")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--records", type=int, default=2_000_000)
    options = parser.parse_args()
    folders, console = Folders(HOME), Console()
    sizes = (SMALL_RUN_RECORDS, options.records)
    inputs = {size: prepare(folders.inputs, size, zoned=False) for size in sizes}
    with tempfile.TemporaryDirectory() as name:
        python = make_venv(Path(name) / "venv", *EXECUTORS_NEED)
        with running_cluster(Path(name), python=python) as cluster:
            cluster.grow(2)
            runs = measured((On(None, "local"), On(cluster, "cluster")), inputs, folders, options.repeat, console)
    table = Table("where", "records", "wall s", "beyond the start", "records/s and core", "main, CPU s per GB")
    found = {}
    size = inputs[options.records].singer.stat().st_size / 1e9
    for where in ("local", "cluster"):
        small, large = (median(run.wall_seconds for run in runs[where, size]) for size in sizes)
        cpu = median(run.cpu_by_kind["main"] for run in runs[where, sizes[1]])
        start = median(run.cpu_by_kind["main"] for run in runs[where, sizes[0]])
        rate = (sizes[1] - sizes[0]) / (large - small) / 2
        found[where] = {"start": small, "wall": large, "rate_per_core": rate, "main_cpu_per_gb": (cpu - start) / size}
        beyond, per_gb = f"{large - small:.2f}", f"{(cpu - start) / size:.2f}"
        table.add_row(where, f"{options.records:,}", f"{large:.2f}", beyond, f"{rate:,.0f}", per_gb)
    console.print(table)
    (folders.home / "cluster.json").write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    return int(any(run.error or run.rows != run.records for each in runs.values() for run in each))


def measured(
    systems: tuple[On, ...], inputs: dict[int, Input], folders: Folders, repeat: int, console: Console
) -> dict[tuple[str, int], list[Run]]:
    """Return the runs of each system and size, made by turns."""
    runs: dict[tuple[str, int], list[Run]] = {(system.name, size): [] for system in systems for size in inputs}
    for repetition in range(repeat):
        for size, source in inputs.items():
            for system in systems:
                runs[system.name, size].append(run := run_one(Case(system, size), source, folders, repetition))
                console.print(f"  {system.name} {size:,}: {run.error or f'{run.wall_seconds:.2f} s'}", highlight=False)
    return runs


if __name__ == "__main__":
    raise SystemExit(main())
