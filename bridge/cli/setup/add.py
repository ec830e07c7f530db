"""`add`: write one more pipeline into bridge.yaml, and ask for what it needs."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click

from bridge.cli.events import report
from bridge.cli.selection import Selection, settings_file, typed
from bridge.cli.setup.ask import Answers, ask_settings, somebody_answers
from bridge.cli.setup.propose import ask_proposals, ask_streams, lines_of, print_statement
from bridge.cli.show import console, count_of
from bridge.errors import BridgeError, SettingsError, TapError
from bridge.load.tap.about import About, about
from bridge.load.tap.process import find_executable
from bridge.load.tap.source import Source, home_folder
from bridge.load.tap.venv import Installation, Venv
from bridge.operate.project.append import append_pipeline, raw_settings
from bridge.operate.project.dotenv import name_variables, set_variables
from bridge.operate.project.entry import Entry, variable_name
from bridge.operate.project.starter import ENV_EXAMPLE
from bridge.protocol.singer.selection import loaded_streams
from bridge.settings.inline import inline_pipeline
from bridge.settings.load import FILE_NAME, load
from bridge.settings.text.variables import read_dotenv
from bridge.settings.values.checked import pipeline_name

_NO_FILE = "singer-bridge init writes one"


@click.command()
@click.argument("new", metavar="NAME")
@click.option("--tap", required=True, metavar="COMMAND", help="The tap, with its arguments.")
@click.option("--pip-url", metavar="P", help="Package to install it from now, such as tap-x==1.2.")
@click.option("--to", metavar="URI", help="Bucket (default: where the other pipelines go, else ./lake).")
@click.option("-f", "--file", type=click.Path(path_type=Path), help=f"Settings file (default: {FILE_NAME}, upward).")
@click.option("--yes", is_flag=True, help="Ask nothing: what is required becomes a variable to fill in.")
def add(new: str, *, tap: str, pip_url: str | None, to: str | None, file: Path | None, yes: bool) -> int:
    """Add a pipeline to bridge.yaml, with the settings that the tap needs; the rest of the file stays as it is.

    On a terminal it asks for the settings, discovers the streams, and proposes how to replicate each; passwords go into
    .env. Without a terminal, and in CI, each required setting becomes a variable. If the discovery fails, the pipeline
    stays added, and the exit code is 1, or 2 if a setting is wrong.

    \b
    singer-bridge add users --tap tap-smoke
    singer-bridge add events --tap tap-smoke --to ./events
    """
    path, asks = settings_file(file, _NO_FILE), somebody_answers() and not yes
    raw = raw_settings(path)
    _check_new(path, raw, new)
    argv = inline_pipeline(name=new, bucket="lake", tap=tap, environ=os.environ).source.argv
    folder = path.absolute().parent
    pip_url = pip_url or (_package(argv) if asks else None)
    pip_url = _beside(pip_url, folder) if pip_url and Path(pip_url).exists() else pip_url
    description = _ask_tap(argv, path, pip_url)
    prefix = _prefix(path, argv[0], new)
    variables = {**read_dotenv(folder / ".env"), **os.environ}
    answers = ask_settings(description, prefix, variables) if description and asks else Answers()
    command = shlex.join([_beside(argv[0], folder) if "/" in argv[0] else argv[0], *argv[1:]])
    bucket = _beside(to, folder) if to else _bucket(raw)
    entry = Entry(command, description, pip_url, bucket, prefix, answers.values, frozenset(answers.needed), name=new)
    written = _Written(path, new, path.read_bytes(), entry)
    append_pipeline(path, new, entry.text())
    set_variables(folder / ".env", answers.secrets)
    title = f"{new}: {Path(argv[0]).name}"
    name_variables(folder / ENV_EXAMPLE, title, entry.variables, entry.optional_variables)
    missing = [name for name in entry.variables if name not in answers.secrets and name not in variables]
    _say(path, new, description, missing, answers)
    if asks and not missing and _discovers():
        return _choose_streams(written)
    console().print(f"next: singer-bridge doctor {new}, then singer-bridge discover {new}", soft_wrap=True)
    return 0


@dataclass(frozen=True, slots=True)
class _Written:
    """A pipeline that was just added, and the file as it was before."""

    path: Path
    name: str
    before: bytes
    entry: Entry


def _check_new(path: Path, raw: dict[str, Any], name: str) -> None:
    names = set(raw.get("pipelines") or ())
    if wrong := pipeline_name(name):
        raise SettingsError(wrong[0], hint=wrong[1], name=name)
    with suppress(SettingsError):  # included files have pipelines, too; their mistakes do not matter here
        names |= set(load(path, os.environ).pipelines)
    if name in names:
        raise SettingsError("there is a pipeline of that name", hint="choose another name", name=name, file=path)


def _ask_tap(argv: list[str], path: Path, pip_url: str | None) -> About | None:
    """Install the tap if `pip_url` is given, and return its `--about`."""
    programs = None
    if pip_url:
        venv = Venv(home_folder(path), pip_url)
        with console(err=True).status(f"installing {argv[0]}"):
            venv.install(Installation(path.absolute().parent, [] if "/" in argv[0] else argv[:1]))
        programs = venv.bin
    return about(_executable(argv, programs), os.environ)


def _executable(argv: list[str], programs: Path | None) -> list[str]:
    try:
        return find_executable(argv, programs, dict(os.environ))
    except TapError as error:
        hint = "give --pip-url, such as --pip-url meltanolabs-tap-postgres, or the tap's full path"
        raise TapError("the tap was not found", hint=hint, tap=argv[0]) from error


def _package(argv: list[str]) -> str | None:
    """Ask which package has the tap; None if the tap is installed already."""
    try:
        _executable(argv, None)
    except TapError:
        click.echo(f"{argv[0]} is not installed")
        question = f"pip package, such as meltanolabs-{argv[0]} or {argv[0]}==1.2"
        return str(click.prompt(question)).strip()
    return None


def _prefix(path: Path, tap: str, name: str) -> str:
    """The prefix of variables: the tap's name, or the pipeline's if the file uses the tap's already."""
    taken = f"${{{variable_name(Path(tap).name, '')}" in path.read_text(encoding="utf-8-sig")
    return name if taken else Path(tap).name


