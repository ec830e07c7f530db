"""`install`: install taps into virtual environments."""

from __future__ import annotations

import os
from pathlib import Path

import click

from bridge.cli.events import report
from bridge.cli.options import all_option, pipeline_verb
from bridge.cli.selection import Selection, environment, settings_file
from bridge.cli.show import console, count_of
from bridge.errors import BridgeError, SettingsError
from bridge.load.spark.jvm.archive_maker import ANNOUNCEMENT, make_in_background
from bridge.load.tap.process import find_executable
from bridge.load.tap.source import home_folder
from bridge.load.tap.venv import Installation, Venv
from bridge.operate.project.taps import Installable, installables


@click.command()
@pipeline_verb
@all_option("The taps of all pipelines.")
@click.option("--locked", is_flag=True, help="Exactly the versions of the lock file; fail if there is none.")
@click.option("--upgrade", is_flag=True, help="Choose the versions again, and write the lock file.")
def install(selection: Selection, *, locked: bool, upgrade: bool) -> int:
    """Install the tap from `pip_url` into a virtual environment; it replaces an earlier one only when it is complete.

    The chosen versions are stored in `requirements.lock` beside it; the next installation takes the same ones.

    \b
    singer-bridge install flights
    singer-bridge install --all
    """
    if locked and upgrade:
        raise SettingsError("--locked and --upgrade contradict each other", hint="leave one of them out")
    selection.refuse_contradictions()
    if selection.to is not None:
        raise SettingsError("install reads pip_url from a bridge.yaml", hint="leave out --to and --name")
    path = settings_file(selection.file, "singer-bridge init writes one")
    taps = installables(path, os.environ, environment(), selection.name)
    if not selection.everything and len(taps) > 1:
        names = ", ".join(tap.pipeline for tap in taps)
        raise SettingsError("which pipeline? there are several", hint=f"give --all, or one of the names: {names}")
    firsts = {
        tap.source.pip_url: tap.pipeline for tap in reversed(taps)
    }  # pipelines share venvs: each is upgraded once
    code = max(
        _attempt(tap, home_folder(path), locked=locked, upgrade=upgrade and firsts[tap.source.pip_url] == tap.pipeline)
        for tap in taps
    )
    if not code and make_in_background(asked=True):
        console(err=True).print(ANNOUNCEMENT, soft_wrap=True)
    return code


def _attempt(tap: Installable, home: Path, *, locked: bool, upgrade: bool) -> int:
    """Install one tap and return its exit code. With --all, one failure does not stop the others."""
    try:
        _install(tap, home, locked=locked, upgrade=upgrade)
    except BridgeError as error:
        return report(error)
    return 0


def _install(tap: Installable, home: Path, *, locked: bool, upgrade: bool) -> None:
    program = tap.source.argv[0]
    if not tap.source.pip_url:
        _say(f"{program} needs no installation: {_location(tap)}")
        return
    venv = Venv(home, tap.source.pip_url)
    programs = [] if "/" in program else [program]
    with console(err=True).status(f"installing {program}"):
        installed = venv.install(Installation(tap.folder, programs, locked=locked, upgrade=upgrade))
    if installed:
        _say(f"{program} installed in {venv.root}, {count_of(len(venv.packages()), 'package')}", checked=True)
    else:
        _say(f"{program} is installed already: {venv.root}")


def _location(tap: Installable) -> str:
    """Where a tap without `pip_url` is. Raises `SettingsError` if it is nowhere."""
    try:
        return find_executable(tap.source.argv, None, dict(os.environ) | tap.source.env)[0]
    except BridgeError as error:
        hint = "set source.pip_url, such as tap-x==1.2 or git+https://..., or install the tap yourself"
        text = "the pipeline has no pip_url, and its tap is not on PATH"
        raise SettingsError(text, hint=hint, pipeline=tap.pipeline, tap=tap.source.argv[0]) from error


def _say(text: str, *, checked: bool = False) -> None:
    console().print("[green]✓[/] " if checked else "", end="")
    console().print(text, soft_wrap=True, markup=False)
