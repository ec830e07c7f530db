"""The floor of a small run: a Spark session that streams one tiny file. A program: `bare_spark.py FOLDER`.

The same shape as the product's smallest run and none of its work: one JSON file source, one micro-batch, one trivial
foreachBatch with one mapInArrow, so that one Python worker starts and imports pyarrow. Same master, same JVM flags.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame

from bridge.load.spark.session import Session


def main(folder: Path) -> None:
    """Exits when the query has seen the one file and the session is down."""
    source = folder / "in"
    source.mkdir(parents=True)
    (source / "0.json").write_text('{"number": 1}\n', encoding="utf-8")
    session = Session("local[*]", {}, folder / "scratch", folder / "spark.log")
    frame = session.spark.readStream.schema("number long").json(str(source))
    writer = frame.writeStream.foreachBatch(_batch).option("checkpointLocation", str(folder / "checkpoint"))
    writer.trigger(availableNow=True).start().awaitTermination()
    session.close(hurry=True)


def _batch(frame: DataFrame, _number: int) -> None:
    frame.mapInArrow(_same, "number long").collect()


def _same(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


if __name__ == "__main__":
    main(Path(sys.argv[1]))
