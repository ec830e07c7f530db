"""The process that forks Spark's Python workers on this machine: `python -m bridge.load.spark.daemon`, run by the JVM.

Spark puts a zip with pyspark first in their path, and what comes from a zip is compiled anew at each start: that took
four fifths of it. The same pyspark is installed beside us. Nothing else is imported here: no thread may be there when
it forks.
"""

from __future__ import annotations

import re
import socket
import sys
from pathlib import Path
from typing import Any

_ZIPS = re.compile(r"pyspark\.zip|py4j-.*\.zip")

sys.path[:] = [path for path in sys.path if not _ZIPS.fullmatch(Path(path).name)]

from pyspark import daemon  # noqa: E402 - by the path that is left

_worker = daemon.worker


def worker(connection: socket.socket, *arguments: Any) -> Any:
    """Spark's worker, after the fork; once for each of its tasks."""
    from bridge.load.spark.worker import connections

    connections[:] = [connection]
    return _worker(connection, *arguments)


if __name__ == "__main__":
    daemon.worker = worker
    daemon.manager()
