"""`recover`: finish or undo what a dead run left, without tap or Spark."""

from __future__ import annotations

from typing import Any

import click

from bridge.cli.events import report
from bridge.cli.options import json_option, pipelines_verb
from bridge.cli.plain import echo
from bridge.cli.selection import ChosenPipeline, Selection
from bridge.cli.show import as_json, note
from bridge.errors import BridgeError
from bridge.lake.commit.recover import Recovered
from bridge.lake.commit.recover import recover as recover_lake


@click.command()
@pipelines_verb
@json_option("Print one JSON object; an array with several pipelines.")
def recover(selection: Selection, *, json_output: bool) -> int:
    """Finish or undo what a dead run left. The next run would do the same; this does it now, in an instant.

    Use it in an orchestrator's on-failure hook. Neither the tap nor Spark is started, and nothing is loaded. A pipeline
    that a run holds is left alone: exit code 4. With several pipelines, one failure does not stop the others.

    \b
    singer-bridge recover flights
    singer-bridge recover --all --json
    """
    chosen = selection.pipelines(source=False)
    results, code = [], 0
    for each in chosen:
        try:
            recovered = recover_lake(each.log.storage, each.pipeline.name)
        except BridgeError as error:
            if len(chosen) == 1:
                raise
            code = max(code, report(error))
            continue
        results.append(_as_json(each, recovered))
        if not json_output:
            _say(each.pipeline.name, recovered)
    if json_output:
        as_json(results if selection.everything or len(chosen) > 1 else results[0])
    return code


def _as_json(chosen: ChosenPipeline, recovered: Recovered) -> dict[str, Any]:
    facts = {"format": 1, "pipeline": chosen.pipeline.name, "commit": recovered.head}
    return facts | {"died": recovered.died or None, "finished": recovered.finished, "notes": list(recovered.notes)}


def _say(name: str, recovered: Recovered) -> None:
    if not recovered.head and not recovered.died:
        echo(f"{name}: nothing to do, nothing was committed yet")
    elif recovered.nothing_to_do:
        echo(f"{name}: nothing to do, commit {recovered.head} is whole")
    elif recovered.died:
        finished = f": commit {recovered.finished} is whole" if recovered.finished else ""
        died = f"run {recovered.died} had not ended in good order{finished}"
        echo(f"{name}: {died}; the log is at commit {recovered.head}")
    else:
        echo(f"{name}: the log is at commit {recovered.head}")
    for text in recovered.notes:
        note("note", "bold", text)
