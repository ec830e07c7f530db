"""`state export`, `state import`: convert to and from the formats of other tools."""

from __future__ import annotations

import sys
from collections.abc import Collection
from pathlib import Path
from typing import Any

import click

from bridge.cli.answer import Answer
from bridge.cli.confirm import change, store_of
from bridge.cli.options import changing, pipeline_verb, streams_option
from bridge.cli.plain import plain
from bridge.cli.selection import Selection
from bridge.cli.show import as_json, console
from bridge.errors import SettingsError
from bridge.exact_json import NotJson, dumps, loads
from bridge.lake.state.exchange import FORMATS, Format
from bridge.lake.state.exchange.foreign import ConversionRequest, Converted
from bridge.lake.storage import open_storage
from bridge.protocol.singer.state import bookmark, is_flat
from bridge.protocol.singer.state_edits import with_bookmarks

_FORMAT = click.option(
    "--format", "format_name", type=click.Choice(list(FORMATS)), required=True, help="Which tool's format."
)
_AS = click.option(
    "--as",
    "as_tap",
    metavar="TAP",
    help="With olake: the tap whose own positions in a database's log are converted, by its package's name.",
)


@click.command("export")
@pipeline_verb
@_FORMAT
@_AS
@streams_option
@click.option("-o", "--output", type=click.Path(path_type=Path, dir_okay=False), help="A file, instead of stdout.")
def export(
    selection: Selection, format_name: str, as_tap: str | None, streams: tuple[str, ...], output: Path | None
) -> None:
    """Write the STATE in the format of another tool.

    \b
    singer-bridge state export flights --format singer -o state.json
    singer-bridge state export flights --format olake -s public-users
    """
    tool = _format(format_name, as_tap)
    pipeline = selection.pipeline(source=False).pipeline
    state = store_of(pipeline).get()
    if state is None:
        raise SettingsError("there is no STATE to export", hint="run the pipeline first", pipeline=pipeline.name)
    if streams:
        state = {"bookmarks": _of(state, streams, "the STATE")}
    converted = tool.write(state, ConversionRequest(streams=streams, tap=as_tap))
    if output is None:
        as_json(converted.value)
    else:  # durable, and complete or not at all
        open_storage(str(output.absolute().parent)).write(output.name, dumps(converted.value, indent=2))
    _print_notes(converted)


@click.command("import")
@pipeline_verb
@click.argument("source", metavar="FILE", required=False)
@_FORMAT
@_AS
@streams_option
@click.option("--id", "which", metavar="ID", help="Which one, if there are several: Meltano's state ID, a pipeline.")
@changing()
def import_(
    selection: Selection,
    *,
    source: str | None,
    format_name: str,
    as_tap: str | None,
    streams: tuple[str, ...],
    which: str | None,
    answer: Answer,
) -> None:
    """Replace the STATE by that of another tool. FILE is a file, its folder, or - for stdin.

    With -s, only the bookmarks of these streams.

    \b
    singer-bridge state import flights state.json --format meltano
    singer-bridge state import flights olake/state.json --format olake -s public-users --as meltanolabs-tap-postgres
    """
    selection, source = last_is_value(selection, source, "no file was given", "give FILE, or - for stdin")
    tool = _format(format_name, as_tap)
    converted = tool.read(_content(tool, format_name, source, which), ConversionRequest(which, streams, as_tap))
    state = converted.value
    _print_notes(converted)
    given = _of(state, streams, "the file") if streams else {}
    pipeline = selection.pipeline().pipeline
    words = [f"state import --format {format_name}", *([f"--as {as_tap}"] if as_tap else [])]
    reason = " ".join([*words, *(f"-s {stream}" for stream in streams)])
    change(pipeline, lambda old: with_bookmarks(old, given) if streams else state, answer, reason)


def _format(name: str, tap: str | None) -> Format:
    """The format. Raises `SettingsError` for a tap whose positions cannot be converted."""
    tool = FORMATS[name]
    if tap is not None and tap not in tool.taps:
        hint = f"one of: {', '.join(tool.taps)}" if tool.taps else "leave it out: the positions are the tap's own"
        raise SettingsError(f"--as does not know this tap for the format {name}", hint=hint, tap=tap)
    return tool


def _print_notes(converted: Converted) -> None:
    for text in converted.notes:
        console(err=True).print(f"note: {plain(text)}", soft_wrap=True, markup=False)


def _of(state: Any, streams: Collection[str], where: str) -> dict[str, Any]:
    """The bookmarks of these streams. Raises `SettingsError` for a missing one."""
    if is_flat(state):
        hint = "leave out --stream and take the whole STATE"
        raise SettingsError("this STATE cannot be taken apart: it has no `bookmarks`", hint=hint)
    missing = [stream for stream in streams if stream not in state["bookmarks"]]
    if missing:
        hint = f"there are: {', '.join(state['bookmarks']) or 'none'}"
        raise SettingsError(f"no such stream in {where}", hint=hint, stream=missing[0])
    return {stream: bookmark(state, stream) for stream in streams}


def _content(tool: Format, format_name: str, source: str, which: str | None) -> bytes:
    path = Path(source)
    if not path.is_dir():
        return read_argument(source, inline=False)
    if tool.place is None:
        raise SettingsError("this is a folder", hint=f"give the file that {format_name} keeps its STATE in", path=path)
    return read_argument(str(tool.place(path, which)), inline=False)


def last_is_value(selection: Selection, value: str | None, missing: str, hint: str) -> tuple[Selection, str]:
    """Take a single word for the value instead of NAME, which is not needed if there is one pipeline."""
    if value is None:
        selection, value = selection.of(None), selection.word
    if value is None:
        raise SettingsError(missing, hint=hint)
    return selection, value


def read_argument(value: str, *, inline: bool = True) -> bytes:
    """The bytes that an argument stands for: stdin for `-`, JSON itself, or a file's content."""
    if value == "-":
        return sys.stdin.buffer.read()
    if inline and _is_json(value):
        return value.encode()
    try:
        return Path(value).read_bytes()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        message = "this is neither JSON nor a file" if inline else f"cannot read the file: {reason}"
        raise SettingsError(message, hint="give the path of a file, or - for stdin", given=value[:200]) from None


def _is_json(value: str) -> bool:
    """Whether the argument is meant as JSON: a JSON error helps more then than that of a missing file."""
    if value.lstrip().startswith(("{", "[")):
        return True
    try:
        loads(value)
    except NotJson:
        return False
    return True
