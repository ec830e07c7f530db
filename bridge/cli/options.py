"""The options that verbs share, each written once: which pipelines, which streams, how much, and in what form."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

import click

from bridge.cli.answer import Answer
from bridge.cli.selection import ENVIRONMENT, Selection
from bridge.cli.setup.completion import complete_environments, complete_names
from bridge.settings.load import FILE_NAME

_F = TypeVar("_F", bound=Callable[..., Any])
_SELECTING = frozenset(field.name for field in fields(Selection))


def pipeline_verb(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a verb the pipeline that is meant: NAME, or `--to` with `--name`, as its first argument, a `Selection`.

    What else a `Selection` has, such as `--tap` or `--all`, goes there too if the verb has that option below this line.
    """
    return _selecting(click.argument("name", required=False, shell_complete=complete_names), function)


def pipelines_verb(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a verb the pipelines that are meant: NAMEs or `--all`, or `--to` with `--name`, as a `Selection`."""
    names = click.argument("names", metavar="[NAME]...", nargs=-1, shell_complete=complete_names)
    return _selecting(names, all_option("All pipelines of the file, one after another.")(function))


def question_verb(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a verb QUERY, and as its first argument the pipelines that are asked: all of a file or bucket, or NAME."""
    text = "Only this pipeline, as NAME; by default all of the file, or of the bucket."
    return _selecting(_arguments(("query", "QUERY"), ("name", "NAME")), function, text)


def view_verb(function: Callable[..., Any], *, required: bool = True) -> Callable[..., Any]:
    """Give a verb VIEW, and as its first argument the pipelines that may have it: all of a file or bucket, or NAME.

    Of one word the verb has to find out which of the two it is.
    """
    text = "The pipeline of the view, as NAME. Not needed if only one has a view of that name."
    return _selecting(
        _arguments(("name", "NAME"), ("view", "VIEW"), required="view" if required else ""), function, text
    )


def _arguments(*names: tuple[str, str], required: str = "") -> Callable[[_F], _F]:
    """Words in this order, each of which may be absent for click; the usage shows a `required` one without brackets."""

    def decorate(function: _F) -> _F:
        for name, word in reversed(names):
            metavar = word if name == required else f"[{word}]"
            complete = complete_names if name == "name" else None
            function = click.argument(name, metavar=metavar, required=False, shell_complete=complete)(function)
        return function

    return decorate


def file_options(function: _F) -> _F:
    """Add the options that choose a settings file and its environment."""
    file = click.option(
        "-f", "--file", type=click.Path(path_type=Path), help=f"Settings file (default: {FILE_NAME}, upward)."
    )
    env = click.option(
        "--env",
        metavar="ENV",
        expose_value=False,
        callback=_keep_environment,
        shell_complete=complete_environments,
        help="Environment of the settings file.",
    )
    return file(env(function))


def _selecting(
    names: Callable[[_F], _F], function: _F, name: str = "Name of the pipeline with --to."
) -> Callable[..., Any]:
    for option in (
        click.option("--name", "pipeline_name", metavar="N", help=name),
        click.option("--to", metavar="URI", help="Bucket, instead of a bridge.yaml."),
        file_options,
        names,
    ):
        function = option(function)

    @functools.wraps(function)
    def call(**given: Any) -> Any:
        if "name" in given:
            given["names"] = tuple(filter(None, [given.pop("name")]))
        selecting = {key: given.pop(key) for key in _SELECTING & given.keys()}
        return function(Selection(**selecting).in_its_environment(), **given)

    return call


def _keep_environment(ctx: click.Context, _: click.Parameter, value: str | None) -> None:
    ctx.meta[ENVIRONMENT] = value


def all_option(text: str) -> Callable[[_F], _F]:
    """Add `--all`, which `Selection.everything` holds."""
    return click.option("--all", "everything", is_flag=True, help=text)


def stream_option(text: str) -> Callable[[_F], _F]:
    """Add `--stream` for one stream."""
    return click.option("-s", "--stream", metavar="STREAM", help=text)


def partition_option(text: str) -> Callable[[_F], _F]:
    """Add `--partition`, a context of a bookmark that has one part for each."""
    return click.option("--partition", metavar="JSON", help=text)


def streams_option(function: _F) -> _F:
    """Add `--stream` for some streams; empty means all."""
    text = "Only this stream; may be repeated."
    return click.option("-s", "--stream", "streams", multiple=True, metavar="STREAM", help=text)(function)


def limit_option(default: int, text: str = "How many, newest first.") -> Callable[[_F], _F]:
    """Add `--limit`, at least 1."""
    return click.option("-n", "--limit", type=click.IntRange(1), default=default, show_default=True, help=text)


def json_option(text: str = "Print JSON.") -> Callable[[_F], _F]:
    """Add `--json`, which changes what goes to stdout."""
    return click.option("--json", "json_output", is_flag=True, help=text)


def output_option(metavar: str, text: str) -> Callable[[_F], _F]:
    """Add `--output`, a file to write instead of stdout."""
    file = click.Path(dir_okay=False, path_type=Path)
    return click.option("-o", "--output", type=file, metavar=metavar, help=text)


NEEDS_YES = "Do not ask; without a terminal it is needed."


def changing(yes: str = "Do not ask, on a terminal.") -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Give a verb that changes something `--dry-run`, `--yes` and `--json`, as one keyword, `answer`."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        for option in (
            json_option("Print one JSON object."),
            click.option("--yes", is_flag=True, help=yes),
            click.option("--dry-run", is_flag=True, help="Show what it would do; change nothing."),
        ):
            function = option(function)

        @functools.wraps(function)
        def call(*args: Any, dry_run: bool, yes: bool, json_output: bool, **given: Any) -> Any:
            return function(*args, answer=Answer(dry_run, yes, json_output), **given)

        return call

    return decorate
