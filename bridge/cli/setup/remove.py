"""`remove`: take a pipeline out of a project, and say what stays."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import click

from bridge.cli import events
from bridge.cli.answer import Answer, is_quiet
from bridge.cli.options import NEEDS_YES, changing
from bridge.cli.plain import echo
from bridge.cli.selection import settings_file
from bridge.cli.setup.completion import complete_names
from bridge.cli.show import as_json
from bridge.errors import BridgeError, LakeError, SettingsError
from bridge.lake.state.store import StateStore
from bridge.lake.storage import Storage, lake_of
from bridge.load.tap.source import home_folder
from bridge.operate.project.leftovers import Left, left_in_crontab, left_in_dotenv, left_in_lake, left_slot
from bridge.operate.project.removal import Removal, removal
from bridge.settings.load import FILE_NAME, load, read_settings


@click.command()
@click.argument("pipeline", metavar="NAME", shell_complete=complete_names)
@click.option("-f", "--file", type=click.Path(path_type=Path), help=f"Settings file (default: {FILE_NAME}, upward).")
@changing(NEEDS_YES)
def remove(pipeline: str, *, file: Path | None, answer: Answer) -> None:
    """Remove a pipeline from bridge.yaml, with its kept catalog, and its tap's environment if no other pipeline has it.

    Its tables, its STATE and its replication slot stay. It says so, and what removes them. The rest of the file stays
    as it is, byte for byte. While a run holds the pipeline, it is refused.

    \b
    singer-bridge remove flights --dry-run
    singer-bridge remove flights --yes
    """
    path = settings_file(file, "there is nothing to remove").absolute()
    planned = removal(path, pipeline, os.environ)
    answer.require_consent("add --yes to remove it; --dry-run shows what goes and what stays")
    left = list(_left(path, planned, refuses=not answer.dry_run))
    removals = [*(f"{pipeline} in {_short(file)}" for file in planned.texts), *map(_short, planned.paths)]
    if not answer.json_output and not is_quiet():
        _show(removals, planned, left)
    if answer.goes_ahead("remove it?"):
        try:
            planned.apply()
        except OSError as error:
            hint = "correct that, then type it again"
            raise SettingsError(
                f"not all of it is removed: {error.strerror}", hint=hint, path=error.filename
            ) from error
    if answer.json_output:
        stays = [{"what": one.what, "remove": one.remove} for one in left]
        as_json({"format": 1, "pipeline": pipeline, "dry_run": answer.dry_run, "removed": removals, "stays": stays})
    else:
        click.echo("dry run: nothing was changed" if answer.dry_run else f"{pipeline}: removed")


def _left(path: Path, planned: Removal, *, refuses: bool) -> Iterator[Left]:
    """Yield what stays, in all environments. Raises `PipelineHeld` if a run is alive, and this `refuses` that."""
    home = home_folder(path)
    slots = dict[str, Left]()
    for environment in (None, *planned.environments):
        storage: Storage | None = None
        try:
            pipeline = read_settings(path, environment).pipeline(planned.name, source=False)
            storage = lake_of(pipeline.destination)
            if refuses:
                StateStore.at(storage, pipeline.name).refuse_if_held()
            yield from left_in_lake(pipeline, storage)
        except (LakeError, SettingsError) as error:
            if environment is None:
                yield Left(f"its lake, which cannot be looked into: {error.message}", "look there yourself")
            storage = None
        with suppress(BridgeError):
            whole = load(path, os.environ, environment).pipeline(planned.name)
            slots |= {one.what: one for one in left_slot(whole, home, storage)}
    yield from slots.values()
    yield from left_in_crontab(path.parent, [planned.name, *(f"{e}.{planned.name}" for e in planned.environments)])
    yield from left_in_dotenv(planned.variables)


def _show(removals: list[str], planned: Removal, left: list[Left]) -> None:
    """Print on stderr what goes, and what stays."""
    for what in removals:
        _line("removes", what)
    if planned.venv:
        _line("stays", planned.venv)
    for one in left:
        _line("stays", one.what, f"to remove it: {one.remove}")


def _line(word: str, what: str, how: str = "") -> None:
    if events.is_json():
        events.emit("info", word, what=what, **({"how": how} if how else {}))
        return
    echo(f"{word}: {what}", err=True)
    if how:
        echo(f"  {how}", err=True)


def _short(path: Path) -> str:
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)
