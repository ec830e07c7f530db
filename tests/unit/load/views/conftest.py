"""One Spark session for all tests of views."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from bridge.load.spark.session import Session


@pytest.fixture(scope="package")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session as runs have it."""
    folder: Path = tmp_path_factory.mktemp("spark")
    session = Session("local[1]", {"spark.sql.shuffle.partitions": "1"}, folder / "scratch", folder / "log")
    yield session.spark
    session.close(hurry=True)
