"""`status`: one row for each pipeline."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from datetime import datetime, timezone
from typing import Any

import click

from bridge.cli import report
from bridge.cli.options import json_option, pipeline_verb
from bridge.cli.selection import ChosenPipeline, Selection, settings_file, settings_in
from bridge.cli.show import as_json, count, moment, note, print_table
from bridge.cli.survey import Unread, survey, with_warnings
from bridge.durations import duration
from bridge.errors import BridgeError, SettingsError
from bridge.lake.runs import SHORT
from bridge.read.query.status import ahead_text, pipeline_status

_COLUMNS = ["pipeline", "last run", "ended", "status", "records", "rows", "bookmarks moved", "held by"]
_LESS = ["last run", "records", "bookmarks moved"]
_FAILED, _HELD_BACK, _LATE, _MARKED = 1, 5, 6, 7
"""Exit codes of `--exit-code`, besides those of settings and lakes that cannot be read."""


@click.command()
@pipeline_verb
@click.option("--notify", is_flag=True, help="Tell the receivers of `notify` which runs died and what is stale, once.")
@click.option("--exit-code", is_flag=True, help="Exit with 1 if a run failed, 5 to 7 if something else is wrong.")
@json_option()
def status(selection: Selection, notify: bool, exit_code: bool, json_output: bool) -> int:
    """Show how each pipeline stands: its last run, the age of its bookmarks, and which run holds it.

    \b
    singer-bridge status --exit-code -q
    singer-bridge status --to ./lake --json
    """
    now = datetime.now(timezone.utc)
    pipelines, code = list[dict[str, Any]](), 0
    for chosen in survey(selection):
        if isinstance(chosen, Unread):
            pipelines.append({"pipeline": chosen.name, "status": "unreadable", "error": chosen.text})
            code = max(code, report(chosen.error))
            continue
        try:
            pipelines.append(pipeline_status(chosen.log, now, chosen.pipeline.stale_after))
            if notify:
                _notify(selection, chosen)
        except BridgeError as error:
            pipelines.append({"pipeline": chosen.pipeline.name, "status": "unreadable", "error": error.message})
            code = max(code, report(error))
    if json_output:
        as_json(pipelines)
    else:
        print_table(_COLUMNS, [_row(facts, now) for facts in pipelines], right=["records", "rows"], less=_LESS)
        for facts in pipelines:
            if facts.get("failures"):
                note("error", "red", f"{facts['pipeline']}: {_failing(facts['failures'])}")
            if facts["status"] == "unreadable" and "run_id" in facts:
                note("warning", "yellow", f"{facts['pipeline']}: {facts['error']}. Delete it; nothing depends on it")
            _note_held_back(facts)
            if facts.get("ahead"):
                note("warning", "yellow", f"{facts['pipeline']}: {ahead_text(facts['ahead'])}")
    return max([code, *map(_code, pipelines)]) if exit_code else code


def _code(facts: dict[str, Any]) -> int:
    """The exit code for a pipeline: the highest that applies, 0 if all is well."""
    wrong = {_FAILED: "failures", _HELD_BACK: "held_back", _LATE: "stale", _MARKED: "marks"}
    return max((code for code, key in wrong.items() if facts.get(key)), default=0)


def _notify(selection: Selection, chosen: ChosenPipeline) -> None:
    """Tell the receivers of one pipeline. Their URLs are read only now: other listings need no such variable."""
    from bridge.serve.facts.after_run import look_at_clock

    if selection.to is not None:
        raise SettingsError(
            "--notify reads `notify` of bridge.yaml", hint="leave --to out, and name the file by --file"
        )
    settings = settings_in(settings_file(selection.file))
    prefix = f"{settings.environment}." if settings.environment else ""
    pipeline = settings.pipeline(chosen.pipeline.name.removeprefix(prefix))
    for warning in look_at_clock(chosen.log.storage, pipeline)[1]:
        note("warning", "yellow", f"{pipeline.name}: {warning}")


def _failing(failed: dict[str, Any]) -> str:
    """The failures since the last success for people."""
    times = "once" if failed["count"] == 1 else f"{failed['count']} times"
    success = f"the last success ended {moment(failed['last_success_ended'])}"
    before = success if failed["last_success"] else "no success before"
    return f"failed {times} since {moment(failed['since'])}, {before}; {failed['run_id']}: {failed['error']}"


def _note_held_back(facts: dict[str, Any]) -> None:
    for stream, why in facts.get("held_back", {}).items():
        message = why["message"].removeprefix(f"{stream}: ")
        note("held back", "yellow", f"{facts['pipeline']}, {stream}: {message}; {why['hint']}")


def _row(facts: dict[str, Any], now: datetime) -> list[str]:
    if "bookmarks" not in facts:
        text = facts["error"] if facts["error"].startswith("settings: ") else facts["status"]
        return [facts["pipeline"], "", "", text, "", "", "", ""]
    return [
        facts["pipeline"],
        facts["run_id"] or "",
        f"{_ago(now, facts['ended'])} ago" if facts["ended"] else "",
        _status(facts),
        _records(facts),
        count(facts["rows"]),
        _ages([each["age_seconds"] for each in facts["bookmarks"].values() if each["bookmark"]]),
        _holder(facts["held_by"], now),
    ]


def _status(facts: dict[str, Any]) -> str:
    failed, status = facts["failures"], str(facts["status"])
    if status == "failed" and failed and failed["count"] > 1:
        status = f"failed {failed['count']} times"
    marks = [*(["stale"] if facts["stale"] else []), *(SHORT.get(kind, kind) for kind in facts["marks"])]
    return ", ".join([with_warnings(status, facts["warnings"]), *marks])


def _records(facts: dict[str, Any]) -> str:
    if facts["run_id"] is None:
        return ""
    return "-" if facts["records"] is None else count(facts["records"])


def _ages(ages: Sequence[int | None]) -> str:
    """How long ago the latest and the earliest bookmark changed, once if both read the same."""
    present = sorted(age for age in ages if age is not None)
    return " to ".join(dict.fromkeys(duration(age, 1) for age in (present[0], present[-1]))) + " ago" if present else ""


def _ago(now: datetime, at: str) -> str:
    return duration(round((now - datetime.fromisoformat(at)).total_seconds()), 1)


def _holder(held: dict[str, Any] | None, now: datetime) -> str:
    """Describe the holder in a few words; `--json` has all facts."""
    if not held:
        return ""
    here, process = held["host"] == socket.gethostname(), held["process"]
    elsewhere = " elsewhere" if here else ""  # in another container: the pid is not one of this machine's
    place = "" if here and process != "unknown" else f"{elsewhere} on {held['host']}"
    since = [_ago(now, held["since"])] if held["since"] else []
    stopped = ["stopped"] if process == "stopped" else []
    silent = [f"silent for {duration(held['silent_seconds'], 1)}"] if held["silent_seconds"] else []
    return ", ".join([f"pid {held['pid']}{place}", *since, *stopped, *silent])
