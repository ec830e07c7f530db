"""Ship to executors: bundles, work, and on a cluster the driver's own `bridge`, in a zip that workers check.

An executor needs Python of the driver's minor version with msgspec, pyarrow, orjson and simplejson, boto3 for an S3
bucket, and numpy for upserts.
"""

from __future__ import annotations

import os
import pickle
import re
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import astuple
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct, convert, json

import bridge
from bridge.errors import EngineError
from bridge.load.spark.worker import REPORTS, same
from bridge.load.spool.folder import SealedBatch, SpoolFolder
from bridge.load.write.context import WriteContext
from bridge.load.write.report import Failure, raise_failure

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_SEGMENT = (
    "stream:string,schema:string,file:string,start:bigint,end:bigint,lines:bigint,crc:bigint,prefix:string,"
    "order:bigint,at:bigint,is_arrow:boolean,first:bigint"
)
_BUNDLES = f"seq bigint, bundle int, segments array<struct<{_SEGMENT}>>"
"""The columns of a bundle."""
AT_ONCE = 4
"""Sealed batches that are loaded at once, at most."""
_GLOB = re.compile(r"[\\\[\]{}*?]")
"""Glob characters: Spark's file source takes its path for a glob, so these need a backslash."""
OTHER_BRIDGE = "the executor imports another singer-bridge"
"""The message of a task with another bridge, before its path; the driver looks for it in Spark's error."""
REPORT_IT = "nothing was committed; run again, and report it with the run's log if it comes back"


def cores(master: str) -> int:
    """Parallel tasks of a Spark master, parsed from its URL; 8 if the URL does not say."""
    inside = master[6:-1].split(",", maxsplit=1)[0] if master.startswith("local[") else ""
    return (
        int(inside) if inside.isdigit() else (os.cpu_count() or 2) if inside == "*" else 1 if master == "local" else 8
    )


def ship(context: SparkContext, folder: Path) -> str:
    """Make every executor import the package from a zip that is made in `folder`; return the zip's name.

    The name holds a hash of the contents: who imports from a zip of that name has the driver's code.
    """
    package = Path(bridge.__file__).parent
    reader = package / "protocol" / "decode" / "reader"  # in a clone: sources in Rust, which no wheel has
    paths = sorted(path for path in package.rglob("*.py") if not path.is_relative_to(reader))
    paths += [library] if (library := reader.with_suffix(".so")).exists() else []
    files = {f"bridge/{path.relative_to(package)}": path.read_bytes() for path in paths}
    digest = sha256()
    for name, data in files.items():
        digest.update(f"{name} {len(data)}\n".encode() + data)
    archive = folder / f"singer-bridge-{bridge.__version__}-{digest.hexdigest()[:16]}.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as whole:
        for name, data in files.items():
            whole.writestr(name, data)
    context.addPyFile(str(archive))
    return archive.name


def batches_in(spark: SparkSession, spool: SpoolFolder) -> DataFrame:
    """The stream of bundles of the batches that the spool releases."""
    source = spark.readStream.schema(_BUNDLES).option("mode", "FAILFAST").option("maxFileAge", "36500d")
    # Spark finds a URI whatever its default filesystem is.
    return source.option("maxFilesPerTrigger", AT_ONCE).json(_GLOB.sub(r"\\\g<0>", f"file://{spool.batches}"))


def bundles_of(spark: SparkSession, batches: Sequence[SealedBatch]) -> DataFrame:
    """The bundles of these batches, sent from here: executors may not see the files that Spark's file source lists."""
    rows = [
        (batch.seq, number, [astuple(segment) for segment in bundle])
        for batch in batches
        for number, bundle in enumerate(batch.bundles)
    ]
    return spark.createDataFrame(rows, _BUNDLES)


def executor_work(
    work: Callable[[WriteContext, Any], Struct], context: WriteContext, payloads: Sequence[Any], shipped: str | None
) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """The function that an executor runs on the numbers of payloads."""
    return _on_executor("perform", pickle.dumps((work, context, list(payloads))), shipped)


def executor_rows(task: str, shipped: str | None, *arguments: Any) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """An executor's half of a transform, `decode_rows` or `store_rows`."""
    return _on_executor(task, pickle.dumps(arguments), shipped)


def _on_executor(task: str, pickled: bytes, shipped: str | None) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """A task of `bridge.load.spark.worker`; nothing of ours is imported there before it is known to be `shipped`.

    Pickle carries a function inside a function as code, one of a module as that module's name: hence the nesting.
    """
    complaint = OTHER_BRIDGE

    def run(batches: Iterator[Any]) -> Iterator[Any]:
        import bridge

        if shipped and f"/{shipped}/" not in bridge.__file__:
            raise RuntimeError(f"{complaint}: {getattr(bridge, '__version__', 'no version')} at {bridge.__file__}")
        from bridge.load.spark import worker

        worker.prepare()
        yield from getattr(worker, task)(pickled, batches)

    return run


def map_in_arrow(
    frame: DataFrame, task: Callable[[Iterator[Any]], Iterator[Any]], schema: StructType | str
) -> DataFrame:
    """`frame.mapInArrow`, which would ask for pandas although it does without."""
    from pyspark.sql.udf import UserDefinedFunction
    from pyspark.util import PythonEvalType

    function = UserDefinedFunction(task, schema, evalType=PythonEvalType.SQL_MAP_ARROW_ITER_UDF)
    column = function(*[frame[name] for name in frame.columns])
    return type(frame)(frame._jdf.mapInArrow(column._jc, False, None), frame.sparkSession)


def warm_up(spark: SparkSession, tasks: int) -> None:
    """Start the Python workers and their imports while the JVM is busy with the query's first plan."""
    with suppress(Exception):  # if something is wrong, the query fails with it
        map_in_arrow(spark.range(0, tasks, 1, tasks), same, "id bigint").collect()


def loaded(frame: DataFrame, bundles: int, context: WriteContext, shipped: str | None) -> tuple[DataFrame, list[Any]]:
    """Load a micro-batch of so many bundles, by one job; return it spread over the cores, and its rows of reports."""
    parts = min(bundles, frame.sparkSession.sparkContext.defaultParallelism)
    frame = frame.repartition(parts) if parts > 1 else frame
    task = _on_executor("load", pickle.dumps(context), shipped)
    return frame, list(map_in_arrow(frame, task, REPORTS).collect())


def spread(
    spark: SparkSession,
    work: Callable[[WriteContext, Any], Struct],
    context: WriteContext,
    payloads: Sequence[Any],
    shipped: str | None = None,
) -> list[Any]:
    """Run `work` on each payload, one task each, and return the reports in order. Raises the error that one holds."""
    count = len(payloads)
    numbers = spark.range(0, count, 1, count)
    rows = map_in_arrow(numbers, executor_work(work, context, payloads, shipped), REPORTS).collect()
    reports = {row.seq: json.decode(row.report) for row in rows}
    if len(rows) != count or reports.keys() != set(range(count)):
        raise EngineError("Spark's work does not add up", hint=REPORT_IT, wanted=count, reports=len(rows))
    for report in reports.values():
        raise_failure(convert(report.get("failed"), Failure | None))
    return [reports[number] for number in range(count)]
