"""`transform: SELECT ... FROM stream`: what of a statement is seen without Spark, and how it is put to Spark.

Row by row only: what a row becomes may depend on nothing but the row. Rows come in batches that end anywhere, and a
batch may be run again: a result that depends on its neighbours, on the clock or on chance would differ each time.
The words stay as they were written, but for the name behind FROM, `*`, and one more column that Spark passes through.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from bridge.errors import SettingsError
from bridge.settings.sql.lookup import Lookup, read_lookups
from bridge.settings.sql.tokens import Token, place_of_from, tokens_of

if TYPE_CHECKING:
    from sqlglot import exp


@dataclass(frozen=True, slots=True)
class Kind:
    """A statement's purpose. Messages have its `name` and its `source`; the hints are its `rule`, or an `example`."""

    name: str
    source: str
    """The name of what it selects from."""
    rule: str
    example: str

    def refused(self, reason: str, hint: str = "", **facts: Any) -> SettingsError:
        """The error for a statement that breaks the rule. `hint`: what to write instead, if the rule does not tell."""
        return SettingsError(f"not in a {self.name}: {reason}", hint=hint or self.rule, **facts)

    def not_from(self) -> SettingsError:
        """The error for another clause FROM."""
        return SettingsError(f"a {self.name} selects FROM {self.source}", hint=self.example)

    def slides(self, **facts: Any) -> SettingsError:
        """The error for windows that overlap."""
        hint = "leave out how far it slides: window(at, '1 hour'); a key of a view may have a window that slides"
        return self.refused("a window that slides puts a row into several windows", hint, **facts)

    def check_time(self, text: str, **facts: Any) -> None:
        """Raise `SettingsError` for a text that Spark takes for the time of the run when it casts a constant."""
        if _CLOCK.match(text):
            raise self.refused(f"'{text}' is {_NOT_OF_A_ROW['now']}", **facts)

    def refuses(self, expression: str) -> bool:
        """Whether a class of Spark's, by its name, is of a function that does not look at the row alone."""
        return expression.lower() in {name.replace("_", "") for name in _NOT_OF_A_ROW}

    def unclear(self) -> SettingsError:
        """The error for a statement whose tokens disagree with the parsed statement."""
        return SettingsError(f"the {self.name}'s form is not understood", hint=f"write it simply, {self.example}")


TRANSFORM = Kind(
    "transform",
    "stream",
    "a transform works row by row: its results must not depend on where a batch ends",
    "such as: SELECT id, lower(email) AS email FROM stream WHERE id > 0",
)

CLAUSES = {
    "distinct": "DISTINCT compares rows",
    "group": "GROUP BY gathers rows",
    "having": "HAVING is about groups of rows",
    "qualify": "QUALIFY is about windows over rows",
    "windows": "WINDOW looks at other rows",
    "order": "ORDER BY sorts rows; the setting sort_by sorts them inside a file",
    "sort": "SORT BY sorts rows; the setting sort_by sorts them inside a file",
    "cluster": "CLUSTER BY moves rows; there is the setting partition_by",
    "distribute": "DISTRIBUTE BY moves rows; there is the setting partition_by",
    "limit": "LIMIT counts rows",
    "offset": "OFFSET counts rows",
    "fetch": "FETCH counts rows",
    "laterals": "LATERAL VIEW makes several rows of one",
    "pivots": "PIVOT gathers rows",
    "sample": "TABLESAMPLE takes rows by chance",
    "with_": "WITH makes tables",
    "with": "WITH makes tables",
    "hint": "hints are for joins",
}

_NOT_OF_A_ROW: dict[str, str] = dict.fromkeys(
    [
        "rand",
        "randn",
        "random",
        "randstr",
        "uniform",
        "uuid",
        "shuffle",
        "monotonically_increasing_id",
        "spark_partition_id",
        "input_file_name",
        "input_file_block_start",
        "input_file_block_length",
        "reflect",
        "java_method",
        "try_reflect",
    ],
    "not the same each time",
)
_NOT_OF_A_ROW |= dict.fromkeys(
    ["current_timestamp", "now", "localtimestamp", "current_date", "curdate", "current_time", "getdate", "sysdate"],
    "the time of the run; add_record_metadata gives _sdc_received_at",
)
_NOT_OF_A_ROW |= dict.fromkeys(
    [
        "current_user",
        "user",
        "session_user",
        "current_catalog",
        "current_database",
        "current_schema",
        "current_timezone",
        "version",
    ],
    "of the session, not of the row",
)
_NOT_OF_A_ROW |= dict.fromkeys(
    ["explode", "explode_outer", "posexplode", "posexplode_outer", "inline", "inline_outer", "stack", "json_tuple"],
    "makes several rows of one",
)
_NOT_OF_A_ROW["session_window"] = "of several rows, which decide where a session ends; it may be a key of a view"
"""Refused functions, and why."""

