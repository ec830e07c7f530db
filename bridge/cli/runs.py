"""`runs`: what ran, and how it ended."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from bridge.cli.choose import choose, options
from bridge.cli.show import as_json, console, count, note, print_table, size
from bridge.errors import SettingsError
from bridge.lock import holder
from bridge.log import meta
from bridge.runs import read_log, read_run, read_runs
from bridge.storage import open_storage
from bridge.verbatim import dumps

__all__ = ["runs"]


@click.group(short_help="What ran, and how it ended.")
def runs() -> None:
    """Look at a pipeline's runs."""


def _status(record: dict[str, Any], live: dict[str, Any] | None) -> str:
    if record["status"] == "running" and (live or {}).get("run") != record["run_id"]:
        return "died"
    return str(record["status"])


@runs.command("list")
@options
@click.option("-n", "--limit", type=click.IntRange(1), default=20, show_default=True, help="How many, newest first.")
@click.option("--json", "json_output", is_flag=True, help="Print JSON.")
def list_(
    name: str | None, file: Path | None, to: str | None, pipeline_name: str | None, limit: int, json_output: bool
) -> None:
    """List the latest runs, newest first.

    \b
    singer-bridge runs list flights
    singer-bridge runs list --to ./lake --name x --json
    """
    pipeline = choose(name, file, to, pipeline_name).pipeline
    storage = open_storage(pipeline.destination.bucket)
    live = holder(Path(storage.uri) / meta(pipeline.name, "lease.json"))
    found = [record | {"status": _status(record, live)} for record in read_runs(storage, pipeline.name, limit)]
    if json_output:
        as_json(found)
        return
    rows = [
        [
            record["run_id"],
            record["status"],
            count(sum(s["records"] for s in record.get("streams", {}).values())),
            str(record.get("commits", "")),
            f"{record.get('seconds', {}).get('load', 0):.1f} s",
            (record.get("error") or {}).get("message", ""),
        ]
        for record in found
    ]
    print_table(["run", "status", "records", "commits", "time", "error"], rows, right=["records", "commits", "time"])


@runs.command("show")
@options
@click.option("--run", "run_id", metavar="ID", help="Which run; default: the latest.")
@click.option("--logs", is_flag=True, help="Print the tap's whole log, and Spark's.")
@click.option("--json", "json_output", is_flag=True, help="Print JSON.")
def show(
    name: str | None,
    file: Path | None,
    to: str | None,
    pipeline_name: str | None,
    run_id: str | None,
    logs: bool,
    json_output: bool,
) -> None:
    """Show one run.

    \b
    singer-bridge runs show flights
    singer-bridge runs show flights --run 20261120T133501Z-k3f9 --logs
    """
    pipeline = choose(name, file, to, pipeline_name).pipeline
    storage = open_storage(pipeline.destination.bucket)
    record = read_run(storage, pipeline.name, run_id) if run_id else next(read_runs(storage, pipeline.name, 1), None)
    if record is None:
        hint = "see `singer-bridge runs list`"
        raise SettingsError("no such run", hint=hint, pipeline=pipeline.name, run=run_id or "the latest")
    if logs:
        for part in ("", ".spark"):
            sys.stdout.buffer.write(read_log(storage, pipeline.name, record["run_id"] + part) or b"")
        return
    record["status"] = _status(record, holder(Path(storage.uri) / meta(pipeline.name, "lease.json")))
    if json_output:
        as_json(record)
        return
    _print(record)


def _print(record: dict[str, Any]) -> None:
    out = console()
    facts = ("status", "tap", "started", "ended", "commits")
    for fact in facts:
        out.print(f"{fact:>12}  {record.get(fact, '')}")
    for fact in ("state_before", "state"):
        out.print(f"{fact.replace('_', ' '):>12}  ", end="")
        out.print(dumps(record.get(fact)).decode(), markup=False, soft_wrap=True)
    rows = [
        [
            s,
            facts["load_method"],
            count(facts["records"]),
            count(facts["rejected"]),
            str(facts["files"]),
            size(facts["bytes"]),
        ]
        for s, facts in record.get("streams", {}).items()
    ]
    if rows:
        out.print()
        columns = ["stream", "load method", "records", "rejected", "files", "size"]
        print_table(columns, rows, right=columns[2:])
    for warning in record.get("warnings", []):
        note("warning", "yellow", warning)
    if record.get("error"):
        note("error", "red", record["error"]["message"])
        note("hint", "yellow", record["error"]["hint"])
