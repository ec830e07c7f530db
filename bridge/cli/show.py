"""How verbs print: tables for people, one JSON document for programs, never both."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from bridge.cli import events
from bridge.verbatim import dumps

__all__ = ["as_json", "console", "count", "note", "print_table", "size", "table"]


def console(*, err: bool = False) -> Console:
    """Return a console that leaves numbers and paths in the text's own colour."""
    return Console(stderr=err, highlight=False)


def as_json(value: Any) -> None:
    """Print one JSON document."""
    click.echo(dumps(value, indent=2).decode(), nl=False)


def size(number: float) -> str:
    """Return bytes for people, in IEC units."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if number < 1024:
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1024
    return f"{number:.1f} TiB"


def count(number: int) -> str:
    """Return a number with thousands apart."""
    return f"{number:,}"


def table(columns: Sequence[str], rows: Sequence[Sequence[str]], *, right: Sequence[str] = ()) -> Table:
    """Return a plain table; `right` names the columns of numbers."""
    result = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 3, 0, 0))
    for column in columns:
        result.add_column(column, justify="right" if column in right else "left", overflow="fold")
    for row in rows:
        result.add_row(*map(Text, row))  # as Text, since `[us, UTC]` would be read as markup
    return result


def note(word: str, style: str, text: str) -> None:
    """Print a coloured word and a text that is not markup; as an event where stderr is for a program."""
    if events.is_json():
        events.emit({"warning": "warning", "error": "error"}.get(word, "info"), word, message=text)
        return
    console().print(Text.assemble((f"{word}:", style), " ", text), soft_wrap=True)


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]], *, right: Sequence[str] = ()) -> None:
    """Print a table; whole lines where nobody watches."""
    out = console()
    if not out.is_terminal:
        out.width = 10_000
    out.print(table(columns, rows, right=right))
