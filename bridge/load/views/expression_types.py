"""The types of a view's expressions as far as its words tell them, without Spark.

Only what is certain: where Spark might see another type, or an error, there is none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from bridge.settings.sql.view import column_parts

if TYPE_CHECKING:
    from sqlglot import exp

_DECIMAL = pa.decimal128(38, 0)
"""Stands for a decimal of any digits."""


class ExpressionTypes:
    """Knows the columns of a stream, by their names in lower case, and what the view calls the stream.

    Of a column of type null only the name is known.
    """

    def __init__(self, columns: pa.Schema, alias: str) -> None:
        by_name: dict[str, list[pa.DataType]] = {}
        for field in columns:
            by_name.setdefault(field.name.lower(), []).append(field.type)
        self._columns = {name: types[0] for name, types in by_name.items() if len(types) == 1}
        self._alias = alias

    def of(self, text: str) -> pa.DataType | None:
        """The type of an expression; of decimals only that it is one. None if that is not certain."""
        from sqlglot import parse_one

        return pa.bool_() if text == "*" else self._of(parse_one(f"SELECT {text}", read="spark").expressions[0])

    def _of(self, node: exp.Expr) -> pa.DataType | None:
        from sqlglot import exp

        if isinstance(node, exp.Column):
            return self._column(node)
        if isinstance(node, exp.Paren):
            return self._of(node.this)
        if isinstance(node, (exp.Neg, exp.Abs, exp.Round)):
            return _number(self._of(node.this))
        if isinstance(node, exp.Cast):
            return _cast(node)
        if isinstance(node, (exp.Add, exp.Sub, exp.Mul, exp.Mod, exp.Div)):
            return self._arithmetic(node)
        if isinstance(node, (exp.Coalesce, exp.If, exp.Case)):
            return _widest([self._of(branch) for branch in _branches(node)])
        if isinstance(node, (exp.Connector, exp.Not, exp.Boolean, exp.Predicate)):
            return pa.bool_()
        return self._literal(node)

    def _column(self, node: exp.Column) -> pa.DataType | None:
        first, *fields = (name.lower() for name in column_parts(node, self._alias))
        type_ = self._columns.get(first)
        for name in fields:
            inner = [one.type for one in type_ or () if one.name.lower() == name] if _is_struct(type_) else []
            type_ = inner[0] if len(inner) == 1 else None
        return None if type_ == pa.null() else type_

    def _arithmetic(self, node: exp.Binary) -> pa.DataType | None:
        from sqlglot import exp

        sides = [self._of(side) for side in (node.this, node.expression)]
        widest = _widest(sides)
        return pa.float64() if isinstance(node, exp.Div) and widest == pa.int64() else widest

    def _literal(self, node: exp.Expr) -> pa.DataType | None:
        from sqlglot import exp

        if not isinstance(node, exp.Literal):
            return None
        if node.is_string:
            return pa.string()
        return pa.int64() if node.name.isdigit() else pa.float64() if "e" in node.name.lower() else _DECIMAL


def _is_struct(type_: pa.DataType | None) -> bool:
    return type_ is not None and pa.types.is_struct(type_)


def _number(type_: pa.DataType | None) -> pa.DataType | None:
    """The type if it is one of numbers."""
    if type_ is not None and pa.types.is_decimal(type_):
        return _DECIMAL
    return type_ if type_ in (pa.int64(), pa.float64()) else None


def _widest(types: list[pa.DataType | None]) -> pa.DataType | None:
    """The type that holds numbers of all these types; None unless all are numbers."""
    numbers = [_number(type_) for type_ in types]
    if not numbers or None in numbers:
        return None
    return next((type_ for type_ in (pa.float64(), _DECIMAL) if type_ in numbers), pa.int64())


def _cast(node: exp.Cast) -> pa.DataType | None:
    from sqlglot import exp

    kinds = exp.DataType.Type
    integers = dict.fromkeys((kinds.TINYINT, kinds.SMALLINT, kinds.INT, kinds.BIGINT), pa.int64())
    types = {kinds.DOUBLE: pa.float64(), kinds.DECIMAL: _DECIMAL, kinds.BOOLEAN: pa.bool_(), kinds.TEXT: pa.string()}
    return (integers | types).get(node.to.this)


def _branches(node: exp.Expr) -> list[exp.Expr]:
    """The expressions one of which is the value of a condition."""
    from sqlglot import exp

    if isinstance(node, exp.Case):
        parts = [one.args.get("true") for one in node.args["ifs"]] + [node.args.get("default")]
    elif isinstance(node, exp.If):
        parts = [node.args.get("true"), node.args.get("false")]
    else:
        parts = [node.this, *node.expressions]
    return [part for part in parts if part is not None and not isinstance(part, exp.Null)]
