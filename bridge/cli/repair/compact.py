"""`compact`: few files of the right size instead of many small ones."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bridge.cli import events
from bridge.cli.param_types import DURATION, SIZE
from bridge.cli.plain import echo
from bridge.cli.selection import choose, committed, options
from bridge.cli.show import as_json, console, count, count_of, note, size
from bridge.errors import SettingsError, did_you_mean
from bridge.lake.log import Log, View
from bridge.settings.options import Pipeline
from bridge.state.store import StateStore

if TYPE_CHECKING:
    from bridge.lake.records import FileAdd
    from bridge.maintain.compact import Compacted, Piece


@click.command(short_help="Join the small files of tables.")
@options
@click.option("-s", "--stream", "streams", multiple=True, metavar="STREAM", help="Only this table; may be repeated.")
@click.option("--to-size", type=SIZE, metavar="SIZE", help="Size of the new files, such as 256MiB; else `file_size`.")
@click.option("--older-than", type=DURATION, metavar="AGE", help="Only files that were committed so long ago, as 1d.")
@click.option("--dry-run", is_flag=True, help="Show what it would do; change nothing.")
@click.option("--yes", is_flag=True, help="Do not ask; without a terminal it is needed.")
@click.option("--json", "json_output", is_flag=True, help="Print one JSON object.")
def compact(
    name: str | None,
    file: Path | None,
    to: str | None,
    pipeline_name: str | None,
    *,
    streams: tuple[str, ...],
    to_size: int | None,
    older_than: timedelta | None,
    dry_run: bool,
    yes: bool,
    json_output: bool,
) -> None:
    """Write the small files of tables anew as few large ones, partition by partition, sorted as `sort_by` says.

    It is one commit: rows and STATE stay as they are, and the old files are kept for `retention.trash`. Neither the
    tap nor Spark is started. A pipeline that a run holds is left alone: exit code 4.

    \b
    singer-bridge compact flights --dry-run
    singer-bridge compact flights -s public-orders --older-than 1d --yes
    """
    from bridge.maintain.compact import Wish, pieces
    from bridge.maintain.compact import compact as join

    pipeline = choose(name, file, to, pipeline_name, look=True).named
    storage, view = committed(pipeline)
    asks = not (dry_run or yes)
    if asks and not sys.stdin.isatty():
        raise SettingsError("nobody is there to be asked", hint="to compact all the same: --yes; --dry-run shows it")
    if not dry_run:
        StateStore.at(storage, pipeline.name).refuse_if_held()
    wish = Wish(_tables(view, pipeline, streams), to_size, older_than)
    found = pieces(Log(storage, pipeline.name), view, pipeline, wish)
    quiet, done = bool(click.get_current_context().meta.get("bridge.quiet")), None
    if found and (asks or not quiet):
        _show(found)
    if found and not dry_run:
        if asks:
            click.confirm("compact?", abort=True, err=True)
        err = console(err=True)
        with err.status("compacting") as shown:
            done = join(storage, pipeline, wish, lambda n, of: shown.update(f"compacting, {n} of {of}"))
        for text in done.notes:
            note("note", "bold", text)
    _finish(pipeline.name, done.head if done else view.n, found, done, dry_run=dry_run, json_output=json_output)


def _tables(view: View, pipeline: Pipeline, streams: Sequence[str]) -> frozenset[str]:
    """Return the tables of the streams that were asked for. Raises `SettingsError` for one that has none."""
    found = list[str]()
    for stream in streams:
        tables = [name for name in (stream, *pipeline.names_of(stream)) if name in view.tables]
        if not tables:
            hint = did_you_mean(stream, view.tables) or "`singer-bridge tables list` shows those there are"
            raise SettingsError("there is no such table", hint=hint, stream=stream)
        found.append(tables[0])
    return frozenset(found)


def _before(found: Sequence[Piece]) -> dict[str, dict[str, int]]:
    """Return by stream what the files that go come to."""
    tables: dict[str, dict[str, int]] = {}
    for one in found:
        facts = tables.setdefault(one.stream, {"partitions": 0, "files": 0, "bytes": 0, "rows": 0})
        facts["partitions"] += 1
        facts["files"] += len(one.names)
        facts["bytes"] += one.size
        facts["rows"] += one.rows
    for stream, facts in tables.items():
        facts["partitions"] = len({one.folder for one in found if one.stream == stream})
    return tables


def _show(found: Sequence[Piece]) -> None:
    """Say on stderr what changes, table by table."""
    for stream, facts in _before(found).items():
        if events.is_json():
            events.emit("info", "table", stream=stream, **facts)
            continue
        parts = f" in {count_of(facts['partitions'], 'partition')}" if facts["partitions"] > 1 else ""
        line = f"{stream}: {count_of(facts['files'], 'small file')}{parts}, {size(facts['bytes'])}"
        console(err=True).print(f"{line}, {count_of(facts['rows'], 'row')}", markup=False, soft_wrap=True)


def _finish(
    name: str, head: int, found: Sequence[Piece], done: Compacted | None, *, dry_run: bool, json_output: bool
) -> None:
    found = done.pieces if done else found  # a run may have ended meanwhile
    tables = _before(found)
    new = {stream: (done.written.get(stream, []) if done else []) for stream in tables}
    if json_output:
        as_json({"format": 1, "pipeline": name, "commit": head, "dry_run": dry_run, "tables": _as_json(tables, new)})
    elif not found:
        click.echo(f"{name}: nothing to do, no table has small files to join")
    elif dry_run:
        click.echo("dry run: nothing was changed")
    else:
        for stream, files in new.items():
            facts, after = tables[stream], sum(file.size for file in files)
            line = f"{count(facts['files'])} files, {size(facts['bytes'])}, are now {count(len(files))}, {size(after)}"
            echo(f"{stream}: {line}")
        click.echo(f"{name}: compacted by commit {head}")


def _as_json(tables: dict[str, dict[str, int]], new: dict[str, list[FileAdd]]) -> list[dict[str, Any]]:
    return [
        {
            "stream": stream,
            "partitions": facts["partitions"],
            "rows": facts["rows"],
            "files_before": facts["files"],
            "files_after": len(new[stream]) or None,
            "bytes_before": facts["bytes"],
            "bytes_after": sum(file.size for file in new[stream]) or None,
        }
        for stream, facts in tables.items()
    ]
