"""How an Iceberg table says by what its files are partitioned and sorted.

Guarantee: a file has a partition only if its own footer proves that all of its rows have the same value. Any other
file, such as one in which an older version put null beside the empty text, is listed without a partition. And a file
has an order only if all of its rows are in it.

The partitions are those of the commit log; the order is that of the files which come. Specs and orders that the table
has had stay in its metadata, because files of before are listed under them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyiceberg.io.fileformat import DataFileStatistics
    from pyiceberg.partitioning import PartitionSpec
    from pyiceberg.schema import Schema
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.sorting import SortOrder
    from pyiceberg.typedef import Record

_FIRST_FIELD = 1000
"""The lowest number that a field of a partition has."""
_ODD = re.compile(r"^(?=\d)|\W", re.ASCII)
"""Matches what names in Avro cannot have."""


def _partition(setting: Any) -> tuple[str, str]:
    """A column and Iceberg's transform of it, by an entry of `partition_by`."""
    return (setting, "identity") if isinstance(setting, str) else (setting["column"], setting["granularity"])


def is_partitioned_by(metadata: TableMetadata, partition_by: Sequence[Any]) -> bool:
    """Whether a table has no partitions, or those of the commit log."""
    fields = metadata.spec().fields
    names = {column.field_id: column.name for column in metadata.schema().fields}
    current = [(names.get(one.source_id), str(one.transform)) for one in fields]
    return not fields or current == [_partition(one) for one in partition_by]


