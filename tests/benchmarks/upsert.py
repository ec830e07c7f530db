"""What an upsert costs by what it touches: `python -m tests.benchmarks.upsert --help`.

One process, without Spark: tables of `rows` rows with ids from 0 on are made by the writer of every load, then
`changes` rows come, nine of ten with ids that are there, near each other or anywhere. Told are the merge's seconds and
the bytes that it wrote against the size of the files that it replaced; the best of three. With `--delta-rs` the same
rows are merged into a table of the same files' size by `DeltaTable.merge`, by turns with ours. With `--spark` Spark's
workers do it, as in a run.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
from deltalake import DeltaTable, WriterProperties, write_deltalake

from bridge.lake.file_records import FileAdd, LiveFile
from bridge.lake.log import storage_changes
from bridge.lake.records import TableState
from bridge.lake.storage.local.storage import LocalStorage
from bridge.load.spool.folder import Segment
from bridge.load.write.context import WriteContext
from bridge.load.write.file import File
from bridge.load.write.layout import TableLayout
from bridge.load.write.merge.match import MergeSpec
from bridge.load.write.merge.plan import Merger
from bridge.load.write.spill import Spill, with_message_order
from bridge.load.write.writer import Writer
from bridge.protocol.schema.table_schema import TableSchema
from tests.support.records import commit_record

from .executors import Spread, executors, here

_TEXTS = 3
ZSTD = WriterProperties(compression="ZSTD")
SCHEMA = pa.schema(
    [pa.field("id", pa.int64(), nullable=False), *(pa.field(f"c{n}", pa.string()) for n in range(_TEXTS))]
)
_STEP = 500_000
Figures = dict[str, float]


def _cpu_seconds() -> float:
    """Of this process and of all those below it."""
    total = 0.0
    for process in (psutil.Process(), *psutil.Process().children(recursive=True)):
        with suppress(psutil.Error):
            total += sum(process.cpu_times()[:4])  # its own and those of children that have ended
    return total


@contextmanager
def measured_by(figures: Figures) -> Iterator[None]:
    """Measure what is inside."""
    began, cpu = time.perf_counter(), _cpu_seconds()
    yield
    figures["seconds"] = time.perf_counter() - began
    figures["cpu_seconds"] = _cpu_seconds() - cpu


def rows_of(ids: list[int] | range, seed: int) -> pa.Table:
    """Return rows of some fifty bytes that no codec makes much smaller."""
    dice, count = np.random.default_rng(seed), len(ids)
    offsets = pa.py_buffer(np.arange(0, (count + 1) * 16, 16, dtype=np.int32))
    columns = []
    for _ in range(_TEXTS):
        letters = pa.py_buffer(dice.integers(97, 123, count * 16, dtype=np.uint8))
        columns.append(pa.StringArray.from_buffers(count, offsets, letters))
    return pa.table([pa.array(ids, pa.int64()), *columns], schema=SCHEMA)


class OneTable:
    """One table in a folder of its own."""

    def __init__(self, root: Path, file_size: int, spread: Spread) -> None:
        self.spread, self.storage = spread, LocalStorage(root / "lake")
        (root / "spool").mkdir(parents=True)
        target = TableLayout("t", keys=("id",), file_size=file_size)
        self.job = WriteContext(str(root / "lake"), "p", "run", 1, str(root / "spool"), "zstd", {"t": target})
        self.files: dict[str, LiveFile] = {}
        self.commit = 0

    def fill(self, rows: int) -> None:
        """Write the table."""
        adds: list[FileAdd] = []

        def done(file: File) -> None:
            file.finish()
            adds.append(file.close().add())

        writer = Writer(self.storage, self.job, 1, "t", SCHEMA, done)
        for start in range(0, rows, _STEP):
            writer.add(rows_of(range(start, min(start + _STEP, rows)), start))
        writer.finish()
        self.publish(adds, [])

    def publish(self, adds: list[FileAdd], removes: list[str]) -> None:
        self.commit += 1
        self.storage.publish(
            storage_changes("p", commit_record(self.commit, TableState("t", None).change("t", adds, removes)))
        )
        for name in removes:
            self.files.pop(name)
        self.files |= {add.name: add.live for add in adds}

    def upsert(self, ids: list[int]) -> Figures:
        """Merge rows with these ids as a run does that has just started, and return the figures."""
        spill_rows = with_message_order(rows_of(ids, 7), None, 1, Segment("t", "", "", 0, 0, len(ids), 0, "", 1))
        figures = Figures()
        with measured_by(figures):
            spill = Spill(self.job, "t", spill_rows.schema, ["id"])
            spill.add(spill_rows)
            merger = Merger(self.job, lambda work, payloads: self.spread(work, self.job, payloads))
            batch = MergeSpec("t", TableSchema(SCHEMA).to_json(), 1, hard=False)
            merged = merger.merge(batch, TableState("t", None, self.files), [spill.finish()])
            touched = sum(self.files[name].size for name in merged.removes)
            self.publish(merged.adds, merged.removes)
        written = sum(add.size for add in merged.adds)
        return figures | {"files": len(merged.removes), "touched": touched, "written": written}


class DeltaRs:
    """The same table, as delta-rs makes and merges it."""

    def __init__(self, root: Path, file_size: int) -> None:
        self.uri, self.file_size = str(root / "delta"), file_size

    def fill(self, rows: int) -> None:
        """Write the table."""
        steps = (rows_of(range(start, min(start + _STEP, rows)), start) for start in range(0, rows, _STEP))
        batches = (batch for step in steps for batch in step.to_batches())
        reader = pa.RecordBatchReader.from_batches(SCHEMA, batches)
        write_deltalake(self.uri, reader, target_file_size=self.file_size, writer_properties=ZSTD)

    def upsert(self, ids: list[int]) -> Figures:
        """Merge rows with these ids and return the figures."""
        changes, table = rows_of(ids, 7), DeltaTable(self.uri)
        before = self._sizes(table)
        figures = Figures()
        with measured_by(figures):
            merge = table.merge(changes, "t.id = s.id", source_alias="s", target_alias="t", writer_properties=ZSTD)
            merge.when_matched_update_all().when_not_matched_insert_all().execute()
        after = self._sizes(table)
        gone, new = before.keys() - after.keys(), after.keys() - before.keys()
        return figures | {
            "files": len(gone),
            "touched": sum(before[name] for name in gone),
            "written": sum(after[name] for name in new),
        }

    def _sizes(self, table: DeltaTable) -> dict[str, int]:
        return {
            path: Path(path).stat().st_size for path in (name.removeprefix("file://") for name in table.file_uris())
        }


def measured(rows: int, changes: int, rounds: int, file_size: int, spread: Spread, *, peer: bool) -> dict[str, Any]:
    """Return the figures of one table, of its size and of both kinds of changes."""
    with tempfile.TemporaryDirectory() as folder:
        lake = OneTable(Path(folder), file_size, spread)
        lake.fill(rows)
        other = DeltaRs(Path(folder), file_size) if peer else None
        if other:
            other.fill(rows)
        result: dict[str, Any] = {"rows": rows, "files": len(lake.files)}
        result["bytes"] = sum(file.size for file in lake.files.values())
        old, dice = changes * 9 // 10, random.Random(1)
        for kind in ("clustered", "random"):
            ours, others = list[Figures](), list[Figures]()
            for number in range(rounds):
                first = rows // 3 + number * old
                near = list(range(first, first + old))
                ids = near if kind == "clustered" else dice.sample(range(rows), old)
                new = range(2 * rows + number * changes, 2 * rows + number * changes + changes - old)
                ours.append(lake.upsert([*ids, *new]))
                if other:
                    others.append(other.upsert([*ids, *new]))
            result[kind] = _medians(ours)
            result[kind]["written/touched"] = round(result[kind]["written"] / result[kind]["touched"], 3)
            if others:
                result[kind]["delta-rs"] = _medians(others)
                result[kind]["ratios"] = {
                    name: round(median(a[name] / b[name] for a, b in zip(ours, others, strict=True)), 2)
                    for name in ("seconds", "cpu_seconds")
                }
        return result


def _medians(rounds: list[Figures]) -> dict[str, Any]:
    return {name: round(median(one[name] for one in rounds), 3) for name in rounds[0]}


def main() -> None:
    """Print the figures, a JSON object a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000_000, 10_000_000])
    parser.add_argument("--changes", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--file-size", type=int, default=16, help="MiB")
    parser.add_argument("--delta-rs", action="store_true")
    parser.add_argument("--spark", action="store_true")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, executors(Path(folder)) if asked.spark else nullcontext(here) as each:
        for rows in asked.rows:
            print(
                json.dumps(
                    measured(rows, asked.changes, asked.rounds, asked.file_size << 20, each, peer=asked.delta_rs)
                )
            )
            sys.stdout.flush()


if __name__ == "__main__":
    main()
