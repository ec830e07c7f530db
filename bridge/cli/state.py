"""`state`: the bookmarks, as the commit log knows them."""

from __future__ import annotations

from pathlib import Path

import click

from bridge.cli.choose import choose, options
from bridge.cli.show import as_json
from bridge.errors import SettingsError
from bridge.log import Log
from bridge.state import bookmark
from bridge.storage import open_storage

__all__ = ["state"]


@click.group(
    short_help="The bookmarks, as the tap said them.", context_settings={"help_option_names": ["-h", "--help"]}
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
    log = Log(open_storage(pipeline.destination.bucket), pipeline.name)
    head = log.head()
    if not head:
        raise SettingsError("this pipeline has no commit yet", hint="run it first", pipeline=pipeline.name)
    value = log.view(head).state
    as_json(value if stream is None else bookmark(value, stream))
