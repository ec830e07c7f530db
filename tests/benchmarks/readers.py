"""How good the files are for who reads them: `python -m tests.benchmarks.readers`. Writes `.bench/readers.json`.

The same records as our run and as pyarrow alone leave them, read by DuckDB: the same queries, by turns, `--repeat`
times. Told are the medians of the seconds and of the CPU seconds, the medians of the ratios, and the sizes.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import time
from statistics import median

import duckdb
from rich.console import Console
from rich.table import Table

from .bench import Folders
from .cli import HOME
from .inputs import prepare
from .limit import Limit
from .ours import PIPELINE, Ours, search_path
from .system import Job

QUERIES = {
    "all rows": "select count(*), sum(amount) from files",
    "groups": "select status, count(*), avg(amount) from files group by status order by status",
    "a range of keys": "select count(*), max(email) from files where id between 1000000 and 1010000",
    "a text": "select count(*) from files where note like '%invoice%'",
    "inside a struct": "select address.country, count(*) from files group by 1 order by 1",
}


def main() -> None:
    """Measure, print and keep."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.readers")
    parser.add_argument("--repeat", type=int, default=25)
    parser.add_argument("--records", type=int, default=4_000_000)
    options = parser.parse_args()
    folders, console = Folders(HOME), Console()
    source = prepare(folders.inputs, options.records)
    globs, sizes = {}, {}
    for name, system, files in (("ours", Ours(), f"lake/{PIPELINE}/**/*.parquet"), ("pyarrow", Limit(), "*.parquet")):
        out = folders.out.resolve() / f"readers-{name}"
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir(parents=True)
        launch = system.launch(Job(source, out))
        environment = {**os.environ, "PATH": search_path(), **launch.environment}
        command = [str(word) for word in launch.command]
        subprocess.run(command, env=environment, check=True, capture_output=True)
        globs[name], sizes[name] = f"{out}/{files}", sum(file.stat().st_size for file in out.glob(files))
    table = Table("query", *globs, "ours / pyarrow", *(f"CPU, {name}" for name in globs), "ours / pyarrow")
    found: dict[str, dict[str, float]] = {"bytes": {name: float(size) for name, size in sizes.items()}}
    table.add_row("bytes", *(f"{size:,}" for size in sizes.values()), f"{sizes['ours'] / sizes['pyarrow']:.3f}")
    for query, text in QUERIES.items():
        wall: dict[str, list[float]] = {name: [] for name in globs}
        cpu: dict[str, list[float]] = {name: [] for name in globs}
        answers = {}
        for _ in range(options.repeat):
            for name, files in globs.items():
                began, used = time.perf_counter(), time.process_time()
                answers[name] = duckdb.sql(text.replace("files", f"read_parquet('{files}')")).fetchall()
                wall[name].append(time.perf_counter() - began)
                cpu[name].append(time.process_time() - used)
        if len({repr(_rounded(answer)) for answer in answers.values()}) != 1:
            raise SystemExit(f"different answers: {answers}")
        found[query] = {}
        row = list[str]()
        for kind, seconds in (("seconds", wall), ("cpu_seconds", cpu)):
            ratio = median(mine / other for mine, other in zip(*seconds.values(), strict=True))
            medians = {name: median(times) for name, times in seconds.items()}
            found[query] |= {f"{kind}, {name}": took for name, took in medians.items()} | {f"{kind}, ratio": ratio}
            row += [*(f"{took:.4f} s" for took in medians.values()), f"{ratio:.2f}"]
        table.add_row(query, *row)
    console.print(table)
    (folders.home / "readers.json").write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    for name in globs:
        shutil.rmtree(folders.out.resolve() / f"readers-{name}")


def _rounded(rows: list[tuple[object, ...]]) -> list[tuple[object, ...]]:
    """Sums of doubles differ in their last digits with the order of the rows."""
    return [tuple(round(value, 2) if isinstance(value, float) else value for value in row) for row in rows]


if __name__ == "__main__":
    main()
