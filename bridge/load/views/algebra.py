"""How a view's groups are kept: signed rows become partial groups, which are merged into the groups that it has.

| aggregate | type | hidden columns |
|---|---|---|
| every view | | `_view_rows`: rows of the group; a group of none is dropped |
| `count(*)`, `count(x)`, `count_if` | int64 | |
| `sum` of integers, of decimals of scale s | decimal(38, 0), decimal(38, s) | `_view_count_x`: values that count |
| `avg` of integers and decimals | float64: the exact sum, by the count | `_view_sum_x`, `_view_count_x` |
| `bool_and`, `bool_or` | bool | `_view_false_x` or `_view_true_x`, and `_view_count_x` |
| `min`, `max` | that of the values | |
| `min_by`, `max_by` | that of the values | `_view_by_x`: what the value is the first or last by |
| `count(DISTINCT x)`, `percentile` | int64, float64 | |

All but the last three rows can be taken back without a look at the table. Of extremes the best is kept: if rows as good
as that are removed, and none as good are added, the group says `_view_recompute`: compute it anew, from the table.

Of a view with an aggregate of the last row, or with sessions, all groups that change are computed anew (`from_rows`):
`TypedView.touched` finds them. A group is then one partial group, made of all its rows; nothing is merged into it.

A sum of more than 38 digits is an error. Texts are compared by their bytes. NaN is greater than any number, and -0.0
is stored as 0.0. `max_by` takes the largest of the values that share the last place, `min_by` the smallest of those
that share the first; NULL only if they are all NULL. Rows in which the second argument is NULL do not count for them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from bridge.lake.records import HIDDEN
from bridge.load.views.fit import RESULTS
from bridge.load.views.sessions import SESSION, with_sessions
from bridge.settings.sql.transform import quoted
from bridge.settings.sql.view import ROWS, Aggregate, Key, View

RECOMPUTE = "_view_recompute"
"""The column of merged groups that says that a group must be computed anew from the table."""

_HIDDEN = {
    "sum": ("count",),
    "avg": ("sum", "count"),
    "bool_and": ("false", "count"),
    "bool_or": ("true", "count"),
    "min_by": ("by",),
    "max_by": ("by",),
}
EXTREMES = frozenset({"min", "max", "min_by", "max_by"})
_SIGN = "_view_sign"
_TIME = "_view_time"
LATEST = "_view_latest"
"""The column of partial groups with the greatest time of a row that came, in microseconds since 1970."""
CAME = "_view_came"
"""The column of partial groups that says how many rows came."""


@dataclass(frozen=True, slots=True)
class TypedView:
    """A view over a stream of certain columns.

    `schema` is that of the view's table: the visible columns in the order of SELECT, then the hidden ones.
    """

    view: View
    schema: pa.Schema

    @property
    def visible(self) -> pa.Schema:
        """The columns that readers see, which are those of the table of closed windows."""
        return pa.schema([field for field in self.schema if not field.name.startswith(HIDDEN)])

    @property
    def touched(self) -> TypedView:
        """The same rows without aggregates, by the keys other than a session: its groups have rows that changed."""
        view, of_session = self.view, self.view.session.keys if self.view.session else ()
        items = tuple(item for item in view.items if isinstance(item, Key) and item.name not in of_session)
        return replace(self, view=replace(view, items=items, keys=tuple(item.name for item in items), session=None))

    def cast(self, text: str, column: str) -> str:
        """The expression as the column's type."""
        return f"CAST({text} AS {sql_type(self.schema.field(column).type)})"


def hidden(aggregate: Aggregate, part: str) -> str:
    """The name of a hidden column."""
    return f"_view_{part}_{aggregate.name}"


