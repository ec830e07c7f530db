"""`smoke`: check that a tap works."""

from __future__ import annotations

import os
import tempfile
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.text import Text

from bridge.cli.options import json_option, pipeline_verb, streams_option
from bridge.cli.plain import echo
from bridge.cli.selection import ChosenPipeline, Selection, environment
from bridge.cli.show import as_json, console, count, count_of, marked, print_table, size
from bridge.durations import duration
from bridge.errors import SettingsError

if TYPE_CHECKING:
    from bridge.findings import Finding
    from bridge.operate.smoke.trial import Trial


@click.command()
@pipeline_verb
@click.option("--tap", metavar="COMMAND", help="Tap to check, with its flags, instead of a NAME.")
@click.option("--tap-config", metavar="FILE|JSON", help="The tap's settings: a file, or JSON.")
@streams_option
@click.option(
    "--max-records",
    type=click.IntRange(1),
    default=500,
    show_default=True,
    help="Stop each run after this many records.",
)
@click.option(
    "--max-seconds",
    type=click.FloatRange(1),
    default=60,
    show_default=True,
    help="Stop each run after this many seconds.",
)
@click.option("--static", is_flag=True, help="The source does not change: two runs must send the same.")
@click.option("--load", "load_too", is_flag=True, help="Also load into a temporary lake, with the real engine.")
@click.option(
    "--golden", type=click.Path(path_type=Path), metavar="FILE", help="Compare schemas with FILE; made if absent."
)
@click.option("--junit", type=click.Path(path_type=Path), metavar="FILE", help="Write a JUnit report.")
@json_option("Print one JSON document, and nothing else on stdout.")
def smoke(
    selection: Selection,
    streams: tuple[str, ...],
    *,
    load_too: bool,
    golden: Path | None,
    junit: Path | None,
    json_output: bool,
    **limits: Any,
) -> int:
    """Check that a tap follows the Singer protocol. Nothing lasting is written.

    The exit code is 0 only if no check failed.

    \b
    singer-bridge smoke --tap tap-x --tap-config config.json
    singer-bridge smoke flights --max-records 2000 --junit report.xml
    """
    from bridge.load.run.stop import Stop
    from bridge.load.tap.source import Source
    from bridge.operate.smoke.trial import Trial

    with tempfile.TemporaryDirectory(prefix="singer-bridge-") as folder, Stop() as stop:
        chosen = _chosen(selection, Path(folder))
        began, err = time.monotonic(), console(err=True)
        trial = Trial(Source(chosen.pipeline, chosen.home, stop.tick), streams, tick=stop.tick, **limits)
        with err.status("checking") as status:
            trial.stage = status.update
            trial.check()
            assert trial.first
            schemas = {s: stream.to_json() for s, stream in sorted(trial.first.streams.items()) if stream.schemas}
            written = bool(golden and _golden(golden, schemas, trial))
            if load_too:
                from bridge.operate.smoke.loading import check_load

                trial.stage("loading")
                check_load(trial, chosen.home, Path(folder), stop)
        _report(trial, chosen.pipeline.source.argv[0], time.monotonic() - began, junit, json_output=json_output)
        if written and not json_output:
            console().print(f"[dim]schemas are written to {golden}[/]")
    return 1 if trial.verdicts.failed else 0


def _golden(path: Path, schemas: dict[str, Any], trial: Trial) -> bool:
    from bridge.operate.smoke.golden import check_golden

    return check_golden(path, schemas, trial.verdicts)


def _chosen(selection: Selection, folder: Path) -> ChosenPipeline:
    """The pipeline to check. With --tap alone its project is a temporary folder."""
    if selection.tap_config and selection.tap is None:
        raise SettingsError("--tap-config needs a tap", hint="add --tap")
    if selection.tap is None or selection.to is not None:
        return selection.pipeline()
    if selection.names or selection.file or environment():
        raise SettingsError("--tap is checked without any file", hint="leave out NAME, --file and --env")
    name = selection.pipeline_name or "smoke"
    return replace(replace(selection, to=str(folder / "lake"), pipeline_name=name).pipeline(), home=folder)


