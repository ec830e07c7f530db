"""bridge.yaml, parsed once and strictly: each error names file, line and key, none shows a secret.

```
bridge.yaml + .env + environment -> yamlfile (lines) -> options (types) -> Settings
```
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from bridge.errors import NotAvailable, SettingsError
from bridge.settings import yamlfile
from bridge.settings.explain import CommandLine, InFile, Place, did_you_mean, explained
from bridge.settings.options import CommitEvery, Destination, Incremental, Keys, Pipeline, Rejects, Source, Spark, Spool
from bridge.settings.redact import SPARK_SECRET, learn, learn_arguments, redactor, worth_hiding
from bridge.settings.units import parse_duration, parse_size
from bridge.settings.variables import Variables, read_dotenv
from bridge.settings.yamlfile import Document, Key

__all__ = [
    "FILE_NAME",
    "CommitEvery",
    "Destination",
    "Incremental",
    "Pipeline",
    "Rejects",
    "Settings",
    "Source",
    "Spark",
    "Spool",
    "find_file",
    "inline_pipeline",
    "load",
    "parse_duration",
    "parse_size",
    "redactor",
]

FILE_NAME = "bridge.yaml"

_LATER = frozenset({"defaults", "environments", "include"})
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_NAME_HINT = "letters, digits, dot, dash and underscore, at most 100, the first a letter or digit"
# These stand in <bucket>/.bridge beside the pipelines' folders.
_TAKEN_NAMES = frozenset({"tables", "lake.json"})


@dataclass(frozen=True)
class Settings:
    """All pipelines of one settings file."""

    path: Path | None
    pipelines: dict[str, Pipeline]

    def pipeline(self, name: str | None) -> Pipeline:
        """Return the pipeline of that name, without a name the only one. Raises SettingsError."""
        names = ", ".join(sorted(self.pipelines))
        if name is None and len(self.pipelines) == 1:
            return next(iter(self.pipelines.values()))
        if name is None:
            raise SettingsError("which pipeline? there are several", hint=f"give one of the names: {names}")
        if name not in self.pipelines:
            raise SettingsError(
                "unknown pipeline", hint=did_you_mean(name, self.pipelines) or f"there are: {names}", name=name
            )
        return self.pipelines[name]


def find_file(start: Path) -> Path | None:
    """Return the nearest bridge.yaml in `start` or a folder above it, None if there is none."""
    start = start.absolute()
    return next((folder / FILE_NAME for folder in (start, *start.parents) if (folder / FILE_NAME).is_file()), None)


def load(path: Path, environ: Mapping[str, str]) -> Settings:
    """Return the settings of a file; `.env` beside it fills in what `environ` does not have. Raises SettingsError.

    Relative paths in it are relative to its folder.
    """
    path = path.absolute()
    variables = Variables({**read_dotenv(path.parent / ".env"), **environ}, path.parent)
    document = yamlfile.read(path, _label(path), variables.expand, _is_text)
    pipelines = {name: _pipeline(document, name, raw, path.parent) for name, raw in _raw_pipelines(document).items()}
    return Settings(path, pipelines)


def inline_pipeline(
    *,
    name: str,
    bucket: str,
    tap: str | None,
    tap_config: str | None,
    catalog: str | None,
    load_method: str | None,
    environ: Mapping[str, str],
) -> Pipeline:
    """Return the pipeline that a command line describes, without any file. Raises SettingsError naming the flag.

    Without a tap it can be looked at, not run. `${VAR}` in inline JSON is expanded, so that a password need not stand
    in the process list. Relative paths are relative to the current folder.
    """
    place = CommandLine()
    _check_name(name, ("name",), place)
    if tap is None and (tap_config or catalog):
        raise SettingsError("--tap-config and --catalog need a tap", hint="add --tap")
    config, expanded = _inline_config(tap_config, Variables(environ, Path.cwd()))
    source = {"tap": tap, "config": config, "catalog": catalog}
    destination = {"bucket": bucket, "load_method": "auto" if load_method is None else load_method}
    try:
        # Source refuses an empty tap, rightly; verbs that only look at the bucket have none.
        made = Source.model_construct(tap=[]) if tap is None else Source.model_validate(source)
    except ValidationError as error:
        raise explained(error, place, ("source",)) from None
    try:
        pipeline = Pipeline.model_validate({"name": name, "source": made, "destination": destination})
    except ValidationError as error:
        raise explained(error, place) from None
    return _with_secrets(pipeline, expanded, place)


def _label(path: Path) -> str:
    """Return the path as messages show it: relative where the file is below the current folder."""
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


def _is_text(key: Key) -> bool:
    """Environments and Spark's settings are text: `PORT: 5432`, `ZIP: 007` and `FLAG: true` mean what is written."""
    return key[:1] == ("pipelines",) and key[2:4] in (("source", "env"), ("spark", "conf")) and key[4:] != ()