def table_schema(
    view: View, types: Mapping[str, pa.Field], arguments: Mapping[str, tuple[pa.DataType, ...]]
) -> pa.Schema:
    """The columns of a view's table. `types`: those of its keys; `arguments`: those of its aggregates."""
    visible, behind = [], [pa.field(ROWS, pa.int64())]
    for item in view.items:
        if isinstance(item, Key):
            visible.append(types[item.name].with_nullable(True))
            continue
        first, *others = arguments[item.name]
        total = pa.decimal128(38, first.scale if pa.types.is_decimal(first) else 0)
        visible.append(pa.field(item.name, total if item.function == "sum" else RESULTS.get(item.function, first)))
        parts = {"sum": total, "by": others[0] if others else None}
        names = _HIDDEN.get(item.function, ())
        behind += [pa.field(hidden(item, part), parts.get(part, pa.int64())) for part in names]
    return pa.schema([*visible, *behind])


def sql_type(type_: pa.DataType) -> str:
    """A column's type in Spark's words."""
    if pa.types.is_decimal(type_):
        return f"DECIMAL({type_.precision}, {type_.scale})"
    if pa.types.is_list(type_):
        return f"ARRAY<{sql_type(type_.value_type)}>"
    if pa.types.is_struct(type_):
        return f"STRUCT<{', '.join(f'{quoted(field.name)}: {sql_type(field.type)}' for field in type_)}>"
    if pa.types.is_timestamp(type_):
        return "TIMESTAMP"
    names = {"int64": "BIGINT", "double": "DOUBLE", "bool": "BOOLEAN", "string": "STRING", "date32[day]": "DATE"}
    return names[str(type_)]


def arguments_sql(view: View, source: str, *others: str) -> str:
    """The rows of a stream as a view looks at them: a column for each key and each argument, in the order of SELECT.

    `others`: further columns of the source, before these.
    """
    columns = [f"{quoted(view.alias)}.{quoted(other)}" for other in others]
    for place, item in enumerate(view.items):
        texts = (item.text,) if isinstance(item, Key) else item.arguments
        for number, text in enumerate(texts):
            words = "true" if text == "*" else f"({text})"
            if isinstance(item, Aggregate) and item.condition:
                words = f"CASE WHEN ({item.condition}) THEN {words} END"
            columns.append(f"{words} AS {_argument(place, number)}")
    if view.window:
        columns.append(f"unix_micros(CAST(({view.window.time}) AS TIMESTAMP)) AS {_TIME}")
    where = f" WHERE ({view.where})" if view.where else ""
    return f"SELECT {', '.join(columns)} FROM {quoted(source)} AS {quoted(view.alias)}{where}"


def partial_sql(typed: TypedView, source: str, sign: str, *, only: str | None = None) -> str:
    """Signed rows to partial groups: one row for each group, with what the rows change in it.

    `source` is a Spark view with the columns that the view needs, and a column `sign`: 1 for a row that is added, -1
    for one that is removed. `only`: a Spark view with keys, other than a session; rows of other groups are left out.
    """
    keys, changes, prepared = {}, {ROWS: f"sum({_SIGN})"}, [f"{quoted(sign)} AS {_SIGN}"]
    for place, item in enumerate(typed.view.items):
        column = _argument(place, 0)
        if isinstance(item, Key):
            keys[item.name] = column
            prepared.append(f"{typed.cast(column, item.name)} AS {column}")
        else:
            prepared.append(f"{_input_expression(typed, item, place, quoted(sign))} AS {column}")
            changes |= _changes(item, column)
    if typed.view.window:
        prepared.append(_TIME)
        changes |= {LATEST: f"max({_TIME}) FILTER (WHERE {_SIGN} > 0)", CAME: f"count_if({_SIGN} > 0)"}
    session = typed.view.session
    plain = {key: column for key, column in keys.items() if not session or key not in session.keys}
    rows = f"SELECT {', '.join(prepared)} FROM ({arguments_sql(typed.view, source, sign)})"
    if only is not None:
        same = " AND ".join(f"r.{column} <=> k.{quoted(key)}" for key, column in plain.items())
        rows = f"SELECT r.* FROM ({rows}) AS r LEFT SEMI JOIN {quoted(only)} AS k ON {same}"
    grouped = list(plain.values())
    if session:
        rows = with_sessions(rows, grouped, keys[session.keys[0]], session.gap)
        keys |= {key: f"{'min' if key in session.starts else 'max'}({keys[key]})" for key in session.keys}
        grouped.append(SESSION)
    return f"{_select(keys | changes)} FROM ({rows}) GROUP BY {', '.join(grouped)}"