_LENGTHS = {"week": 604_800_000_000, "day": 86_400_000_000, "hour": 3_600_000_000, "minute": 60_000_000}
_LENGTHS |= {"second": 1_000_000, "millisecond": 1000, "microsecond": 1}
_LENGTH = re.compile(rf"([0-9]+)\s+({'|'.join(_LENGTHS)})s?\s*")

_CLOCK = re.compile(r"\s*(now|today|yesterday|tomorrow)\b", re.IGNORECASE)


def quoted(name: str) -> str:
    """Quote a name for Spark."""
    return "`" + name.replace("`", "``") + "`"


@dataclass(frozen=True, slots=True)
class Statement:
    """A checked statement. `alias`: its name for the stream."""

    text: str
    alias: str
    lookups: tuple[Lookup, ...] = ()

    def over(self, view: str, columns: Sequence[str], hidden: str, others: Sequence[str] = ()) -> str:
        """The statement over a view with these columns, and `others` for its look-ups. It also selects `hidden`."""
        tokens = tokens_of(self.text)
        at = place_of_from(tokens)
        edits = [(tokens[at].start, tokens[at].start, f", {quoted(self.alias)}.{quoted(hidden)} ")]
        table = tokens[at + 1]
        named = len(tokens) > at + 2 and tokens[at + 2].token_type.name in ("ALIAS", "VAR", "IDENTIFIER")
        edits.append((table.start, table.end + 1, quoted(view) + ("" if named else f" AS {quoted(self.alias)}")))
        edits += _stars(tokens, self.alias, columns)
        for lookup, other in zip(self.lookups, others, strict=True):
            alias = "" if lookup.is_aliased else f" AS {quoted(lookup.alias)}"
            edits.append((lookup.start, lookup.end, quoted(other) + alias))
        text = self.text
        for start, end, new in sorted(edits, reverse=True):
            text = text[:start] + new + text[end:]
        return text


@lru_cache(100)  # settings are read for each stream anew
def read_transform(text: str) -> Statement:
    """Parse and check the statement, as far as possible without Spark. Raises `SettingsError` with the reason."""
    select, table = read_select(text, TRANSFORM, CLAUSES)
    for node in select.walk():
        if node is not select:
            check_node(node, TRANSFORM)
    if table.name.lower() != "stream":
        raise TRANSFORM.not_from()
    return _placed(text.rstrip().rstrip(";"), table.alias or "stream", select)


def read_select(text: str, kind: Kind, clauses: Mapping[str, str]) -> tuple[exp.Select, exp.Table]:
    """Parse one SELECT without these clauses, from one table. Raises `SettingsError` with the reason."""
    from sqlglot import exp, parse
    from sqlglot.errors import SqlglotError

    try:
        statements = [one for one in parse(text, read="spark") if not isinstance(one, (exp.Semicolon, type(None)))]
    except (SqlglotError, RecursionError) as error:
        cause = re.sub(r"\x1b\[[0-9;]*m", "", str(error)).splitlines()
        hint = (cause or [kind.example])[0]
        raise SettingsError(f"the {kind.name} cannot be read as Spark SQL", hint=hint) from None
    if len(statements) != 1 or not isinstance(statements[0], exp.Select):
        raise SettingsError(f"a {kind.name} is one SELECT", hint=kind.example)
    select = statements[0]
    for clause, reason in clauses.items():
        if select.args.get(clause):
            raise kind.refused(reason)
    source = select.args.get("from_") or select.args.get("from")
    table = source.this if source is not None else None
    if isinstance(table, exp.Subquery):
        raise kind.refused("a subquery reads other rows")
    if not isinstance(table, exp.Table) or table.db or not table.this.name:
        raise kind.not_from()
    if any(table.args.get(clause) for clause in ("pivots", "sample", "laterals", "version", "hints")):
        raise kind.refused("only the stream's own rows are read")
    return select, table


def _placed(text: str, alias: str, select: exp.Select) -> Statement:
    """The statement if our tokens agree with the parsed statement."""
    from sqlglot import exp

    tokens = tokens_of(text)
    at = place_of_from(tokens)
    stars = sum(1 for _ in select.find_all(exp.Star))
    own = len(_stars(tokens, alias, ["x"]))
    others = sum(1 for column in select.find_all(exp.Column) if _is_of_struct(column, alias))
    piped = any(token.text == "|>" for token in tokens)
    if tokens[0].token_type.name != "SELECT" or at < 0 or stars != own + others or piped:
        raise TRANSFORM.unclear()
    return Statement(text, alias, read_lookups(select, alias, tokens[at:]))


def _is_of_struct(column: exp.Column, alias: str) -> bool:
    from sqlglot import exp

    return isinstance(column.this, exp.Star) and column.table.lower() not in ("", alias.lower())


