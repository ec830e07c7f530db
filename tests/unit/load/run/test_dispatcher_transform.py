"""When the columns of a stream with a `transform` are decided on: not before there are rows, and never too late."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from bridge.errors import SettingsError
from bridge.load.run.barriers import Barrier, BarrierPolicy
from bridge.load.run.dispatcher import Dispatcher, DispatchRules
from bridge.load.run.events import Event, SchemaNeedsSpark, Sealed
from bridge.load.run.streams import StreamPlan, StreamProgress
from bridge.load.run.tables.column_plan import ColumnPlan, IncomingSchema
from bridge.load.spool.spool import Spool
from bridge.protocol.schema.table_schema import TableSchema
from bridge.protocol.singer.messages import Reader, Schema
from bridge.settings.sql.transform import read_transform
from tests.support.load import Opened, Tables

TABLE = TableSchema(pa.schema([("id", pa.int64())]))


class Taking:
    """A dispatcher of one stream, whose statement makes `id` and `twice`; `asked` counts how often it was looked at."""

    def __init__(self, folder: Path, table: TableSchema | None = None, fails: bool = False) -> None:
        self.asked, self.table, self.fails = 0, table, fails
        self.barriers: list[Barrier] = []
        folder.mkdir()
        self.spool = Spool(folder / "spool")
        tables = Tables(self._opened, self._incoming)
        rules = DispatchRules(timedelta(hours=1), 1 << 30)
        self.dispatcher = Dispatcher(BarrierPolicy(None, staged={}), self.spool, tables, rules)

    def _opened(self, message: Schema) -> Opened:
        return StreamProgress(StreamPlan(message.stream, (message.stream,))), self.table

    def _incoming(self, message: Schema) -> IncomingSchema:
        return ColumnPlan("a", statement=read_transform("SELECT id, id * 2 AS twice FROM stream")).incoming(
            message, [], []
        )

    def _act(self, events: Iterable[Event]) -> None:
        for event in events:
            if isinstance(event, SchemaNeedsSpark):
                event.columns = self._transformed(event)
            elif isinstance(event, Sealed) and event.barrier:
                self.barriers.append(event.barrier)

    def _transformed(self, question: SchemaNeedsSpark) -> TableSchema:
        incoming, made = question.incoming, pa.schema([("id", pa.int64()), ("twice", pa.int64())])
        assert self.spool.folder.read_schema(question.name) == incoming.read().to_json()
        self.asked += 1
        if self.fails:
            raise SettingsError("the transform does not fit the stream", hint="")
        return incoming.into(question.table, question.stream.plan.evolution, made)

    def end(self) -> None:
        self._act(self.dispatcher.end(clean=True))

    def take(self, *records: int, **properties: Any) -> None:
        schema = {"type": "object", "properties": {"id": {"type": "integer"}} | properties}
        lines: list[dict[str, Any]] = [{"type": "SCHEMA", "stream": "a", "schema": schema, "key_properties": []}]
        lines += [{"type": "RECORD", "stream": "a", "record": {"id": number}} for number in records]
        messages = Reader().feed("".join(json.dumps(line) + "\n" for line in lines).encode())
        self._act(self.dispatcher.take(messages))

    def columns(self) -> list[str]:
        """The table's columns at the last barrier."""
        return list(self.barriers[-1].schemas["a"].arrow.names)


def test_a_stream_without_rows_does_not_need_spark(tmp_path: Path) -> None:
    """A run that finds nothing new starts no JVM for a table that is there; one that is new gets its columns."""
    known = Taking(tmp_path / "known", TABLE)
    known.take()
    known.end()
    assert (known.asked, known.columns()) == (0, ["id"])
    new = Taking(tmp_path / "new")
    new.take()
    assert new.asked == 0
    new.end()
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
    taking.end()
    assert taking.columns() == ["id", "twice"]


def test_a_statement_that_does_not_fit_lets_no_row_into_the_spool(tmp_path: Path) -> None:
    """It is an error before the first row."""
    taking = Taking(tmp_path / "x", fails=True)
    with pytest.raises(SettingsError):
        taking.take(1)
    assert taking.spool.held == 0
