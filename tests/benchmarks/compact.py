"""What joining small files costs: `python -m tests.benchmarks.compact --help`.

A table of `rows` rows in files of `small` KiB is compacted, with both cores, and delta-rs' `optimize.compact` does the
same to a copy of these files, by turns. Told are the seconds and the CPU seconds, medians of the rounds, the medians of
the rounds' ratios, and how many files of which size there are afterwards.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

from deltalake import DeltaTable, convert_to_deltalake

from bridge.lake.commit.open import open_pipeline
from bridge.lake.file_records import FileAdd
from bridge.lake.records import TableState
from bridge.lake.schemas import keep_schema
from bridge.lake.storage.local.storage import LocalStorage
from bridge.load.maintain.compact import CompactOptions, compact
from bridge.load.write.context import WriteContext
from bridge.load.write.file import File
from bridge.load.write.layout import TableLayout
from bridge.load.write.writer import Writer
from bridge.protocol.schema.table_schema import TableSchema
from bridge.settings.destination import Destination
from bridge.settings.options import Pipeline

from .upsert import SCHEMA, ZSTD, Figures, measured_by, rows_of

_STEP = 250_000


def fill(bucket: Path, rows: int, small: int) -> Path:
    """Make a lake with one table; return the table's folder."""
    storage, layout, adds = LocalStorage(bucket), TableLayout("p/t", file_size=small), list[FileAdd]()
    storage.prepare()
    columns = TableSchema(SCHEMA)

    def done(file: File) -> None:
        file.finish()
        adds.append(file.close().add())

    with open_pipeline(storage, "p") as committer:
        context = WriteContext(storage.uri, "p", committer.run, committer.generation, "", "zstd", {"t": layout})
        writer = Writer(storage, context, 1, "t", SCHEMA, done)
        for start in range(0, rows, _STEP):
            writer.add(rows_of(range(start, min(start + _STEP, rows)), start))
        writer.finish()
        keep_schema(storage, "p", columns)
        change = TableState(layout.folder, columns.hash).change("t", adds, [])
        committer.commit(committer.snapshot.pipeline_state, [change], kind="data", staged={})
    return bucket / layout.folder


def ours(lake: Path, file_size: int) -> tuple[int, int]:
    """Compact a lake; return the files and bytes that were written."""
    pipeline = Pipeline(name="p", source={"tap": "tap"}, destination=Destination(bucket=str(lake)))
    adds = compact(LocalStorage(lake), pipeline, CompactOptions(file_size=file_size)).written["t"]
    return len(adds), sum(add.size for add in adds)


def theirs(table: Path, file_size: int) -> tuple[int, int]:
    """Compact a Delta table; return the files and bytes that were written."""
    metrics = DeltaTable(table).optimize.compact(target_size=file_size, writer_properties=ZSTD)
    details = metrics["filesAdded"]
    details = json.loads(details) if isinstance(details, str) else details
    return metrics["numFilesAdded"], details["totalSize"]


def measured(rows: int, small: int, file_size: int, rounds: int) -> dict[str, Any]:
    """Return the figures of both."""
    result: dict[str, Any] = {}
    both = list[tuple[Figures, Figures]]()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        table = fill(folder / "lake", rows, small)
        result["files"] = len(list(table.glob("*.parquet")))
        for _ in range(rounds):
            lake, delta = folder / "ours", folder / "delta"
            shutil.copytree(folder / "lake", lake)
            shutil.copytree(table, delta)
            convert_to_deltalake(delta)
            mine, other = Figures(), Figures()
            with measured_by(mine):
                result["ours"] = ours(lake, file_size)
            with measured_by(other):
                result["delta-rs"] = theirs(delta, file_size)
            both.append((mine, other))
            shutil.rmtree(lake)
            shutil.rmtree(delta)
    for name in ("seconds", "cpu_seconds"):
        result[name] = [round(median(pair[at][name] for pair in both), 3) for at in (0, 1)]
        result[f"ratio of {name}"] = round(median(mine[name] / other[name] for mine, other in both), 2)
    return result


def main() -> None:
    """Print the figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--small", type=int, default=1024, help="KiB")
    parser.add_argument("--file-size", type=int, default=128, help="MiB")
    parser.add_argument("--rounds", type=int, default=5)
    asked = parser.parse_args()
    print(json.dumps(measured(asked.rows, asked.small << 10, asked.file_size << 20, asked.rounds)))


if __name__ == "__main__":
    main()
