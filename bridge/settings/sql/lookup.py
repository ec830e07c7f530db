"""Look-ups of a `transform`: `LEFT JOIN` and `JOIN` with small tables of the bucket, by columns that are equal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bridge.errors import SettingsError
from bridge.settings.sql.tokens import Token, outside

if TYPE_CHECKING:
    from sqlglot import exp

_EXAMPLE = "such as: SELECT s.*, c.name AS customer FROM stream s LEFT JOIN crm.customers c ON c.id = s.customer_id"
_NAME = {"this", "db", "catalog", "alias"}
_JOINS = {("", ""), ("", "INNER"), ("LEFT", ""), ("LEFT", "OUTER")}


@dataclass(frozen=True, slots=True)
class Lookup:
    """A table in which rows are looked up: at most one for each row."""

    pipeline: str
    """The pipeline that loads it; empty: the one that has the statement."""
    table: str
    alias: str
    """Its name in the statement."""
    keys: tuple[str, ...]
    """The columns by which a row is found."""
    columns: frozenset[str] | None
    """Names, in lower case, of which those of the table are read; None: all."""
    start: int
    end: int
    """Its place in the statement: the first character of its name, and the one after it."""
    is_aliased: bool
    """Whether the statement gives it another name."""
    leaves_out: bool
    """Whether a row that finds none is left out: it is no LEFT JOIN."""

    def __str__(self) -> str:
        return f"{self.pipeline}.{self.table}" if self.pipeline else self.table


def read_lookups(select: exp.Select, stream: str, tokens: Sequence[Token]) -> tuple[Lookup, ...]:
    """The look-ups of a statement with these tokens, in which the stream has that name.

    Raises `SettingsError` for any other join.
    """
    from sqlglot import exp

    joins = select.args.get("joins") or []
    places = [place for place, kind in outside(tokens) if kind == "JOIN"]
    if len(places) != len(joins):
        raise _refused("tables are joined by a comma")
    names = {part.name.lower() for column in select.find_all(exp.Column) for part in column.parts}
    starred = {column.table.lower() for column in select.find_all(exp.Column) if isinstance(column.this, exp.Star)}
    if joins and any(isinstance(one, exp.Star) for one in select.expressions):
        raise SettingsError("* is of which table?", hint="write s.* for the stream's columns, where s is its name")
    lookups = tuple(
        _lookup(join, tokens[place + 1 :], names, starred) for join, place in zip(joins, places, strict=True)
    )
    aliases = [stream.lower(), *(one.alias.lower() for one in lookups)]
    if twice := next((alias for alias in aliases if aliases.count(alias) > 1), None):
        hint = "give one of them another name: JOIN crm.customers c2"
        raise SettingsError("two tables of a transform have one name", hint=hint, name=twice)
    return lookups


def _lookup(join: exp.Join, tokens: Sequence[Token], names: set[str], starred: set[str]) -> Lookup:
    from sqlglot import exp

    side, kind = (str(join.args.get(part) or "").upper() for part in ("side", "kind"))
    if (side, kind) not in _JOINS or join.args.get("method"):
        raise _refused("only LEFT JOIN and JOIN look up rows of another table")
    table = join.this
    is_plain = isinstance(table, exp.Table) and not any(table.args[key] for key in table.args.keys() - _NAME)
    is_plain = is_plain and not table.alias_column_names
    if not is_plain or table.catalog or not table.this.name:
        raise _refused("what is joined is a table: its name, or PIPELINE.NAME")
    parts = 3 if table.db else 1
    written = [token.text for token in tokens[:parts:2]]
    if written != [name for name in (table.db, table.name) if name]:
        raise _refused("the name of a table cannot be read")
    alias = table.alias or table.name
    keys = tuple(one.name for one in join.args.get("using") or ()) or tuple(_keys(join.args.get("on"), alias))
    columns = None if alias.lower() in starred else frozenset({*names, *(key.lower() for key in keys)})
    place = tokens[0].start, tokens[parts - 1].end + 1
    return Lookup(table.db, table.name, alias, keys, columns, *place, bool(table.alias), not side)


def _keys(condition: exp.Expr | None, alias: str) -> Iterator[str]:
    """Yield the columns of the table that the condition has, each to be equal to something of the row."""
    from sqlglot import exp

    for part in _parts(condition):
        sides = [part.this.unnest(), part.expression.unnest()] if isinstance(part, exp.EQ) else []
        own = [side for side in sides if isinstance(side, exp.Column) and side.table.lower() == alias.lower()]
        others = [side for side in sides if side not in own]
        tables = [column.table.lower() for side in others for column in side.find_all(exp.Column)]
        if len(own) != 1 or not tables or alias.lower() in tables:
            raise _refused(f"ON has columns of {alias} that equal something of the row, joined by AND")
        yield own[0].name


def _parts(condition: exp.Expr | None) -> Iterator[exp.Expr | None]:
    """Yield the conditions that AND joins."""
    from sqlglot import exp

    part = condition.unnest() if condition else None
    if isinstance(part, exp.And):
        yield from _parts(part.this)
        yield from _parts(part.expression)
    else:
        yield part


def _refused(reason: str) -> SettingsError:
    return SettingsError(f"not in a transform: {reason}", hint=_EXAMPLE)
