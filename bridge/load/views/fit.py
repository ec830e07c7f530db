"""Does a view fit the columns of its stream? The same words whether Spark says so, or names and types alone do."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import pyarrow as pa

from bridge.errors import SettingsError, did_you_mean
from bridge.load.views.expression_types import ExpressionTypes
from bridge.protocol.schema.json_schema import DELETED_AT
from bridge.settings.sql.transform import quoted_column
from bridge.settings.sql.view import RESERVED, VIEW, Aggregate, Key, View

_CONDITIONS = frozenset({"count_if", "bool_and", "bool_or"})
_NUMBERS = frozenset({"sum", "avg", "percentile"})
_ORDERED = frozenset({"min", "max"})
RESULTS = dict.fromkeys(("count", "count_if", "count_distinct"), pa.int64())
RESULTS |= dict.fromkeys(("bool_and", "bool_or"), pa.bool_())
RESULTS |= {"sum": pa.decimal128(38, 0), "avg": pa.float64(), "percentile": pa.float64()}
"""The types of aggregates that are not those of their arguments; of decimals only that they are ones."""
_UNITS = {"microsecond", "millisecond", "second", "minute", "hour", "day", "dayofyear", "week", "month", "quarter"}
_UNITS |= {"year"}
"""Words that `View.needs` may have although they are no columns."""


def check_fit(view: View, columns: pa.Schema) -> None:
    """Raise `SettingsError` as a run would, for all that is certain without Spark; what is not is passed."""
    check_names(view, columns.names)
    absent = [name for name in missing(view, columns.names) if name.lower() not in _UNITS]
    if absent := [name for name in absent if not name.lower().startswith(RESERVED)]:  # a tap may add such columns
        raise no_column(view, columns.names, absent[0])
    types = ExpressionTypes(columns, view.alias)
    for item in view.items:
        if isinstance(item, Key):
            check_key(types.of(item.text), item.name, view)
        else:
            check_types(item, [types.of(text) for text in item.arguments], view)


def outline(view: View, columns: pa.Schema) -> pa.Schema:
    """The view's own columns, for a view of it: of type null, and of decimals any, where that is not certain."""
    types, fields = ExpressionTypes(columns, view.alias), []
    for item in view.items:
        if isinstance(item, Key):
            type_ = types.of(item.text)
        else:
            type_ = RESULTS.get(item.function) or types.of(item.arguments[0])
        fields.append(pa.field(item.name, type_ or pa.null()))
    return pa.schema(fields)


def check_names(view: View, columns: Collection[str]) -> None:
    """Raise `SettingsError` for names that mean something else in the view than they do in the stream."""
    facts = {"view": view.name, "stream": view.stream}
    view.check_names(columns, **facts)
    if error := quoted_column(view.text, columns, VIEW, **facts):
        raise error


def missing(view: View, columns: Collection[str]) -> list[str]:
    """The names of the stream's columns that the view reads, and that are not among these."""
    existing = {name.lower() for name in columns}
    return [name for name in view.needs if name.lower() not in existing]


def no_column(view: View, columns: Sequence[str], name: str) -> SettingsError:
    """The error for a column that the stream lacks."""
    hint = did_you_mean(name, columns) or f"its columns are: {', '.join(columns)}"
    if name.lower() == DELETED_AT:
        hint = "its rows are never marked as deleted: leave the condition out, or set add_record_metadata: true"
    facts = {"view": view.name, "stream": view.stream, "column": name}
    return SettingsError("the view needs a column that the stream does not have", hint=hint, **facts)


def check_key(type_: pa.DataType | None, name: str, view: View) -> None:
    """Raise `SettingsError` for a key by which the view's files cannot be sorted and read. None: not known."""
    if type_ is None:
        return
    if pa.types.is_nested(type_):
        hint = "select a field of it, or make it text with to_json(...)"
        raise VIEW.refused("a struct or a list is no key", hint, view=view.name, column=name)
    if pa.types.is_floating(type_):
        hint = f"write CAST({name} AS DECIMAL(38, 9)) AS {name}, and its place in GROUP BY"
        raise VIEW.refused("a float is no key", hint, view=view.name, column=name)


def check_types(item: Aggregate, types: Sequence[pa.DataType | None], view: View) -> None:
    """Raise `SettingsError` for a type that the aggregate does not take. None: not known."""
    first, ordering, reason, hint = types[0], types[-1], "", "cast it"
    if item.function in _NUMBERS and first is not None:
        hint = f"write {item.function}(CAST({item.arguments[0]} AS DECIMAL(38, 9))"
        hint += f", {item.arguments[1]})" if item.function == "percentile" else ")"
        is_float = pa.types.is_floating(first)
        if is_float and item.function != "percentile":
            reason = f"{item.function} of a float depends on the order of the rows"
        elif not is_float and not pa.types.is_integer(first) and not pa.types.is_decimal(first):
            reason = f"{item.function} takes numbers"
    elif item.function in _CONDITIONS and first is not None and not pa.types.is_boolean(first):
        reason, hint = f"{item.function} takes a condition", f"write {item.function}({item.arguments[0]} > 0), say"
    elif item.function[:3] in _ORDERED and ordering is not None and pa.types.is_nested(ordering):
        reason, hint = f"{item.function} orders by single values only", "select a field of it"
    if reason:
        raise VIEW.refused(reason, hint, view=view.name, column=item.name)
