"""Runs without a tap: they give files of a table other bytes, join them, roll commits back, or only recover.

Wired to the committer itself: how rows are merged into a file plays no part here, only how it becomes visible.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from bridge.lake.commit.committer import Committer
from bridge.lake.commit.open import recover
from bridge.lake.commit.rollback import roll_back
from bridge.lake.ownership import Owner, claim
from bridge.lake.paths import file_name, pipeline_key
from bridge.lake.pipeline_state import PipelineState
from bridge.lake.schemas import keep_schema
from bridge.lake.storage import Storage, open_storage
from bridge.load.maintain.compact import CompactOptions, compact
from bridge.protocol.schema.table_schema import TableSchema
from bridge.settings.options import Pipeline
from tests.support.records import table_change

from .driver import PIPELINE, Line, Run

_COLUMNS = pa.schema([pa.field("id", pa.int64()), pa.field("g", pa.int64())])
_FILES = ("", "part=x/")
"""The Hive folders of the two files that are rewritten."""


def nothing_said(value: Any) -> Iterator[Line]:
    """No tap."""
    return iter(())


@dataclass
class Rewrites(Run):
    """Loads up to `last`, a commit each: in `t` each file gets one more row, `n` one more file."""

    last: int = 3

    def _load(self, storage: Storage, committer: Committer, scratch: Path) -> None:
        for stream in ("t", "n"):
            claim(storage, f"{PIPELINE}/{stream}", Owner(PIPELINE, stream), shared=False)
        schema = keep_schema(storage, PIPELINE, TableSchema(_COLUMNS))
        done = ((committer.snapshot.state or {}).get("bookmarks", {}).get("t") or {}).get("replication_key_value", 0)
        for number in range(done + 1, self.last + 1):
            state = {"bookmarks": {"t": {"replication_key": "id", "replication_key_value": number}}}
            entries = [
                table_change(
                    stream=stream,
                    folder=f"{PIPELINE}/{stream}",
                    schema=schema,
                    **self._files(storage, committer, stream, number),
                )
                for stream in ("t", "n")
            ]
            committer.commit(PipelineState(state), entries, merged=False, through=0, staged={}, rejects=[])
            self.mark("the report")
        self.mark("the end of the tap")

    def _files(self, storage: Storage, committer: Committer, stream: str, number: int) -> dict[str, Any]:
        old = sorted(committer.snapshot.tables[stream].files) if stream in committer.snapshot.tables else []
        if stream == "n":
            return {"adds": [_write(storage, committer, stream, [(number, None)])], "removes": []}
        if not old:
            adds = [_write(storage, committer, stream, [(at, 1)], beside=f) for at, f in enumerate(_FILES, 1)]
            return {"adds": adds, "removes": []}
        rows = {name: _read(storage, f"{PIPELINE}/{stream}/{name}") for name in old}
        adds = [
            _write(storage, committer, stream, [*rows[name], (rows[name][0][0], number)], over=name) for name in old
        ]
        return {"adds": adds, "removes": old}


def _read(storage: Storage, key: str) -> list[tuple[Any, ...]]:
    with storage.open(key) as file:
        table = pq.ParquetFile(file).read()
    return list(zip(table["id"].to_pylist(), table["g"].to_pylist(), strict=True))


def _write(
    storage: Storage,
    committer: Committer,
    stream: str,
    rows: list[tuple[Any, ...]],
    *,
    over: str = "",
    beside: str = "",
) -> dict[str, Any]:
    new = file_name(committer.generation, committer.snapshot.n + 1, beside=beside)
    source, name = pipeline_key(PIPELINE, "pending", f"{new.rpartition('/')[2]}.pending"), over or new
    ids, generations = zip(*rows, strict=True)
    with closing(storage.open_pending(source, f"{PIPELINE}/{stream}/{name}", over=bool(over))) as file:
        pq.write_table(pa.table({"id": ids, "g": generations}, schema=_COLUMNS), file)
        size = file.tell()
    upload = {"upload": file.upload} if file.upload else {}
    return {"name": name, "source": source, "size": size, "rows": len(rows)} | upload


@dataclass
class RollsBack(Run):
    """Brings back what was after commit `to`."""

    to: int = 1

    def execute(self, lake: str, scratch: Path) -> None:
        roll_back(open_storage(lake), PIPELINE, self.to)


class Compacts(Run):
    """Joins what there is to be joined, as the command does."""

    def execute(self, lake: str, scratch: Path) -> None:
        settings = {"name": PIPELINE, "source": {"tap": "tap"}, "destination": {"bucket": lake}}
        compact(open_storage(lake), Pipeline.model_validate(settings), CompactOptions())


class Recovers(Run):
    """Repairs what a dead run left, and does nothing more."""

    def execute(self, lake: str, scratch: Path) -> None:
        recover(open_storage(lake), PIPELINE)
