"""`views`: one SELECT ... GROUP BY over a stream, taken apart into keys and aggregates that can be kept.

Rows are added to most aggregates, and taken away from them; the others, and sessions, are computed from all rows of a
group that changes. The words of the expressions stay as they were written; `bridge/load/views/` puts them together
anew, as SQL for Spark.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from bridge.errors import SettingsError, did_you_mean
from bridge.settings.sql.aggregates import AGGREGATES, AVAILABLE, INSTEAD, OF_ALL_ROWS
from bridge.settings.sql.tokens import Token, outside, place_of_from, split, tokens_of
from bridge.settings.sql.transform import CLAUSES, Kind, check_node, read_select
from bridge.settings.sql.window import SessionWindow, TimeWindow, session_of, time_window, words_of

if TYPE_CHECKING:
    from sqlglot import exp

VIEW = Kind(
    "view",
    "one stream or view, in backticks if its name has dots or dashes",
    "a view is kept by adding and removing rows: a row must count the same whenever that happens",
    "such as: SELECT customer_id, count(*) AS orders, sum(amount) AS total FROM orders GROUP BY customer_id",
)
ROWS = "_view_rows"
"""The hidden column with the number of rows of a group: each view has it."""
RESERVED = ("_view_", "_sdc_")
"""How the names of columns begin that the bridge itself writes."""

_CLAUSES = {clause: reason for clause, reason in CLAUSES.items() if clause != "group"} | {
    "joins": "the other table's rows change, too; a transform looks rows up, and a view has what it made of them",
    "having": "HAVING leaves out groups; a query of the view can do that",
    "order": "ORDER BY sorts rows; a view's files are sorted by its keys",
    "limit": "LIMIT leaves out groups; a query of the view can do that",
}


@dataclass(frozen=True, slots=True)
class Key:
    """A column by which rows are grouped: its name, and its expression in the view's own words."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Aggregate:
    """A column that is computed of a group's rows. `arguments` of `count(*)` is `("*",)`; `condition` is FILTER's.

    `function` of `count(DISTINCT x)` is `count_distinct`, of `median(x)` it is `percentile`, with 0.5 as the second
    argument.
    """

    name: str
    function: str
    arguments: tuple[str, ...]
    condition: str | None = None


@dataclass(frozen=True, slots=True)
class View:
    """A checked view."""

    name: str
    stream: str
    """The stream behind FROM, as it is written there; or another view."""
    text: str
    keys: tuple[str, ...]
    """Names of the columns by which rows are grouped, in the order of SELECT."""
    columns: tuple[str, ...]
    """Names of all visible columns in the order of SELECT, keys too."""
    needs: tuple[str, ...]
    """Names of the stream's columns that are read, each once, as they are written: Spark does not look at case. A word
    such as DAY in `timestampadd(DAY, 1, at)` may be among them."""
    alias: str
    """The name of the stream in the expressions."""
    items: tuple[Key | Aggregate, ...]
    """The visible columns in the order of SELECT."""
    where: str | None
    by_name: tuple[str, ...]
    """Names in GROUP BY that mean a column of the view. The stream may have no column of that name."""
    window: TimeWindow | None
    """Of a view whose groups close, or go."""
    session: SessionWindow | None

    @property
    def from_rows(self) -> bool:
        """Whether a group that changes is computed from all its rows: they cannot be added to it, or taken away."""
        return self.session is not None or any(item.function in OF_ALL_ROWS for item in self.aggregates)

    @property
    def words(self) -> list[str]:
        """The words of the SELECT, without `keep` and `lateness`."""
        return words_of(self.text)

    @property
    def closes(self) -> str:
        """The name of the table of its closed windows; empty: its windows never close."""
        return f"{self.name}_closed" if self.window and self.window.lateness is not None else ""

    @property
    def plain_keys(self) -> dict[str, str]:
        """The stream's columns by which rows are grouped as they stand, in lower case, and their names in the view."""
        keys = [item for item in self.items if isinstance(item, Key)]
        columns = {item.text.rpartition(".")[2].strip("`").lower(): item.name for item in keys}
        return {column: columns[column] for column in columns.keys() & {one.lower() for one in self.needs}}

    @property
    def aggregates(self) -> tuple[Aggregate, ...]:
        return tuple(item for item in self.items if isinstance(item, Aggregate))

    def check_names(self, columns: Collection[str], **facts: str) -> None:
        """Raise `SettingsError` if a name in GROUP BY is a column of the view, and of the stream with these columns."""
        if clash := next((one for one in self.by_name if one.lower() in map(str.lower, columns)), None):
            hint = "write its place in SELECT instead, such as GROUP BY 1, or give the view's column another name"
            reason = "a name in GROUP BY is a column of the stream, and another one of the view"
            raise SettingsError(reason, hint=hint, **facts, name=clash)


