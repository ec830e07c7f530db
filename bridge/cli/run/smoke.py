"""`smoke`: does this tap work?"""

from __future__ import annotations

import os
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.text import Text

from bridge.cli.plain import echo
from bridge.cli.selection import Chosen, choose, environment, options
from bridge.cli.show import as_json, console, count, count_of, print_table, size
from bridge.errors import SettingsError

if TYPE_CHECKING:
    from bridge.smoke.trial import Trial

_MARKS = {
    "passed": ("green", "✓"),
    "warning": ("yellow", "!"),
    "failed": ("red", "✗"),
    "skipped": ("dim", "-"),
}


@click.command(short_help="Check that a tap keeps to the protocol.")
@options
@click.option("--tap", metavar="COMMAND", help="Tap to check, with its flags, instead of a NAME.")
@click.option("--tap-config", metavar="FILE|JSON", help="The tap's settings: a file, or JSON.")
@click.option("-s", "--stream", "streams", multiple=True, metavar="STREAM", help="Only this stream; may be repeated.")
@click.option(
    "--max-records", type=click.IntRange(1), default=500, show_default=True, help="Stop each run after so many."
)
@click.option(
    "--max-seconds", type=click.FloatRange(1), default=60, show_default=True, help="Stop each run after so long."
)
@click.option("--static", is_flag=True, help="The source does not change: two equal runs have to be equal.")
@click.option("--load", "load_too", is_flag=True, help="Load into a temporary lake as well, with the real engine.")
@click.option(
    "--golden", type=click.Path(path_type=Path), metavar="FILE", help="Compare schemas with FILE; made if absent."
)
@click.option("--junit", type=click.Path(path_type=Path), metavar="FILE", help="Write a JUnit report.")
@click.option("--json", "json_output", is_flag=True, help="Print one JSON document, and nothing else on stdout.")
def smoke(
    name: str | None,
    file: Path | None,
    to: str | None,
    pipeline_name: str | None,
    tap: str | None,
    tap_config: str | None,
    streams: tuple[str, ...],
    *,
    load_too: bool,
    golden: Path | None,
    junit: Path | None,
    json_output: bool,
    **limits: Any,
) -> int:
    """Check that a tap keeps to the protocol; nothing lasting is written. Exit code 0 only when nothing failed.

    \b
    singer-bridge smoke --tap tap-x --tap-config config.json
    singer-bridge smoke flights --max-records 2000 --junit report.xml
    """
    from bridge.load.stop import Stop
    from bridge.smoke.trial import Trial
    from bridge.tap.source import Source

    with tempfile.TemporaryDirectory(prefix="singer-bridge-") as folder, Stop() as stop:
        chosen = _chosen(name, file, to, pipeline_name, Path(folder), tap=tap, tap_config=tap_config)
        began, err = time.monotonic(), console(err=True)
        trial = Trial(Source(chosen.pipeline, chosen.home, stop.tick), streams, tick=stop.tick, **limits)
        with err.status("checking") as status:
            trial.stage = status.update
            trial.check()
            assert trial.first
            schemas = {s: said.to_json() for s, said in sorted(trial.first.streams.items()) if said.schemas}
            written = bool(golden and _golden(golden, schemas, trial))
            if load_too:
                from bridge.smoke.loading import check_load

                trial.stage("loading")
                check_load(trial, chosen.home, Path(folder), stop)
        _report(trial, chosen.pipeline.source.argv[0], time.monotonic() - began, junit, json_output=json_output)
        if written and not json_output:
            console().print(f"[dim]schemas are written to {golden}[/]")
    return 1 if trial.verdicts.failed else 0


def _golden(path: Path, schemas: dict[str, Any], trial: Trial) -> bool:
    from bridge.smoke.golden import check_golden

    return check_golden(path, schemas, trial.verdicts)


def _chosen(
    name: str | None, file: Path | None, to: str | None, pipeline_name: str | None, folder: Path, **inline: Any
) -> Chosen:
    """Return the pipeline under test; one of --tap alone has its project in a temporary folder."""
    if inline["tap_config"] and inline["tap"] is None:
        raise SettingsError("--tap-config needs a tap", hint="add --tap")
    if inline["tap"] is None or to is not None:
        return choose(name, file, to, pipeline_name, **inline)
    if name or file or environment():
        raise SettingsError("--tap is checked without any file", hint="leave out NAME, --file and --env")
    chosen = choose(None, None, str(folder / "lake"), pipeline_name or "smoke", **inline)
    return Chosen(chosen.pipeline, folder)


def _report(trial: Trial, command: str, seconds: float, junit: Path | None, *, json_output: bool) -> None:
    from bridge.smoke import reports

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
        {"check": check, "status": status, "findings": [one.to_json() for one in found]}
        for check, status, found in trial.verdicts
    ]
    streams = {
        name: {
            "records": said.records,
            "bytes": said.size,
            "key_properties": said.keys,
            "types": {column: sorted(kinds) for column, kinds in said.kinds.items()},
        }
        for name, said in trial.first.streams.items()
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


def _print(trial: Trial, tap: str, seconds: float) -> None:
    from bridge.smoke.reports import sentence
    from bridge.smoke.verdicts import CHECKS

    out, heard = console(), trial.first
    assert heard
    out.print(Text(tap, "bold"))
    for check, status, found in trial.verdicts:
        style, mark = _MARKS[status]
        said = CHECKS[check] if status in ("passed", "skipped") else sentence(found[0])
        line = Text.assemble((f"{mark} ", style), f"{check:<16} ", said)
        out.print(line.append(f" ({found[0].text})", "dim") if status == "skipped" else line, soft_wrap=True)
        for one in found[1:] if status not in ("passed", "skipped") else ():
            out.print(Text(f"  {'':<16} {sentence(one)}"), soft_wrap=True)
        for hint in dict.fromkeys(one.hint for one in found if one.hint):
            out.print(Text(f"  {'':<16} hint: {hint}", "dim"), soft_wrap=True)
    rate = heard.records / trial.seconds if trial.seconds else 0.0
    if heard.streams:
        out.print()
        rows = [
            [name, count(said.records), size(said.size), ", ".join(said.keys), _unused(said)]
            for name, said in heard.streams.items()
        ]
        print_table(["stream", "records", "bytes", "key", "never seen"], rows, right=["records", "bytes"])
        more = ", stopped there" if trial.capped else ""
        out.print(f"[dim]{count(heard.records)} records in {trial.seconds:.1f} s, {rate:,.0f}/s{more}[/]")
    counts = trial.verdicts.counts
    ending = f"{count_of(counts['warning'], 'warning')}, {counts['skipped']} skipped, {seconds:.1f} s"
    if counts["failed"]:
        out.print(f"[red]✗[/] {count_of(counts['failed'], 'check')} failed, {ending}")
    else:
        out.print(f"[green]✓[/] it works: {count_of(counts['passed'], 'check')} passed, {ending}")


def _unused(said: Any) -> str:
    """Return the declared columns that had no value in any record: the tap's schema may say more than there is."""
    if not said.records:
        return ""
    columns = said.schema.get("properties") or {}
    return ", ".join(column for column in columns if said.kinds.get(column, {"null"}) == {"null"})
