"""What tests in more than one folder start from, and which of them `make check` leaves out."""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from bridge.load.spark.jvm.archive_maker import make_in_background
from bridge.load.spark.jvm.class_archive import VARIABLE
from tests.support.durations import Durations, seconds_by_file
from tests.support.s3server import S3Server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.support.one_spark import OneSpark

HEAVY_FIXTURES = {"one_spark", "s3", "s3_server", "spark"}
HEAVY_FILES = {
    "cli/test_completion.py",
    "cli/test_many.py",
    "protocol/decode/test_fuzz.py",
    "protocol/decode/test_reference.py",
    "docs/test_types_doc.py",
    "serve/launch/test_project.py",
    "serve/launch/test_system_tables.py",
    "lake/formats/test_delta_s3.py",
    "lake/formats/test_filters.py",
    "lake/formats/test_iceberg_s3.py",
    "load/run/test_epoch_crashes.py",
    "load/run/test_parallel_tables.py",
    "load/run/test_parallel_taps.py",
    "load/run/test_replay_guard.py",
    "load/run/test_spark_hangs.py",
    "load/maintain/test_rejects.py",
    "read/query/test_view.py",
    "read/query/test_view_size.py",
    "operate/smoke/test_smoke.py",
    "lake/state/test_store_writers.py",
    "load/tap/test_venv.py",
    "taps/test_tap_bridge.py",
    "taps/test_tap_bridge_command.py",
    "taps/test_tap_bridge_resume.py",
    "load/write/test_history.py",
    "load/write/test_merge.py",
    "load/write/test_upsert.py",
}
"""Files of tests/unit that do whole runs, or start processes or servers: half of all unit tests' time."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--durations-file", type=Path, help="write the processor time of the slowest hundred tests here")


def pytest_configure(config: pytest.Config) -> None:
    if version("pyspark").startswith("4.0."):  # it leaves sockets to the garbage collector
        ignored = "ignore:Exception ignored in. <socket:pytest.PytestUnraisableExceptionWarning"
        config.addinivalue_line("filterwarnings", ignored)
    if path := config.getoption("--durations-file"):
        config.pluginmanager.register(Durations(path))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark as `heavy` what `make check` leaves out: Spark, an S3 server, long files. The longest come first."""
    files = {Path(__file__).parent / "unit" / name for name in HEAVY_FILES}
    for item in items:
        fixtures = set(getattr(item, "fixturenames", ()))
        if HEAVY_FIXTURES & fixtures or item.path in files:
            item.add_marker(pytest.mark.heavy)
    # At the end, workers steal from each other what is left: no long test should be among that.
    slow = seconds_by_file(Path(__file__).with_name("durations.txt"))
    items.sort(key=lambda item: -slow.get(item.nodeid.partition("::")[0], 0.0))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Have the class-data archive, which all tests share, made at the beginning behind them; no test makes it."""
    unit = Path(__file__).parent / "unit"
    if any(unit not in item.path.parents or item.get_closest_marker("heavy") for item in session.items):
        make_in_background(asked=True)
    os.environ[VARIABLE] = "off"


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    with S3Server() as server:
        yield server


@pytest.fixture
def s3(s3_server: S3Server) -> Iterator[S3Server]:
    """A store over HTTP, started once for all tests, that behaves when a test begins."""
    s3_server.clear()
    yield s3_server
    s3_server.clear()


@pytest.fixture(scope="session")
def one_spark(s3_server: S3Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OneSpark]:
    """Spark for runs in this process, made after the S3 server: its workers have that server's variables."""
    from tests.support.one_spark import OneSpark  # imports pyspark

    spark = OneSpark(tmp_path_factory.mktemp("one-spark"))
    yield spark
    spark.end()


@pytest.fixture
def spark(one_spark: OneSpark) -> Iterator[SparkSession]:
    """The session itself, for tests of parts of a run; it shuffles little."""
    with one_spark.session({"spark.sql.shuffle.partitions": "2"}) as session:
        yield session
