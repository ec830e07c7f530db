"""`trigger`: a run through the service, which starts it in its turn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from bridge.cli.options import file_options, json_option, streams_option
from bridge.cli.plain import echo
from bridge.cli.selection import settings_file, settings_in
from bridge.cli.show import as_json, records_of

_CODES = {"success": 0, "held": 4, "interrupted": 130}


@click.command()
@click.argument("pipeline", metavar="NAME")
@file_options
@click.option("--url", metavar="URL", help="The service's page; default: service.host and service.port.")
@click.option("--wait", is_flag=True, help="Wait until the run has ended; its outcome is the exit code.")
@click.option("--full", is_flag=True, help="Start from the beginning and replace the tables at the end.")
@click.option("--resume", is_flag=True, help="Skip the streams that the last run completed before it failed.")
@streams_option
@json_option("Print one JSON object.")
def trigger(
    pipeline: str,
    *,
    file: Path | None,
    url: str | None,
    wait: bool,
    full: bool,
    resume: bool,
    streams: tuple[str, ...],
    json_output: bool,
) -> int:
    """Ask the service to run a pipeline. It runs in its turn.

    `service.token` of bridge.yaml is sent along, where there is one.

    \b
    singer-bridge trigger flights
    singer-bridge trigger flights --wait --json
    """
    from bridge.serve.service.client import ServiceClient

    client = ServiceClient.of(settings_in(settings_file(file)).service, url)
    run_id = client.start(pipeline, full=full, resume=resume, streams=streams)
    facts: dict[str, Any] = client.ended(pipeline, run_id) if wait else {"pipeline": pipeline, "run_id": run_id}
    if json_output:
        as_json(facts)
    elif not wait:
        click.echo(f"{pipeline}: run {run_id} is requested")
    elif "reason" in facts:
        echo(f"{pipeline}: {facts['status']}, {facts['reason']}")
    else:
        error = facts.get("error") or {}
        streams_of_run = facts.get("streams", {}).values()
        read, committed = (sum(one.get(key) or 0 for one in streams_of_run) for key in ("read", "records"))
        reason = f"; {error['message']}" if error else ""
        records = records_of(facts["status"], read, committed)
        echo(f"{pipeline}: {facts['status']}, {records}, run {facts['run_id']}{reason}")
    return _CODES.get(facts["status"], 1) if wait else 0
