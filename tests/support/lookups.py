"""For statements that look nothing up."""

from __future__ import annotations

from pathlib import Path

from bridge.lake.log import Snapshot
from bridge.lake.storage.local.storage import LocalStorage
from bridge.load.spark.lookups import Lookups
from bridge.load.write.context import WriteContext

NO_LOOKUPS = Lookups(LocalStorage(Path("nowhere")), WriteContext("nowhere", "p", "run", 0, "", "zstd", {}), Snapshot())
