"""When the columns of a stream with a `transform` are decided on: not before there are rows, and never too late."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from bridge.errors import SettingsError
from bridge.load.barriers import Barrier, BarrierPolicy, StreamProgress
from bridge.load.column_plan import ColumnPlan, IncomingSchema
from bridge.load.dispatcher import Dispatcher
from bridge.schema.table_schema import TableSchema
from bridge.settings.transform_sql import read_transform
from bridge.singer.messages import Reader, Schema
from bridge.spool.spool import Spool

TABLE = TableSchema(pa.schema([("id", pa.int64())]))


class Taking:
    """An intake of one stream, whose statement makes `id` and `twice`; `asked` counts how often it was looked at."""

    def __init__(self, folder: Path, table: TableSchema | None = None, fails: bool = False) -> None:
        self.asked, self.table, self.fails = 0, table, fails
        self.barriers: list[Barrier] = []
        folder.mkdir()
        self.spool = Spool(folder / "spool")
        self.intake = Dispatcher(
            epochs=BarrierPolicy(None, staged={}),
            spool=self.spool,
            opened=lambda message: (
                StreamProgress(message.stream, "append", "", TableSchema(pa.schema([])), 0, []),
                self.table,
            ),
            flush=self._flush,
            discard=lambda _: None,
            commit_every=timedelta(hours=1),
            commit_bytes=1 << 30,
            max_noise=0,
            incoming=self._incoming,
            transformed=self._transformed,
        )

    def _incoming(self, message: Schema) -> IncomingSchema:
        return ColumnPlan("a", statement=read_transform("SELECT id, id * 2 AS twice FROM stream")).incoming(
            message, [], []
        )

    def _transformed(
        self, stream: StreamProgress, incoming: IncomingSchema, table: TableSchema | None, name: str
    ) -> TableSchema:
        assert (self.spool.folder / "schemas" / name).read_bytes() == incoming.read().to_json()
        self.asked += 1
        if self.fails:
            raise SettingsError("the transform does not fit the stream", hint="")
        return incoming.into(table, stream.evolution, pa.schema([("id", pa.int64()), ("twice", pa.int64())]))

    def _flush(self, barrier: Barrier | None, all_lines: bool) -> None:
        self.barriers += [barrier] if barrier else []
        self.spool.seal(tasks=1, all_lines=all_lines)

    def take(self, *records: int, **properties: Any) -> None:
        schema = {"type": "object", "properties": {"id": {"type": "integer"}} | properties}
        lines: list[dict[str, Any]] = [{"type": "SCHEMA", "stream": "a", "schema": schema, "key_properties": []}]
        lines += [{"type": "RECORD", "stream": "a", "record": {"id": number}} for number in records]
        self.intake.take(Reader().feed("".join(json.dumps(line) + "\n" for line in lines).encode()))

    def columns(self) -> list[str]:
        """The table's columns at the last barrier."""
        return list(self.barriers[-1].schemas["a"].arrow.names)


def test_a_stream_without_rows_does_not_need_spark(tmp_path: Path) -> None:
    """A run that finds nothing new starts no JVM for a table that is there; one that is new gets its columns."""
    known = Taking(tmp_path / "known", TABLE)
    known.take()
    known.intake.end(clean=True)
    assert (known.asked, known.columns()) == (0, ["id"])
    new = Taking(tmp_path / "new")
    new.take()
    assert new.asked == 0
    new.intake.end(clean=True)
    assert (new.asked, new.columns()) == (1, ["id", "twice"])


def test_each_schema_that_has_rows_is_looked_at_once(tmp_path: Path) -> None:
    """At its first RECORD; SCHEMAs that are said again, or between which there are no rows, cost nothing."""
    taking = Taking(tmp_path / "x", TABLE)
    taking.take(1, 2)
    taking.take(3)
    assert taking.asked == 1
    taking.take(more={"type": "string"})
    taking.take(4, other={"type": "string"})
    assert taking.asked == 2
    taking.intake.end(clean=True)
    assert taking.columns() == ["id", "twice"]


def test_a_statement_that_does_not_fit_lets_no_row_into_the_spool(tmp_path: Path) -> None:
    """It is an error before the first row."""
    taking = Taking(tmp_path / "x", fails=True)
    with pytest.raises(SettingsError):
        taking.take(1)
    assert taking.spool.held == 0
