"""Texts of PostgreSQL's log, read as the values that a query of the same row gives.

Taps pass on what the log's plugin writes: an array as `{1,2,NULL}`, infinite dates as `infinity`. A row must be the
same in the lake, from a query or from the log. For JSON see `log_json.py`.
"""

from __future__ import annotations

import re
from typing import Any

INFINITE = {"infinity": "9999-12-31T23:59:59.999999Z", "-infinity": "0001-01-01T00:00:00Z"}
"""The instants that taps give for these when they query."""

_TOKEN = re.compile(
    r'(?P<mark>[{},])|"(?P<quoted>(?:[^"\\]|\\.)*)"|(?P<plain>[^{},"\\\s](?:[^{},"\\]*[^{},"\\\s])?)', re.DOTALL
)
_BOUNDS = re.compile(r"(?:\[-?\d+:-?\d+\])+=")
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)


def array_items(text: str) -> list[Any]:
    """The items of an array as PostgreSQL writes it: texts, None, and lists where it has more dimensions.

    Raises `ValueError` for any other text.
    """
    bounds = _BOUNDS.match(text)
    tokens = _tokens(text[bounds.end() :] if bounds else text)
    stack: list[list[Any]] = [[]]
    before = ","
    for kind, value in tokens:
        begins_item = before in ("{", ",")
        if kind == "item" or value == "{":
            if not begins_item or (len(stack) == 1 and (value != "{" or kind == "item" or stack[0])):
                raise ValueError("not an array")
            if kind == "item":
                stack[-1].append(value)
            else:
                stack.append([])
        elif len(stack) == 1 or (value == "," and begins_item) or (value == "}" and before == ","):
            raise ValueError("not an array")
        elif value == "}":
            inner = stack.pop()
            stack[-1].append(inner)
        before = "item" if kind == "item" else str(value)
    if len(stack) != 1 or not stack[0]:
        raise ValueError("not an array")
    items: list[Any] = stack[0][0]
    return items


def _tokens(text: str) -> list[tuple[str, str | None]]:
    """The marks and the items of an array's text; an unquoted NULL is None."""
    tokens: list[tuple[str, str | None]] = []
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise ValueError("not an array")
        at = match.end()
        if match["mark"]:
            tokens.append(("mark", match["mark"]))
        elif match["quoted"] is not None:
            tokens.append(("item", _ESCAPED.sub(r"\1", match["quoted"])))
        else:
            tokens.append(("item", None if match["plain"].upper() == "NULL" else match["plain"]))
    return tokens
