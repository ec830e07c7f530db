"""`install`: put the tap into a venv of its own."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import click

from bridge.cli.choose import choose, options
from bridge.cli.show import console
from bridge.errors import SettingsError, TapError
from bridge.source import taps_folder

__all__ = ["install"]


@click.command(short_help="Put the tap into a venv of its own.")
@options
def install(name: str | None, file: Path | None, to: str | None, pipeline_name: str | None) -> None:
    """Make a venv for the pipeline's tap from `pip_url`; it replaces an earlier one only when it is whole.

    \b
    singer-bridge install flights
    singer-bridge install -f project/bridge.yaml
    """
    chosen = choose(name, file, to, pipeline_name)
    source = chosen.pipeline.source
    if not source.pip_url:
        raise SettingsError("the pipeline has no pip_url", hint="set source.pip_url, or install the tap yourself")
    folder = taps_folder(chosen.home, chosen.pipeline.name)
    folder.parent.mkdir(parents=True, exist_ok=True)
    wanted, note = source.pip_url, folder / "installed.txt"
    program = folder / "bin" / source.argv[0]
    if note.exists() and note.read_text() == wanted and program.exists():
        console().print(f"{source.argv[0]} is installed already: {folder}", soft_wrap=True)
        return
    with console(err=True).status(f"installing {source.argv[0]}"):
        _install(folder, shlex.split(wanted))
    if not program.exists():
        found = sorted(path.name for path in (folder / "bin").glob("tap*"))
        hint = f"it installed: {', '.join(found)}; set source.tap to it" if found else "check source.pip_url"
        raise TapError("the package does not have this tap", hint=hint, tap=source.argv[0])
    note.write_text(wanted)
    console().print(f"[green]✓[/] {source.argv[0]} installed in {folder}", soft_wrap=True)


def _install(folder: Path, packages: list[str]) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    for command in (
        [sys.executable, "-m", "venv", str(folder)],
        [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages],
    ):
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        if done.returncode:
            shutil.rmtree(folder, ignore_errors=True)
            raise TapError("the tap cannot be installed", hint=f"pip said:\n{done.stdout[-2000:]}", step=command[3])
