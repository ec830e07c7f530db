"""`state export`, `state import`: to and from the formats of other tools."""

from __future__ import annotations

import sys
from collections.abc import Collection
from pathlib import Path
from typing import Any

import click

from bridge.cli.confirm import Answer, change, store_of
from bridge.cli.selection import changing, choose, options
from bridge.cli.show import as_json
from bridge.errors import SettingsError
from bridge.exact_json import NotJson, dumps, loads
from bridge.singer.state import bookmark, is_flat
from bridge.singer.state_edits import with_bookmarks
from bridge.state.exchange import FORMATS, Format
from bridge.storage import open_storage

_FORMAT = click.option("--format", "format_name", type=click.Choice(list(FORMATS)), required=True, help="Whose format.")
_STREAMS = click.option(
    "-s", "--stream", "streams", multiple=True, metavar="STREAM", help="Only this one; may be repeated."
)


@click.command("export", short_help="Write the STATE for another tool.")
@options
@_FORMAT
@_STREAMS
@click.option("-o", "--output", type=click.Path(path_type=Path, dir_okay=False), help="A file, instead of stdout.")
def export(
    name: str | None,
    file: Path | None,
    to: str | None,
    pipeline_name: str | None,
    format_name: str,
    streams: tuple[str, ...],
    output: Path | None,
) -> None:
    """Write the STATE as another tool reads it.

    \b
    singer-bridge state export flights --format singer -o state.json
    singer-bridge state export flights --format olake -s public-users
    """
    pipeline = choose(name, file, to, pipeline_name, look=True).pipeline
    state = store_of(pipeline).get()
    if state is None:
        raise SettingsError("there is no STATE to export", hint="run the pipeline first", pipeline=pipeline.name)
    if streams:
        state = {"bookmarks": _of(state, streams, "the STATE")}
    document = FORMATS[format_name].write(state)
    if output is None:
        as_json(document)
    else:  # as in a bucket: durable, and whole or not at all
        open_storage(str(output.absolute().parent)).write(output.name, dumps(document, indent=2))


@click.command("import", short_help="Take over the STATE of another tool.")
@options
@click.argument("source", metavar="FILE", required=False)
@_FORMAT
@_STREAMS
@click.option("--id", "which", metavar="ID", help="Which one, where there are several: Meltano's state ID, a pipeline.")
@changing
def import_(
    name: str | None,
    source: str | None,
    file: Path | None,
    to: str | None,
    pipeline_name: str | None,
    format_name: str,
    streams: tuple[str, ...],
    which: str | None,
    **said: bool,
) -> None:
    """Replace the STATE by what another tool stored: a file, its folder, or - for stdin. With -s, some bookmarks.

    \b
    singer-bridge state import flights state.json --format meltano
    singer-bridge state import flights olake/state.json --format olake -s public-users
    """
    if source is None:
        name, source = None, name
    if source is None:
        raise SettingsError("no file was given", hint="give FILE, or - for stdin")
    tool = FORMATS[format_name]
    state = tool.read(_content(tool, format_name, source, which), which, streams)
    given = _of(state, streams, "the file") if streams else {}
    pipeline = choose(name, file, to, pipeline_name).pipeline
    reason = " ".join([f"state import --format {format_name}", *(f"-s {stream}" for stream in streams)])
    change(pipeline, lambda old: with_bookmarks(old, given) if streams else state, Answer(**said), reason)


def _of(state: Any, streams: Collection[str], where: str) -> dict[str, Any]:
    """Return the bookmarks of these streams. Raises `SettingsError` for one that is not there."""
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


def read_argument(value: str, *, inline: bool = True) -> bytes:
    """Return what an argument means: stdin for `-`, JSON itself, or a file's content. Raises `SettingsError`."""
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
    """Whether the argument is JSON, or was meant to be: then its error is of more help than that of a missing file."""
    if value.lstrip().startswith(("{", "[")):
        return True
    try:
        loads(value)
    except NotJson:
        return False
    return True
