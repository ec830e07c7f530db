"""One batch on its whole way through Spark, into a scratch lake: what a run would wait for is loaded before it."""

from __future__ import annotations

from pathlib import Path

from bridge.errors import EngineError
from bridge.lake.storage import open_storage
from bridge.load.spark.query import Engine
from bridge.load.spark.session import Session
from bridge.load.spool.spool import Spool
from bridge.load.write.context import WriteContext
from bridge.load.write.layout import TableLayout
from bridge.protocol.schema.table_schema import from_singer

_STREAM = "rehearsal"
_LINE = b'{"type": "RECORD", "stream": "rehearsal", "record": {"id": 1, "at": "2026-01-01T00:00:00Z"}}\n'
_LINES = 100
_PATIENCE = 60.0
"""Seconds that the batch may take."""


def rehearse(session: Session, master: str, folder: Path) -> None:
    """Load a batch with this session, which stays open. Raises what Spark raises."""
    bucket = str(folder / "lake")
    open_storage(bucket, None).prepare()
    columns = {"id": {"type": "integer"}, "at": {"type": "string", "format": "date-time"}}
    schema = from_singer({"type": "object", "properties": columns}, ["id"])
    spool = Spool(folder / "spool")
    context = WriteContext(bucket, _STREAM, _STREAM, 1, str(folder / "spool"), "zstd", {_STREAM: TableLayout(_STREAM)})
    engine = Engine(master, {}, spool, folder, folder / "spark.log", context, session=session)
    spool.put_schema(schema.hash, schema.to_json())
    spool.append(_STREAM, schema.hash, None, _LINE * _LINES, _LINES)
    batch = spool.seal(tasks=engine.tasks, all_lines=True)
    assert batch
    try:
        engine.load(batch)
        if not engine.finished(_PATIENCE):
            engine.check()
            raise EngineError("the first batch took too long", hint="the machine is busy")
    finally:
        engine.release()
