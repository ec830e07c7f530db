"""How verbs print: tables for people, one JSON document for programs, never both."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime, timezone
from typing import Any

import click
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment, Segments
from rich.table import Table
from rich.text import Text

from bridge.cli import events
from bridge.cli.plain import plain
from bridge.exact_json import dumps
from bridge.findings import Status

_MARKS: dict[Status, tuple[str, str]] = {
    "ok": ("✓ ", "green"),
    "passed": ("✓ ", "green"),
    "warning": ("! ", "yellow"),
    "error": ("✗ ", "red"),
    "failed": ("✗ ", "red"),
    "skipped": ("- ", "dim"),
}
_GAP = 3
"""Cells between two columns."""

_WORD = 20
"""Cells. A longer word, such as a JSON value without blanks, may be cut to make a table fit."""


class _Console(Console):
    """A console that lets only its own colours reach the terminal, whatever the text holds."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Yield the segments without control characters."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(plain(segment.text), segment.style)


def console(*, err: bool = False) -> Console:
    """A console that does not colour numbers and paths."""
    return _Console(stderr=err, highlight=False)


def as_json(value: Any) -> None:
    """Print one JSON document."""
    click.echo(dumps(value, indent=2).decode(), nl=False)


def size(number: float) -> str:
    """A number of bytes for people, in IEC units."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if number < 1024:
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1024
    return f"{number:.1f} TiB"


def count(number: int) -> str:
    """A number with commas between thousands."""
    return f"{number:,}"


def count_of(number: int, thing: str) -> str:
    """`1 commit`, `2 commits`."""
    return f"{count(number)} {thing}" if number == 1 else f"{count(number)} {thing}s"


def records_of(status: str, read: int | None, committed: int) -> str:
    """`1,200 records`; of a run that did not succeed also how many of those that it read it committed."""
    if status == "success" or read is None or read == committed:
        return count_of(committed, "record")
    return f"{count_of(read, 'record')} read, {count(committed)} committed"


def moment(at: str | None) -> str:
    """A time in ISO format for people: to the second, in UTC as all that are shown; text that is no time as it is."""
    if not at:
        return ""
    try:
        time = datetime.fromisoformat(at.replace("Z", "+00:00"))
    except ValueError:
        return plain(at)
    return f"{time.astimezone(timezone.utc):%Y-%m-%d %H:%M:%S}Z"


def note(word: str, style: str, text: str) -> None:
    """Print a coloured word and a text. If stderr is for a program, this is an event."""
    if events.is_json():
        events.emit({"warning": "warning", "error": "error"}.get(word, "info"), word, message=text)
        return
    console().print(Text.assemble((f"{word}:", style), " ", plain(text)), soft_wrap=True)


def marked(status: Status, *parts: str) -> Text:
    """The mark of a finding's status, and a text."""
    return Text.assemble(_MARKS[status], *parts)


def print_table(
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    right: Sequence[str] = (),
    folds: Sequence[str] = (),
    less: Sequence[str] = (),
    readable: int | None = None,
    styles: Sequence[str] = (),
    without: Collection[str] = (),
) -> None:
    """Print a table, without its columns in `without`. Ids, numbers and headings are never cut.

    `right` names the columns of numbers. On a terminal that is too narrow, columns in `less` are left out, the first
    one first, and those in `folds` take several lines. If that is not enough, lines are longer than the terminal.
    Without a terminal nothing is changed. `readable` is a width of columns in `folds` at which none of `less` is left
    out for them; None: their full width. `styles` has a style for each row. Columns that were left out and are not
    empty are named below the table.
    """
    out = console()
    rows = [[plain(cell) for cell in row] for row in rows]
    widths = {name: _natural(plain(name), [row[place] for row in rows]) for place, name in enumerate(columns)}
    shown = [name for name in columns if name not in without]
    if out.is_terminal:
        needed = widths | {name: min(widths[name], readable) for name in folds if readable}
        for name in less:
            if _total([needed[each] for each in shown]) > out.width and name in shown:
                shown.remove(name)
        widths = _folded({name: widths[name] for name in shown}, folds, columns, rows, out.width)
    result = Table(box=None, pad_edge=False, header_style="bold", padding=(0, _GAP, 0, 0))
    for name in shown:
        result.add_column(
            Text(plain(name)), justify="right" if name in right else "left", overflow="fold", width=widths[name]
        )
    for row, style in zip(rows, styles or [""] * len(rows), strict=True):
        # as Text, since `[us, UTC]` would be read as markup
        result.add_row(*(Text(cell) for name, cell in zip(columns, row, strict=True) if name in shown), style=style)
    out.width = max(out.width, _total([widths[name] for name in shown]) + _GAP)
    for line in out.render_lines(result, pad=False):
        out.print(Segments([*_trimmed(line), Segment.line()]), soft_wrap=True, end="")
    full = {name for place, name in enumerate(columns) if any(row[place] for row in rows)}
    missing = [name for name in columns if name in full and name not in shown and name not in without]
    if missing:
        note("not shown", "dim", f"{', '.join(missing)}; {_how_to_see()}")


def _how_to_see() -> str:
    """Say how to see the columns that were left out."""
    ctx = click.get_current_context(silent=True)
    has_json = ctx is not None and any("--json" in parameter.opts for parameter in ctx.command.params)
    return "a wider terminal has room, or --json" if has_json else "a wider terminal has room"


def _trimmed(line: list[Segment]) -> list[Segment]:
    """Remove the blanks at a line's end: a terminal that is too narrow would show them as empty lines."""
    while line and not line[-1].text.strip():
        line = line[:-1]
    return [*line[:-1], *(Segment(last.text.rstrip(), last.style) for last in line[-1:])]


def _natural(name: str, cells: Sequence[str]) -> int:
    return max(cell_len(line) for text in (name, *cells) for line in text.splitlines() or [""])


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + _GAP * (len(widths) - 1)


def _folded(
    widths: dict[str, int], folds: Sequence[str], columns: Sequence[str], rows: Sequence[Sequence[str]], room: int
) -> dict[str, int]:
    """Narrow the columns of `folds` until all fit into `room`: the widest first, none below its longest word."""
    least = {}
    for place, name in enumerate(columns):
        if name in folds and name in widths:
            words = (word for row in rows for word in row[place].split())
            least[name] = max(cell_len(name), min(_WORD, max(map(cell_len, words), default=0)))
    widths = dict(widths)
    for _ in range(_total(list(widths.values())) - room):
        wide = [name for name in least if widths[name] > least[name]]
        if not wide:
            break
        widths[max(wide, key=lambda name: widths[name])] -= 1
    return widths
