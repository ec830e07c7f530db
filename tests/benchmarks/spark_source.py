"""`format("singer")` beside `spark.read.parquet(files)`: `python -m tests.benchmarks.spark_source --records 1000000`.

The table of `lake_source`, in four commits, read by one session of two cores into Spark's `noop` sink: all columns, and
two of them, by turns, each once unmeasured. A ratio is the median time of one by that of the other; the exit code is 1
if the rows are not the same.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bridge.load.spark.session import Session
from bridge.read.spark_source import register
from tests.benchmarks.lake_source import fill
from tests.support.tables import Shop

_FEW = ("id", "price")


def _frames(spark: Any, shop: Shop) -> dict[str, Callable[[], Any]]:
    """What is compared; each makes its frame anew, as a job does."""
    files = sorted(map(str, shop.root.glob("shop/orders/*.parquet")))
    own = spark.read.format("singer").option("table", "orders")
    filtered = spark.read.format("singer").option("table", "orders").option("pushFilters", "true")
    last = f"id >= {spark.read.parquet(*files).count() * 3 // 4}"
    return {
        "all columns, parquet": lambda: spark.read.parquet(*files),
        "all columns, singer": lambda: own.load(str(shop.root)),
        "two columns, parquet": lambda: spark.read.parquet(*files).select(*_FEW),
        "two columns, singer": lambda: own.option("columns", ",".join(_FEW)).load(str(shop.root)),
        "a quarter by a filter, parquet": lambda: spark.read.parquet(*files).where(last),
        "a quarter by a filter, singer": lambda: filtered.load(str(shop.root)).where(last),
    }


def main() -> int:
    """Measure and print; 1 if rows differ."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.spark_source")
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        shop = Shop(Path(name))
        fill(shop, options.records)
        conf = {"spark.sql.python.filterPushdown.enabled": "true"}
        session = Session("local[2]", conf, Path(name) / "scratch", Path(name) / "log")
        register(session.spark)
        frames, seconds = _frames(session.spark, shop), dict[str, list[float]]()
        counts = {label: frame().selectExpr("count(*)", "sum(id)").collect()[0] for label, frame in frames.items()}
        for turn in range(options.repeat + 1):
            for label, frame in frames.items():
                began = time.perf_counter()
                frame().write.format("noop").mode("overwrite").save()
                seconds.setdefault(label, []).extend([time.perf_counter() - began] if turn else [])
        session.close(hurry=True)
    for label, times in seconds.items():
        peer = statistics.median(seconds[label.replace("singer", "parquet")])
        wall = statistics.median(times)
        print(f"{label}: {wall:.2f} s, {options.records / wall:,.0f} records/s, {wall / peer:.1f} times parquet's time")
    return int(any(counts[label] != counts[label.replace("singer", "parquet")] for label in counts))


if __name__ == "__main__":
    sys.exit(main())
