"""Who wins among rows of one key: the last one in the order of the tap's messages.

A deletion updates, everything else replaces: what the record of a deletion does not say stays as it was, in its batch
as against the table, so that the result does not depend on where a batch ended. Hence a deletion whose row is not in
the batch is *partial*, and takes what it lacks from the table. So is a change that lacks columns (`ABSENT`): a null
that it says is one, where a deletion's null says nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from bridge.write.keys import codes_of, keys_of
from bridge.write.spill import ABSENT, HIDDEN, ORDER

DELETED = "_sdc_deleted_at"
"""The Singer SDK's column that says when a row was deleted."""
PARTIAL = "\x1fpartial"
"""Hidden: whether a row is a deletion or a change that lacks what it does not say."""


@dataclass(frozen=True, slots=True)
class Keyed:
    """Columns of a table's key."""

    fields: Sequence[pa.Field]

    @property
    def names(self) -> list[str]:
        """The columns' names."""
        return [field.name for field in self.fields]

    def of(self, table: pa.Table) -> pa.Table:
        """Return the keys of rows."""
        return keys_of(table, self.fields)


def is_deleted(table: pa.Table) -> pa.Array:
    """Return which rows the tap says are deleted."""
    if DELETED not in table.column_names:
        return pc.invert(pc.is_in(pa.nulls(len(table)), pa.nulls(1)))
    column = table.column(DELETED).combine_chunks()
    said = pc.is_valid(column)
    if pa.types.is_string(column.type):  # where the SCHEMA has it as text
        said = pc.and_(said, pc.fill_null(pc.not_equal(column, ""), False))
    return said


def marked(table: pa.Table, *, hard: bool) -> pa.Table:
    """Return rows of a spill with the hidden column `PARTIAL`: where rows are to go, no deletion is."""
    deleted = is_deleted(table)
    absent = table.column(ABSENT.name).combine_chunks()
    absent = pc.if_else(deleted, pa.scalar(None, ABSENT.type), absent)
    table = table.set_column(table.schema.get_field_index(ABSENT.name), ABSENT, absent)
    sparse = pc.is_valid(absent)
    return table.append_column(PARTIAL, sparse if hard else pc.or_(deleted, sparse))


def lacks(rows: pa.Table, name: str) -> pa.Array:
    """Return of which rows the record lacks a column: those that say which, and deletions without a value in it."""
    absent = rows.column(ABSENT.name).combine_chunks()
    named = pc.list_parent_indices(absent).filter(pc.equal(pc.list_flatten(absent), name))
    listed = pc.is_in(pa.array(range(len(rows)), pa.int64()), value_set=named.cast(pa.int64()))
    silent = pc.and_(is_deleted(rows), pc.is_null(rows.column(name).combine_chunks()))
    return pc.if_else(pc.is_valid(absent), listed, silent)


def compact_chunk(rows: pa.Table, key: Keyed) -> pa.Table:
    """Return those of a part of the rows that still count when the others come, which may lie before, between or after.

    That is of each key the last whole row, and the deletions after it: what these lack, another part may say.
    """
    rows = _in_order(rows)
    groups = _groups(rows, key)
    found = groups.group_by("key").aggregate([("whole", "max")])
    place = pc.index_in(groups.column("key").combine_chunks(), value_set=found.column("key").combine_chunks())
    since = pc.fill_null(found.column("whole_max").combine_chunks().take(place), -1)
    return rows.filter(pc.greater_equal(groups.column("at").combine_chunks(), since))


def latest_per_key(rows: pa.Table, key: Keyed) -> pa.Table:
    """Return one row a key, in the order of messages, of all of the rows, or of what was `compact_chunk` of them."""
    rows = _in_order(rows)
    groups = _groups(rows, key)
    found = groups.group_by("key").aggregate([("at", "max"), ("whole", "max")]).sort_by("at_max")
    last = found.column("at_max").combine_chunks()
    winners = rows.take(last)
    chains = found.filter(winners.column(PARTIAL))  # keys that end as deletions, which lack what came before
    if not len(chains) or len(winners) == len(rows):
        return winners
    return _filled(rows, last, groups, chains, key)


