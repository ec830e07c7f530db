"""The types of a view's columns, by Spark's own analyzer; and the refusals that only it can make."""

from __future__ import annotations

import uuid
from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.errors import PySparkException

from bridge.errors import SettingsError
from bridge.load.spark.jvm.jvm import LITERAL
from bridge.load.spark.transform import check_plan, first_line
from bridge.load.spark.types import arrow_field, spark_schema
from bridge.load.views.algebra import TypedView, arguments_sql, table_schema
from bridge.load.views.fit import check_key, check_names, check_types, missing, no_column
from bridge.settings.sql.transform import quoted
from bridge.settings.sql.view import VIEW, Aggregate, Key, View

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_FIXED = {"spark.sql.session.timeZone": "UTC", "spark.sql.ansi.enabled": "true"} | LITERAL
_TUNING = tuple(
    f"spark.sql.{name}"
    for name in (
        *("shuffle.", "adaptive.", "codegen.", "execution.", "files.", "sources.", "streaming.", "join."),
        *("inMemoryColumnarStorage.", "objectHashAggregate.", "autoBroadcastJoinThreshold", "broadcastTimeout"),
        "artifact.",  # Spark's own: by it executors find what was shipped to them
    )
)
"""Settings of Spark SQL that hold for views, too: they change how Spark works, and no result."""


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
    check_names(view, columns.names)
    source, spark = f"singer_bridge_{uuid.uuid4().hex}", view_session(spark)
    try:
        rows = spark.createDataFrame([], spark_schema(pa.schema(needed_columns(view, columns))))
        rows.createOrReplaceTempView(source)
        frame = spark.sql(arguments_sql(view, source))
        check_plan(frame._jdf.queryExecution().analyzed(), VIEW, facts, may_slide=True)
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
            check_key(keys[item.name].type, item.name, view)
        else:
            types = tuple(_field(next(fields), item, view).type for _ in item.arguments)
            check_types(item, types, view)
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
    names = missing(view, columns.names)
    if "UNRESOLVED" not in str(error) or not names:
        return SettingsError("the view does not fit the stream", hint=first_line(error), **facts)
    return no_column(view, columns.names, names[0])


def _field(made: Any, item: Key | Aggregate, view: View) -> pa.Field:
    """A key or an argument as a column of a table."""
    if " collate " in made.dataType.simpleString():
        hint = "use another expression, such as lower(...), instead of COLLATE"
        raise VIEW.refused("texts are compared by their bytes", hint, view=view.name, column=item.name)
    made.name = item.name
    return arrow_field(made, view.stream)
