"""A pipeline from the command line's flags, without any file."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from bridge.errors import SettingsError
from bridge.settings.destination import Destination
from bridge.settings.explain import CommandLine, explained
from bridge.settings.options import Pipeline, Source
from bridge.settings.secrets import with_secrets
from bridge.settings.text.tree import Expansion, Key
from bridge.settings.text.variables import Variables
from bridge.settings.values.checked import pipeline_name


def typed_as(name: str, environment: str | None, bucket: str | None) -> str:
    """The arguments that choose a pipeline: its name, or its bucket if it is in no file."""
    if bucket:
        return shlex.join(["--to", bucket, "--name", name])
    return f"{name.removeprefix(f'{environment}.')} --env {environment}" if environment else name


def inline_destination(bucket: str) -> Destination:
    """The bucket that `--to` names. Without a file, the AWS_* variables say how to reach it."""
    try:
        return Destination.model_validate({"bucket": bucket})
    except ValidationError as error:
        raise explained(error, CommandLine(), ("destination",))[0][1] from None


def inline_pipeline(
    *,
    name: str,
    bucket: str,
    environ: Mapping[str, str],
    tap: str | None = None,
    pip_url: str | None = None,
    tap_config: str | None = None,
    catalog: str | None = None,
    load_method: str | None = None,
) -> Pipeline:
    """The pipeline that a command line describes, without any file. Raises SettingsError naming the flag.

    Without a tap it can be looked at, not run. `${VAR}` in inline JSON is expanded, so that a password need not stand
    in the process list. Relative paths are relative to the current folder.
    """
    place = CommandLine()
    if wrong := pipeline_name(name):
        raise place.error(("name",), *wrong)
    if tap is None and (tap_config or catalog):
        raise SettingsError("--tap-config and --catalog need a tap", hint="add --tap, or --pip-url")
    config, expanded = _inline_config(tap_config, Variables(environ))
    source: dict[str, Any] = {"tap": tap, "pip_url": pip_url, "config": config, "catalog": catalog}
    if pip_url and not catalog:  # nobody has seen this tap yet, and many send only what is selected
        source["select"] = ["*"]
    destination = {"bucket": bucket, "load_method": "auto" if load_method is None else load_method}
    try:
        # Source refuses an empty tap, rightly; verbs that only look at the bucket have none.
        made = Source.model_construct(tap=[]) if tap is None else Source.model_validate(source)
    except ValidationError as error:
        raise explained(error, place, ("source",))[0][1] from None
    try:
        pipeline = Pipeline.model_validate({"name": name, "source": made, "destination": destination})
    except ValidationError as error:
        raise explained(error, place)[0][1] from None
    return with_secrets(pipeline, expanded, place)


def _inline_config(text: str | None, variables: Variables) -> tuple[dict[str, Any] | str, list[tuple[Key, Expansion]]]:
    """Inline JSON with its variables filled in, or the path of a file; and what they brought."""
    if text is None:
        return {}, []
    if not text.lstrip().startswith("{"):
        return text, []
    expanded: list[tuple[Key, Expansion]] = []

    def fill(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: fill(child) for key, child in value.items()}
        if isinstance(value, list):
            return [fill(child) for child in value]
        if not isinstance(value, str):
            return value
        filled, pieces = variables.expand(value, Path.cwd())
        expanded.extend((("source", "config", "json"), piece) for piece in pieces)
        return filled

    try:
        return fill(json.loads(text)), expanded
    except ValueError:
        raise SettingsError("--tap-config: not valid JSON", hint="check quotes and commas, or give a file") from None
    except SettingsError as error:
        raise SettingsError(f"--tap-config: {error.message}", hint=error.hint) from None
