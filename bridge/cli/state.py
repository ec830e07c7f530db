"""`state`: the bookmarks, as the commit log knows them."""

from __future__ import annotations

from pathlib import Path

import click

from bridge.cli.choose import choose, committed, options
from bridge.cli.later import Verbs
from bridge.cli.show import as_json
from bridge.state import bookmark

__all__ = ["state"]


@click.group(
    cls=Verbs,
    later=("list", "show", "set", "edit", "clear", "copy", "merge", "history", "export", "import"),
    short_help="The bookmarks, as the tap said them.",
)
def state() -> None:
    """Look at a pipeline's STATE."""


@state.command("get")
@options
@click.option("-s", "--stream", metavar="STREAM", help="Only this stream's bookmark.")
def get(name: str | None, file: Path | None, to: str | None, pipeline_name: str | None, stream: str | None) -> None:
    """Print the STATE of the last commit, verbatim, as JSON.

    \b
    singer-bridge state get flights
    singer-bridge state get --to ./lake --name x -s users
    """
    pipeline = choose(name, file, to, pipeline_name).pipeline
    value = committed(pipeline)[1].state
    as_json(value if stream is None else bookmark(value, stream))
