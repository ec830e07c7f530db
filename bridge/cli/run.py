"""`run`: load one pipeline."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from bridge.cli import report
from bridge.cli.choose import choose, options
from bridge.cli.later import later_options
from bridge.cli.show import as_json, console, count, note, size, table
from bridge.errors import BridgeError, SettingsError
from bridge.verbatim import NotJson, loads

__all__ = ["run"]


@click.command(short_help="Load one pipeline.")
@options
@click.option("--tap", metavar="COMMAND", help="Tap to run, with its flags; needs --to.")
@click.option("--tap-config", metavar="FILE|JSON", help="The tap's settings: a file, or JSON; needs --to.")
@click.option("--catalog", metavar="FILE", help="Catalog to pass to the tap; needs --to.")
@click.option("--load-method", metavar="M", help="auto, append-only or overwrite; needs --to.")
@click.option("-s", "--stream", "streams", multiple=True, metavar="STREAM", help="Only this stream; may be repeated.")
@click.option(
    "--full", "--full-refresh", is_flag=True, help="Start from the beginning and replace the tables at the end."
)
@click.option("--append", is_flag=True, help="With --full: append to append-only tables all the same.")
@click.option("--state", "state_file", type=click.Path(path_type=Path), metavar="FILE", help="Start from this STATE.")
@click.option("--refresh-catalog", is_flag=True, help="Discover again.")
@click.option("--dry-run", is_flag=True, help="Say what would happen, and why; change nothing.")
@click.option("--json", "json_output", is_flag=True, help="Print one JSON object, and nothing else on stdout.")
@click.option("--no-progress", is_flag=True, help="No progress while it runs.")
@click.option("-q", "--quiet", is_flag=True, help="Print errors only.")
@click.option("-v", "--verbose", is_flag=True, help="Show the tap's log and full tracebacks.")
@later_options("--timeout", "--max-records", "--wait", switches=("--all", "--keep-going"))
def run(
    name: str | None,
    file: Path | None,
    to: str | None,
    pipeline_name: str | None,
    *,
    tap: str | None,
    tap_config: str | None,
    catalog: str | None,
    load_method: str | None,
    dry_run: bool,
    json_output: bool,
    no_progress: bool,
    quiet: bool,
    verbose: bool,
    **asked: Any,
) -> int:
    """Load one pipeline: from its last bookmark, exactly once, and nothing after a failure that could be twice.

    \b
    singer-bridge run flights
    singer-bridge run --tap "tap-x --flag" --tap-config config.json --to ./lake --name x
    """
    from bridge.pipeline import Result, Run

    try:
        inline = {"tap": tap, "tap_config": tap_config, "catalog": catalog, "load_method": load_method}
        chosen = choose(name, file, to, pipeline_name, **inline)
        work = Run(chosen.pipeline, _request(asked), chosen.home)
        if dry_run:
            from bridge.cli.plan import plan

            return plan(chosen, work.request, json_output=json_output)
        result = _execute(work, verbose=verbose, progress=not (json_output or no_progress or quiet))
    except BridgeError as error:
        if not json_output:
            raise
        result = Result("", name or pipeline_name or "", "failed", error=error)
    if json_output:
        as_json(result.to_json())
    elif not quiet:
        _summary(result)
    if result.error is None:
        return 0
    if verbose:
        _traceback(result.error)
    return report(result.error)


def _request(asked: dict[str, Any]) -> Any:
    from bridge.pipeline import Request

    if asked["append"] and not asked["full"]:
        raise SettingsError("--append goes with --full", hint="a plain run appends already")
    state = _read_state(asked["state_file"]) if asked["state_file"] else None
    return Request(asked["full"], asked["append"], tuple(asked["streams"]), state, asked["refresh_catalog"])


def _read_state(path: Path) -> Any:
    try:
        return loads(path.read_bytes())
    except OSError as error:
        raise SettingsError(f"cannot read the STATE: {error.strerror}", hint="check --state", file=path) from error
    except NotJson as error:
        raise SettingsError(
            "the STATE is not JSON", hint="--state takes the bare value of a STATE", file=path
        ) from error


def _execute(work: Any, *, verbose: bool, progress: bool) -> Any:
    from bridge.cli.progress import Progress

    if verbose:
        work.echo = sys.stderr.buffer
    with Progress(work, enabled=progress and not verbose):
        return work.execute()


def _traceback(error: BridgeError) -> None:
    import traceback

    click.echo("".join(traceback.format_exception(error)), err=True)


_MARKS = {"success": ("green", "✓"), "failed": ("red", "✗"), "interrupted": ("yellow", "■")}


def _summary(result: Any) -> None:
    out = console()
    if not out.is_terminal:
        out.width = 160
    rows = [
        [
            name,
            f"{counts.load_method} ({counts.reason})",
            count(counts.committed),
            count(counts.rejected) if counts.rejected else "",
            count(counts.files),
            size(counts.bytes),
        ]
        for name, counts in result.streams.items()
    ]
    if rows:
        columns = ["stream", "load method", "records", "rejected", "files", "size"]
        out.print(table(columns, rows, right=columns[2:]))
        out.print()
    colour, mark = _MARKS[result.status]
    total = sum(counts.committed for counts in result.streams.values())
    seconds = result.seconds.get("total", 0.0)
    rate = f", {count(round(total / seconds))} records/s" if total and seconds else ""
    nothing = ", nothing new" if result.status == "success" and not total else ""
    out.print(
        f"[{colour}]{mark} {result.status}[/]  {count(total)} records in {seconds:.1f} s{rate}, "
        f"{result.commits} commit(s){nothing}"
        + (f"   [dim]run {result.run_id}[/]" if "load" in result.seconds else ""),
        soft_wrap=True,
    )
    for warning in result.warnings:
        note("warning", "yellow", warning)
