"""What the spool costs in the bucket, beside a folder: `python -m tests.benchmarks.spool`.

By turns, the same input into lakes of their own on MinIO and in a folder, with `spool.dir: bucket` and without; Spark
is `local[2]`, so that nothing but the spool differs. Every run must store each record once. The figure is the median of
the rounds' ratios of the runs' own seconds.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.interop.minio import MinIO

from .cli import HOME
from .inputs import Input, prepare
from .ours import make_class_archive, tap_command

METHODS = ("append-only", "upsert")


def seconds(folder: Path, data: Input, number: int, to: dict[str, Any], method: str, spool: dict[str, str]) -> float:
    """The seconds that a run takes, Spark's start included."""
    pipeline = {
        "source": {"tap": tap_command(), "config": {"path": str(data.singer)}},
        "destination": to | {"load_method": method, "path": f"run-{number}"},
        "commit": {"bytes": "64MiB"},
        "spool": spool,
        "spark": {"master": "local[2]"},
    }
    name = f"run-{number}"
    (folder / "bridge.yaml").write_text(json.dumps({"pipelines": {name: pipeline}}))
    command = [sys.executable, "-m", "bridge", "run", name, "--json"]
    result = json.loads(subprocess.run(command, cwd=folder, check=True, capture_output=True).stdout)
    assert sum(stream["records"] for stream in result["streams"].values()) == data.records
    return float(result["seconds"]["total"])


def main() -> None:
    """Print a line for each lake and load method."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--records", type=int, default=1_000_000)
    arguments.add_argument("--repeat", type=int, default=5)
    options = arguments.parse_args()
    data, number = prepare(HOME / "input", options.records), 0
    make_class_archive()
    with MinIO() as store, tempfile.TemporaryDirectory() as home:
        store.bucket("lake")
        lakes = {"MinIO": {"bucket": "s3://lake/team", "s3": {"endpoint_url": store.endpoint}}}
        lakes["a folder"] = {"bucket": f"{home}/lake"}
        for lake, to in lakes.items():
            for method in METHODS:
                ratios, times = [], []
                for _ in range(options.repeat):
                    data.warm()
                    pair = []
                    for spool in ({}, {"dir": "bucket"}):
                        number += 1
                        pair.append(seconds(Path(home), data, number, to, method, spool))
                    times.append(pair)
                    ratios.append(pair[1] / pair[0])
                ours, bucket = (statistics.median(column) for column in zip(*times, strict=True))
                spread = f"{min(ratios):.2f} to {max(ratios):.2f}"
                text = f"folder {ours:.1f} s, bucket {bucket:.1f} s: {statistics.median(ratios):.2f} ({spread})"
                print(f"lake in {lake}, {method}: spool in a {text}", flush=True)


if __name__ == "__main__":
    main()
