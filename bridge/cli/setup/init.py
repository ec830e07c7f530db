"""`init`: a new project."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import click

from bridge.cli.show import console
from bridge.load.spark.jvm.archive_maker import ANNOUNCEMENT, make_in_background
from bridge.operate.project.starter import SCHEMA_FILE, WrittenFile, write_project

_NOTES = {
    "bridge.yaml": "one pipeline, which runs as it stands",
    SCHEMA_FILE: "so that an editor completes and checks bridge.yaml",
    ".gitignore": "keeps passwords and scratch out of version control",
    ".env.example": "names the variables to put into .env",
}


@click.command()
@click.argument("folder", type=click.Path(path_type=Path), default=Path())
@click.option("--force", is_flag=True, help="Write bridge.schema.json again, as after an upgrade; no other file.")
def init(folder: Path, *, force: bool) -> None:
    """Start a project: a commented bridge.yaml that runs, its schema for editors, .gitignore and .env.example.

    Existing files are not touched.

    \b
    singer-bridge init
    singer-bridge init ./warehouse
    """
    for written in write_project(folder.expanduser(), _schema, force=force):
        _say(written)
    steps = "singer-bridge run" if folder == Path() else f"cd {folder}; singer-bridge run"
    console().print(f"next: {steps}, then singer-bridge add NAME --tap T", soft_wrap=True, markup=False)
    if make_in_background(asked=True):
        console(err=True).print(ANNOUNCEMENT, soft_wrap=True)


def _schema() -> str:
    return files("bridge.settings").joinpath(SCHEMA_FILE).read_text(encoding="utf-8")


def _say(written: WrittenFile) -> None:
    out = console()
    if written.state == "kept":
        note = f"; {written.note}" if written.note else ""
        out.print(f"  {written.name} was there and is kept{note}", soft_wrap=True, markup=False)
    else:
        out.print(f"[green]✓[/] {written.name:<20} {_NOTES[written.name]}", soft_wrap=True)
