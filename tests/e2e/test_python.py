"""`bridge.Project` with real Spark, in a program that uses Spark itself, in threads, before and after our runs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import bridge

pytestmark = pytest.mark.timeout(600)

SETTINGS = """
system_tables: {path: _bridge}
pipelines:
  shop: {source: {tap: tap-smoke, config: tap.json}, destination: {bucket: lake}}
"""
PROGRAM = """
import json, signal, threading
import bridge
from pyspark.sql import SparkSession

def of_its_own():
    spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
    count = spark.read.parquet("lake/shop/orders").count()
    runs = spark.read.parquet("lake/_bridge/runs").where("status = 'success'").count()
    try:
        bridge.Project().run("shop")
    except bridge.errors.SettingsError as error:
        assert "a Spark session of its own" in error.message
    assert spark.range(3).count() == 3  # it was left alone
    spark.stop()
    return count, runs

def more(records):
    tap = {"seed": 1, "streams": [{"name": "orders", "records": records}]}
    open("tap.json", "w").write(json.dumps(tap))

def handlers():
    return [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]

results, counts = [], []
for records in (100, 150, 170):
    more(records)
    before = handlers()
    thread = threading.Thread(target=lambda: results.append(bridge.Project().run("shop")))
    thread.start()
    thread.join()
    assert handlers() == before
    if records > 100:
        counts.append(of_its_own())
open("said.json", "w").write(json.dumps([[result.records for result in results], counts]))
"""


def test_a_program_with_a_spark_of_its_own(tmp_path: Path) -> None:
    """Each run loads what is new; the program's own sessions work before and after it, and are never taken away.

    After its first session the program's pyspark still has that JVM, which must not become the run's.
    """
    (tmp_path / "bridge.yaml").write_text(SETTINGS)
    environ = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=tmp_path,
        env=environ,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    assert json.loads((tmp_path / "said.json").read_text()) == [[100, 50, 20], [[150, 2], [170, 3]]]
    assert bridge.Lake(tmp_path / "lake").table("shop", "orders").count_rows() == 170