def _raw_pipelines(document: Document) -> dict[str, Any]:
    """Return the pipelines as written, after a look at the top level."""
    place = InFile(document)
    hint = "write pipelines: with one pipeline under its name"
    if not isinstance(document.data, dict):
        raise SettingsError(f"{document.label}:1: no settings in the file", hint=hint)
    for key in document.data:
        if key in _LATER:
            raise place.error((key,), "not available yet", "remove it", NotAvailable)
        if key != "pipelines" and not key.startswith("x-"):
            guess = (
                did_you_mean(key, ["pipelines"]) or "a pipeline stands under pipelines:, keys of your own start with x-"
            )
            raise place.error((key,), "unknown key", guess)
    pipelines = document.data.get("pipelines")
    if not isinstance(pipelines, dict) or not pipelines:
        raise place.error(("pipelines",), "no pipelines", hint)
    return pipelines


def _pipeline(document: Document, name: str, raw: Any, folder: Path) -> Pipeline:
    at: Key = ("pipelines", name)
    place = InFile(document, at)
    _check_name(name, (), place)
    try:
        keys = Keys.model_validate(raw, context={"folder": folder})
        pipeline = Pipeline.model_validate({"name": name, **{key: getattr(keys, key) for key in Keys.model_fields}})
    except ValidationError as error:
        raise explained(error, place) from None
    return _with_secrets(pipeline, [(key[2:], text) for key, text in document.expanded if key[:2] == at], place)


def _check_name(name: str, key: Key, place: Place) -> None:
    if not _NAME.fullmatch(name):
        raise place.error(key, "not a name for a pipeline", _NAME_HINT)
    if name.lower() in _TAKEN_NAMES:
        raise place.error(key, "this name is taken by the bridge itself", "choose another name")


def _inline_config(text: str | None, variables: Variables) -> tuple[dict[str, Any] | str, list[tuple[Key, str]]]:
    """Return inline JSON with its variables filled in, or the path of a file; and what was filled in."""
    if text is None:
        return {}, []
    if not text.lstrip().startswith("{"):
        return text, []
    expanded: list[tuple[Key, str]] = []

    def fill(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: fill(child) for key, child in value.items()}
        if isinstance(value, list):
            return [fill(child) for child in value]
        if not isinstance(value, str):
            return value
        filled, found = variables.expand(value)
        expanded.extend((("source", "config", "json"), piece) for piece in found)
        return filled

    try:
        return fill(json.loads(text)), expanded
    except ValueError:
        raise SettingsError("--tap-config: not valid JSON", hint="check quotes and commas, or give a file") from None
    except SettingsError as error:
        raise SettingsError(f"--tap-config: {error.message}", hint=error.hint) from None


def _with_secrets(pipeline: Pipeline, expanded: list[tuple[Key, str]], place: Place) -> Pipeline:
    """Return the pipeline with every secret it was given, those of its config file too."""
    source = pipeline.source
    config = _config_file(source.config, place) if isinstance(source.config, Path) else source.config
    arguments = source.argv[1:] if source.tap else []
    found = [text for key, text in expanded if _may_hold_secrets(key, text, arguments)]
    found += [*learn(config), *learn(source.env), *learn(source.pip_url), *learn_arguments(arguments)]
    found += [text for key, text in pipeline.spark.conf.items() if SPARK_SECRET.search(key)]
    return pipeline.model_copy(update={"secrets": worth_hiding(found)})


def _may_hold_secrets(key: Key, text: str, arguments: list[str]) -> bool:
    """Whether a variable went to the tap's settings, environment, address or arguments; a plain path hides nothing."""
    if key[:2] in (("source", "config"), ("source", "env")):
        return len(key) > 2
    if key[:2] == ("source", "tap"):
        return any(text in argument for argument in arguments)
    return key == ("source", "pip_url")


def _config_file(path: Path, place: Place) -> dict[str, Any]:
    """Read the tap's settings to learn their secrets; the tap gets the file itself."""
    at: Key = ("source", "config")
    try:
        config = json.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        hint = "give a JSON file, or the settings themselves"
        raise place.error(at, "cannot read the tap's settings", hint, reason=error.strerror, path=path) from None
    except ValueError as error:
        line = f"line {error.lineno}" if isinstance(error, json.JSONDecodeError) else "not UTF-8"
        raise place.error(at, f"the tap's settings are not valid JSON: {line}", "taps read JSON", path=path) from None
    if not isinstance(config, dict):
        raise place.error(at, "the tap's settings must be a JSON object", 'such as {"host": "localhost"}', path=path)
    return config
