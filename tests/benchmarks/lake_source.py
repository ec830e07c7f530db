"""How fast `tap-bridge` reads a lake: `python -m tests.benchmarks.lake_source --records 1000000`.

A table of ten columns (numbers, texts of which a third have quotes, a decimal, times, a struct), in four commits, read
as a whole by the command on one core, its start included. The aim is 60,000 records for each second of that core; the
exit code is 1 below it.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.support.tables import INTEGER, STRING, Shop

_AIM = 60_000
"""Records a second."""
_COMMITS = 4
_COLUMNS = {
    "id": {"type": "integer"},
    "name": STRING,
    "email": STRING,
    "ratio": {"type": ["null", "number"]},
    "price": {"type": ["null", "number"], "multipleOf": 0.01},
    "open": {"type": ["null", "boolean"]},
    "at": {"type": ["null", "string"], "format": "date-time"},
    "day": {"type": ["null", "string"], "format": "date"},
    "note": STRING,
    "place": {"type": ["null", "object"], "properties": {"x": INTEGER, "y": STRING}},
}


def _record(n: int) -> dict[str, Any]:
    note = 'with "quotes"' if n % 3 == 0 else "a text as long as many"
    facts = {"id": n, "name": f"name {n}", "email": f"user{n}@example.com", "ratio": n / 7, "price": n / 100}
    facts |= {"open": n % 2 == 0, "at": "2024-01-01T00:00:00.123Z", "day": "2024-02-29", "note": note}
    return facts | {"place": {"x": n, "y": "z"}}


def _seconds(folder: Path) -> tuple[float, float, int]:
    """The wall and CPU seconds of one read, and the records that it sent."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    core = {min(os.sched_getaffinity(0))}
    with (folder / "out.jsonl").open("wb") as out:
        words = [sys.executable, "-m", "tap_bridge", "--config", "config.json"]
        subprocess.run(
            words,
            cwd=folder,
            stdout=out,
            stderr=subprocess.DEVNULL,
            check=True,
            preexec_fn=lambda: os.sched_setaffinity(0, core),
        )
    wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    with (folder / "out.jsonl").open("rb") as lines:
        sent = sum(line.startswith(b'{"type":"RECORD"') for line in lines)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, sent


def fill(shop: Shop, records: int) -> None:
    """Load the table `orders` in a few commits."""
    for first in range(0, records, -(-records // _COMMITS)):
        last = min(first + -(-records // _COMMITS), records)
        shop.load("orders", _COLUMNS, [_record(n) for n in range(first, last)])


def main() -> int:
    """Measure and print; 1 if it is too slow, or a record is missing."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.lake_source")
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder, shop = Path(name), Shop(Path(name))
        fill(shop, options.records)
        (folder / "config.json").write_text(json.dumps({"bucket": str(shop.root), "threads": 1}))
        runs = [_seconds(folder) for _ in range(options.repeat)]
        size = (folder / "out.jsonl").stat().st_size
    wall, cpu = (statistics.median(run[at] for run in runs) for at in (0, 1))
    rate = options.records / cpu
    print(
        f"{options.records:,} records, {size / 1e6:.0f} MB: {wall:.2f} s, {cpu:.2f} CPU s, {rate:,.0f} records a CPU s"
    )
    return int(rate < _AIM or any(run[2] != options.records for run in runs))


if __name__ == "__main__":
    sys.exit(main())