def _bucket(raw: dict[str, Any]) -> str | None:
    """The bucket of the other pipelines, if they share one; None if the file's defaults have it."""
    if ((raw.get("defaults") or {}).get("destination") or {}).get("bucket"):
        return None
    pipelines = [pipeline for pipeline in (raw.get("pipelines") or {}).values() if isinstance(pipeline, dict)]
    buckets = {(pipeline.get("destination") or {}).get("bucket") for pipeline in pipelines}
    return buckets.pop() if len(buckets) == 1 and all(buckets) else "./lake"


def _beside(path: str, folder: Path) -> str:
    """A path that was typed here, relative to `folder`."""
    if "://" in path or path.startswith(("/", "~", "$")):
        return path
    relative = os.path.relpath(path, folder)
    return relative if relative.startswith("..") else f"./{relative}"


def _discovers() -> bool:
    return click.confirm("discover its streams now?", default=True)


def _choose_streams(written: _Written) -> int:
    """Discover, ask which streams to load and how, and write that; return the exit code.

    After an error the pipeline stays added: its answers need not be typed again.
    """
    name, after = written.name, written.path.read_bytes()
    try:
        chosen = Selection((name,), written.path).pipeline()
        source = Source(chosen.pipeline, chosen.home)
        with console(err=True).status("discovering"):
            catalog = source.discover()
        if catalog is None:
            click.echo("this tap has no --discover; it chooses its streams itself")
            console().print(f"next: singer-bridge run {typed(chosen.pipeline)}", soft_wrap=True)
            return 0
        if not catalog["streams"]:
            raise TapError("the tap finds no streams", hint="look at what its user may see, and at its settings")
    except BridgeError as error:
        code = report(error)
        correct = f"the pipeline is added: correct its settings in {written.path.name}, or its passwords in .env"
        console().print(f"{correct}, then: singer-bridge discover {name}", soft_wrap=True)
        console().print(f"or take it out again: singer-bridge remove {name}", soft_wrap=True)
        return code
    patterns = ask_streams(catalog)
    proposals, ready = ask_proposals(source, catalog, loaded_streams(catalog, patterns))
    entry = replace(written.entry, select=patterns, streams=lines_of(proposals))
    if ready:
        entry = replace(entry, values={**ready.settings, **entry.values})
    complete = replace(written, entry=entry)
    if written.path.read_bytes() != after:
        hint = f"somebody changed it meanwhile; write it yourself:\n{name}:\n{complete.entry.text()}"
        raise SettingsError("the settings file is not the one that was written", hint=hint, file=written.path)
    append_pipeline(written.path, name, complete.entry.text(), onto=written.before)
    shown = f"{count_of(len(loaded_streams(catalog, patterns)), 'stream')} selected"
    shown += f", {len(proposals)} of them with a replication method" if proposals else ""
    console().print(f"[green]✓[/] {shown}", soft_wrap=True)
    if ready:
        print_statement(ready)
    console().print(f"next: singer-bridge run {name} --dry-run; then singer-bridge run {name}", soft_wrap=True)
    return 0


def _say(path: Path, name: str, description: About | None, missing: Sequence[str], answers: Answers) -> None:
    out = console()
    shown = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
    out.print(f"[green]✓[/] {name} added to {shown}", soft_wrap=True)
    if answers.secrets:
        out.print(f"  secrets are in .env: {', '.join(answers.secrets)}", soft_wrap=True)
    if description is None:
        out.print("  the tap does not list its settings: see its documentation, and write them below config")
    elif description.settings and not description.required and not (answers.values or answers.needed):
        text = f"  {description.name or 'the tap'} marks no setting as required; write what it needs below config"
        out.print(f"{text}: singer-bridge config tap {name} prints all", soft_wrap=True)
    elif missing:
        out.print(f"  fill in, in .env: {', '.join(missing)}", soft_wrap=True)
