"""The tokens of a statement: its words stay as they were written, so what is seen of it has a place among them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

Token = Any
"""sqlglot's token, which it does not export by name."""


def tokens_of(text: str) -> list[Token]:
    """The tokens of a statement, each with its `text`, and `start` and `end`, its first and last character."""
    from sqlglot import tokenize

    return list(tokenize(text, read="spark"))


def outside(tokens: Sequence[Token]) -> Iterator[tuple[int, str]]:
    """Place and kind of each token outside of brackets."""
    depth = 0
    for place, token in enumerate(tokens):
        kind = token.token_type.name
        depth -= kind in ("R_PAREN", "R_BRACKET", "R_BRACE")
        if not depth:
            yield place, kind
        depth += kind in ("L_PAREN", "L_BRACKET", "L_BRACE")


def split(tokens: Sequence[Token]) -> list[list[Token]]:
    """The parts between the commas that are outside of brackets."""
    commas = [place for place, kind in outside(tokens) if kind == "COMMA"]
    starts, ends = [0, *(place + 1 for place in commas)], [*commas, len(tokens)]
    return [list(tokens[start:end]) for start, end in zip(starts, ends, strict=True)]


def place_of_from(tokens: Sequence[Token]) -> int:
    """The place of the clause FROM, or -1. IS DISTINCT FROM is no such clause."""
    before = [None, *(token.token_type.name for token in tokens)]
    return next((place for place, kind in outside(tokens) if kind == "FROM" and before[place] != "DISTINCT"), -1)
