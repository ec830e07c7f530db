"""`recover`: finish or undo what a dead run left, without tap or Spark."""

from __future__ import annotations

import click

from bridge.cli.events import report
from bridge.cli.options import json_option, pipelines_verb
from bridge.cli.plain import echo
from bridge.cli.selection import Selection
from bridge.cli.show import as_json, note
from bridge.errors import BridgeError
from bridge.lake.commit.open import recover as recover_lake


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
        facts = {"format": 1, "pipeline": each.pipeline.name, "commit": recovered.head}
        facts |= {"died": recovered.died or None, "finished": recovered.finished, "notes": list(recovered.notes)}
        results.append(facts)
        if not json_output:
            echo(f"{each.pipeline.name}: {recovered.sentence}")
            for text in recovered.notes:
                note("note", "bold", text)
    if json_output:
        as_json(results if selection.everything or len(chosen) > 1 else results[0])
    return code
