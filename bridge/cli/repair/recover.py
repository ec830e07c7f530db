"""`recover`: repair what a dead run left behind, without tap or Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from bridge.cli.events import report
from bridge.cli.plain import echo
from bridge.cli.selection import Chosen, choose_all, options_for_several
from bridge.cli.show import as_json, note
from bridge.commit.recover import Recovered
from bridge.commit.recover import recover as recover_lake
from bridge.errors import BridgeError
from bridge.storage import lake_of


@click.command(short_help="Repair what a dead run left, without tap or Spark.")
@options_for_several
@click.option("--all", "everything", is_flag=True, help="All pipelines of the file.")
@click.option("--json", "json_output", is_flag=True, help="Print one JSON object; an array with several pipelines.")
def recover(
    names: tuple[str, ...],
    file: Path | None,
    to: str | None,
    pipeline_name: str | None,
    *,
    everything: bool,
    json_output: bool,
) -> int:
    """Finish or take back what a run left half done when it died, as the next run would, but now and in an instant.

    For an orchestrator's on-failure hook. Neither the tap nor Spark is started, and nothing is loaded. A pipeline that
    a run holds is left alone: exit code 4. With several pipelines the others go on after a failure.

    \b
    singer-bridge recover flights
    singer-bridge recover --all --json
    """
    chosen = choose_all(names, file, to, pipeline_name, everything=everything, look=True)
    told, code = [], 0
    for each in chosen:
        try:
            done = recover_lake(lake_of(each.pipeline.destination), each.pipeline.name)
        except BridgeError as error:
            if len(chosen) == 1:
                raise
            code = max(code, report(error))
            continue
        told.append(_as_json(each, done))
        if not json_output:
            _say(each.pipeline.name, done)
    if json_output:
        as_json(told if everything or len(chosen) > 1 else told[0])
    return code


def _as_json(chosen: Chosen, done: Recovered) -> dict[str, Any]:
    facts = {"format": 1, "pipeline": chosen.pipeline.name, "commit": done.head}
    return facts | {"died": done.died or None, "finished": done.finished, "notes": list(done.notes)}


def _say(name: str, done: Recovered) -> None:
    if not done.head and not done.died:
        echo(f"{name}: nothing to do, nothing was committed yet")
    elif done.nothing_to_do:
        echo(f"{name}: nothing to do, commit {done.head} is whole")
    elif done.died:
        finished = f": commit {done.finished} is whole" if done.finished else ""
        echo(f"{name}: run {done.died} had not ended in good order{finished}; the log is at commit {done.head}")
    else:
        echo(f"{name}: the log is at commit {done.head}")
    for text in done.notes:
        note("note", "bold", text)
