"""A run without Spark that commits on and on: `python -m tests.interop.catalogs.writer BUCKET CATALOG COUNT`.

Commit `i` has the STATE `{"last": i}`. Every fifth is an overwrite, the fourth after it a merge by key, the third
brings a column, the others append. So the table holds the ids from the last overwrite to `i`.
"""

from __future__ import annotations

import json
import sys

from bridge.lake.commit.committer import Committer
from bridge.lake.formats.iceberg.catalog import keep_catalog
from bridge.lake.storage import open_storage
from bridge.lake.storage.protocol import Storage
from bridge.settings.options import Pipeline
from tests.support.delta_lake import _ids
from tests.support.iceberg_lake import IcebergLake
from tests.support.lake import DEAD, FIRST


def ids_after(last: int) -> list[int]:
    """The ids of the table at that STATE."""
    return list(range(max(1, last - last % 5), last + 1))


def settings(bucket: str, properties: dict[str, str]) -> Pipeline:
    """The pipeline `p`, whose catalog has these properties."""
    destination = {"bucket": bucket, "format": "iceberg", "catalog": {"properties": properties}}
    return Pipeline.model_validate({"name": "p", "source": {"tap": "tap"}, "destination": destination})


def prepared(bucket: str, properties: dict[str, str]) -> Storage:
    """The bucket as a run finds it after its settings are read."""
    storage = open_storage(bucket)
    storage.prepare()
    keep_catalog(storage, settings(bucket, properties))
    return storage


def step(lake: IcebergLake, run: Committer, i: int) -> None:
    """Make commit `i`."""
    if i % 5 == 0:
        lake.replace(run, [i])
    elif i % 5 == 3:
        lake.append(run, [i], **{f"c{i // 5 % 3}": "new"})
    elif i % 5 == 4:
        oldest = min(run.snapshot.tables["s"].files)
        lake.rewrite(run, [*_ids(lake.storage, f"{lake.folder}/{oldest}"), i])
    else:
        lake.append(run, [i])


def main() -> None:
    bucket, properties, count = sys.argv[1], json.loads(sys.argv[2]), int(sys.argv[3])
    storage = prepared(bucket, properties)
    lake = IcebergLake(storage)
    run = lake.open(DEAD if lake.log.head() else FIRST)
    done = int((run.snapshot.state or {}).get("last", 0))
    print("open", flush=True)
    for i in range(done + 1, done + 1 + count):
        step(lake, run, i)
        print(i, flush=True)


if __name__ == "__main__":
    main()
