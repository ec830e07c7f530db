"""Streams whose rows Spark SQL transforms: the resulting columns are known and checked before the first row is stored.

Decoding, statement and writing are one Spark job without a shuffle: one Python worker decodes bundles, Spark works row
by row, and a second worker writes. Tables of look-ups are broadcast, so that no row moves. The first worker's counts
reach the second one in a file of this task's attempt, so only rows go through the statement.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql.functions import broadcast

from bridge.errors import DataError, SettingsError
from bridge.load.spark.lookups import Lookups
from bridge.load.spark.rows import hidden_type
from bridge.load.spark.shipping import executor_rows, map_in_arrow
from bridge.load.spark.types import arrow_field, spark_schema
from bridge.load.spark.worker import REPORT_SCHEMA, REPORTS
from bridge.load.write.context import WriteContext
from bridge.load.write.metadata_columns import METADATA, visible
from bridge.protocol.schema.json_schema import EXTRA, source
from bridge.protocol.schema.table_schema import TableSchema
from bridge.settings.sql.transform import TRANSFORM, Kind, Statement, quoted_column

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

HIDDEN = "_sdc_bridge_row"
"""The column that passes beside the statement's columns: a row's place, and the bridge's own columns."""

_NODES = frozenset({"Project", "Filter", "SubqueryAlias", "View", "LogicalRDD", "LocalRelation", "MapInArrow"})
_RULES = "spark.sql.optimizer.excludedRules"
_ADAPTIVE_RULES = "spark.sql.adaptive.optimizer.excludedRules"
_OPTIMIZER = "org.apache.spark.sql.catalyst.optimizer."
_PUSHES = (
    *("PushDownPredicates", "PushExtraPredicateThroughJoin", "PushPredicateThroughJoin"),
    "InferFiltersFromConstraints",
)
_ADAPTIVE = "org.apache.spark.sql.execution.adaptive."
OF_A_RECORD = frozenset(
    {
        "ArithmeticException",
        "ArrayIndexOutOfBoundsException",
        "DateTimeException",
        "IllegalArgumentException",
        "NumberFormatException",
        "SparkRuntimeException",
        "UnsupportedOperationException",
    }
)
"""The names of the errors that pyspark raises where an expression cannot take a value."""
_TIMES = frozenset({"date", "timestamp", "timestamp_ntz"})


@dataclass(frozen=True, slots=True)
class TransformPlan:
    """How a stream's rows of one schema are transformed. `read` is the columns into which they are decoded."""

    stream: str
    schema: str
    """The name of `read` in the spool."""
    statement: Statement
    read: TableSchema
    metadata: bool
    made: pa.Schema
    """The columns that the statement makes of them."""
    lake: TableSchema
    """The table's columns, which hold that and more; in the spool, too, under their hash."""
    upsert: bool = False


def rows_schema(read: TableSchema, *, metadata: bool) -> pa.Schema:
    """The columns of decoded rows on their way to the statement."""
    seen = visible(read.arrow, metadata=metadata)
    hidden = [field for field in read.arrow if field.name not in {field.name for field in seen}]
    return pa.schema([*seen, pa.field(HIDDEN, hidden_type(hidden))])


def analysed(
    spark: SparkSession, statement: Statement, read: TableSchema, stream: str, *, metadata: bool, lookups: Lookups
) -> pa.Schema:
    """The columns that a statement results in. Raises `SettingsError` with Spark's message or our reason."""
    fields = visible(read.arrow, metadata=metadata)
    if misquoted := quoted_column(statement.text, [field.name for field in fields], TRANSFORM, stream=stream):
        raise misquoted
    columns = spark_schema(rows_schema(read, metadata=metadata))
    try:
        others = [lookups.columns(each).empty_table() for each in statement.lookups]
        frame = _over(spark.createDataFrame([], columns), statement, fields, others)
        plan = frame._jdf.queryExecution().analyzed()
        made = frame.schema
        if [each.name for each in made].index(HIDDEN) != len(made) - 1:
            raise TRANSFORM.unclear()
    except PySparkException as error:
        raise SettingsError("the transform does not fit the stream", hint=first_line(error), stream=stream) from None
    check_plan(plan, TRANSFORM, {"stream": stream}, looks_up=bool(statement.lookups))
    return _columns([each for each in made if each.name != HIDDEN], read, stream, metadata=metadata)


