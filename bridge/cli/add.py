"""`add`: one more pipeline in bridge.yaml."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import click

from bridge.about import About, Setting, about
from bridge.cli.show import console
from bridge.config import FILE_NAME, find_file, inline_pipeline, load
from bridge.errors import SettingsError, TapError
from bridge.project.append import append_pipeline, raw_settings
from bridge.project.dotenv import name_variables, set_variables
from bridge.project.entry import Entry, variable_name
from bridge.project.starter import ENV_EXAMPLE
from bridge.settings.values import pipeline_name
from bridge.settings.variables import read_dotenv
from bridge.source import home_folder
from bridge.tap import find_executable
from bridge.venvs import Venv, Wanted

__all__ = ["add"]

_TYPES: dict[str, Any] = {"integer": click.INT, "number": click.FLOAT, "boolean": click.BOOL}


@click.command(short_help="Add a pipeline to bridge.yaml.")
@click.argument("new", metavar="NAME")
@click.option("--tap", required=True, metavar="COMMAND", help="The tap, with its arguments.")
@click.option("--pip-url", metavar="P", help="What pip installs it from, such as tap-x==1.2; installs it now.")
@click.option("--to", metavar="URI", help="Bucket (default: where the other pipelines go, else ./lake).")
@click.option("-f", "--file", type=click.Path(path_type=Path), help=f"Settings file (default: {FILE_NAME}, upward).")
@click.option("--yes", is_flag=True, help="Ask nothing: what is required becomes a variable to fill in.")
def add(new: str, *, tap: str, pip_url: str | None, to: str | None, file: Path | None, yes: bool) -> None:
    """Add a pipeline to bridge.yaml, with the settings that the tap says it needs; all else in the file stays.

    On a terminal it asks for what is required, and passwords go into .env. Otherwise, each becomes a variable.

    \b
    singer-bridge add users --tap tap-smoke
    singer-bridge add events --tap tap-smoke --to ./events
    """
    path = _settings_file(file)
    raw = raw_settings(path)
    _check_new(path, raw, new)
    argv = inline_pipeline(
        name=new, bucket="lake", tap=tap, tap_config=None, catalog=None, load_method=None, environ=os.environ
    ).source.argv
    folder = path.absolute().parent
    pip_url = _beside(pip_url, folder) if pip_url and Path(pip_url).exists() else pip_url
    told = _ask_tap(argv, path, pip_url)
    prefix = _prefix(path, argv[0], new)
    values, secrets = _prompt(told, prefix, folder) if told and not yes and sys.stdin.isatty() else ({}, {})
    command = shlex.join([_beside(argv[0], folder) if "/" in argv[0] else argv[0], *argv[1:]])
    bucket = _beside(to, folder) if to else _bucket(raw)
    entry = Entry(command, told, pip_url=pip_url, bucket=bucket, prefix=prefix, values=values)
    append_pipeline(path, new, entry.text())
    set_variables(folder / ".env", secrets)
    title = f"{new}: {Path(argv[0]).name}"
    name_variables(folder / ENV_EXAMPLE, title, entry.variables, entry.optional_variables)
    _say(path, new, told, [name for name in entry.variables if name not in secrets])


def _settings_file(file: Path | None) -> Path:
    path = file or find_file(Path.cwd())
    if path is None:
        raise SettingsError(f"no {FILE_NAME} here or above", hint="singer-bridge init writes one", folder=Path.cwd())
    return path


def _check_new(path: Path, raw: dict[str, Any], name: str) -> None:
    names = set(raw.get("pipelines") or ())
    if wrong := pipeline_name(name):
        raise SettingsError(wrong[0], hint=wrong[1], name=name)
    with suppress(SettingsError):  # included files have pipelines, too; what is wrong with them is not our matter
        names |= set(load(path, os.environ).pipelines)
    if name in names:
        raise SettingsError("there is a pipeline of that name", hint="choose another name", name=name, file=path)


def _ask_tap(argv: list[str], path: Path, pip_url: str | None) -> About | None:
    """Install the tap if need be, and return what it says about itself."""
    programs = None
    if pip_url:
        venv = Venv(home_folder(path), pip_url)
        with console(err=True).status(f"installing {argv[0]}"):
            venv.install(Wanted(path.absolute().parent, [] if "/" in argv[0] else argv[:1]))
        programs = venv.bin
    try:
        found = find_executable(argv, programs, dict(os.environ))
    except TapError as error:
        hint = "give --pip-url, such as --pip-url meltanolabs-tap-postgres, or the tap's full path"
        raise TapError("the tap was not found", hint=hint, tap=argv[0]) from error
    return about(found, os.environ)


def _prefix(path: Path, tap: str, name: str) -> str:
    """Return how variables begin: with the tap's name, or the pipeline's if another one uses that already."""
    taken = f"${{{variable_name(Path(tap).name, '')}" in path.read_text(encoding="utf-8-sig")
    return name if taken else Path(tap).name


def _prompt(told: About, prefix: str, folder: Path) -> tuple[dict[str, Any], dict[str, str]]:
    """Ask for what is required; return settings by their name, and secrets by the variable that is to hold them."""
    values: dict[str, Any] = {}
    secrets: dict[str, str] = {}
    known = {**read_dotenv(folder / ".env"), **os.environ}
    for setting in told.required:
        variable = variable_name(prefix, setting.name)
        if setting.kind in ("object", "array") or (setting.secret and variable in known):
            continue
        answer = _question(setting)
        if setting.secret and answer != "":
            secrets[variable] = str(answer)
        elif answer != "":
            values[setting.name] = answer
    return values, secrets


def _question(setting: Setting) -> Any:
    """Return an answer of the setting's type, an empty text if there is none."""
    if setting.description:
        console().print(setting.description, soft_wrap=True, markup=False, style="dim")
    kind = click.Choice([str(choice) for choice in setting.choices]) if setting.choices else _TYPES.get(setting.kind)
    default = "" if setting.default is None else setting.default
    return click.prompt(
        setting.name, default=default, hide_input=setting.secret, type=kind or click.STRING, show_default=default != ""
    )


def _bucket(raw: dict[str, Any]) -> str | None:
    """Return where the other pipelines go, if that is one place; None if the file's defaults say it."""
    if ((raw.get("defaults") or {}).get("destination") or {}).get("bucket"):
        return None
    pipelines = [pipeline for pipeline in (raw.get("pipelines") or {}).values() if isinstance(pipeline, dict)]
    buckets = {(pipeline.get("destination") or {}).get("bucket") for pipeline in pipelines}
    return buckets.pop() if len(buckets) == 1 and all(buckets) else "./lake"


def _beside(path: str, folder: Path) -> str:
    """Return a path that was typed here as the file in `folder` has to say it."""
    if "://" in path or path.startswith(("/", "~", "$")):
        return path
    relative = os.path.relpath(path, folder)
    return relative if relative.startswith("..") else f"./{relative}"


def _say(path: Path, name: str, told: About | None, missing: Sequence[str]) -> None:
    out = console()
    shown = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
    out.print(f"[green]✓[/] {name} added to {shown}", soft_wrap=True)
    if told is None:
        out.print("  the tap does not tell its settings: look into its documentation, and write them below config")
    elif told.settings and not told.required:
        out.print(f"  {told.name or 'the tap'} marks no setting as required; uncomment what it needs", soft_wrap=True)
    elif missing:
        out.print(f"  fill in, in .env: {', '.join(missing)}", soft_wrap=True)
    out.print(f"next: singer-bridge doctor {name}", soft_wrap=True)