@dataclass(slots=True)
class IcebergLayout:
    """The specs and orders of a table, and those that one commit adds. Not for several threads at once."""

    schema: Schema
    """The columns after the commit."""
    schemas: Sequence[Schema]
    """The schemas that the table has had."""
    specs: list[PartitionSpec]
    orders: list[SortOrder]
    last_field: int
    """The highest number of a partition's field."""
    spec: PartitionSpec = field(init=False)
    """By what the commit's files are partitioned."""
    order: SortOrder = field(init=False)
    """The table's order after the commit."""
    _old: TableMetadata | None = None

    @classmethod
    def of(cls, old: TableMetadata | None, schema: Schema, partition_by: Sequence[Any]) -> IcebergLayout:
        """The layout of a commit that adds no file yet."""
        layout = cls(
            schema,
            old.schemas if old else (),
            list(old.partition_specs) if old else [],
            list(old.sort_orders) if old else [],
            (old.last_partition_id if old else None) or _FIRST_FIELD - 1,
            old,
        )
        layout.spec = layout.flat
        ids = {column.name: column.field_id for column in schema.fields}
        by = [_partition(one) for one in partition_by]
        if all(column in ids for column, _ in by):
            layout.spec = layout._spec([(ids[column], column, transform) for column, transform in by])
        default = old.sort_order_by_id(old.default_sort_order_id) if old else None
        retains = default and all(one.source_id in schema.field_ids for one in default.fields)
        layout.order = default if default and retains else layout._order([])
        return layout

    @property
    def flat(self) -> PartitionSpec:
        """The spec of files that have no partition."""
        return self._spec([])

    def _spec(self, by: list[tuple[int, str, str]]) -> PartitionSpec:
        """The spec of these columns and transforms: the table's own, or a new one."""
        from pyiceberg.partitioning import PartitionField, PartitionSpec
        from pyiceberg.transforms import parse_transform

        parts = [(source, parse_transform(transform)) for source, _, transform in by]
        for spec in reversed(self.specs):
            if [(one.source_id, one.transform) for one in spec.fields] == parts:
                return spec
        fields = []
        for (source, transform), (_, column, _) in zip(parts, by, strict=True):
            earlier = (one for spec in self.specs for one in spec.fields)
            same = next((one for one in earlier if (one.source_id, one.transform) == (source, transform)), None)
            if same is None:
                self.last_field += 1
                name = self._free_name(column if str(transform) == "identity" else f"{column}_{transform}", column)
                same = PartitionField(source, self.last_field, transform, name)
            fields.append(same)
        number = max((spec.spec_id for spec in self.specs), default=-1) + 1
        self.specs.append(PartitionSpec(*fields, spec_id=number))
        return self.specs[-1]

    def _free_name(self, name: str, column: str) -> str:
        """A name for a partition's field that no other column, and no field of another spec, has."""
        taken = {one.name.casefold() for spec in self.specs for one in spec.fields}
        taken |= {one.name.casefold() for one in self.schema.fields if one.name != column}
        free = plain = _ODD.sub("_", name)
        number = 1
        while free.casefold() in taken:
            number += 1
            free = f"{plain}_{number}"
        return free

    def _order(self, fields: list[Any]) -> SortOrder:
        from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, SortOrder

        for order in self.orders:
            if list(order.fields) == fields:
                return order
        number = max((order.order_id for order in self.orders), default=0) + 1
        self.orders.append(SortOrder(*fields, order_id=number) if fields else UNSORTED_SORT_ORDER)
        return self.orders[-1]

    def order_of(self, sort_by: Sequence[str]) -> SortOrder:
        """The order of the setting `sort_by`: the table's own, or a new one. Unsorted if it lacks a column."""
        from pyiceberg.table.sorting import NullOrder, SortDirection, SortField
        from pyiceberg.transforms import IdentityTransform

        columns = {column.name: column for column in self.schema.fields if column.field_type.is_primitive}
        names = [(key.removeprefix("-"), key.startswith("-")) for key in sort_by]
        if not all(name in columns for name, _ in names):
            return self._order([])
        ways = {True: SortDirection.DESC, False: SortDirection.ASC}
        return self._order(
            [
                SortField(columns[name].field_id, IdentityTransform(), ways[down], NullOrder.NULLS_LAST)
                for name, down in names
            ]
        )

    def is_total(self, order: SortOrder) -> bool:
        """Whether our writer sorts by it as Iceberg does: NaN and the two zeros have another place."""
        from pyiceberg.types import DoubleType

        return not any(isinstance(self.schema.find_type(one.source_id), DoubleType) for one in order.fields)

    def partition_of(self, statistics: DataFileStatistics) -> Record | None:
        """The one partition of a file's rows. None if the footer does not prove that there is one."""
        for one in self.spec.fields:
            nulls = statistics.null_value_counts.get(one.source_id)
            bounds = statistics.column_aggregates.get(one.source_id)
            if bounds is None or nulls not in (0, statistics.record_count):
                return None
            if nulls == 0 and (bounds.current_min is None or bounds.current_max is None):
                return None
        try:
            return statistics.partition(self.spec, self.schema)
        except ValueError:  # several values
            return None

    def spec_by_id(self, number: int) -> tuple[PartitionSpec, Schema]:
        """A spec, and columns of the table that have all of its sources."""
        spec = next(one for one in self.specs if one.spec_id == number)
        sources = {one.source_id for one in spec.fields}
        having = (one for one in (self.schema, *reversed(self.schemas)) if sources <= one.field_ids)
        return spec, next(having, self.schema)

    def updates(self) -> list[Any]:
        """The updates of partitions and order. They follow the columns: Iceberg's own catalogs look them up there."""
        from pyiceberg.table import update as say

        old = self._old
        specs = {one.spec_id for one in old.partition_specs} if old else set()
        orders = {one.order_id for one in old.sort_orders} if old else set()
        new_orders: list[dict[str, Any]] = [{"sort-order": one} for one in self.orders if one.order_id not in orders]
        default_spec: dict[str, Any] = {"spec-id": self.spec.spec_id}
        default_order: dict[str, Any] = {"sort-order-id": self.order.order_id}
        updates: list[Any] = [say.AddPartitionSpecUpdate(spec=one) for one in self.specs if one.spec_id not in specs]
        if old is None or old.default_spec_id != self.spec.spec_id:
            updates.append(say.SetDefaultSpecUpdate(**default_spec))
        updates += [say.AddSortOrderUpdate(**one) for one in new_orders]
        if old is None or old.default_sort_order_id != self.order.order_id:
            updates.append(say.SetDefaultSortOrderUpdate(**default_order))
        return updates

    def requirements(self) -> list[Any]:
        """The requirements of `updates`: the numbers of specs and orders are still those that were read."""
        from pyiceberg.table import update as say

        old = self._old
        if old is None or not self.updates():
            return []
        spec: dict[str, Any] = {"default-spec-id": old.default_spec_id}
        field_: dict[str, Any] = {"last-assigned-partition-id": old.last_partition_id}
        order: dict[str, Any] = {"default-sort-order-id": old.default_sort_order_id}
        return [
            say.AssertDefaultSpecId(**spec),
            say.AssertLastAssignedPartitionId(**field_),
            say.AssertDefaultSortOrderId(**order),
        ]
