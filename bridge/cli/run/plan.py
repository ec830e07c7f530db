"""`run --dry-run`: prints what a run would do, and why."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

from bridge.cli.events import report
from bridge.cli.selection import ChosenPipeline
from bridge.cli.show import as_json, console, count, note, print_table
from bridge.errors import LakeError
from bridge.exact_json import dumps
from bridge.load.run.planning.dry_run import Plan, dry_run
from bridge.operate.project.clashes import clash
from bridge.protocol.singer.moves import short_bookmark
from bridge.settings.values.request import Request


def plan(
    chosen: Sequence[ChosenPipeline],
    request: Request,
    *,
    siblings: Sequence[ChosenPipeline],
    json_output: bool,
    several: bool,
) -> int:
    """Print the plan of each run; return 0, or the highest exit code of those that would be refused.

    `siblings` are all pipelines of the file. `several`: the JSON is an array.
    """
    plans, code, err = [], 0, console(err=True)
    for place, each in enumerate(chosen):
        with err.status(f"planning {each.pipeline.name}") if err.is_terminal else nullcontext():
            planned = dry_run(each.pipeline, each.home, request, ask_spark=True)
        one = _with_clashes(planned, each, chosen[:place], siblings)
        plans.append(one)
        if not json_output and one.is_complete:
            _print(one.facts)
        if one.refusal:
            code = max(code, report(one.refusal))
    if json_output:
        as_json([one.to_json() for one in plans] if several else plans[0].to_json())
    else:
        console().print("[dim]dry run: nothing was loaded, nothing was written[/]")
    return code


def _with_clashes(
    one: Plan, chosen: ChosenPipeline, earlier: Sequence[ChosenPipeline], siblings: Sequence[ChosenPipeline]
) -> Plan:
    """The plan with what is known of other pipelines' folders; one that runs `earlier` has them first."""
    before, refusal, is_noted = {each.pipeline.name for each in earlier}, one.refusal, False
    for other in siblings:
        shared = other.pipeline.name != chosen.pipeline.name and clash(other.pipeline, chosen.pipeline, chosen.home)
        if not shared or not one.is_complete:
            continue
        if shared.is_certain and other.pipeline.name in before:
            refusal = refusal or LakeError(shared.message, hint=shared.hint)
        elif shared.is_certain or not is_noted:
            one.facts["warnings"].append(f"{shared.message}. {shared.hint}")
            is_noted = is_noted or not shared.is_certain
    return replace(one, refusal=refusal)


def _start(facts: dict[str, Any]) -> str:
    """Say where the tap starts."""
    state = facts["state"]
    if facts["full"] and state is None:
        return "state: ignored, --full starts from the beginning"
    return f"state: {dumps(state).decode().strip()}" if state else "state: none, the tap starts from the beginning"


def _print(facts: dict[str, Any]) -> None:
    out = console()
    out.print(f"[bold]{facts['pipeline']}[/]  {facts['tap']} -> {facts['bucket']}", soft_wrap=True)
    out.print(_start(facts), soft_wrap=True, markup=False)
    if facts["backfill"]:
        text = f"backfill: rows from {facts['backfill'].replace('..', ' up to, but without, ')}; the bookmarks stay"
        out.print(text, soft_wrap=True, markup=False)
    rows = [
        [s["stream"], f"{s['load_method']} ({s['reason']})", count(s["rows_now"]), short_bookmark(s["bookmark"])]
        for s in facts["streams"]
    ]
    if rows:
        columns = ["stream", "load method", "rows now", "bookmark"]
        print_table(columns, rows, right=["rows now"], folds=["load method", "bookmark"], less=["bookmark"])
    for each in facts["streams"]:
        if masked := ", ".join(f"{path} ({mask})" for path, mask in each["masked"].items()):
            out.print(f"masked in {each['stream']}: {masked}", soft_wrap=True, markup=False)
    for number, streams in enumerate(facts["processes"] or (), 1):
        out.print(f"process {number} of the tap: {', '.join(streams)}", soft_wrap=True, markup=False)
    if facts["skipped"]:
        out.print(f"skipped, the last run completed them: {', '.join(facts['skipped'])}", soft_wrap=True)
    if not facts["catalog"]:
        out.print("no catalog: the tap chooses the streams, and the SCHEMA of each its load method")
    for warning in facts["warnings"]:
        note("warning", "yellow", warning)