def reports_of(
    frame: DataFrame, plan: TransformPlan, context: WriteContext, shipped: str | None, lookups: Lookups
) -> list[Any]:
    """Load the rows of a plan's stream in these bundles, and return the reports.

    Raises `DataError` for a record on which the statement fails.
    """
    session = frame.sparkSession
    # Spark would not read at all if a condition is always false, but every segment must be accounted for.
    _leave_out(session, _RULES, f"{_OPTIMIZER}PruneFilters", f"{_OPTIMIZER}PropagateEmptyRelation")
    _leave_out(session, _ADAPTIVE_RULES, f"{_ADAPTIVE}AQEPropagateEmptyRelation")
    if plan.statement.lookups:  # nor if a condition leaves no row of a look-up's table
        _leave_out(session, _RULES, *(f"{_OPTIMIZER}{rule}" for rule in _PUSHES))
    columns = rows_schema(plan.read, metadata=plan.metadata)
    decode = executor_rows("decode_rows", shipped, context, plan, columns)
    store = executor_rows("store_rows", shipped, context, plan, REPORT_SCHEMA)
    rows = map_in_arrow(frame, decode, spark_schema(columns))
    try:
        others = [lookups.rows(each) for each in plan.statement.lookups]
        if any(each.leaves_out and not len(table) for each, table in zip(plan.statement.lookups, others, strict=True)):
            made = rows.where("false")  # Spark would not read the rows, and nobody count them
        else:
            made = _over(rows, plan.statement, visible(plan.read.arrow, metadata=plan.metadata), others)
        return list(map_in_arrow(made, store, REPORTS).collect())
    except PySparkException as error:
        raise _failed(error, plan.stream) or error from error


def _leave_out(session: SparkSession, key: str, *rules: str) -> None:
    others = (session.conf.get(key, None) or "").split(",")
    session.conf.set(key, ",".join(sorted({*rules, *filter(None, others)})))


def _over(frame: DataFrame, statement: Statement, fields: Iterable[pa.Field], others: Sequence[pa.Table]) -> DataFrame:
    """The statement over these rows, and over `others`, the tables of its look-ups."""
    session = frame.sparkSession
    frames = [frame, *(broadcast(session.createDataFrame(each, spark_schema(each.schema))) for each in others)]
    # the next SCHEMA may be analysed while a batch is on its way
    views = [f"singer_bridge_{uuid.uuid4().hex}" for _ in frames]
    for each, view in zip(frames, views, strict=True):
        each.createOrReplaceTempView(view)
    try:
        return session.sql(statement.over(views[0], [field.name for field in fields], HIDDEN, views[1:]))
    finally:
        for view in views:
            session.catalog.dropTempView(view)


def _failed(error: BaseException, stream: str) -> DataError | None:
    """The error if a record made the statement fail, None for any other failure."""
    if type(error).__name__ not in OF_A_RECORD:
        return None
    hint = f"nothing of this commit was stored; {first_line(error)}"
    return DataError("the transform failed on a record", hint=hint, stream=stream)


def first_line(error: BaseException) -> str:
    """Spark's message about a statement, in one line."""
    line = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
    return line.split(" SQLSTATE")[0].replace(f", `{HIDDEN}`", "").replace(f"`{HIDDEN}`, ", "")[:500]


def check_plan(
    plan: Any, kind: Kind, facts: Mapping[str, str], *, may_slide: bool = False, looks_up: bool = False
) -> None:
    """Raise `SettingsError` unless the analysed plan is row by row. `facts` go into its message.

    `may_slide`: a row may be in several windows, each of which Spark makes a row of its own. `looks_up`: each row may
    be joined with one of another table.
    """
    name = plan.getClass().getSimpleName()
    if name == "Join" and looks_up:
        _check_join(plan, facts)
    elif name not in _NODES and not (may_slide and name == "Expand") and not (looks_up and name == "ResolvedHint"):
        if name == "Expand":
            raise kind.slides(**facts)
        reason = "it makes several rows of one" if name == "Generate" else f"{name.lower()} is about more than one row"
        raise kind.refused(reason, **facts)
    for expression in _each(plan.expressions()):
        _check_expression(expression, kind, facts)
        if name == "Filter" and expression.references().isEmpty():
            raise SettingsError(f"the {kind.name}'s WHERE names no column", hint=kind.rule, **facts)
    for child in _each(plan.children()):
        check_plan(child, kind, facts, may_slide=may_slide, looks_up=looks_up)