def _in_order(rows: pa.Table) -> pa.Table:
    return rows.take(pc.sort_indices(rows.select(ORDER), sort_keys=[(name, "ascending") for name in ORDER]))


def _groups(rows: pa.Table, key: Keyed) -> pa.Table:
    """Return of each row its key, its place, and its place again if it is a whole row."""
    at = pa.array(range(len(rows)), pa.int64())
    whole = pc.if_else(rows.column(PARTIAL).combine_chunks(), None, at)
    return pa.table({"key": codes_of(key.of(rows)), "at": at, "whole": whole})


def _filled(rows: pa.Table, last: pa.Array, groups: pa.Table, chains: pa.Table, key: Keyed) -> pa.Table:
    """Return the winners, partial ones filled with what the rows since their key's last whole row say."""
    chain = pc.index_in(groups.column("key").combine_chunks(), value_set=chains.column("key").combine_chunks())
    since = pc.fill_null(chains.column("whole_max").combine_chunks(), -1).take(chain)
    at = groups.column("at").combine_chunks()
    member = pc.fill_null(pc.greater_equal(at, since), False)
    at, chain = at.filter(member), chain.filter(member)
    ends = pc.index_in(chains.column("at_max").combine_chunks(), value_set=last)
    place = pc.index_in(pa.array(range(len(last)), pa.int32()), value_set=ends)
    winners, open_ = rows.take(last), pc.is_null(chains.column("whole_max").combine_chunks())
    columns = {name: winners.column(name) for name in winners.column_names}
    members = rows.take(at)
    # A deletion that is not partial ended its row: what the row had before it says nothing of one that comes after.
    ended = pc.and_(is_deleted(members), pc.invert(members.column(PARTIAL).combine_chunks()))
    changed = _changed(members, chain, len(chains), open_)
    unsaid: dict[int, list[str]] = {number: [] for number in pc.indices_nonzero(changed).to_pylist()}
    for name in winners.column_names:
        if name in (*HIDDEN, ABSENT.name, PARTIAL) or name in key.names:
            continue
        says = pc.invert(pc.or_(ended, lacks(members, name)))
        latest = _latest(at.filter(says), chain.filter(says), len(chains))
        columns[name] = _chosen(rows.column(name), latest, winners.column(name), place)
        for silent in pc.indices_nonzero(pc.and_(changed, pc.is_null(latest))).to_pylist():
            unsaid[silent].append(name)
    absent = pa.array([unsaid.get(number) for number in range(len(chains))], ABSENT.type)
    columns[PARTIAL] = pc.coalesce(open_.take(place), winners.column(PARTIAL))
    columns[ABSENT.name] = absent.take(place)
    return pa.table(list(columns.values()), schema=winners.schema)


def _changed(members: pa.Table, chain: pa.Array, count: int, open_: pa.Array) -> pa.Array:
    """Return which chains lack columns that a change, and not only a deletion, leaves to the table."""
    sparse = pc.is_valid(members.column(ABSENT.name).combine_chunks())
    return pc.and_(open_, pc.is_in(pa.array(range(count), pa.int32()), value_set=chain.filter(sparse)))


def _latest(at: pa.Array, chain: pa.Array, count: int) -> pa.Array:
    """Return for each chain the place of its last row among these, null where it has none."""
    found = pa.table({"chain": chain, "at": at}).group_by("chain").aggregate([("at", "max")])
    where = pc.index_in(pa.array(range(count), pa.int32()), value_set=found.column("chain").combine_chunks())
    return found.column("at_max").combine_chunks().take(where)


def _chosen(column: pa.ChunkedArray, latest: pa.Array, winners: pa.ChunkedArray, place: pa.Array) -> pa.ChunkedArray:
    """Return the winners' column where those of a chain have the latest value in it."""
    # of two columns one after the other: what a chain found, else the winner's own
    both = pa.chunked_array([*column.chunks, *winners.chunks], column.type)
    own = pa.array(range(len(column), len(column) + len(winners)), pa.int64())
    return both.take(pc.coalesce(latest.take(place), own))
