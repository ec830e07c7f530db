"""`format("singer")` as Spark uses it, without a JVM: each object goes through pickle to where it is used."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pyspark
from pyspark.serializers import CloudPickleSerializer
from pyspark.sql.datasource import CaseInsensitiveDict, DataSource

from bridge.read.spark_source import SingerSource

Row = dict[str, Any]
T = TypeVar("T")


def sent(thing: T) -> T:
    """The thing as another process gets it."""
    serializer = CloudPickleSerializer()
    result: T = serializer.loads(serializer.dumps(thing))
    return result


def source(root: Path, **options: Any) -> DataSource:
    """The source over the lake in a folder, or in the bucket `path`."""
    texts = {name.rstrip("_"): str(value) for name, value in options.items()}
    return SingerSource(CaseInsensitiveDict({"path": str(root / "lake")} | texts))


def parts_read(reader: Any, parts: list[Any]) -> list[list[pa.RecordBatch]]:
    """What tasks read, part by part."""
    return [list(sent(reader).read(pickle.loads(pickle.dumps(part)))) for part in parts]


def rows_of(batches: list[list[pa.RecordBatch]]) -> list[Row]:
    """The rows of some parts."""
    return [row for part in batches for batch in part for row in batch.to_pylist()]


def frame(root: Path, **options: Any) -> list[Row]:
    """All rows that `spark.read` has, in the order of the parts."""
    made = source(root, **options)
    schema = made.schema()
    reader = sent(made).reader(schema)
    return rows_of(parts_read(reader, reader.partitions()))


class Query:
    """A streaming query: its checkpoint outlives it. Batches are planned as Spark 4.2 and later do, or as 4.0 does."""

    def __init__(self, root: Path, *, old: bool = False, **options: Any) -> None:
        self.root, self.old, self.options = root, old, options
        self.start: Any = None
        self.rows: list[Row] = []
        self.restart()

    def restart(self) -> None:
        """A new process goes on from the checkpoint."""
        made = source(self.root, changes="true", **self.options)
        self.reader = sent(made).streamReader(made.schema())
        if self.start is not None:  # Spark tells a source how far it was
            assert self.reader.partitions(self.start, self.start) == []

    def trigger(self, *, dies: bool = False) -> int:
        """One batch; the number of its rows. A query that dies after the batch was planned does it again."""
        start = self.start or self.reader.initialOffset()
        self.reader._looked = -10.0  # a second has passed
        end = (
            self.reader.latestOffset()
            if self.old or pyspark.__version__ < "4.2"
            else self.reader.latestOffset(start, self.reader.getDefaultReadLimit())
        )
        if end == start:
            return 0
        batches = parts_read(self.reader, self.reader.partitions(start, end))
        if dies:
            self.restart()
            again = parts_read(self.reader, self.reader.partitions(start, end))
            assert rows_of(again) == rows_of(batches)
        self.start = end
        self.reader.commit(end)
        self.rows += rows_of(batches)
        return len(rows_of(batches))

    def drain(self) -> list[Row]:
        """Batches until nothing is new; the rows that they had."""
        before = len(self.rows)
        while True:
            start = self.start
            self.trigger()
            if self.start == start:
                return self.rows[before:]
