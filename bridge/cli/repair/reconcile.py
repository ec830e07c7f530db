"""`reconcile`: is the lake what its source is?"""

from __future__ import annotations

import shlex
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import click
from rich.text import Text

from bridge.cli.options import json_option, pipeline_verb, streams_option
from bridge.cli.param_types import DURATION
from bridge.cli.selection import Selection
from bridge.cli.show import as_json, console, count, marked, note, print_table
from bridge.lake.reconciled import Proof
from bridge.settings.commands import reload

if TYPE_CHECKING:
    from bridge.findings import Status
    from bridge.settings.options import Pipeline


@click.command()
@pipeline_verb
@streams_option
@click.option(
    "--keys/--rows", "keys_only", help="Compare only keys and replication keys, or all values (so without a flag)."
)
@click.option("--apply", is_flag=True, help="Make the tables as the source is, by one commit; no run may go on then.")
@click.option("--no-guard", "guard", flag_value=False, default=True, help="With --apply: also where many rows went.")
@click.option(
    "--sample",
    "samples",
    type=click.IntRange(0, 1000),
    default=3,
    show_default=True,
    help="Show so many keys of each kind.",
)
@click.option("--wait", type=DURATION, metavar="10m", help="With --apply: wait this long for a run that goes on.")
@json_option("Print one JSON document, and nothing else on stdout.")
@click.option("--no-progress", is_flag=True, help="Show no progress.")
def reconcile(
    selection: Selection,
    *,
    apply: bool,
    json_output: bool,
    no_progress: bool,
    **asked: Any,
) -> int:
    """Ask the source once more: is the lake as it is? All rows are extracted, and compared by key.

    Tables and STATE stay as they are, and runs go on meanwhile. With --apply the tables become as the source is; the
    STATE stays, and `rollback` undoes it. Exit code 0: each table is as its source; 1: something differs.

    \b
    singer-bridge reconcile flights
    singer-bridge reconcile flights --keys --apply
    """
    from bridge.cli.run.progress import Progress
    from bridge.load.run.run import Run
    from bridge.load.run.stop import Stop
    from bridge.operate.reconcile.reconcile import Comparing
    from bridge.serve.facts.after_run import after_comparison

    chosen, err = selection.pipeline(), console(err=True)
    enabled = not json_output and not no_progress

    def shown(run: Run) -> AbstractContextManager[object]:
        return Progress(run, enabled=enabled)

    def working(text: str) -> AbstractContextManager[object]:
        return err.status(text) if enabled and err.is_terminal else nullcontext()

    with Stop() as stop:
        comparing = Comparing(chosen.with_names, chosen.home, stop, **asked, shown=shown, working=working)
        outcome = comparing.apply() if apply else comparing.look()
    warnings = [
        *outcome.warnings,
        *after_comparison(chosen.log.storage, chosen.pipeline, outcome.proofs, outcome.former),
    ]
    if json_output:
        as_json(outcome.to_json() | {"warnings": warnings})
    else:
        _print(outcome.proofs, outcome.not_compared)
        console().print(marked("failed" if outcome.differs else "passed", outcome.sentence), soft_wrap=True)
        if wrong := [stream for stream, proof in outcome.proofs.items() if proof.differs]:
            _advise(chosen.pipeline, wrong, applied=apply)
        for text in warnings:
            note("warning", "yellow", text)
    return 1 if outcome.differs else 0


def _print(proofs: dict[str, Proof], not_compared: dict[str, str]) -> None:
    rows = [[stream, *(count(number) for number in _counts(proof)), _by(proof)] for stream, proof in proofs.items()]
    columns = ["stream", "source", "lake", *Proof.KINDS, "in flight", "compared by"]
    if rows:
        print_table(columns, rows, right=columns[1:-1], folds=["compared by"])
    for stream, proof in proofs.items():
        for line in proof.sentences():
            status: Status = "passed" if proof.applied and not proof.differs else "warning"
            console().print(marked(status, f"{stream}: {line}"), soft_wrap=True)
    for stream, why in not_compared.items():
        console().print(marked("failed", f"{stream} was not compared: {why}"), soft_wrap=True)


def _advise(pipeline: Pipeline, streams: list[str], *, applied: bool) -> None:
    """Say what to type for tables that differ."""
    if not applied:
        chosen = "".join(f" -s {shlex.quote(stream)}" for stream in streams)
        console().print(Text(f"  mend them: singer-bridge reconcile {pipeline.name}{chosen} --apply"), soft_wrap=True)
    console().print(Text(f"  load again: {reload(pipeline, streams)}"), soft_wrap=True)


def _counts(proof: Proof) -> list[int]:
    return [proof.source_rows, proof.lake_rows, *(getattr(proof, kind) for kind in proof.KINDS), proof.in_flight]


def _by(proof: Proof) -> str:
    return f"key {', '.join(proof.key)}" + (", keys only" if proof.compared == "keys" else "") if proof.key else "rows"
