"""`schedule`: pipelines in the user's crontab."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

import click

from bridge.cli.options import json_option, pipeline_verb
from bridge.cli.selection import Selection, environment, settings_file
from bridge.cli.show import as_json, console, note, print_table
from bridge.cli.survey import Unread, readable, survey
from bridge.errors import SettingsError
from bridge.load.tap.source import home_folder
from bridge.operate.project.crontab import (
    ENVIRONMENT,
    Job,
    installed,
    read_crontab,
    with_jobs,
    without,
    write_crontab,
)
from bridge.settings.load import Settings, load
from bridge.settings.options import Pipeline
from bridge.settings.values.cron import next_time, zone
from bridge.settings.values.schedules import Schedule

_F = TypeVar("_F", bound=Callable[..., Any])
_CRON_HAS = (*ENVIRONMENT, "HOME", "LOGNAME", "USER")


@click.group()
def schedule() -> None:
    """Let cron run pipelines, as their `schedule.cron` says."""


def _options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that choose a pipeline. `--to` and `--name` are hidden: a schedule needs a bridge.yaml."""
    selecting = pipeline_verb(function)
    given: list[click.Parameter] = selecting.__click_params__  # type: ignore[attr-defined]  # click keeps them there
    for option in given:
        if isinstance(option, click.Option) and option.name in ("to", "pipeline_name"):
            option.hidden = True
    return selecting


def _every(text: str) -> Callable[[_F], _F]:
    return click.option("--all", "--every-pipeline", "everything", is_flag=True, help=text)


def _dry_run(function: _F) -> _F:
    return click.option("--dry-run", is_flag=True, help="Print the lines and change nothing.")(function)


def _path(selection: Selection) -> Path:
    if selection.to is not None:
        raise SettingsError("a schedule needs a bridge.yaml", hint="write the pipeline there; leave --to out")
    return settings_file(selection.file, "write a bridge.yaml, or name it: --file PATH").absolute()


def _name(selection: Selection) -> str | None:
    name, other = selection.word, selection.pipeline_name
    if name and other and name != other:
        raise SettingsError("two names for one pipeline", hint="give NAME or --name", name=name, other=other)
    return selection.name


def _jobs(path: Path, name: str | None, *, every: bool) -> tuple[list[Job], set[str]]:
    """The jobs that cron shall run, and the names of those that the chosen pipelines have no longer.

    Raises `SettingsError` if none has a schedule.
    """
    settings = load(path, os.environ, environment(), commands=False)
    if every and name:
        raise SettingsError("--all means every pipeline of the file", hint="leave out NAME and --name")
    meant = settings.pipelines if every else {name or _first(settings): settings.pipeline(name)}
    jobs = [job for key, pipeline in meant.items() for job in _jobs_of(path, settings, key, pipeline)]
    if not jobs:
        hint = 'add to the pipeline: schedule: {cron: "0 */2 * * *"}'
        raise SettingsError("no schedule", hint=hint, pipeline=", ".join(meant))
    names = {each for pipeline in meant.values() for each in (pipeline.name, _comparison(pipeline.name))}
    return jobs, names - {job.name for job in jobs}


def _comparison(name: str) -> str:
    """The name of the job that compares a pipeline with its source."""
    return f"{name}:reconcile"


def _first(settings: Settings) -> str:
    return next(iter(settings.pipelines))


def _jobs_of(path: Path, settings: Settings, key: str, pipeline: Pipeline) -> Iterator[Job]:
    """The jobs of one pipeline: its runs, and its comparisons with its source."""
    log, file, compares = home_folder(path) / "logs", (key, settings.environment), pipeline.reconcile
    if pipeline.schedule:
        cron = _local(pipeline.schedule)
        yield Job(cron, path, pipeline.name, *file, log / f"{pipeline.name}.log")
    if compares:
        words = ("reconcile", *compares.flags)
        to = log / f"{pipeline.name}.reconcile.log"
        yield Job(_local(compares.times), path, _comparison(pipeline.name), *file, to, words)


def _local(schedule: Schedule) -> str:
    """The expression for cron. Raises `SettingsError` for one of another time zone."""
    if not _is_local_time(schedule.timezone):
        hint = "set its timezone to this machine's or remove it, or leave `singer-bridge serve` running"
        raise SettingsError("cron knows only this machine's time zone", hint=hint, timezone=schedule.timezone)
    return schedule.cron


def _is_local_time(name: str | None) -> bool:
    """Whether a time zone's clocks show this machine's time, in winter and in summer."""
    year = datetime.now().year
    days = [datetime(year, month, 15) for month in (1, 7)]
    return all(day.replace(tzinfo=zone(name)).utcoffset() == day.astimezone().utcoffset() for day in days)


@schedule.command("install")
@_options
@_every("Every pipeline of the file that has a schedule.")
@_dry_run
def install(selection: Selection, dry_run: bool) -> None:
    """Put a pipeline into your crontab, or update its lines. All other lines stay as they are.

    \b
    singer-bridge schedule install flights
    singer-bridge schedule install --all --dry-run
    """
    path = _path(selection)
    jobs, no_longer = _jobs(path, _name(selection), every=selection.everything)
    _check_without_shell(path, jobs)
    lines = {job.name: job.line(os.environ) for job in jobs}
    if dry_run:
        _print_lines(lines.values())
        return
    try:
        crontab = read_crontab()
    except SettingsError as error:
        lines_to_use = "\n".join(lines.values())
        raise SettingsError(error.message, hint=f"{error.hint}\nthe line to use:\n{lines_to_use}") from None
    after = with_jobs(without(crontab, no_longer, path.parent), lines, path.parent)
    if after != crontab:
        write_crontab(after)
    status = "installed" if after != crontab else "was installed"
    for job in jobs:
        line = f"{job.name}: {status}, next run {_when(_next(job.cron)) or 'when the machine starts'}; log {job.log}"
        console().print(line, markup=False, soft_wrap=True)