def _check_join(join: Any, facts: Mapping[str, str]) -> None:
    """Raise `SettingsError` if Spark would cast a look-up's key: two keys might become one."""
    table, parts = join.right().outputSet(), [join.condition().get()]
    while parts:
        part = parts.pop()
        sides, kind = list(_each(part.children())), part.getClass().getSimpleName()
        if kind == "And":
            parts += sides
            continue
        of_table = [side for side in sides if side.references().subsetOf(table)]
        others = [side for side in sides if not any(table.contains(one) for one in _references(side))]
        if kind != "EqualTo" or len(of_table) != 1 or len(others) != 1 or others[0].references().isEmpty():
            hint = f"not {part.sql()}: of its two sides one is a column of the table, and the other one has none of its"
            raise SettingsError("a look-up compares keys of the table with the row", hint=hint, **facts)
        own = of_table[0]
        if own.getClass().getSimpleName() != "AttributeReference":
            hint = f"cast the row's side to it: CAST(... AS {_plain(own).dataType().sql()})"
            raise SettingsError(
                "a key of a look-up has another type than the row", hint=hint, key=_plain(own).sql(), **facts
            )


def _references(expression: Any) -> Iterator[Any]:
    """Yield the columns in an expression."""
    if expression.getClass().getSimpleName() == "AttributeReference":
        yield expression
    for child in _each(expression.children()):
        yield from _references(child)


def _plain(key: Any) -> Any:
    """The column that Spark casts."""
    while key.getClass().getSimpleName() != "AttributeReference":
        key = key.children().apply(0)
    return key


def _check_expression(expression: Any, kind: Kind, facts: Mapping[str, str]) -> None:
    name = expression.getClass().getSimpleName()
    if kind.refuses(name) or name.startswith("Current"):
        raise kind.refused(f"{expression.prettyName()} is not of the row", **facts)
    if name in ("ScalarSubquery", "Exists", "InSubquery", "ListQuery", "LateralSubquery"):
        raise kind.refused("a subquery reads other rows", **facts)
    for child in _parts(expression):
        _check_expression(child, kind, facts)
    if name.endswith("Cast"):
        _check_cast(expression, kind, facts)
    if not expression.deterministic():
        raise kind.refused(f"{expression.prettyName()} is not the same each time", **facts)


def _parts(expression: Any) -> list[Any]:
    """The parts of an expression. `to_date(a)`, say, runs as a cast, which only its replacement shows."""
    try:
        return [expression.replacement()]
    except Exception:  # noqa: BLE001 - py4j's, which has no types: most expressions have none
        return list(_each(expression.children()))


def _check_cast(cast: Any, kind: Kind, facts: Mapping[str, str]) -> None:
    """Raise `SettingsError` for a text such as 'now' that becomes a time: a constant one, before a row is looked at."""
    text = cast.child()
    if cast.dataType().typeName() not in _TIMES or not text.dataType().typeName().startswith("string"):
        return
    if text.foldable() and (value := _constant(text, kind, facts)) is not None:
        kind.check_time(value, **facts)


def _constant(text: Any, kind: Kind, facts: Mapping[str, str]) -> str | None:
    try:
        value = text.eval(None)
    except Exception:  # noqa: BLE001 - py4j's or Spark's own
        hint = "write the time as one text, such as TIMESTAMP '2024-01-01 00:00:00'"
        raise SettingsError(f"a time of the {kind.name} cannot be read", hint=hint, **facts) from None
    return None if value is None else str(value.toString())


def _each(sequence: Any) -> Iterator[Any]:
    for place in range(sequence.size()):
        yield sequence.apply(place)


def _columns(made: list[Any], read: TableSchema, stream: str, *, metadata: bool) -> pa.Schema:
    """The columns that Spark made, as the lake has them. A column that keeps its name is still the same property."""
    by_name = {field.name: field for field in read.arrow}
    reserved = {name.lower() for name in (EXTRA, *(METADATA if metadata else ()))}
    seen: set[str] = set()
    fields = []
    for each in made:
        name = each.name
        if "__autoGeneratedAlias" in each.metadata:
            hint = f"write {name} AS a_name"
            raise SettingsError("a column of the transform has no name", hint=hint, stream=stream)
        if name.casefold() in seen:
            raise SettingsError(
                "the transform makes two columns of one name", hint=TRANSFORM.rule, stream=stream, column=name
            )
        if name.lower() in reserved:
            hint = "give it another name: the bridge writes this column itself"
            raise SettingsError("a column of the transform is taken", hint=hint, stream=stream, column=name)
        seen.add(name.casefold())
        fields.append(_same_property(arrow_field(each, stream), by_name.get(name)))
    if not fields:
        raise SettingsError("the transform makes no columns", hint="select some", stream=stream)
    return pa.schema(fields)


def _same_property(field: pa.Field, before: pa.Field | None) -> pa.Field:
    if before is None or source(before) == before.name:
        return field
    return field.with_metadata({**(field.metadata or {}), b"singer": source(before).encode()})
