"""`verify`: the lake against its log."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.text import Text

from bridge.cli.events import report as report_error
from bridge.cli.selection import Chosen, choose_all, options_for_several, typed
from bridge.cli.show import as_json, console, count, count_of, size
from bridge.errors import BridgeError
from bridge.project.last_commit import LastCommits
from bridge.storage import Storage, lake_of

if TYPE_CHECKING:
    from bridge.maintain.verify.finding import Finding

_SHOWN = 20
"""So many findings of one kind are shown; `--json` has all of them."""
_MARKS = {"error": ("red", "✗"), "warning": ("yellow", "!"), "ok": ("green", "✓")}


@click.command(short_help="Hold the lake against its log, and mend it.")
@options_for_several
@click.option("--all", "everything", is_flag=True, help="All pipelines of the file.")
@click.option("--repair", is_flag=True, help="Mend what can be mended without guessing, and look again.")
@click.option("--json", "json_output", is_flag=True, help="Print one JSON object; an array with several pipelines.")
def verify(
    names: tuple[str, ...],
    file: Path | None,
    to: str | None,
    pipeline_name: str | None,
    *,
    everything: bool,
    repair: bool,
    json_output: bool,
) -> int:
    """Hold every file of the tables, and all that is derived, against the commit log. Nothing is changed.

    Exit code 0: all is well, or there are warnings only; 3: something needs repair. A run may be alive meanwhile; with
    --repair it must not be: exit code 4.

    \b
    singer-bridge verify flights
    singer-bridge verify --all --repair
    """
    chosen = choose_all(names, file, to, pipeline_name, everything=everything, look=True)
    told, code, several = [], 0, everything or len(chosen) > 1
    for each in chosen:
        try:
            facts = _one(each, repair=repair, quiet=json_output, several=several)
        except BridgeError as error:
            if not several:
                raise
            code = max(code, report_error(error))
            continue
        told.append(facts)
        code = max(code, 3 if facts["status"] == "error" else 0)
    if json_output:
        as_json(told if several else told[0])
    return code


def _one(chosen: Chosen, *, repair: bool, quiet: bool, several: bool) -> dict[str, Any]:
    """Verify one pipeline, and repair it; return what `--json` prints."""
    from bridge.maintain.verify.check import verify as look
    from bridge.maintain.verify.mend import repair as mend

    storage, name, err = lake_of(chosen.pipeline.destination), chosen.pipeline.name, console(err=True)
    with err.status(f"verifying {name}") if err.is_terminal else nullcontext():
        report = look(storage, name)
    emptied = None if report.head else _emptied(LastCommits(chosen.home, chosen.pipeline), storage)
    if emptied:
        report = replace(report, findings=[emptied])
    if several and not quiet:
        console().print(Text(name, "bold"))
    if not quiet:
        _say(report.to_json(), typed(chosen.pipeline))
    mended: list[str] = []
    # What a run hides is only seen when it has ended; below a mount that is missing nothing must be written.
    if repair and not emptied and (report.findings or report.running):
        mended, report = mend(storage, name)
        if not quiet:
            for line in mended:
                _print("green", "mended:", line)
            _say(report.to_json(), typed(chosen.pipeline))
    return {"format": 1, "pipeline": name, **report.to_json(), "mended": mended}


def _emptied(commits: LastCommits, storage: Storage) -> Finding | None:
    """Return the finding of a lake without commits that the project has written to, None where it has not."""
    from bridge.maintain.verify.finding import error

    noted = commits.of(storage)
    text = f"is empty, {commits.tell(noted)}" if noted else ""
    return error("commits", f".bridge/{commits.pipeline}", text, commits.hint) if noted else None


def _say(facts: dict[str, Any], name: str) -> None:
    shown: dict[str, int] = {}
    for finding in facts["findings"]:
        shown[finding["check"]] = place = shown.get(finding["check"], 0) + 1
        if place <= _SHOWN:
            style, mark = _MARKS[finding["severity"]]
            console().print(
                Text.assemble((f"{mark} ", style), f"{finding['file']}: {finding['found']}"), soft_wrap=True
            )
            console().print(Text(f"  fix: {finding['fix'].replace('NAME', name)}"), soft_wrap=True)
    for check, number in shown.items():
        if number > _SHOWN:
            console().print(f"  and {count(number - _SHOWN)} more like these of the {check}; --json has them all")
    errors = sum(finding["severity"] == "error" for finding in facts["findings"])
    warnings = len(facts["findings"]) - errors
    told = f"{count_of(errors, 'error')}, {count_of(warnings, 'warning')}" if facts["findings"] else "all is well"
    if not facts["findings"] and not facts["commit"]:
        _print("yellow", "!", f"nothing to verify: the lake has no commit of {name}")
        return
    _print(*_MARKS["error" if errors else "warning" if warnings else "ok"], f"{told}: {_counts(facts)}")
    if facts["running"]:
        text = f"run {facts['running']} holds the pipeline: what it is about to write was not judged"
        _print("bold", "note:", text)


def _print(style: str, mark: str, text: str) -> None:
    console().print(Text.assemble((mark, style), " ", text), soft_wrap=True)


def _counts(facts: dict[str, Any]) -> str:
    counts = [count_of(facts[f"{thing}s"], thing) for thing in ("commit", "table", "file", "row")]
    return ", ".join([*counts, size(facts["bytes"])])
