"""`reconcile`: is the lake what its source is?"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import click
from msgspec import to_builtins
from rich.text import Text

from bridge.cli.options import json_option, pipeline_verb, streams_option
from bridge.cli.selection import Selection
from bridge.cli.show import as_json, console, count, marked, moment, note, print_table
from bridge.settings.commands import reload

if TYPE_CHECKING:
    from bridge.lake.reconciled import Proof
    from bridge.operate.reconcile.reconcile import Comparison
    from bridge.settings.options import Pipeline

_KINDS = ("missing", "extra", "stale")


@click.command()
@pipeline_verb
@streams_option
@click.option(
    "--keys/--rows", "keys_only", help="Compare only keys and replication keys, or all values (so without a flag)."
)
@click.option(
    "--sample", type=click.IntRange(0, 1000), default=3, show_default=True, help="Show so many keys of each kind."
)
@json_option("Print one JSON document, and nothing else on stdout.")
@click.option("--no-progress", is_flag=True, help="Show no progress.")
def reconcile(
    selection: Selection,
    streams: tuple[str, ...],
    *,
    keys_only: bool,
    sample: int,
    json_output: bool,
    no_progress: bool,
) -> int:
    """Ask the source once more: is the lake as it is? All rows are extracted, and compared by key.

    Tables and STATE stay as they are, and runs go on meanwhile. Exit code 0: each table is as its source; 1: something
    differs.

    \b
    singer-bridge reconcile shop
    singer-bridge reconcile shop -s orders --keys
    """
    from bridge.cli.run.progress import Progress
    from bridge.load.run.run import Run
    from bridge.load.run.stop import Stop
    from bridge.operate.reconcile.reconcile import reconcile as ask_source
    from bridge.serve.facts.after_run import after_comparison

    chosen, err = selection.pipeline(), console(err=True)
    enabled = not json_output and not no_progress

    def shown(run: Run) -> AbstractContextManager[object]:
        return Progress(run, enabled=enabled)

    def working(text: str) -> AbstractContextManager[object]:
        return err.status(text) if enabled and err.is_terminal else nullcontext()

    asked: dict[str, Any] = {"streams": streams, "keys_only": keys_only, "samples": sample}
    with Stop() as stop:
        outcome = ask_source(chosen.pipeline, chosen.home, stop, **asked, shown=shown, working=working)
    warnings = after_comparison(chosen.log.storage, chosen.pipeline, outcome.proofs, outcome.former)
    if json_output:
        as_json(_document(chosen.pipeline.name, outcome) | {"warnings": warnings})
    else:
        _print(chosen.pipeline, outcome)
        for text in warnings:
            note("warning", "yellow", text)
    return 1 if outcome.differs else 0


def _document(name: str, outcome: Comparison) -> dict[str, Any]:
    streams = {stream: to_builtins(proof) | {"differs": proof.differs} for stream, proof in outcome.proofs.items()}
    facts = {"format": 1, "pipeline": name, "commit": outcome.commit, "differs": outcome.differs}
    return facts | {"streams": streams, "not_compared": outcome.not_compared}


def _print(pipeline: Pipeline, outcome: Comparison) -> None:
    rows = [
        [stream, *(count(number) for number in _counts(proof)), _by(proof)] for stream, proof in outcome.proofs.items()
    ]
    columns = ["stream", "source", "lake", *_KINDS, "in flight", "compared by"]
    if rows:
        print_table(columns, rows, right=columns[1:-1], folds=["compared by"])
    for stream, proof in outcome.proofs.items():
        for line in proof.sentences():
            console().print(marked("warning", f"{stream}: {line}"), soft_wrap=True)
    for stream, why in outcome.not_compared.items():
        console().print(marked("failed", f"{stream} was not compared: {why}"), soft_wrap=True)
    ended = max((proof.ended for proof in outcome.proofs.values()), default=None)
    through = f"through commit {outcome.commit}" + (f" at {moment(ended)}" if ended else "")
    if outcome.differs:
        wrong = [stream for stream, proof in outcome.proofs.items() if proof.differs]
        number = len(wrong) + len(outcome.not_compared)
        text = "1 table is not as its source" if number == 1 else f"{count(number)} tables are not as their source"
        console().print(marked("failed", f"{text}, {through}"), soft_wrap=True)
        if wrong:
            console().print(Text(f"  load again: {reload(pipeline, wrong)}"), soft_wrap=True)
    else:
        console().print(marked("passed", f"the lake is as its source, {through}"), soft_wrap=True)


def _counts(proof: Proof) -> list[int]:
    return [proof.source_rows, proof.lake_rows, *(getattr(proof, kind) for kind in _KINDS), proof.in_flight]


def _by(proof: Proof) -> str:
    return f"key {', '.join(proof.key)}" + (", keys only" if proof.compared == "keys" else "") if proof.key else "rows"