def check_node(node: exp.Expr, kind: Kind, *, may_slide: bool = False) -> None:
    """Raise `SettingsError` for a part of a statement that depends on more than its row.

    `may_slide`: a window may slide there, so that a row is in several.
    """
    from sqlglot import exp

    if isinstance(node, (exp.Query, exp.Subquery)):
        raise kind.refused("a subquery reads other rows")
    if isinstance(node, exp.Window):
        raise kind.refused("a window looks at other rows")
    if isinstance(node, (exp.Placeholder, exp.Parameter)):
        raise SettingsError(f"a {kind.name} has no parameters", hint="write the value; ${VAR} is filled in")
    if isinstance(node, exp.Func):
        _check_function(node, kind, may_slide=may_slide)
    if isinstance(node, exp.Cast) and node.this.is_string:
        kind.check_time(node.this.name)


def _check_function(node: exp.Func, kind: Kind, *, may_slide: bool) -> None:
    from sqlglot import exp

    names = {node.name.lower()} if isinstance(node, exp.Anonymous) else {name.lower() for name in node.sql_names()}
    for name in sorted(names & _NOT_OF_A_ROW.keys()):
        raise kind.refused(f"{name} is {_NOT_OF_A_ROW[name]}".replace("is makes", "makes"))
    if isinstance(node, exp.UDTF):
        raise kind.refused(f"{node.sql_name().lower()} {_NOT_OF_A_ROW['explode']}")
    if isinstance(node, exp.AggFunc):
        raise kind.refused(f"{node.sql_name().lower()} is an aggregate: it gathers rows")
    if names == {"window"} and not may_slide and _slides(node.expressions):
        raise kind.slides()


def _slides(arguments: Sequence[exp.Expr]) -> bool:
    """Whether these arguments of `window` are of one that slides; False if only Spark can read its lengths."""
    lengths = [microseconds(one.name if one.is_string else "") for one in arguments[1:3]]
    return len(lengths) == 2 and None not in lengths and lengths[0] != lengths[1]


def microseconds(text: str) -> int | None:
    """How long an interval such as `1 hour 30 minutes` is; None if it is written in another way."""
    parts = _LENGTH.findall(words := text.strip().lower().removeprefix("interval").strip())
    is_whole = bool(parts) and not _LENGTH.sub("", words)
    return sum(int(number) * _LENGTHS[unit] for number, unit in parts) if is_whole else None


def quoted_column(text: str, columns: Iterable[str], kind: Kind, **facts: str) -> SettingsError | None:
    """The error for a text in double quotes that is the name of a column.

    Spark takes it for a text, the SQL standard for the column: `GROUP BY "at"` would be one group for ever.
    """
    names = {name.casefold(): name for name in columns}
    for token in tokens_of(text):
        if text[token.start] == '"' and (name := names.get(token.text.casefold())) is not None:
            single = token.text.replace("'", "''")
            hint = f"write {quoted(name)} for the column, or '{single}' for the text"
            what = f"a {kind.name} has the name of a column in double quotes, which is a text in Spark SQL"
            return SettingsError(what, hint=hint, **facts, column=name)
    return None


def _stars(tokens: Sequence[Token], alias: str, columns: Iterable[str]) -> list[tuple[int, int, str]]:
    """The edits that replace each `*` over the stream by its columns."""
    edits = []
    for place, token in enumerate(tokens):
        before = [one.token_type.name for one in tokens[max(place - 3, 0) : place]]
        if token.token_type.name != "STAR" or not before:
            continue
        start = token.start
        if before[-1] == "DOT" and tokens[place - 2].text.lower() == alias.lower() and before[:1] != ["DOT"]:
            start = tokens[place - 2].start
        elif before[-1] not in ("SELECT", "COMMA", "L_PAREN"):
            continue
        excluded, end = _excepted(tokens, place)
        names = [f"{quoted(alias)}.{quoted(name)}" for name in columns if name.lower() not in excluded]
        edits.append((start, end + 1, ", ".join(names)))
    return edits


def _excepted(tokens: Sequence[Token], star: int) -> tuple[set[str], int]:
    """The names in `* EXCEPT (...)`, and where it ends."""
    after = tokens[star + 1 : star + 3]
    if [one.token_type.name for one in after] != ["EXCEPT", "L_PAREN"]:
        return set(), tokens[star].end
    names: set[str] = set()
    for token in _until_closed(tokens[star + 3 :]):
        if token.token_type.name == "R_PAREN":
            return names, token.end
        if token.token_type.name != "COMMA":
            names.add(token.text.lower())
    return set(), tokens[star].end


def _until_closed(tokens: Sequence[Token]) -> Iterator[Token]:
    for token in tokens:
        yield token
        if token.token_type.name == "R_PAREN":
            return