@lru_cache(100)
def read_view(name: str, text: str) -> View:
    """Parse and check a view, as far as possible without Spark. Raises `SettingsError` with the reason."""
    select, table = read_select(text, VIEW, _CLAUSES)
    alias, group = table.alias or table.name, select.args.get("group")
    if group is None or group.args.get("all") or not group.expressions:
        hint = "a table as a whole has one, too: SELECT 'all' AS scope, count(*) AS n FROM orders GROUP BY scope"
        raise SettingsError("a view has keys, which GROUP BY names", hint=hint)
    parts = _Parts.of(text)
    items = [_item(node, tokens, text) for node, tokens in _pairs(select.expressions, parts.items)]
    needs = _needs(select, alias)
    keys, by_name = _keys(group, select.expressions, items, alias)
    of_keys = [(item.name, item.text) for item in items if item.name in keys and isinstance(item, Key)]
    session = session_of(of_keys, VIEW)
    for item, node in zip(items, select.expressions, strict=True):
        is_session = session is not None and item.name in session.keys
        _check_item(item, node, in_group=item.name in keys, is_session=is_session)
    if not any(isinstance(item, Aggregate) for item in items):
        raise SettingsError("a view has aggregates", hint=f"add count(*) AS a_name; {AVAILABLE}")
    _check_names([item.name for item in items])
    where = None
    if (clause := select.args.get("where")) is not None:
        where = _words(parts.where, text)
        _agree(where, clause.this)
        _check_nodes(clause.this)
    columns = tuple(item.name for item in items)
    named = tuple(one for one in columns if one in keys)
    window = time_window(text, of_keys, session)
    view = View(name, table.name, text, named, columns, needs, alias, tuple(items), where, by_name, window, session)
    view.check_names(needs)
    return view


def read_views(texts: Mapping[str, str]) -> list[View]:
    """The views of a pipeline: by name, but each after the view that it selects from.

    Raises `SettingsError` for views that select from each other.
    """
    ordered, names = dict[str, View](), sorted(texts)

    def add(name: str, *before: str) -> None:
        if name in before:
            circle = " -> ".join([*before[before.index(name) :], name])
            hint = "the first of several views selects from a stream"
            raise SettingsError(f"views select from each other: {circle}", hint=hint)
        view = read_view(name, texts[name])
        if view.stream in texts:
            add(view.stream, *before, name)
            base = ordered[view.stream]
            if view.window or (base.window and base.window.keep is not None):
                hint = "select from the stream; or leave out keep and lateness, and keep of the first view"
                raise SettingsError("a view of a view has no windows that close, or are dropped", hint=hint, view=name)
        ordered.setdefault(name, view)

    for name in names:
        add(name)
    return list(ordered.values())


def root_stream(name: str, texts: Mapping[str, str]) -> str:
    """The stream whose rows are in the end in a view, by the texts of all views; another name as it is."""
    while name in texts:
        name = read_view(name, texts[name]).stream
    return name


@dataclass(frozen=True, slots=True)
class _Parts:
    """The tokens of a statement: those of each selected item, and those of WHERE."""

    items: list[list[Token]]
    where: list[Token]

    @staticmethod
    def of(text: str) -> _Parts:
        tokens = [token for token in tokens_of(text) if token.token_type.name != "SEMICOLON"]
        at = place_of_from(tokens)
        if at < 0 or tokens[0].token_type.name != "SELECT":
            raise VIEW.unclear()
        ends = {kind: at + 1 + place for kind, place in _clauses(tokens[at + 1 :])}
        start, end = ends.get("WHERE", len(tokens)) + 1, ends.get("GROUP_BY", len(tokens))
        return _Parts(split(tokens[1:at]), tokens[start:end])


def _clauses(tokens: Sequence[Token]) -> Iterator[tuple[str, int]]:
    for place, kind in outside(tokens):
        if kind in ("WHERE", "GROUP_BY"):
            yield kind, place