def _report(trial: Trial, command: str, seconds: float, junit: Path | None, *, json_output: bool) -> None:
    from bridge.operate.smoke import reports

    tap, verdicts = Path(command).name, trial.verdicts
    if junit:
        try:
            junit.write_bytes(reports.junit(tap, verdicts, seconds))
        except OSError as error:
            raise SettingsError(f"--junit: {error.strerror}", hint="check the path", file=junit) from error
    if summary := os.environ.get("GITHUB_STEP_SUMMARY"):
        with suppress(OSError), open(summary, "a", encoding="utf-8") as file:
            file.write(reports.markdown(tap, verdicts))
    if os.environ.get("GITHUB_ACTIONS") == "true":
        echo("\n".join(reports.workflow_commands(verdicts)), err=True)
    if json_output:
        as_json(_document(trial, tap, seconds))
    else:
        _print(trial, tap, seconds)


def _document(trial: Trial, tap: str, seconds: float) -> dict[str, Any]:
    assert trial.first
    checks = [
        {"check": check, "status": status, "findings": [_finding(one) for one in findings]}
        for check, status, findings in trial.verdicts
    ]
    streams = {
        name: {
            "records": facts.records,
            "bytes": facts.size,
            "key_properties": facts.keys,
            "types": {column: sorted(kinds) for column, kinds in facts.kinds.items()},
        }
        for name, facts in trial.first.streams.items()
    }
    status = "failed" if trial.verdicts.failed else "passed"
    rate = {"seconds": round(trial.seconds, 3), "records": trial.first.records}
    return {
        "format": 1,
        "tap": tap,
        "status": status,
        "checks": checks,
        "streams": streams,
        "first_run": rate,
        "seconds": round(seconds, 3),
    }


def _finding(one: Finding) -> dict[str, Any]:
    where = {"stream": one.stream, "pointer": one.pointer, "times": one.times, "example": one.example}
    return {"check": one.check, "status": one.status, "text": one.text, "hint": one.fix, **where}


def _print(trial: Trial, tap: str, seconds: float) -> None:
    out, first = console(), trial.first
    assert first
    out.print(Text(tap, "bold"))
    for check, status, findings in trial.verdicts:
        text = trial.verdicts.meaning(check) if status in ("passed", "skipped") else findings[0].sentence
        line = marked(status, f"{check:<16} ", text)
        out.print(line.append(f" ({findings[0].text})", "dim") if status == "skipped" else line, soft_wrap=True)
        for one in findings[1:] if status not in ("passed", "skipped") else ():
            out.print(Text(f"  {'':<16} {one.sentence}"), soft_wrap=True)
        for hint in dict.fromkeys(one.fix for one in findings if one.fix):
            out.print(Text(f"  {'':<16} hint: {hint}", "dim"), soft_wrap=True)
    rate = first.records / trial.seconds if trial.seconds else 0.0
    if first.streams:
        out.print()
        rows = [
            [name, count(stream.records), size(stream.size), ", ".join(stream.keys), _unused(stream)]
            for name, stream in first.streams.items()
        ]
        print_table(["stream", "records", "bytes", "key", "never seen"], rows, right=["records", "bytes"])
        more = ", stopped there" if trial.capped else ""
        out.print(f"[dim]{count(first.records)} records in {duration(trial.seconds)}, {rate:,.0f}/s{more}[/]")
    counts = trial.verdicts.counts
    ending = f"{count_of(counts['warning'], 'warning')}, {counts['skipped']} skipped, {duration(seconds)}"
    if counts["failed"]:
        out.print(marked("failed", f"{count_of(counts['failed'], 'check')} failed, {ending}"))
    else:
        out.print(marked("passed", f"it works: {count_of(counts['passed'], 'check')} passed, {ending}"))


def _unused(stream: Any) -> str:
    """The declared columns that had no value in any record."""
    if not stream.records:
        return ""
    columns = stream.schema.get("properties") or {}
    return ", ".join(column for column in columns if stream.kinds.get(column, {"null"}) == {"null"})