@schedule.command("remove")
@_options
@_every("Every line of this project, also of pipelines that the file no longer has.")
@_dry_run
def remove(selection: Selection, dry_run: bool) -> None:
    """Remove a pipeline from your crontab, even one that bridge.yaml no longer has.

    \b
    singer-bridge schedule remove flights
    singer-bridge schedule remove --all --dry-run
    """
    path, name = _path(selection), _name(selection)
    crontab = read_crontab()
    lines = installed(crontab, path.parent)
    if selection.everything and name:
        raise SettingsError("--all means every line of the project", hint="leave out NAME and --name")
    names = set(lines) if selection.everything else {_full_name(path, name, lines)}
    removed = {full: line for full, line in lines.items() if full.partition(":")[0] in names or full in names}
    if dry_run:
        _print_lines(removed.values())
        return
    if removed:
        write_crontab(without(crontab, set(removed), path.parent))
    names_removed = ", ".join(removed) if removed else "nothing"
    console().print(f"removed: {names_removed}", markup=False, soft_wrap=True)


def _full_name(path: Path, name: str | None, lines: dict[str, str]) -> str:
    """The pipeline's name as it is in the crontab. The settings need not be readable."""
    if name is None and len(pipelines := {line.partition(":")[0] for line in lines}) == 1:
        return pipelines.pop()
    try:
        return load(path, os.environ, environment(), commands=False).pipeline(name).name
    except SettingsError:
        if name is None:
            raise
    return f"{environment()}.{name}" if environment() else name


@schedule.command("list")
@_options
@json_option()
def list_(selection: Selection, json_output: bool) -> int:
    """List schedules and their next runs: of pipelines with a schedule in the file, or a line in your crontab.

    \b
    singer-bridge schedule list
    singer-bridge schedule list flights --json
    """
    path, only = _path(selection), _name(selection)
    among = survey(Selection((only,) if only else (), path))
    chosen, code = readable(among)
    by_file = dict[str, tuple[str, str]]()
    for pipeline in (each.pipeline for each in chosen):
        if pipeline.schedule:
            by_file[pipeline.name] = pipeline.schedule.cron, "run"
        if compares := pipeline.reconcile:
            by_file[_comparison(pipeline.name)] = compares.schedule, " ".join(("reconcile", *compares.flags))
    lines, problem = _installed_lines(path.parent)
    names = sorted({*by_file, *lines})
    if only:
        own = [each.pipeline.name for each in chosen]
        names = [*own, *(name for name in names if name.partition(":")[0] in own and name not in own)]
    facts = [_facts(full, by_file.get(full), lines.get(full)) for full in names]
    if json_output:
        as_json(facts)
        return code
    rows = [[f["pipeline"], f["cron"] or "", f["crontab"], _when(f["next"])] for f in facts]
    rows += [[each.name, "", each.text, ""] for each in among if isinstance(each, Unread)]
    print_table(["pipeline", "schedule", "crontab", "next run"], rows)
    if problem:
        note("warning", "yellow", problem)
    return code


def _installed_lines(folder: Path) -> tuple[dict[str, str], str]:
    """The project's lines, and why there are none if the crontab cannot be read."""
    try:
        return installed(read_crontab(), folder), ""
    except SettingsError as error:
        return {}, f"{error.message}; {error.hint}"


def _facts(pipeline: str, in_file: tuple[str, str] | None, line: str | None) -> dict[str, Any]:
    """A row of the list. `in_file`: when it runs, and the verb with its flags."""
    cron, verb = in_file or (None, "")
    if line is None:
        state = "not installed"
    elif cron is None:
        state = "installed, without a schedule in the file"
    elif not line.startswith(f"{cron} "):
        state = "installed, with another schedule"
    else:  # after the verb's flags stands the pipeline
        state = "installed" if re.search(f" -m bridge {verb} [^-]", line) else "installed, with other flags"
    runs = line and (line.split()[0] if line.startswith("@") else " ".join(line.split()[:5]))
    following = _next(runs) if runs else None
    return {
        "pipeline": pipeline,
        "cron": cron,
        "crontab": state,
        "line": line,
        "next": following.astimezone().isoformat(timespec="minutes") if following else None,
    }


def _next(cron: str) -> datetime | None:
    return next_time(cron, datetime.now())  # without a zone: cron runs by the machine's local time


def _when(moment: datetime | str | None) -> str:
    if moment is None:
        return ""
    return (moment if isinstance(moment, str) else moment.isoformat())[:16].replace("T", " ")


def _print_lines(lines: Iterable[str]) -> None:
    for line in lines:
        click.echo(line)


def _check_without_shell(path: Path, jobs: Sequence[Job]) -> None:
    """Raise `SettingsError` if the settings are different in cron, which does not have the shell's variables."""
    environ = {key: os.environ[key] for key in _CRON_HAS if key in os.environ}
    hint = "cron does not have your shell's variables: write them into .env beside bridge.yaml"
    in_shell = load(path, os.environ, environment(), commands=False)
    try:
        in_cron = load(path, environ, environment() or in_shell.environment, commands=False)
        same = all(in_cron.pipeline(job.pipeline) == in_shell.pipeline(job.pipeline) for job in jobs)
    except SettingsError as error:
        raise SettingsError(f"under cron: {error.message}", hint=hint) from None
    if not same:
        raise SettingsError("your shell's variables change these settings", hint=hint, file=path)
