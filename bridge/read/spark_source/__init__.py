"""`spark.read.format("singer")`: tables of a lake, and their changes, in a Spark session that is the user's own.

Enters: a bucket, a pipeline and a table as Spark's options. Leaves: Arrow batches on executors. Nothing is written, no
lease is taken, and no other room imports this one.

```
source.py   `SingerSource`, what Spark calls; read this first
options.py  Spark's options, checked; place.py: a bucket as executors open it
table.py    a table at a commit, file by file; filters.py: row groups that a filter leaves out
changes.py  what commits changed, planned from the log, read on executors
stream.py   the same without end: an offset is a commit
```
A restarted query asks for the same commits again, and the log gives the same rows.
"""

from __future__ import annotations

import atexit
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import TYPE_CHECKING

from bridge.read.spark_source.source import SingerSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["SingerSource", "register"]


def register(spark: SparkSession, *, ship: bool = False) -> None:
    """Make a session know `format("singer")`; with `ship`, hand this `bridge` to executors that have none.

    What is shipped stays in a folder of this machine until the program ends, as executors that start later need it.
    """
    spark.dataSource.register(SingerSource)
    if ship:
        from bridge.load.spark.shipping import ship as ship_to_executors

        folder = mkdtemp(prefix="singer-bridge-")
        atexit.register(rmtree, folder, ignore_errors=True)
        ship_to_executors(spark.sparkContext, Path(folder))
