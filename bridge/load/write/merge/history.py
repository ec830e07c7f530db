"""Makes versions of the rows that come to a table which keeps them, for one range of keys.

It reads the new rows, and all versions that the table has of their keys; which versions there are then, `versions.py`
says. Those that are new, or not as they were, are spilled, to be merged as any rows are: by their key and their start.

Guarantee: memory holds a range of new rows, the versions of its keys, and a row group.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from bridge.load.write.context import WriteContext
from bridge.load.write.keys import lookup, row_numbers
from bridge.load.write.merge.footers import can_hold, group_range, open_parquet
from bridge.load.write.merge.match import KeyRange, MergeSpec, VersionSweep, spilled, with_version, within
from bridge.load.write.merge.versions import VersionMaker, Versions
from bridge.load.write.merge.winners import REMOVED, Keyed
from bridge.load.write.report import SpillFile
from bridge.load.write.spill import ABSENT, HIDDEN, VERSION, Spill
from bridge.protocol.decode.casting import refit
from bridge.protocol.schema.json_schema import VERSION_COLUMN, VersionColumn


@dataclass(frozen=True, slots=True)
class Making:
    """The versions of one range of keys, as a task."""

    keys: KeyRange
    now: int
    """The time of the commit, in microseconds since 1970."""


class Made(Struct):
    """The counts of one range of keys: `rows` = `inserted` + `updated` + `superseded` + `deleted`."""

    rows: int = 0
    inserted: int = 0
    """New versions."""
    updated: int = 0
    """Changes of a version in its place."""
    superseded: int = 0
    """Rows that changed nothing."""
    deleted: int = 0
    """Ends of versions."""
    swept: int = 0
    """Ends of versions whose rows were no longer there."""
    spill: SpillFile | None = None
    """The versions that are new or changed, if any."""

    def add(self, made: Versions) -> None:
        """Count what one call made."""
        self.inserted += made.inserted
        self.updated += made.updated
        self.deleted += made.deleted
        self.swept += made.swept


def make_versions(context: WriteContext, task: Making) -> Made:
    """Make the versions of one range of keys."""
    spec = task.keys.spec
    layout, key, made = context.layouts[spec.stream], spec.key(context), Made()
    assert layout.history
    fields = [*spec.fields, *(pa.field(name, pa.int64()) for name in HIDDEN), ABSENT]
    rows = pa.concat_tables(
        [
            pa.schema(fields).empty_table(),
            *(with_version(refit(one, fields)) for one in spilled(context, task.keys, key)),
        ]
    )
    changes, columns = layout.merges_changes, pa.schema(spec.fields)
    sweep = spec.sweep if isinstance(spec.sweep, VersionSweep) else None
    maker = VersionMaker(layout.history, key, columns, task.now, sweep, merges_extra=changes)
    spill, nothing = Spill(context, spec.stream, _spilled_as(columns), layout.row_key), rows.slice(0, 0)
    before = [columns.empty_table()]
    for of_keys, others in _stored(context, task.keys, key, rows):
        before.append(of_keys)
        if len(others):
            _keep(spill, maker.make(others, nothing), made)
    _keep(spill, maker.make(pa.concat_tables(before), rows), made)
    made.rows = len(rows)
    made.superseded = made.rows - made.inserted - made.updated - made.deleted
    made.spill = spill.finish() if spill.rows else None
    return made


def _spilled_as(columns: pa.Schema) -> pa.Schema:
    return pa.schema([*columns, *(pa.field(name, pa.int64()) for name in HIDDEN), ABSENT, REMOVED])


def _stored(context: WriteContext, task: KeyRange, key: Keyed, rows: pa.Table) -> Iterator[tuple[pa.Table, pa.Table]]:
    """Yield, a row group at a time, the versions that the table has of the new rows' keys; and those of other keys in
    the range that a sweep ends."""
    spec, keys = task.spec, key.of(rows)
    folder = context.layouts[spec.stream].folder
    for _, name, ranges in task.files:
        if spec.sweep is None and not can_hold(keys, ranges):
            continue
        with open_parquet(context, f"{folder}/{name}") as file:
            if not set(key.names) <= set(file.schema_arrow.names):
                continue  # older than the key, as in `match`
            for group in range(file.num_row_groups):
                if spec.sweep is None and not can_hold(keys, group_range(file, group, key.names)):
                    continue
                own = lookup(key.of(file.read_row_group(group, columns=key.names)), keys).is_valid()
                if spec.sweep is None and not pc.any(own).as_py():
                    continue
                stored = refit(file.read_row_group(group), spec.fields)
                yield stored.filter(own), _absent(spec, within(stored.filter(pc.invert(own)), task, key))


def _absent(spec: MergeSpec, rows: pa.Table) -> pa.Table:
    """Those of the versions that are current and that the sweep ends."""
    if spec.sweep is None or VERSION_COLUMN not in rows.column_names:
        return rows.slice(0, 0)
    older = spec.sweep.mask(rows, rows.column(VERSION_COLUMN))
    return rows.filter(pc.and_(older, pc.fill_null(rows.column(VersionColumn.CURRENT), False)))


def _keep(spill: Spill, versions: Versions, made: Made) -> None:
    """Spill the versions that the table gets or loses."""
    made.add(versions)
    for rows, removed in ((versions.written, False), (versions.removed, True)):
        if len(rows):
            spill.add(_with_hidden(rows, removed=removed))


def _with_hidden(rows: pa.Table, *, removed: bool) -> pa.Table:
    """The versions as rows of a spill; no two have one key and start, so they need no order."""
    count = len(rows)
    version: Any = rows.column(VERSION_COLUMN) if VERSION_COLUMN in rows.column_names else pa.nulls(count, pa.int64())
    for name in HIDDEN:
        rows = rows.append_column(pa.field(name, pa.int64()), version if name == VERSION else row_numbers(count))
    rows = rows.append_column(ABSENT, pa.nulls(count, ABSENT.type))
    return rows.append_column(REMOVED, pa.repeat(pa.scalar(removed), count))