def _pairs(nodes: Sequence[exp.Expr], parts: Sequence[list[Token]]) -> Iterator[tuple[exp.Expr, list[Token]]]:
    if len(nodes) != len(parts) or not all(parts):
        raise VIEW.unclear()
    return zip(nodes, parts, strict=True)


def _words(tokens: Sequence[Token], text: str) -> str:
    if not tokens:
        raise VIEW.unclear()
    return text[tokens[0].start : tokens[-1].end + 1]


def _agree(words: str, node: exp.Expr) -> None:
    """Raise `SettingsError` unless these words are that part of the statement."""
    from sqlglot import parse_one
    from sqlglot.errors import SqlglotError

    try:
        if parse_one(f"SELECT {words}", read="spark").expressions == [node]:
            return
    except SqlglotError:
        pass
    raise VIEW.unclear()


def _item(node: exp.Expr, tokens: list[Token], text: str) -> Key | Aggregate:
    """A selected column. One that is no aggregate is taken for a key."""
    from sqlglot import exp

    if isinstance(node, exp.Alias):
        after = tokens[-2].token_type.name == "ALIAS" if len(tokens) > 2 else False
        tokens = tokens[: -2 if after else -1]
    elif isinstance(node, exp.Star) or (isinstance(node, exp.Column) and isinstance(node.this, exp.Star)):
        raise VIEW.refused("* selects every column; name the keys")
    elif not isinstance(node, exp.Column):
        raise SettingsError("a column of the view has no name", hint=f"write {_words(tokens, text)} AS a_name")
    words, name = _words(tokens, text), node.alias_or_name
    _agree(words, node.unalias())
    return _aggregate(name, tokens, text) or Key(name, words)


def _aggregate(name: str, tokens: list[Token], text: str) -> Aggregate | None:
    """`function(...)` or `function(...) FILTER (WHERE ...)`; None for anything else."""
    function = tokens[0].text.lower()
    closed = [place for place, kind in outside(tokens) if kind == "R_PAREN"]
    kinds = [token.token_type.name for token in tokens]
    if function not in AGGREGATES or kinds[1:2] != ["L_PAREN"] or not closed:
        return None
    rest = kinds[closed[0] + 1 :]
    if rest and (rest[:3] != ["FILTER", "L_PAREN", "WHERE"] or closed[1:] != [len(tokens) - 1]):
        return None
    condition = _words(tokens[closed[0] + 4 : -1], text) if rest else None
    is_distinct = function == "count" and kinds[2] == "DISTINCT"
    arguments = tuple(_words(part, text) for part in split(tokens[2 + is_distinct : closed[0]]))
    if len(arguments) != (count := AGGREGATES[function]):
        reason = f"{function} takes {count} argument{'s' * (count > 1)}"
        raise SettingsError(f"the view is wrong: {reason}", hint=VIEW.example, column=name)
    if function == "percentile" and not re.fullmatch(r"0?\.[0-9]+|[01](\.0*)?", arguments[1]):
        hint = "such as percentile(x, 0.95); for several write several columns"
        raise SettingsError("the place of a percentile is a number from 0 to 1", hint=hint, column=name)
    if function == "median":
        function, arguments = "percentile", (*arguments, "0.5")
    return Aggregate(name, "count_distinct" if is_distinct else function, arguments, condition)


def _keys(
    group: exp.Group, nodes: Sequence[exp.Expr], items: Sequence[Key | Aggregate], alias: str
) -> tuple[set[str], tuple[str, ...]]:
    """The names of the columns that GROUP BY names, and of those the ones that it names by the view's own name."""
    from sqlglot import exp

    if any(group.args.get(clause) for clause in ("rollup", "cube", "grouping_sets", "totals")):
        raise VIEW.refused("a row belongs to one group only: no ROLLUP, CUBE, GROUPING SETS")
    expressions = {
        _normal(node.unalias(), alias): item.name for node, item in reversed(list(zip(nodes, items, strict=True)))
    }
    names = {item.name.lower(): item.name for item in items}
    keys, by_name = set(), []
    for node in group.expressions:
        if isinstance(node, (exp.Cube, exp.Rollup, exp.GroupingSets)):
            raise VIEW.refused("a row belongs to one group only: no ROLLUP, CUBE, GROUPING SETS")
        if isinstance(node, exp.Literal) and not node.is_string:
            if not node.name.isdigit() or not 1 <= int(node.name) <= len(items):
                raise SettingsError(
                    "GROUP BY has a place that SELECT does not have", hint=VIEW.example, place=node.name
                )
            keys.add(items[int(node.name) - 1].name)
        elif (name := expressions.get(_normal(node, alias))) is not None:
            keys.add(name)
        elif isinstance(node, exp.Column) and not node.table and node.name.lower() in names:
            by_name.append(names[node.name.lower()])
        else:
            hint = "select it, too: by its keys a row of the view is looked up"
            raise SettingsError("a key of the view is not selected", hint=hint, key=node.sql("spark", comments=False))
    return {*keys, *by_name}, tuple(by_name)