def merge_sql(typed: TypedView, partials: str, state: str | None = None) -> str:
    """Partial groups, and the groups so far if there are any, to new groups: a row of the view's table for each.

    `partials` and `state` are Spark views: results of `partial_sql`, and rows of the view's table. Groups of no rows
    are left out. A column `RECOMPUTE` beside the table's says whether a group must be computed anew. Raises in Spark
    for a sum that has more than 38 digits, and for groups that have less than no rows: state and rows do not agree.
    """
    view = typed.view
    source = f"{_select(_from_partials(view))} FROM {quoted(partials)}"
    if state is not None:
        source += f" UNION ALL {_select(_from_state(view))} FROM {quoted(state)}"
    keys = {key: quoted(key) for key in view.keys}
    merged = {ROWS: f"IF(sum({ROWS}) < 0, {_error(fewer_rows(view))}, sum({ROWS}))"}
    for item in view.aggregates:
        merged |= _merged(item)
    inner = f"{_select(keys | merged)} FROM ({source}) GROUP BY {', '.join(keys.values())}"
    results = {name: text for item in view.aggregates for name, text in _results(item).items()}
    result = {name: typed.cast(results.get(name, quoted(name)), name) for name in typed.schema.names}
    recompute = [_recompute(item) for item in view.aggregates if item.function in EXTREMES]
    result[RECOMPUTE] = " OR ".join(recompute) or "false"
    return f"{_select(result)} FROM ({inner}) WHERE {ROWS} <> 0"


def difference_sql(typed: TypedView, stored: str, selected: str) -> str:
    """The keys of which two Spark views do not have the same rows: a row for each, with these rows, all as JSON texts.

    Both have the columns of the view's table; of equal rows each counts.
    """
    names, keys = list(map(quoted, typed.schema.names)), list(map(quoted, typed.view.keys))
    every, of_key = ", ".join(names), ", ".join(keys)
    source = f"SELECT {every}, 1 AS {_SIGN} FROM {quoted(stored)}"
    source += f" UNION ALL SELECT {every}, -1 AS {_SIGN} FROM {quoted(selected)}"
    surplus = f"SELECT {every}, sum({_SIGN}) AS {_SIGN} FROM ({source}) GROUP BY {every} HAVING sum({_SIGN}) <> 0"
    rows = f"sort_array(collect_list({_json(names)}) FILTER (WHERE {_SIGN}"
    result = {"key": f"first({_json(keys)})", "stored": f"{rows} > 0))", "selected": f"{rows} < 0))"}
    return f"{_select(result)} FROM ({surplus}) GROUP BY {of_key}"


def _json(columns: Sequence[str]) -> str:
    times = "'timestampFormat', 'yyyy-MM-dd\\'T\\'HH:mm:ss.SSSSSSXXX'"
    return f"to_json(struct({', '.join(columns)}), map('ignoreNullFields', 'false', {times}))"


def _select(columns: Mapping[str, str]) -> str:
    return "SELECT " + ", ".join(f"{text} AS {quoted(name)}" for name, text in columns.items())


def _argument(place: int, number: int) -> str:
    return f"_view_{place}_{number}"


