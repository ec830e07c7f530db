"""`verify`: check the lake against its commit log."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click
from rich.text import Text

from bridge.cli.events import report as report_error
from bridge.cli.options import json_option, pipelines_verb
from bridge.cli.selection import ChosenPipeline, Selection, typed
from bridge.cli.show import as_json, console, count, count_of, marked, size
from bridge.errors import BridgeError
from bridge.findings import Finding, worst
from bridge.lake.storage import Storage
from bridge.load.run.last_commit import LastCommits

if TYPE_CHECKING:
    from bridge.operate.verify.report import Report

_SHOWN = 20
"""How many findings of one kind are shown; `--json` has all of them."""


@click.command()
@pipelines_verb
@click.option("--repair", is_flag=True, help="Repair what needs no guess, and check again.")
@json_option("Print one JSON object; an array with several pipelines.")
def verify(selection: Selection, *, repair: bool, json_output: bool) -> int:
    """Check the lake against its commit log: the tables' files, and all that is derived. Nothing is changed.

    Exit code 0: there are no errors, perhaps warnings; 3: something needs repair. A run may be active meanwhile, but
    not with --repair: exit code 4.

    \b
    singer-bridge verify flights
    singer-bridge verify --all --repair
    """
    chosen = selection.pipelines(source=False)
    results, code, several = [], 0, selection.everything or len(chosen) > 1
    for each in chosen:
        try:
            facts = _one(each, repair=repair, quiet=json_output, several=several)
        except BridgeError as error:
            if not several:
                raise
            code = max(code, report_error(error))
            continue
        results.append(facts)
        code = max(code, 3 if facts["status"] == "error" else 0)
    if json_output:
        as_json(results if several else results[0])
    return code


def _one(chosen: ChosenPipeline, *, repair: bool, quiet: bool, several: bool) -> dict[str, Any]:
    """Verify one pipeline, and repair it; return what `--json` prints."""
    from bridge.operate.verify.check import verify as look
    from bridge.operate.verify.mend import repair as mend

    storage, name, err = chosen.log.storage, chosen.pipeline.name, console(err=True)
    with err.status(f"verifying {name}") if err.is_terminal else nullcontext():
        report = look(storage, name)
    emptied = None if report.head else _emptied(LastCommits(chosen.home, chosen.pipeline), storage)
    if emptied:
        report = replace(report, findings=[emptied])
    if several and not quiet:
        console().print(Text(name, "bold"))
    if not quiet:
        _say(report, typed(chosen.pipeline))
    mended: list[str] = []
    # An active run hides findings, so look again after it. In an unmounted folder nothing must be written.
    if repair and not emptied and (report.findings or report.running):
        mended, report = mend(storage, name)
        if not quiet:
            for line in mended:
                _print("green", "mended:", line)
            _say(report, typed(chosen.pipeline))
    return {"format": 1, "pipeline": name, **report.to_json(), "mended": mended}


def _emptied(commits: LastCommits, storage: Storage) -> Finding | None:
    """The finding for an empty lake that this project has written to; None if it has not."""
    noted = commits.of(storage)
    text = f"is empty, {commits.tell(noted)}" if noted else ""
    return Finding("commits", "error", text, commits.hint, file=f".bridge/{commits.pipeline}") if noted else None


def _say(report: Report, name: str) -> None:
    shown: dict[str, int] = {}
    for finding in report.findings:
        shown[finding.check] = place = shown.get(finding.check, 0) + 1
        if place <= _SHOWN:
            console().print(marked(finding.status, finding.sentence), soft_wrap=True)
            console().print(Text(f"  fix: {finding.fix.replace('NAME', name)}"), soft_wrap=True)
    for check, number in shown.items():
        if number > _SHOWN:
            console().print(f"  and {count(number - _SHOWN)} more like these of the {check}; --json has them all")
    if not report.findings and not report.head:
        console().print(marked("warning", f"nothing to verify: the lake has no commit of {name}"), soft_wrap=True)
        return
    errors, warnings = report.errors, len(report.findings) - report.errors
    summary = f"{count_of(errors, 'error')}, {count_of(warnings, 'warning')}" if report.findings else "all is well"
    counts = _counts(report.to_json())
    if not report.head:
        counts = f"nothing is committed, so no reader sees a row; singer-bridge runs show {name} says how the run ended"
    console().print(marked(worst(report.findings), f"{summary}: {counts}"), soft_wrap=True)
    if report.running:
        text = f"run {report.running} holds the pipeline: what it is about to write was not checked"
        _print("bold", "note:", text)


def _print(style: str, mark: str, text: str) -> None:
    console().print(Text.assemble((mark, style), " ", text), soft_wrap=True)


def _counts(facts: dict[str, Any]) -> str:
    counts = [count_of(facts[f"{thing}s"], thing) for thing in ("commit", "table", "file", "row")]
    return ", ".join([*counts, size(facts["bytes"])])
