"""A key that changes within a run: rows so far are merged by the key that they came under, later ones by the new key.

Rows of an upsert may be ahead of the STATE: a tap that sends them again has them merged again.
"""

from __future__ import annotations

from dataclasses import replace

from bridge.errors import DataError
from bridge.load.run.barriers import Barrier, BarrierPolicy, StreamProgress
from bridge.load.run.streams import StreamPlan
from bridge.load.write.metadata_columns import METADATA, VERSION_COLUMN
from bridge.protocol.schema.table_schema import TableSchema
from bridge.protocol.singer.messages import Schema
from bridge.settings.destination import APPEND_ONLY, OVERWRITE, UPSERT

_HINT = "set key_properties for it under streams, to the key of all of its rows"


def was_swept(message: Schema, columns: TableSchema | None) -> bool:
    """Whether merges swept a table's rows so far: its column for versions is neither the tap's own nor metadata."""
    own, names = message.schema.get("properties") or {}, columns.arrow.names if columns else []
    return VERSION_COLUMN in names and VERSION_COLUMN not in own and not set(METADATA) <= set(names)


def without_key(plan: StreamPlan, *, swept: bool) -> StreamPlan:
    """The plan of a table that may have lost its key: its rows of older versions are still removed or marked."""
    if plan.method != APPEND_ONLY or not swept:
        return plan
    return replace(plan, layout=replace(plan.layout, hard_delete=bool(plan.layout.hard_delete)))


def take_key(stream: StreamProgress, plan: StreamPlan) -> None:
    """Go on with a new key. Raises `DataError` if rows came that can neither be merged by the old one nor wait."""
    if stream.records and OVERWRITE in (stream.method, plan.method):
        hint = f"{_HINT}; or run without --full"
        raise DataError("the key changes within an overwrite", hint=hint, stream=stream.name)
    if stream.method == APPEND_ONLY and stream.waiting:
        what = "a key comes within a run, after rows that have none and that no STATE covers"
        raise DataError(what, hint=_HINT, stream=stream.name)
    stream.plan = plan


def barrier_before(policy: BarrierPolicy, stream: StreamProgress, *, only_at_end: bool) -> Barrier:
    """What commits the stream's rows so far under the STATE of the lake. Raises `DataError` if there may be no commit.

    The latest STATE must have been decided on.
    """
    if only_at_end:
        hint = f"{_HINT}; or leave commit.at: end out"
        raise DataError("the key changes before the only commit of the run", hint=hint, stream=stream.name)
    schemas = {name: one.schema for name, one in policy.streams.items()}
    stream.waiting = False
    stream.versions.clear()
    read = frozenset(one.name for one in policy.streams.values() if one.records)
    return Barrier(
        policy.committed, False, {stream.name: UPSERT}, dict(policy.staged), schemas, False, from_tap=False, read=read
    )
