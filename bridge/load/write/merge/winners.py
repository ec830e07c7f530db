"""Which row of a key wins: the last one in the order of the tap's messages.

A deletion updates its row, any other record replaces it. Columns that the record of a deletion lacks keep their values.
This holds among the new rows as well as against the table, so the result does not depend on where a commit ended. A
deletion whose row is not among the new ones is *partial*: it takes what it lacks from the table. A change that lacks
columns (`ABSENT`) is partial, too. A null in a change is a value; a null in a deletion means that the column is
lacking.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from bridge.load.write.keys import codes_of, keys_of, row_numbers
from bridge.load.write.merge.extra import fold_extra
from bridge.load.write.spill import ABSENT, HIDDEN, ORDER
from bridge.protocol.schema.json_schema import DELETED_AT, EXTRA

REMOVED = pa.field("\x1fremoved", pa.bool_())
"""A hidden column of versions: whether the table loses the row."""
PARTIAL = "\x1fpartial"
"""A hidden column: whether a row takes what it lacks from the row before it."""


@dataclass(frozen=True, slots=True)
class Keyed:
    """The columns of a table's key."""

    fields: Sequence[pa.Field]

    @property
    def names(self) -> list[str]:
        return [field.name for field in self.fields]

    def of(self, table: pa.Table) -> pa.Table:
        return keys_of(table, self.fields)


def is_deleted(table: pa.Table) -> pa.Array:
    """Which rows the tap reports as deleted."""
    if REMOVED.name in table.column_names:
        return table.column(REMOVED.name).combine_chunks()
    if DELETED_AT not in table.column_names:
        return pa.repeat(False, len(table))
    column = table.column(DELETED_AT).combine_chunks()
    if pa.types.is_string(column.type):  # where the SCHEMA has it as text
        return pc.fill_null(pc.not_equal(column, ""), False)
    if pa.types.is_boolean(column.type):
        return pc.fill_null(column, False)
    return pc.is_valid(column)


def mark_partial(table: pa.Table, *, hard: bool) -> pa.Table:
    """Add the hidden column `PARTIAL` to rows of a spill. With `hard` deletions remove rows, so none is partial."""
    deleted = is_deleted(table)
    absent = table.column(ABSENT.name).combine_chunks()
    absent = pc.if_else(deleted, pa.scalar(None, ABSENT.type), absent)
    table = table.set_column(table.schema.get_field_index(ABSENT.name), ABSENT, absent)
    sparse = pc.is_valid(absent)
    return table.append_column(PARTIAL, sparse if hard else pc.or_(deleted, sparse))


def lacks(rows: pa.Table, name: str) -> pa.Array:
    """Which rows lack a column: changes that list it, and deletions without a value in it."""
    absent = rows.column(ABSENT.name).combine_chunks()
    named = pc.list_parent_indices(absent).filter(pc.equal(pc.list_flatten(absent), name))
    listed = pc.is_in(row_numbers(len(rows)), value_set=named.cast(pa.int64()))
    silent = pc.and_(is_deleted(rows), pc.is_null(rows.column(name).combine_chunks()))
    return pc.if_else(pc.is_valid(absent), listed, silent)


def compact_chunk(rows: pa.Table, key: Keyed) -> pa.Table:
    """Keep the rows of a chunk that may still count. Other chunks may be older, newer or in between.

    For each key these are the last whole row and the partial rows after it: another chunk may have what they lack.
    """
    rows = in_order(rows)
    groups = _groups(rows, key)
    last = groups.group_by("key").aggregate([("whole", "max")])
    place = pc.index_in(groups.column("key").combine_chunks(), value_set=last.column("key").combine_chunks())
    since = pc.fill_null(last.column("whole_max").combine_chunks().take(place), -1)
    return rows.filter(pc.greater_equal(groups.column("at").combine_chunks(), since))


def latest_per_key(rows: pa.Table, key: Keyed) -> pa.Table:
    """One row a key, in the order of messages. `rows` are all rows of these keys, or all compacted chunks of them."""
    rows = in_order(rows)
    groups = _groups(rows, key)
    keys = groups.group_by("key").aggregate([("at", "max"), ("whole", "max")]).sort_by("at_max")
    last = keys.column("at_max").combine_chunks()
    winners = rows.take(last)
    chains = keys.filter(winners.column(PARTIAL))
    if not len(chains) or len(winners) == len(rows):
        return winners
    return _filled(rows, last, groups, chains, key)


