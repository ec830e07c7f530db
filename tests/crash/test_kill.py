"""SIGKILL at random moments: of the orchestrator, Spark's JVM, a Python worker, the tap; while readers look on."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .campaign import Campaign, plan
from .project import APPEND, MIXED, OVERWRITE, SHAPES, Project, Shape
from .readers import Watch, duckdb_look, pyarrow_look, spark_look

SEED = int(os.environ.get("SEED") or random.SystemRandom().randrange(10**6))
KILLS = int(os.environ.get("KILLS") or 36)


@pytest.fixture(scope="module")
def reader_session() -> Iterator[Any]:
    """A Spark session that only reads, as an analyst's would."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[1]").appName("reader")
    for key, value in {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
    }.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    gateway = session.sparkContext._gateway
    yield session
    session.stop()  # and its JVM, which pyspark would keep for the next session of this process
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(30)
    SparkContext._gateway = SparkContext._jvm = None


def _besiege(folder: Path, shape: Shape, session: Any, seed: int, kills: int) -> None:
    print(f"\nSEED={seed} shape={shape.name} kills={kills}")
    project = Project(folder, shape)
    campaign = Campaign(project)
    campaign.clean_run(measure=True)
    readers = {"duckdb": duckdb_look(), "pyarrow": pyarrow_look(), "spark": spark_look(session)}
    with Watch(project.history, project.tables, readers) as watch:
        for kill in plan(f"{seed} {shape.name}", kills):
            campaign.kill(kill)
            print(campaign.notes[-1], flush=True)
            assert watch.wrong == []
        campaign.clean_run()
    print(f"looks {dict(watch.looks)}, loud errors {dict(watch.errors)}, exits {dict(campaign.exits)}")
    assert watch.wrong == []
    assert campaign.kills == kills
    assert min(watch.looks[reader] for reader in readers) > kills, "each reader looked, all the time"
    appended = {stream for stream, kind in shape.streams.items() if kind["replication_method"] == "INCREMENTAL"}
    assert [error for error in watch.errors if error[0] in appended] == [], "an append never fails a reader"


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("shape", "kills"), [(APPEND, 4), (OVERWRITE, 3), (MIXED, 3)], ids=str)
def test_every_record_is_there_once_whoever_is_killed(
    shape: Shape, kills: int, tmp_path: Path, reader_session: Any
) -> None:
    """Another process each time, at random; the next clean run leaves each record once and the last STATE."""
    _besiege(tmp_path, shape, reader_session, SEED, kills)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_long_siege_changes_nothing(shape: Shape, tmp_path: Path, reader_session: Any) -> None:
    """The same with a third of `KILLS` kills on each lake, one after the other."""
    _besiege(tmp_path, shape, reader_session, SEED, -(-KILLS // len(SHAPES)))