def _normal(node: exp.Expr, alias: str) -> str:
    """An expression so that two that mean the same are the same."""
    from sqlglot import exp

    node = node.copy()
    for column in list(node.find_all(exp.Column)):
        parts = column_parts(column, alias)
        if isinstance(column.this, exp.Identifier) and len(parts) == 1:
            column.args.pop("table", None)
    for identifier in node.find_all(exp.Identifier):
        identifier.args.update(this=identifier.name.lower(), quoted=False)
    return node.sql("spark", comments=False)


def column_parts(column: exp.Column, alias: str) -> list[str]:
    """The names of a column without the stream's: the first is the stream's column, others are fields in it."""
    names = [part.name for part in column.parts]
    return names[1:] if len(names) > 1 and names[0].lower() == alias.lower() else names


def _needs(select: exp.Select, alias: str) -> tuple[str, ...]:
    from sqlglot import exp

    clauses = [*select.expressions, *filter(None, [select.args.get("where")])]
    columns = (column for clause in clauses for column in clause.find_all(exp.Column))
    names = (column_parts(column, alias)[0] for column in columns if isinstance(column.this, exp.Identifier))
    return tuple({name.lower(): name for name in names}.values())


def _check_item(item: Key | Aggregate, node: exp.Expr, *, in_group: bool, is_session: bool) -> None:
    from sqlglot import exp

    if isinstance(item, Aggregate):
        if in_group:
            raise SettingsError("an aggregate cannot be a key", hint=VIEW.example, column=item.name)
        if len(list(node.find_all(exp.Distinct))) > (item.function == "count_distinct"):
            hint = "select from a view that has each value once: SELECT k, x, count(*) AS n FROM ... GROUP BY k, x"
            raise VIEW.refused("DISTINCT stands in count(DISTINCT x) only", hint, column=item.name)
        call = node.unalias()
        _check_nodes(call, {id(call), id(call.this)} if isinstance(call, exp.Filter) else {id(call)})
        return
    for window in node.find_all(exp.Window):
        check_node(window, VIEW)
    if inside := next(node.find_all(exp.AggFunc), None):
        function = inside.sql("spark", normalize_functions="lower", comments=False).split("(")[0]
        if function not in AGGREGATES:
            reason = f"{function} is no aggregate of a view; {AVAILABLE}"
            raise VIEW.refused(reason, INSTEAD.get(function, ""), column=item.name)
        hint = "keep the aggregate as a column, and compute with it in a query of the view"
        raise SettingsError("an aggregate of a view stands alone", hint=hint, column=item.name)
    _check_nodes(node, {id(node.unalias().this)} if is_session else frozenset(), may_slide=True)
    if not in_group:
        called = node.unalias()
        name = called.name if isinstance(called, exp.Anonymous) else ""
        hint = did_you_mean(name, AGGREGATES) or f"put it into GROUP BY; of aggregates {AVAILABLE}"
        raise SettingsError("a column of the view is neither a key nor an aggregate", hint=hint, column=item.name)


def _check_nodes(top: exp.Expr, passed: frozenset[int] | set[int] = frozenset(), *, may_slide: bool = False) -> None:
    from sqlglot import exp

    counted = {id(one.this) for one in top.walk() if isinstance(one, exp.Count)}
    for node in top.walk():
        if id(node) not in passed:
            check_node(node, VIEW, may_slide=may_slide)
        if isinstance(node, exp.Star) and id(node) not in counted:
            raise VIEW.refused("* is every column; name the ones that count")


def _check_names(names: Sequence[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name.lower().startswith(RESERVED):
            hint = "rename it with AS: names with this prefix are reserved"
            raise SettingsError("a column of the view is taken", hint=hint, column=name)
        if name.casefold() in seen:
            raise SettingsError("the view has two columns of one name", hint="rename one with AS", column=name)
        seen.add(name.casefold())