def in_order(rows: pa.Table) -> pa.Table:
    """The rows in the order of messages."""
    return rows.take(pc.sort_indices(rows.select(ORDER), sort_keys=[(name, "ascending") for name in ORDER]))


def _groups(rows: pa.Table, key: Keyed) -> pa.Table:
    """For each row its key, its place, and its place once more if the row is whole."""
    at = row_numbers(len(rows))
    whole = pc.if_else(rows.column(PARTIAL).combine_chunks(), None, at)
    return pa.table({"key": codes_of(key.of(rows)), "at": at, "whole": whole})


def _filled(rows: pa.Table, last: pa.Array, groups: pa.Table, chains: pa.Table, key: Keyed) -> pa.Table:
    """The winners; partial ones take what they lack from the rows since their key's last whole row."""
    chain = pc.index_in(groups.column("key").combine_chunks(), value_set=chains.column("key").combine_chunks())
    since = pc.fill_null(chains.column("whole_max").combine_chunks(), -1).take(chain)
    at = groups.column("at").combine_chunks()
    member = pc.fill_null(pc.greater_equal(at, since), False)
    at, chain = at.filter(member), chain.filter(member)
    ends = pc.index_in(chains.column("at_max").combine_chunks(), value_set=last)
    place = pc.index_in(row_numbers(len(last)), value_set=ends.cast(pa.int64()))
    winners, open_ = rows.take(last), pc.is_null(chains.column("whole_max").combine_chunks())
    columns = {name: winners.column(name) for name in winners.column_names}
    members = rows.take(at)
    # A deletion that is not partial ended its row: what the row had before means nothing for one that comes after.
    ended = pc.and_(is_deleted(members), pc.invert(members.column(PARTIAL).combine_chunks()))
    changed = _changed(members, chain, len(chains), open_)
    if EXTRA in rows.column_names:
        extra = fold_extra(members, chain, ended, is_deleted(members), len(chains)).take(place)
        columns[EXTRA] = pc.if_else(pc.is_valid(place), extra, winners.column(EXTRA))
    lacking: dict[int, list[str]] = {number: [] for number in pc.indices_nonzero(changed).to_pylist()}
    for name in winners.column_names:
        if name in (*HIDDEN, ABSENT.name, PARTIAL, EXTRA) or name in key.names:
            continue
        has = pc.invert(pc.or_(ended, lacks(members, name)))
        latest = _latest(at.filter(has), chain.filter(has), len(chains))
        columns[name] = _chosen(rows.column(name), latest, winners.column(name), place)
        for silent in pc.indices_nonzero(pc.and_(changed, pc.is_null(latest))).to_pylist():
            lacking[silent].append(name)
    absent = pa.array([lacking.get(number) for number in range(len(chains))], ABSENT.type)
    columns[PARTIAL] = pc.coalesce(open_.take(place), winners.column(PARTIAL))
    columns[ABSENT.name] = absent.take(place)
    return pa.table(list(columns.values()), schema=winners.schema)


def _changed(members: pa.Table, chain: pa.Array, count: int, open_: pa.Array) -> pa.Array:
    """Which chains contain a change that leaves columns to the table, and not only deletions."""
    sparse = pc.is_valid(members.column(ABSENT.name).combine_chunks())
    return pc.and_(open_, pc.is_in(row_numbers(count), value_set=chain.filter(sparse).cast(pa.int64())))


def _latest(at: pa.Array, chain: pa.Array, count: int) -> pa.Array:
    """For each chain the place of its last row among these, null without one."""
    last = pa.table({"chain": chain, "at": at}).group_by("chain").aggregate([("at", "max")])
    chains = last.column("chain").combine_chunks().cast(pa.int64())
    where = pc.index_in(row_numbers(count), value_set=chains)
    return last.column("at_max").combine_chunks().take(where)


def _chosen(column: pa.ChunkedArray, latest: pa.Array, winners: pa.ChunkedArray, place: pa.Array) -> pa.ChunkedArray:
    """The winners' column, with the latest value of the chain for those that belong to one."""
    both = pa.chunked_array([*column.chunks, *winners.chunks], column.type)
    own = row_numbers(len(winners), first=len(column))
    return both.take(pc.coalesce(latest.take(place), own))
