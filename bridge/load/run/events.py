"""The dispatcher makes events of messages. The tap reader hands each to the loader before it asks for the next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bridge.errors import BridgeError
from bridge.load.run.barriers import Barrier
from bridge.load.run.streams import StreamProgress
from bridge.load.run.tables.column_plan import IncomingSchema
from bridge.load.spool.folder import SealedBatch
from bridge.protocol.schema.table_schema import TableSchema


@dataclass(frozen=True, slots=True)
class Sealed:
    """Lines for Spark, a STATE to commit at once they are stored, or both."""

    batch: SealedBatch | None
    barrier: Barrier | None = None
    noise: Sequence[dict[str, Any]] = ()
    """Lines that are no messages; the commit keeps them as rejects."""
    begun_anew: Sequence[str] = ()
    """Streams whose tables the tap began again: what was staged of them before this batch is void."""


@dataclass(slots=True)
class SchemaNeedsSpark:
    """Rows are about to come under a SCHEMA whose columns a statement decides. The loader answers."""

    stream: StreamProgress
    incoming: IncomingSchema
    table: TableSchema | None
    """The columns that the table has."""
    name: str
    """Under which the spool keeps what RECORDs are read into."""
    columns: TableSchema | None = None
    error: BridgeError | None = None
    """Instead of columns: why there are none."""

    @property
    def answer(self) -> TableSchema:
        """The columns, or raise the error."""
        if self.error:
            raise self.error
        assert self.columns is not None
        return self.columns


@dataclass(frozen=True, slots=True)
class SpoolGrew:
    """A piece of a BATCH was taken: time to look at the clock, and at the spool."""


@dataclass(frozen=True, slots=True)
class KeyChanges:
    """A stream is about to go on by another key: all that was sealed must be committed first."""


Event = Sealed | SchemaNeedsSpark | SpoolGrew | KeyChanges
