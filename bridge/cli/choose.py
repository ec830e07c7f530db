"""Which pipeline a verb speaks of: NAME in bridge.yaml, or `--to URI --name N` without any file."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click

from bridge.cli.later import later_options
from bridge.config import FILE_NAME, Pipeline, find_file, inline_pipeline, load
from bridge.errors import SettingsError
from bridge.log import Log, View
from bridge.source import home_folder
from bridge.storage import Storage, open_storage

__all__ = ["Chosen", "choose", "committed", "options"]

_F = TypeVar("_F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Chosen:
    """A pipeline and the project folder that belongs to it."""

    pipeline: Pipeline
    home: Path


def options(function: _F) -> _F:
    """Add the options that choose a pipeline."""
    for option in (
        later_options("--env", "--log-format", switches=("--yes",)),
        click.option("--name", "pipeline_name", metavar="N", help="Name of the pipeline with --to."),
        click.option("--to", metavar="URI", help="Bucket, instead of a bridge.yaml."),
        click.option(
            "-f", "--file", type=click.Path(path_type=Path), help=f"Settings file (default: {FILE_NAME}, upward)."
        ),
        click.argument("name", required=False),
    ):
        function = option(function)
    return function


def choose(
    name: str | None, file: Path | None, to: str | None, pipeline_name: str | None, **inline: str | None
) -> Chosen:
    """Return the pipeline that the arguments mean. Raises `SettingsError` when they mean none, or two."""
    if to is not None:
        if name and pipeline_name and name != pipeline_name:
            raise SettingsError(
                "two names for one pipeline", hint="give NAME or --name", name=name, other=pipeline_name
            )
        chosen = pipeline_name or name or _default_name(to, inline.get("tap"))
        environ = dict(os.environ)
        values = {key: inline.get(key) for key in ("tap", "tap_config", "catalog", "load_method")}
        return Chosen(inline_pipeline(name=chosen, bucket=to, environ=environ, **values), home_folder(None))
    given = [f"--{key.replace('_', '-')}" for key, value in inline.items() if value]
    if given:
        raise SettingsError(f"{given[0]} needs --to", hint="give the bucket: --to ./lake; or use a bridge.yaml")
    path = file or find_file(Path.cwd())
    if path is None:
        hint = "write a bridge.yaml, or name a bucket: --to ./lake --name N"
        raise SettingsError(f"no {FILE_NAME} here or above", hint=hint, folder=Path.cwd())
    return Chosen(load(path, os.environ).pipeline(name or pipeline_name), home_folder(path))


def committed(pipeline: Pipeline) -> tuple[Storage, View]:
    """Return the lake after the pipeline's last commit. Raises `SettingsError` when there is none."""
    storage = open_storage(pipeline.destination.bucket)
    log = Log(storage, pipeline.name)
    head = log.head()
    if not head:
        hint = "run it first; --to and --name, or bridge.yaml, say where it is looked for"
        raise SettingsError("this pipeline has no commit yet", hint=hint, pipeline=pipeline.name, bucket=storage.uri)
    return storage, log.view(head)


def _default_name(bucket: str, tap: str | None) -> str:
    """Return the name of the tap, or of the only pipeline in the bucket."""
    if tap:
        return Path(tap.split()[0]).name
    found = sorted(name for name in open_storage(bucket).list(".bridge") if name not in ("tables", "lake.json"))
    if len(found) == 1:
        return found[0]
    hint = f"give --name, one of: {', '.join(found)}" if found else "nothing was loaded there yet; check --to"
    raise SettingsError("which pipeline?", hint=hint, bucket=bucket)