def _literal(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _error(text: str) -> str:
    return f"raise_error({_literal(text)})"


def _input_expression(typed: TypedView, item: Aggregate, place: int, sign: str) -> str:
    """The SQL that an aggregate reads from one row."""
    first, second = _argument(place, 0), _argument(place, 1)
    if item.function in ("sum", "avg"):
        column = item.name if item.function == "sum" else hidden(item, "sum")
        value = typed.cast(first, column)
        return f"IF({sign} > 0, {value}, {_negated(typed, value, column)})"
    if item.function not in EXTREMES and item.function != "percentile":
        return first
    value = _one_zero(typed, first, item.name)
    if item.function in ("min", "max", "percentile"):
        return value
    by, best = (sql_type(typed.schema.field(name).type) for name in (hidden(item, "by"), item.name))
    ranked = _ranked(item.function, _one_zero(typed, second, hidden(item, "by")), value)
    # A type whose parts may be null: Arrow refuses a NULL of a struct with a part that may not.
    return f"CAST({ranked} AS STRUCT<by: {by}, last: BOOLEAN, value: {best}>)"


def _negated(typed: TypedView, value: str, column: str) -> str:
    """The negative of a decimal. Spark's own is rounded to 34 digits, so what has more is turned round as text."""
    digits = 34 - typed.schema.field(column).type.scale
    least, greatest = (typed.cast(f"'{sign}1E{digits}'", column) for sign in ("-", ""))
    is_short = f"{value} BETWEEN {least} AND {greatest}"
    text = f"CAST({value} AS STRING)"
    turned = f"IF({text} LIKE '-%', substr({text}, 2), concat('-', {text}))"
    return f"IF({is_short}, -{value}, {typed.cast(turned, column)})"


def _one_zero(typed: TypedView, text: str, column: str) -> str:
    """The value as the column's type. -0.0 equals 0.0: which of them is the best was up to the order of rows."""
    value = typed.cast(text, column)
    return f"IF({value} = 0, 0.0D, {value})" if pa.types.is_floating(typed.schema.field(column).type) else value


def _ranked(kind: str, by: str, value: str) -> str:
    """A value with its rank as one thing that can be compared. Where ranks are equal, NULL is never the best."""
    last = "IS NULL" if kind == "min_by" else "IS NOT NULL"
    return f"IF({by} IS NULL, NULL, named_struct('by', {by}, 'last', {value} {last}, 'value', {value}))"


def _changes(item: Aggregate, column: str) -> dict[str, str]:
    """The SQL of the changes that the signed rows make in a group, by the names of `_from_partials`."""
    kind = item.function

    def counted(condition: str) -> str:
        return f"sum(IF({condition}, {_SIGN}, 0))"

    if kind in EXTREMES:
        best = f"{kind[:3]}({column}) FILTER (WHERE {_SIGN}"
        return {hidden(item, "added"): f"{best} > 0)", hidden(item, "removed"): f"{best} < 0)"}
    of_all = {"count_if": counted(column), "count_distinct": f"count(DISTINCT {column})"}
    if kind == "percentile":
        of_all[kind] = f"percentile({column}, {item.arguments[1]})"
    if kind in of_all:
        return {item.name: of_all[kind]}
    count = counted(f"{column} IS NOT NULL")
    if kind == "count":
        return {item.name: count}
    first = {
        "sum": (item.name, _total(column, item)),
        "avg": (hidden(item, "sum"), _total(column, item)),
        "bool_and": (hidden(item, "false"), counted(f"NOT {column}")),
        "bool_or": (hidden(item, "true"), counted(column)),
    }
    return dict([first[kind], (hidden(item, "count"), count)])


def long_sum(item: Aggregate) -> str:
    """The error of a sum that is too long."""
    return f"the sum in {item.name} has more than 38 digits"


def fewer_rows(view: View) -> str:
    """The error of a view that does not have the rows that are removed."""
    return f"the view {view.name} counts fewer than zero rows in a group: fill it anew"


def _total(text: str, item: Aggregate) -> str:
    """A sum of decimals(38, s). Spark's own, too long, would be NULL or an error as the session is set."""
    error = _error(long_sum(item))
    return f"IF(count({text}) > 0 AND try_sum({text}) IS NULL, {error}, try_sum({text}))"


def linear(item: Aggregate) -> list[str]:
    """The columns of an aggregate that merge by adding them up, as one number does that is of a whole group."""
    visible = [item.name] if item.function in ("count", "count_if", "count_distinct", "percentile", "sum") else []
    return visible + [hidden(item, part) for part in _HIDDEN.get(item.function, ()) if part != "by"]


def _from_partials(view: View) -> dict[str, str]:
    """The columns that are merged, of partial groups."""
    columns = {name: quoted(name) for name in (*view.keys, ROWS)}
    for item in view.aggregates:
        columns |= {name: quoted(name) for name in linear(item)}
        if item.function in EXTREMES:
            columns[hidden(item, "old")] = "NULL"
            columns |= {name: quoted(name) for name in (hidden(item, "added"), hidden(item, "removed"))}
    return columns


def _from_state(view: View) -> dict[str, str]:
    """The same columns, of groups so far."""
    columns = {name: quoted(name) for name in (*view.keys, ROWS)}
    for item in view.aggregates:
        columns |= {name: quoted(name) for name in linear(item)}
        if item.function in EXTREMES:
            best, value = item.function, quoted(item.name)
            ranked = value if best in ("min", "max") else _ranked(best, quoted(hidden(item, "by")), value)
            columns |= {hidden(item, "old"): ranked, hidden(item, "added"): "NULL", hidden(item, "removed"): "NULL"}
    return columns


def _merged(item: Aggregate) -> dict[str, str]:
    """The columns of an aggregate, over all rows of one group that are merged."""
    if item.function in EXTREMES:
        names = [hidden(item, part) for part in ("old", "added", "removed")]
        return {name: f"{item.function[:3]}({quoted(name)})" for name in names}
    columns = {name: f"sum({quoted(name)})" for name in linear(item)}
    if item.function in ("sum", "avg"):
        name = item.name if item.function == "sum" else hidden(item, "sum")
        columns[name] = _total(quoted(name), item)
    return columns


def _results(item: Aggregate) -> dict[str, str]:
    """The table's columns that are computed from the merged ones instead of copied."""
    kind, count = item.function, quoted(hidden(item, "count"))
    if kind in EXTREMES:
        best = _best(item)
        return (
            {item.name: best}
            if kind in ("min", "max")
            else {item.name: f"{best}.value", hidden(item, "by"): f"{best}.by"}
        )
    results = {
        "sum": quoted(item.name),
        "avg": f"CAST({quoted(hidden(item, 'sum'))} AS DOUBLE) / CAST({count} AS DOUBLE)",
        "bool_and": f"{quoted(hidden(item, 'false'))} = 0",
        "bool_or": f"{quoted(hidden(item, 'true'))} > 0",
    }
    return {item.name: f"IF({count} > 0, {results[kind]}, NULL)"} if kind in results else {}


def _best(item: Aggregate) -> str:
    """The best of the extreme so far and the added ones. Spark passes over NULLs."""
    function = "greatest" if item.function.startswith("max") else "least"
    return f"{function}({quoted(hidden(item, 'old'))}, {quoted(hidden(item, 'added'))})"


def _recompute(item: Aggregate) -> str:
    """The SQL of whether a removed row may have held the extreme.

    Not if the remaining best beats every removed value, or if an equally good value was added: a rewritten file removes
    and adds most of its rows.
    """
    old, added, removed = (quoted(hidden(item, part)) for part in ("old", "added", "removed"))
    better = ">" if item.function.startswith("max") else "<"
    beats = f"coalesce({_best(item)} {better} {removed}, false)"
    replaced = f"coalesce({added} {better}= {old} AND {old} {better}= {removed}, false)"
    return f"({removed} IS NOT NULL AND NOT {beats} AND NOT {replaced})"
