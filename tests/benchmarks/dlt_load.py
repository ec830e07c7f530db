"""Loads the RECORD lines of a Singer file with dlt into Parquet files. A program of dlt's own environment.

`dlt_load.py SINGER_FILE OUT`. dlt has no Singer source, so the shortest resource that yields the records stands in for
one, in batches and with the fastest JSON parser it ships with. `max_table_nesting=0` keeps the array in its row: by
default dlt makes a second table of it, which costs more and cannot be compared row by row.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dlt
import orjson

BATCH_RECORDS = 10_000


def records(path: str) -> Iterator[list[dict[str, Any]]]:
    """The records of the file, in batches."""
    batch: list[dict[str, Any]] = []
    with open(path, "rb") as file:
        for line in file:
            message = orjson.loads(line)
            if message["type"] == "RECORD":
                batch.append(message["record"])
            if len(batch) == BATCH_RECORDS:
                yield batch
                batch = []
    yield batch


def main(path: str, out: str) -> None:
    """Extract, normalise and load, as `pipeline.run` does them."""
    pipeline = dlt.pipeline(
        "bench",
        pipelines_dir=str(Path(out) / "work"),
        destination=dlt.destinations.filesystem(f"file://{Path(out).resolve()}"),
        dataset_name="lake",
    )
    resource = dlt.resource(records(path), name="orders", max_table_nesting=0)
    pipeline.run(resource, loader_file_format="parquet").raise_on_failed_jobs()


if __name__ == "__main__":
    main(*sys.argv[1:])
