"""What it costs to write a table anew: `python -m tests.benchmarks.rewrites`.

Ours and delta-rs replace the same table with the same rows, which a Parquet file holds, and make its small files few.
Ours replaces with a Spark task a core, as a run does, and compacts as the command does. The best of three, by turns.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, write_deltalake
from msgspec import convert

from bridge.commit.committer import Committer
from bridge.commit.open import opened
from bridge.lake.lease import take
from bridge.lake.ownership import Owner, claim
from bridge.lake.records import TableState
from bridge.lake.schemas import keep_schema
from bridge.maintain.compact import Wish, compact
from bridge.schema.table_schema import TableSchema
from bridge.settings.inline import inline_pipeline
from bridge.storage import Storage, open_storage
from bridge.write.context import WriteContext
from bridge.write.layout import TableLayout
from bridge.write.report import WorkReport

from .executors import Spread, executors, write_share
from .upsert import SCHEMA, ZSTD, rows_of

_GROUP = 30_000
"""Rows of a small file, and of a row group of the source."""
_TRIES = 3
_TABLE = "p/t"


class Ours:
    """A table that has a whole log. `each` does the work."""

    def __init__(self, root: Path, each: Spread) -> None:
        self.root, self._each = root, each
        self._pipeline = inline_pipeline(
            name="p", bucket=str(root), tap="none", tap_config=None, catalog=None, load_method="auto", environ={}
        )

    @contextmanager
    def _opened(self) -> Iterator[tuple[Storage, Committer]]:
        storage = open_storage(str(self.root))
        with opened(storage, "p", "run", take(storage, "p", "run")) as committer:
            yield storage, committer

    def overwrite(self, source: str, *, gathered: int = 1 << 30) -> None:
        """Replace the rows with those of a file; a table file has `gathered` of its row groups, or is as large as it
        shall be.
        """
        with self._opened() as (storage, committer):
            claim(storage, _TABLE, Owner("p", "t"), shared=False)
            table = committer.view.tables.get("t")
            schema = keep_schema(storage, "p", TableSchema(SCHEMA))
            job = WriteContext(str(self.root), "p", "run", committer.generation, "", "zstd", {"t": TableLayout(_TABLE)})
            groups, cores = list(range(pq.read_metadata(source).num_row_groups)), os.cpu_count() or 1
            shares = [(source, groups[core::cores], gathered) for core in range(cores)]
            reports = convert(self._each(write_share, job, shares), list[WorkReport])
            adds = [file.add() for report in reports for file in report.files]
            change = TableState(_TABLE, schema).change("t", adds, list(table.files) if table else [])
            committer.commit(None, [change], merged=False, through=0, staged={}, rejects=[])

    def compact(self) -> None:
        """Make the small files few."""
        compact(open_storage(str(self.root)), self._pipeline, Wish())

    def files(self) -> list[int]:
        """Return the sizes of the table's files."""
        return [path.stat().st_size for path in (self.root / _TABLE).glob("*.parquet")]


class DeltaRs:
    """The same table of delta-rs."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def overwrite(self, source: str, *, gathered: int = 0) -> None:
        """Replace the rows with those of a file; `gathered` row groups at a time are a commit each."""
        with pq.ParquetFile(source) as file:
            groups = list(range(file.num_row_groups))
            for at in range(0, len(groups), gathered or len(groups)):
                batches = file.iter_batches(_GROUP, row_groups=groups[at : at + (gathered or len(groups))])
                reader = pa.RecordBatchReader.from_batches(SCHEMA, batches)
                mode = "overwrite" if at == 0 else "append"
                write_deltalake(str(self.root), reader, mode=mode, target_file_size=128 << 20, writer_properties=ZSTD)

    def compact(self) -> None:
        """Make the small files few."""
        DeltaTable(str(self.root)).optimize.compact(target_size=128 << 20, writer_properties=ZSTD)

    def files(self) -> list[int]:
        """Return the sizes of the table's files."""
        uris = DeltaTable(str(self.root)).file_uris()
        return [Path(uri.removeprefix("file://")).stat().st_size for uri in uris]


def timed(work: Callable[[], None]) -> dict[str, float]:
    """Return the seconds of the clock, and those of this process's cores."""
    began, used = time.perf_counter(), time.process_time()
    work()
    return {"seconds": time.perf_counter() - began, "CPU here": time.process_time() - used}


def main() -> None:
    """Print the figures, a JSON object a system and kind of work."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    rows = parser.parse_args().rows
    with tempfile.TemporaryDirectory() as name, executors(Path(name, "spark")) as each:
        folder = Path(name)
        source = str(folder / "source.parquet")
        with pq.ParquetWriter(source, SCHEMA) as file:
            for start in range(0, rows, _GROUP):
                file.write_table(rows_of(range(start, min(start + _GROUP, rows)), start), row_group_size=_GROUP)
        found: dict[tuple[str, str], list[dict[str, float]]] = {}
        for _ in range(_TRIES):
            for system in (Ours(folder / "ours", each), DeltaRs(folder / "delta")):
                for work in ("overwrite", "compact"):
                    before = 0
                    if work == "compact":
                        system.overwrite(source, gathered=1)
                        before = len(system.files())
                    else:
                        system.overwrite(source)  # that there is something to replace
                    figures = timed(partial(system.overwrite, source) if work == "overwrite" else system.compact)
                    figures |= {"files before": before, "files": len(system.files()), "bytes": sum(system.files())}
                    found.setdefault((type(system).__name__, work), []).append(figures)
                shutil.rmtree(system.root)
        for (system_name, work), tries in found.items():
            best = min(tries, key=lambda figures: figures["seconds"])
            print(json.dumps({"system": system_name, "work": work, "rows": rows} | best))


if __name__ == "__main__":
    main()
