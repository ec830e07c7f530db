"""`doctor`: check everything that a run needs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from textwrap import wrap
from typing import Any

import click
from rich.console import Console
from rich.text import Text

from bridge.cli.options import json_option, pipeline_verb
from bridge.cli.selection import ChosenPipeline, Selection, settings_in
from bridge.cli.show import as_json, console, count_of, marked
from bridge.errors import LAST_LINES, BridgeError
from bridge.findings import Check, Finding, error, exit_code, fine, run_checks, warning, worst
from bridge.load.tap.source import home_folder
from bridge.settings.load import FILE_NAME, Settings, find_file


@click.command()
@pipeline_verb
@click.option("--no-spark", is_flag=True, help="Do not start Spark, which takes some seconds.")
@json_option("Print one JSON object.")
def doctor(selection: Selection, *, no_spark: bool, json_output: bool) -> int:
    """Check Java, Spark, the settings, the bucket and the tap of one pipeline, or of all. No lake is changed.

    Exit code 0: there are no errors, perhaps warnings. Otherwise it is that of the worst finding.

    \b
    singer-bridge doctor flights
    singer-bridge doctor --no-spark --json
    """
    findings: list[tuple[str | None, Finding]] = []
    for place, finding in _waited_for(_findings(selection, spark=not no_spark)):
        if not json_output:
            _say(place, finding, first=all(place != other for other, _ in findings))
        findings.append((place, finding))
    code = exit_code(finding for _, finding in findings)
    if json_output:
        as_json(_document(findings))
    else:
        _sum_up([finding for _, finding in findings])
    return code


def _waited_for(findings: Iterator[tuple[str | None, Finding]]) -> Iterator[tuple[str | None, Finding]]:
    """Yield the findings, with a spinner while the next one is awaited."""
    err = console(err=True)
    while True:
        with err.status("checking") if err.is_terminal else nullcontext():
            finding = next(findings, None)
        if finding is None:
            return
        yield finding


def _findings(selection: Selection, *, spark: bool) -> Iterator[tuple[str | None, Finding]]:
    """Yield the findings, each with its pipeline; None stands for the machine."""
    from bridge.load.preflight.machine import machine_checks, spark_check

    yield from ((None, finding) for finding in run_checks(machine_checks(spark=spark)))
    targets = _targets(selection)
    engines = [
        (one.pipeline.spark.master, one.pipeline.spark.conf) for _, one in targets if isinstance(one, ChosenPipeline)
    ]
    different = {repr(engine): engine for engine in engines or [("local[*]", {})]}
    checks = [spark_check(*engine) for engine in different.values()] if spark else []
    yield from ((None, finding) for finding in run_checks(checks))
    for place, one in targets:
        if isinstance(one, Finding):
            yield place, one
        else:
            yield (
                place,
                fine(
                    "settings",
                    f"{selection.file or FILE_NAME} is as it should be" if selection.to is None else "as given",
                ),
            )
            yield from ((place, finding) for finding in run_checks(_pipeline_checks(one)))


def _targets(selection: Selection) -> list[tuple[str | None, ChosenPipeline | Finding]]:
    """Each chosen pipeline, or the finding about its settings."""
    path = selection.file or find_file(Path.cwd())
    if selection.to is None and path is None:
        fix = "singer-bridge init writes one"
        return [(None, warning("settings", f"no {FILE_NAME} here or above {Path.cwd()}", fix))]
    try:
        if selection.to is not None or path is None or selection.name:
            chosen = selection.pipeline()
            return [(chosen.pipeline.name, chosen)]
        settings = settings_in(path)
    except BridgeError as failure:
        return [(selection.name, error("settings", failure))]
    return [(one, _target(settings, one, home_folder(path))) for one in settings.pipelines]


def _target(settings: Settings, name: str, home: Path) -> ChosenPipeline | Finding:
    try:
        return ChosenPipeline(settings.pipeline(name), home)
    except BridgeError as failure:
        return error("settings", failure)


def _pipeline_checks(chosen: ChosenPipeline) -> list[Check]:
    from bridge.load.preflight.tap import tap_checks
    from bridge.operate.doctor.lake import lake_checks, spool_checks

    pipeline = chosen.pipeline
    tap = tap_checks(pipeline, chosen.home) if pipeline.source.tap else []
    return [*lake_checks(pipeline), *spool_checks(pipeline, chosen.home), *tap]


def _document(findings: Sequence[tuple[str | None, Finding]]) -> dict[str, Any]:
    checks = [
        {"pipeline": place, "check": one.check, "status": one.status, "found": one.text, "fix": one.fix}
        for place, one in findings
    ]
    return {"format": 1, "status": worst([finding for _, finding in findings]), "checks": checks}


def _say(place: str | None, finding: Finding, *, first: bool) -> None:
    out = console()
    if first:
        out.print(Text(place or "this machine", "bold"))
    _folded(out, marked(finding.status, f"{finding.check:<15} "), finding.text)
    fix, _, output = finding.fix.partition(LAST_LINES)
    for label, text in (("  fix: ", fix.removesuffix("; ")), ("  it said: ", output.lstrip("\n"))):
        for number, line in enumerate(text.splitlines()):
            _folded(out, Text(label if number == 0 else " " * len(label)), line)


def _folded(out: Console, head: Text, text: str) -> None:
    """Print a line. On a terminal it is wrapped at words, and indented to where the text began."""
    indent = len(head.plain)
    room = max(out.width - indent, 20)
    lines = wrap(text, room, break_long_words=False, break_on_hyphens=False) if out.is_terminal else [text]
    for number, line in enumerate(lines or [""]):
        out.print((head if number == 0 else Text(" " * indent)) + Text(line), soft_wrap=True)


def _sum_up(findings: list[Finding]) -> None:
    errors, warnings = (sum(finding.status == status for finding in findings) for status in ("error", "warning"))
    out = console()
    if errors:
        out.print(marked("error", f"{count_of(errors, 'error')}, {count_of(warnings, 'warning')}"))
    else:
        out.print(marked("ok", f"works, {count_of(warnings, 'warning')}" if warnings else "all is fine"))
