"""The process that forks Spark's Python workers on this machine: `python -m bridge.engine.daemon`, run by the JVM.

Spark puts a zip with pyspark first in their path, and what comes from a zip is compiled anew at each start: that took
four fifths of it. The same pyspark is installed beside us. Nothing else is imported here: no thread may be there when
it forks.
"""

from __future__ import annotations

import sys
from pathlib import Path

_ZIPS = ("pyspark", "py4j-")

sys.path[:] = [path for path in sys.path if not (path.endswith(".zip") and Path(path).name.startswith(_ZIPS))]

from pyspark.daemon import manager  # noqa: E402 - by the path that is left

if __name__ == "__main__":
    manager()
