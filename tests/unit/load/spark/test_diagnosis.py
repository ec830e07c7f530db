"""What Spark says about a cluster's executors, as it says it, and what we make of it."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pyarrow as pa
import pytest

from bridge.load.spark.jvm.diagnosis import diagnose
from bridge.load.spark.worker import load
from bridge.load.write.context import WriteContext

LOST = "WARN TaskSetManager: Lost task 0.0 in stage 3.0 (TID 14) (10.0.0.7 executor 1): "
TRACEBACK = "An exception was thrown from the Python worker. Please see the stack trace below.\nTraceback ...\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "[PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.9 than that in driver: 3.11, PySpark",
            "an executor has another Python host=10.0.0.7 there=3.9 here=3.",
        ),
        (
            "[PYTHON_VERSION_MISMATCH] Python in worker has different version (3, 10) than that in driver 3.11, PySp",
            "an executor has another Python host=10.0.0.7 there=3.10 here=3.",
        ),
        (
            'java.io.IOException: Cannot run program "/opt/python": error=2, No such file or directory',
            "an executor has no such Python host=10.0.0.7 program=/opt/python",
        ),
        (
            TRACEBACK + "ModuleNotFoundError: No module named 'orjson'",
            "an executor lacks a package host=10.0.0.7 package=orjson",
        ),
        (
            "ImportError: [PACKAGE_NOT_INSTALLED] PyArrow >= 4.0.0 must be installed; however, it was not found.",
            "an executor lacks a package host=10.0.0.7 package=PyArrow",
        ),
        (
            TRACEBACK + "ImportError: Pandas >= 1.0.5 must be installed; however, it was not found.",
            "an executor lacks a package host=10.0.0.7 package=Pandas",
        ),
        (
            TRACEBACK + "RuntimeError: the executor imports another singer-bridge: 0.0.1 at /opt/bridge/__init__.py\n",
            "the executor imports another singer-bridge host=10.0.0.7 there=0.0.1 at /opt/bridge/__init__.py here=",
        ),
        (
            "SparkFileNotFoundException: File file:/spool/x/data/batches/000000000001.json does not exist",
            "an executor cannot read the spool host=10.0.0.7 folder=/spool/x/data",
        ),
    ],
)
def test_what_an_executor_lacks_is_named(text: str, said: str) -> None:
    """The host stands in the error or, for an error of Python, in Spark's log."""
    for error in (diagnose(LOST + text, "", "/spool/x/data"), diagnose(text, LOST, "/spool/x/data")):
        assert error is not None
        assert error.message.startswith(said)
        assert error.hint


def test_other_errors_are_left_alone() -> None:
    """What is no fault of an executor's set-up is not explained as one."""
    assert diagnose("org.apache.spark.SparkException: WriteContext 3 cancelled", LOST, "/spool") is None


def test_a_spool_that_is_not_there_is_reported_for_every_bundle(tmp_path: Path) -> None:
    """The report reaches the driver as any other, so nothing is tried again."""
    job = WriteContext(
        bucket=str(tmp_path),
        pipeline="p",
        run="r",
        generation=1,
        spool=str(tmp_path / "nowhere"),
        compression="zstd",
        layouts={},
    )
    bundles = pa.RecordBatch.from_pydict({"seq": [1, 1], "bundle": [0, 1], "segments": [[], []]})
    batches = list(load(pickle.dumps(job), iter([bundles])))
    reports = [json.loads(report) for batch in batches for report in batch.column("report").to_pylist()]
    assert [report["failed"]["type"] for report in reports] == ["EngineError", "EngineError"]
    assert "cannot read the spool" in reports[0]["failed"]["message"]
    assert "spool.dir" in reports[0]["failed"]["hint"]
    assert list(load(pickle.dumps(job), iter([]))) == []
