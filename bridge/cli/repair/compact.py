"""`compact`: few files of the right size instead of many small ones."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import click

from bridge.cli import events
from bridge.cli.answer import Answer, is_quiet
from bridge.cli.options import NEEDS_YES, changing, pipeline_verb, streams_option
from bridge.cli.param_types import DURATION, SIZE
from bridge.cli.plain import echo
from bridge.cli.selection import Selection, committed
from bridge.cli.show import console, count, count_of, note, size
from bridge.errors import SettingsError, did_you_mean
from bridge.lake.log import Log, Snapshot
from bridge.lake.state.store import StateStore
from bridge.settings.options import Pipeline

if TYPE_CHECKING:
    from bridge.lake.file_records import FileAdd
    from bridge.load.maintain.compact import Compacted


@click.command()
@pipeline_verb
@streams_option
@click.option("--to-size", type=SIZE, metavar="SIZE", help="Size of the new files, such as 256MiB; else `file_size`.")
@click.option(
    "--older-than", type=DURATION, metavar="AGE", help="Only files that were committed this long ago, such as 1d."
)
@changing(NEEDS_YES)
def compact(
    selection: Selection, *, streams: tuple[str, ...], to_size: int | None, older_than: timedelta | None, answer: Answer
) -> None:
    """Merge the small files of tables into large ones, partition by partition, sorted as `sort_by` says.

    This is one commit: rows and STATE stay the same, and the old files are kept for `retention.trash`. Neither the tap
    nor Spark is started. A pipeline that a run holds is left alone: exit code 4.

    \b
    singer-bridge compact flights --dry-run
    singer-bridge compact flights -s public-orders --older-than 1d --yes
    """
    from bridge.load.maintain.compact import CompactOptions, by_table, pieces
    from bridge.load.maintain.compact import compact as join

    pipeline = selection.pipeline(source=False, tables=True).with_names
    storage, snapshot = committed(pipeline)
    answer.require_consent("to compact all the same: --yes; --dry-run shows it")
    if not answer.dry_run:
        StateStore.at(storage, pipeline.name).refuse_if_held()
    options = CompactOptions(_tables(snapshot, pipeline, streams), to_size, older_than)
    planned = pieces(Log(storage, pipeline.name), snapshot, pipeline, options)
    if planned and (answer.asks or not is_quiet()):
        _show(by_table(planned))
    compacted = None
    if planned and answer.goes_ahead("compact?"):
        with console(err=True).status("compacting") as shown:
            compacted = join(storage, pipeline, options, lambda n, of: shown.update(f"compacting, {n} of {of}"))
        for text in compacted.notes:
            note("note", "bold", text)
    joined = compacted.pieces if compacted else planned  # a run may have ended since the plan was made
    _finish(answer, pipeline.name, snapshot.n, by_table(joined), compacted)


def _tables(snapshot: Snapshot, pipeline: Pipeline, streams: Sequence[str]) -> frozenset[str]:
    """The tables of these streams. Raises `SettingsError` for a stream without a table."""
    chosen = list[str]()
    for stream in streams:
        tables = [name for name in (stream, *pipeline.names_of(stream)) if name in snapshot.stream_tables]
        if not tables:
            hint = "views are not compacted: each change rewrites their files" if stream in snapshot.tables else ""
            hint = (
                hint
                or did_you_mean(stream, snapshot.stream_tables)
                or "`singer-bridge tables list` shows those there are"
            )
            raise SettingsError("there is no such table", hint=hint, stream=stream)
        chosen.append(tables[0])
    return frozenset(chosen)


def _show(tables: dict[str, dict[str, int]]) -> None:
    """Print on stderr what changes, table by table."""
    for stream, facts in tables.items():
        if events.is_json():
            events.emit("info", "table", stream=stream, **facts)
            continue
        parts = f" in {count_of(facts['partitions'], 'partition')}" if facts["partitions"] > 1 else ""
        line = f"{stream}: {count_of(facts['files'], 'small file')}{parts}, {size(facts['bytes'])}"
        console(err=True).print(f"{line}, {count_of(facts['rows'], 'row')}", markup=False, soft_wrap=True)


def _finish(
    answer: Answer, name: str, head: int, tables: dict[str, dict[str, int]], compacted: Compacted | None
) -> None:
    new = {stream: (compacted.written.get(stream, []) if compacted else []) for stream in tables}
    for stream, files in new.items() if compacted and not answer.json_output else ():
        facts, after = tables[stream], sum(file.size for file in files)
        line = f"{count(facts['files'])} files, {size(facts['bytes'])}, are now {count(len(files))}, {size(after)}"
        echo(f"{stream}: {line}")
    commit = compacted.head if compacted else head
    text = f"compacted by commit {commit}" if tables else "nothing to do, no table has small files to join"
    answer.finish(name, commit, {"tables": _as_json(tables, new)}, text, changes=bool(tables))


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
