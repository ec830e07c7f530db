"""What types the columns of a view have, by Spark's own analyzer; and what only that can refuse."""

from __future__ import annotations

import uuid
from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.errors import PySparkException

from bridge.errors import SettingsError, did_you_mean
from bridge.schema.json_schema import DELETED_AT
from bridge.settings.transform_sql import quoted, quoted_column
from bridge.settings.view_sql import VIEW, Aggregate, Key, View, ambiguous
from bridge.spark.transform import check_plan, first_line
from bridge.spark.types import arrow_field, spark_schema
from bridge.views.algebra import TypedView, arguments_sql, table_schema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_FIXED = {"spark.sql.session.timeZone": "UTC", "spark.sql.ansi.enabled": "true"}
_TUNING = tuple(
    f"spark.sql.{name}"
    for name in (
        *("shuffle.", "adaptive.", "codegen.", "execution.", "files.", "sources.", "streaming.", "join."),
        *("inMemoryColumnarStorage.", "objectHashAggregate.", "autoBroadcastJoinThreshold", "broadcastTimeout"),
        "artifact.",  # Spark's own: by it executors find what was shipped to them
    )
)
"""Settings of Spark SQL that hold for views, too: they change how Spark works, and no result."""
_CONDITIONS = frozenset({"count_if", "bool_and", "bool_or"})
_ORDERED = frozenset({"min", "max"})


@lru_cache(maxsize=1)
def view_session(spark: SparkSession) -> SparkSession:
    """A session beside the run's own in which all views are computed, whatever the settings say of Spark.

    Its time zone and its ANSI mode are fixed, so that changed Spark settings never change what a view holds.
    """
    session = spark.newSession()
    for name, _ in spark.sparkContext.getConf().getAll():
        if name.startswith("spark.sql.") and not name.startswith(_TUNING):
            with suppress(PySparkException):  # one that cannot be changed any more
                session.conf.unset(name)
    for name, value in _FIXED.items():
        session.conf.set(name, value)
    return session


def analysed(spark: SparkSession, view: View, columns: pa.Schema) -> TypedView:
    """The view over a stream whose table has these columns.

    Raises `SettingsError` with Spark's message or our reason: a column that the stream does not have, a type that the
    aggregate does not take, an expression that is not the same each time.
    """
    facts = {"view": view.name, "stream": view.stream}
    if clash := next((one for one in view.by_name if one.lower() in map(str.lower, columns.names)), None):
        raise ambiguous(clash, **facts)
    if error := quoted_column(view.text, columns.names, VIEW, **facts):
        raise error
    source, spark = f"singer_bridge_{uuid.uuid4().hex}", view_session(spark)
    try:
        rows = spark.createDataFrame([], spark_schema(pa.schema(needed_columns(view, columns))))
        rows.createOrReplaceTempView(source)
        frame = spark.sql(arguments_sql(view, source))
        check_plan(frame._jdf.queryExecution().analyzed(), VIEW, facts)
        fields = iter(frame.schema)
    except PySparkException as error:
        raise _misfit(error, view, columns) from None
    finally:
        spark.catalog.dropTempView(source)
    keys: dict[str, pa.Field] = {}
    arguments: dict[str, tuple[pa.DataType, ...]] = {}
    for item in view.items:
        if isinstance(item, Key):
            keys[item.name] = _field(next(fields), item, view)
            _check_key(keys[item.name].type, item.name, view)
        else:
            types = tuple(_field(next(fields), item, view).type for _ in item.arguments)
            _check_types(item, types, view)
            arguments[item.name] = types
    return TypedView(view, table_schema(view, keys, arguments))


def needed_columns(view: View, columns: pa.Schema) -> list[pa.Field]:
    """The columns of the stream's table that the view reads."""
    by_name = {field.name.lower(): field for field in columns}
    return [by_name[name.lower()] for name in view.needs if name.lower() in by_name]


def plain_keys(typed: TypedView, columns: pa.Schema) -> dict[str, pa.Field]:
    """The keys of the view that are columns of the stream's table as they are, each with that column."""
    view, result = typed.view, dict[str, pa.Field]()
    fields = needed_columns(view, columns)
    for item in (item for item in view.items if isinstance(item, Key)):
        for field in fields:
            texts = [field.name, quoted(field.name)]
            texts += [f"{alias}.{text}" for alias in (view.alias, quoted(view.alias)) for text in texts]
            same = field.type == typed.schema.field(item.name).type
            if same and item.text.lower() in map(str.lower, texts):
                result[item.name] = field
    return result


def _misfit(error: PySparkException, view: View, columns: pa.Schema) -> SettingsError:
    facts = {"view": view.name, "stream": view.stream}
    names = [name for name in view.needs if name.lower() not in map(str.lower, columns.names)]
    if "UNRESOLVED" not in str(error) or not names:
        return SettingsError("the view does not fit the stream", hint=first_line(error), **facts)
    hint = did_you_mean(names[0], columns.names) or f"its columns are: {', '.join(columns.names)}"
    if names[0].lower() == DELETED_AT:
        hint = "its rows are never marked as deleted: leave the condition out, or set add_record_metadata: true"
    return SettingsError("the view needs a column that the stream does not have", hint=hint, **facts, column=names[0])


def _field(made: Any, item: Key | Aggregate, view: View) -> pa.Field:
    """A key or an argument as a column of a table."""
    if " collate " in made.dataType.simpleString():
        hint = "use another expression, such as lower(...), instead of COLLATE"
        raise VIEW.refused("texts are compared by their bytes", hint, view=view.name, column=item.name)
    made.name = item.name
    return arrow_field(made, view.stream)


def _check_key(type_: pa.DataType, name: str, view: View) -> None:
    """Raise `SettingsError` for a key by which the view's files cannot be sorted and read."""
    if pa.types.is_nested(type_):
        hint = "select a field of it, or make it text with to_json(...)"
        raise VIEW.refused("a struct or a list is no key", hint, view=view.name, column=name)
    if pa.types.is_floating(type_):
        hint = f"write CAST({name} AS DECIMAL(38, 9)) AS {name}, and its place in GROUP BY"
        raise VIEW.refused("a float is no key", hint, view=view.name, column=name)


def _check_types(item: Aggregate, types: tuple[pa.DataType, ...], view: View) -> None:
    """Raise `SettingsError` for a type that the aggregate does not take."""
    first, ordering, reason, hint = types[0], types[-1], "", "cast it"
    if item.function in ("sum", "avg"):
        hint = f"write {item.function}(CAST({item.arguments[0]} AS DECIMAL(38, 9)))"
        if pa.types.is_floating(first):
            reason = f"{item.function} of a float depends on the order of the rows"
        elif not pa.types.is_integer(first) and not pa.types.is_decimal(first):
            reason = f"{item.function} takes numbers"
    elif item.function in _CONDITIONS and not pa.types.is_boolean(first):
        reason, hint = f"{item.function} takes a condition", f"write {item.function}({item.arguments[0]} > 0), say"
    elif item.function[:3] in _ORDERED and pa.types.is_nested(ordering):
        reason, hint = f"{item.function} orders by single values only", "select a field of it"
    if reason:
        raise VIEW.refused(reason, hint, view=view.name, column=item.name)
