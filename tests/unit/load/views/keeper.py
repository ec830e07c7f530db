"""A view that a test keeps in memory, with the SQL of `bridge/load/views/algebra.py`: what a commit does with files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from bridge.load.spark.types import spark_schema
from bridge.load.spark.view_types import analysed
from bridge.load.views.algebra import RECOMPUTE, merge_sql, partial_sql
from bridge.load.views.merge import can_merge, merge_groups
from bridge.settings.sql.view import read_view

SIGN = "sign"
Row = tuple[Any, ...]


class Keeper:
    """`state` is the view's table, `rows` the rows of the stream's table."""

    def __init__(self, spark: SparkSession, text: str, columns: pa.Schema) -> None:
        self.spark, self.columns = spark, columns
        self.typed = analysed(spark, read_view("v", text), columns)
        self.rows: list[Row] = []
        self.state = pa.table({field.name: pa.array([], field.type) for field in self.typed.schema})
        self.recomputed = 0

    def change(self, added: Sequence[Row], removed: Sequence[Row]) -> None:
        """One commit: these rows come, these go. Groups that lost their extreme are computed from the table."""
        for row in removed:
            self.rows.remove(row)
        self.rows += added
        signed = [(*row, 1) for row in added] + [(*row, -1) for row in removed]
        self._rows("changed", signed)
        self._show("groups", self.state)
        merged = self._merged("changed", state="groups")
        self._check_merge(merged)
        again = merged.filter(merged[RECOMPUTE])
        if again.num_rows:
            self.recomputed += again.num_rows
            self._rows("everything", [(*row, 1) for row in self.rows])
            self._show("again", again.select(list(self.typed.view.keys)))
            anew = self._merged("everything", only="again")
            merged = pa.concat_tables([merged.filter(pc.invert(merged[RECOMPUTE])), anew])
        self.state = merged.drop_columns(RECOMPUTE)

    def _check_merge(self, merged: pa.Table) -> None:
        """What Spark has merged is what is merged without it, of groups that change."""
        if not can_merge(self.typed):
            return
        names = list(self.typed.view.keys)
        partials = self.spark.table("partials").toArrow()
        keys = {repr(row) for row in partials.select(names).to_pylist()}
        state, expected = (
            table.filter(pa.array([repr(row) in keys for row in table.select(names).to_pylist()], pa.bool_()))
            for table in (self.state, merged)
        )
        assert rows_of(merge_groups(self.typed, partials, state)) == rows_of(expected)

    def from_scratch(self) -> pa.Table:
        """The view's table, computed from all rows."""
        self._rows("everything", [(*row, 1) for row in self.rows])
        merged = self._merged("everything")
        assert not any(merged[RECOMPUTE].to_pylist())
        return merged.drop_columns(RECOMPUTE)

    def table(self) -> pa.Table:
        """The rows of the stream's table."""
        columns = list(zip(*self.rows, strict=True)) or [()] * len(self.columns)
        return pa.table(
            [pa.array(values, field.type) for values, field in zip(columns, self.columns, strict=True)],
            schema=self.columns,
        )

    def _merged(self, source: str, state: str | None = None, only: str | None = None) -> pa.Table:
        partials = self.spark.sql(partial_sql(self.typed, source, SIGN, only=only))
        partials.createOrReplaceTempView("partials")
        return self._arrow(merge_sql(self.typed, "partials", state))

    def _arrow(self, sql: str) -> pa.Table:
        result = self.spark.sql(sql).toArrow()
        assert result.schema.names == [*self.typed.schema.names, RECOMPUTE]
        types = pa.schema([*self.typed.schema, pa.field(RECOMPUTE, pa.bool_())])
        assert [field.type for field in result.schema] == [field.type for field in types]
        return result.cast(types)

    def _rows(self, name: str, rows: list[Row]) -> None:
        schema = spark_schema(self.columns.append(pa.field(SIGN, pa.int64())))
        self.spark.createDataFrame(rows, schema).createOrReplaceTempView(name)

    def _show(self, name: str, table: pa.Table) -> None:
        self.spark.createDataFrame(table, spark_schema(table.schema)).createOrReplaceTempView(name)


def rows_of(table: pa.Table) -> list[str]:
    """The rows of a table, in an order of their own; NaN equals itself."""
    return sorted(map(repr, table.to_pylist()))
