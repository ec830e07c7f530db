"""Views are computed the same, whatever a pipeline sets for Spark."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import SparkSession

from bridge.load.spark.view_types import view_session

SETTINGS = {
    "spark.sql.ansi.enabled": "false",
    "spark.sql.caseSensitive": "true",
    "spark.sql.decimalOperations.allowPrecisionLoss": "false",
    "spark.sql.legacy.parseNullPartitionSpecAsStringLiteral": "true",
    "spark.sql.legacy.sizeOfNull": "true",
    "spark.sql.legacy.timeParserPolicy": "LEGACY",
    "spark.sql.mapKeyDedupPolicy": "LAST_WIN",
    "spark.sql.parser.quotedRegexColumnNames": "true",
    "spark.sql.session.timeZone": "Asia/Tokyo",
    "spark.sql.storeAssignmentPolicy": "LEGACY",
    "spark.sql.legacy.castComplexTypesToString.enabled": "true",
}
TUNING = {"spark.sql.shuffle.partitions": "7", "spark.sql.autoBroadcastJoinThreshold": "-1"}
QUERY = """
SELECT K AS other_case, CAST(1 AS decimal(38, 18)) * CAST(1 AS decimal(38, 18)) AS product,
  date_format(to_timestamp('2025-01-01 00:00:00'), 'yyyy-MM-dd HH:mm XXX') AS day,
  CAST(array(1, NULL) AS string) AS text
FROM VALUES (1) AS s(k)
"""


@pytest.fixture
def configured(spark: SparkSession) -> Iterator[SparkSession]:
    """A session whose context has these settings, as that of a pipeline with `spark.conf` has them."""
    conf = spark.sparkContext._jsc.sc().conf()
    before = dict(spark.sparkContext.getConf().getAll())
    for name, value in {**SETTINGS, **TUNING}.items():
        conf.set(name, value)
    view_session.cache_clear()
    yield spark
    for name in {**SETTINGS, **TUNING}:
        conf.set(name, before[name]) if name in before else conf.remove(name)
    view_session.cache_clear()


def outcome(session: SparkSession) -> Any:
    try:
        return [(*row, str(row.product)) for row in session.sql(QUERY).collect()]
    except Exception as error:
        return type(error)


@pytest.fixture
def usual(spark: SparkSession) -> tuple[Any, dict[str, Any]]:
    """What comes of the query without settings, and what Spark says of each setting."""
    view_session.cache_clear()
    session = view_session(spark)
    return outcome(session), {name: session.conf.get(name) for name in SETTINGS}


def test_settings_of_a_pipeline_change_no_result(usual: tuple[Any, dict[str, Any]], configured: SparkSession) -> None:
    """Those that change how Spark reads SQL and computes; those that make it faster count."""
    session = view_session(configured)
    assert (outcome(session), {name: session.conf.get(name) for name in SETTINGS}) == usual
    assert {name: session.conf.get(name) for name in TUNING} == TUNING
    assert outcome(configured.newSession()) != usual[0]  # a session of the run itself keeps to them


def test_executors_find_what_was_shipped_to_them(spark: SparkSession) -> None:
    """Spark sets by itself that sessions share it; without that a cluster's executors have no `bridge`."""
    name = "spark.sql.artifact.isolation.enabled"
    view_session.cache_clear()
    assert view_session(spark).conf.get(name, "") == spark.newSession().conf.get(name, "")
