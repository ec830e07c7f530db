"""`install`: put taps into venvs of their own."""

from __future__ import annotations

import os
from pathlib import Path

import click

from bridge.cli.events import report
from bridge.cli.selection import environment, options
from bridge.cli.show import console, count_of
from bridge.errors import BridgeError, SettingsError
from bridge.project.taps import Installable, installables
from bridge.settings.load import FILE_NAME, find_file
from bridge.tap.process import find_executable
from bridge.tap.source import home_folder
from bridge.tap.venv import Venv, Wanted


@click.command(short_help="Put the tap into a venv of its own.")
@options
@click.option("--all", "every", is_flag=True, help="The taps of all pipelines.")
@click.option("--locked", is_flag=True, help="Exactly the versions of the lock file; fail if there is none.")
@click.option("--upgrade", is_flag=True, help="Choose the versions anew, and write the lock file.")
def install(
    name: str | None,
    file: Path | None,
    to: str | None,
    pipeline_name: str | None,
    *,
    every: bool,
    locked: bool,
    upgrade: bool,
) -> int:
    """Make a venv for the tap from `pip_url`; it replaces an earlier one only when it is whole.

    The versions that were chosen stand in `requirements.lock` beside the venv; the next installation takes the same.

    \b
    singer-bridge install flights
    singer-bridge install --all
    """
    if locked and upgrade:
        raise SettingsError("--locked and --upgrade contradict each other", hint="leave one of them out")
    if every and (name or to or pipeline_name):
        raise SettingsError("--all means every pipeline of the file", hint="leave out NAME, --to and --name")
    if to is not None:
        raise SettingsError("install reads pip_url from a bridge.yaml", hint="leave out --to and --name")
    path = _file(file)
    taps = installables(path, os.environ, environment(), name or pipeline_name)
    if not every and len(taps) > 1:
        names = ", ".join(tap.pipeline for tap in taps)
        raise SettingsError("which pipeline? there are several", hint=f"give --all, or one of the names: {names}")
    firsts = {tap.source.pip_url: tap.pipeline for tap in reversed(taps)}  # pipelines share venvs: upgraded once each
    return max(
        _attempt(tap, home_folder(path), locked=locked, upgrade=upgrade and firsts[tap.source.pip_url] == tap.pipeline)
        for tap in taps
    )


def _file(file: Path | None) -> Path:
    path = file or find_file(Path.cwd())
    if path is None:
        raise SettingsError(f"no {FILE_NAME} here or above", hint="singer-bridge init writes one", folder=Path.cwd())
    return path


def _attempt(tap: Installable, home: Path, *, locked: bool, upgrade: bool) -> int:
    """Install one tap and return its exit code: with --all, one that fails does not keep the others from it."""
    try:
        _install(tap, home, locked=locked, upgrade=upgrade)
    except BridgeError as error:
        return report(error)
    return 0


def _install(tap: Installable, home: Path, *, locked: bool, upgrade: bool) -> None:
    program = tap.source.argv[0]
    if not tap.source.pip_url:
        _say(f"{program} needs no installation: {_found(tap)}")
        return
    venv = Venv(home, tap.source.pip_url)
    programs = [] if "/" in program else [program]
    with console(err=True).status(f"installing {program}"):
        done = venv.install(Wanted(tap.folder, programs, locked=locked, upgrade=upgrade))
    if done:
        _say(f"{program} installed in {venv.root}, {count_of(len(venv.packages()), 'package')}", done=True)
    else:
        _say(f"{program} is installed already: {venv.root}")


def _found(tap: Installable) -> str:
    """Return where a tap without `pip_url` is. Raises `SettingsError` when it is nowhere."""
    try:
        return find_executable(tap.source.argv, None, dict(os.environ) | tap.source.env)[0]
    except BridgeError as error:
        hint = "set source.pip_url, such as tap-x==1.2 or git+https://..., or install the tap yourself"
        text = "the pipeline has no pip_url, and its tap is not on PATH"
        raise SettingsError(text, hint=hint, pipeline=tap.pipeline, tap=tap.source.argv[0]) from error


def _say(text: str, *, done: bool = False) -> None:
    console().print("[green]✓[/] " if done else "", end="")
    console().print(text, soft_wrap=True, markup=False)
