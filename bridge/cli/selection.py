"""Which pipelines a verb speaks of: NAME in bridge.yaml, or `--to URI --name N` without any file."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from bridge.cli.setup.completion import complete_environments, complete_names
from bridge.errors import BridgeError, LakeError, SettingsError, did_you_mean
from bridge.lake.lease import holder
from bridge.lake.log import Log, View, meta
from bridge.settings.inline import inline_destination, inline_pipeline
from bridge.settings.load import FILE_NAME, Settings, find_file, load
from bridge.settings.options import Pipeline
from bridge.settings.text.variables import read_dotenv
from bridge.storage import Storage, lake_of
from bridge.tap.catalog_store import with_names
from bridge.tap.source import home_folder

_F = TypeVar("_F", bound=Callable[..., Any])
_ENVIRONMENT = "bridge.environment"


@dataclass(frozen=True, slots=True)
class Chosen:
    """A pipeline and the project folder that belongs to it."""

    pipeline: Pipeline
    home: Path

    @property
    def named(self) -> Pipeline:
        """The pipeline that knows all names of its streams, by the kept catalog."""
        return with_names(self.pipeline, self.home)


def _keep_environment(ctx: click.Context, _: click.Parameter, value: str | None) -> None:
    ctx.meta[_ENVIRONMENT] = value


def environment() -> str | None:
    """Return what `--env` says to the verb that is running, None if it does not."""
    ctx = click.get_current_context(silent=True)
    return ctx.meta.get(_ENVIRONMENT) if ctx else None


@contextmanager
def in_environment(env: str | None) -> Iterator[None]:
    """Choose in another environment than `--env` says, if one is given."""
    meta = click.get_current_context().meta
    before = meta.get(_ENVIRONMENT)
    meta[_ENVIRONMENT] = before if env is None else env
    try:
        yield
    finally:
        meta[_ENVIRONMENT] = before


def options(function: _F) -> _F:
    """Add the options that choose a pipeline."""
    return _options(click.argument("name", required=False, shell_complete=complete_names), function)


def options_for_several(function: _F) -> _F:
    """Add the options that choose pipelines; those that were named come as `names`."""
    return _options(click.argument("names", metavar="[NAME]...", nargs=-1, shell_complete=complete_names), function)


def file_options(function: _F) -> _F:
    """Add the options that choose a settings file and its environment, for verbs that speak of the whole of it."""
    for option in (
        click.option(
            "--env",
            metavar="ENV",
            expose_value=False,
            callback=_keep_environment,
            shell_complete=complete_environments,
            help="Environment of the settings file.",
        ),
        click.option(
            "-f", "--file", type=click.Path(path_type=Path), help=f"Settings file (default: {FILE_NAME}, upward)."
        ),
    ):
        function = option(function)
    return function


def changing(function: _F) -> _F:
    """Add the options of every verb that changes what it has shown."""
    for option in (
        click.option("--json", "json_output", is_flag=True, help="Print one JSON object."),
        click.option("--yes", is_flag=True, help="Do not ask, on a terminal."),
        click.option("--dry-run", is_flag=True, help="Show what it would do; change nothing."),
    ):
        function = option(function)
    return function


def _options(names: Callable[[_F], _F], function: _F) -> _F:
    for option in (
        click.option("--name", "pipeline_name", metavar="N", help="Name of the pipeline with --to."),
        click.option("--to", metavar="URI", help="Bucket, instead of a bridge.yaml."),
        file_options,
        names,
    ):
        function = option(function)
    return function


def choose_all(
    names: Sequence[str],
    file: Path | None,
    to: str | None,
    pipeline_name: str | None,
    *,
    everything: bool,
    look: bool = False,
    **inline: Any,
) -> list[Chosen]:
    """Return the pipelines that the arguments mean, each once, in their order; `everything`: all of the file."""
    if everything and (names or to or pipeline_name):
        raise SettingsError("--all means every pipeline of the file", hint="leave out NAME, --to and --name")
    if len(names) > 1 and (to or pipeline_name):
        raise SettingsError("--to and --name speak of one pipeline", hint="give one NAME")
    if not everything and len(names) <= 1:
        return [choose(names[0] if names else None, file, to, pipeline_name, look=look, **inline)]
    path = _file(file, inline)
    settings = settings_in(path)
    wanted = list(settings.pipelines) if everything else dict.fromkeys(names)
    return [Chosen(_taken(settings, name, look=look), home_folder(path)) for name in wanted]


def choose(
    name: str | None,
    file: Path | None,
    to: str | None,
    pipeline_name: str | None,
    *,
    look: bool = False,
    **inline: str | None,
) -> Chosen:
    """Return the pipeline that the arguments mean; to `look` at its lake nothing of its source is read.

    Raises `SettingsError` when they mean none, or two.
    """
    if to is not None:
        if _on_command_line("env"):
            raise SettingsError("--env chooses in a bridge.yaml", hint="leave --env out with --to")
        if name and pipeline_name and name != pipeline_name:
            raise SettingsError(
                "two names for one pipeline", hint="give NAME or --name", name=name, other=pipeline_name
            )
        chosen = pipeline_name or name or _default_name(to, inline.get("tap"))
        environ = dict(os.environ)
        values = {key: inline.get(key) for key in ("tap", "tap_config", "catalog", "load_method")}
        return Chosen(inline_pipeline(name=chosen, bucket=to, environ=environ, **values), home_folder(None))
    path = _file(file, inline)
    settings = settings_in(path)
    return Chosen(_taken(settings, name or pipeline_name, look=look), home_folder(path))


def _taken(settings: Settings, name: str | None, *, look: bool) -> Pipeline:
    try:
        return settings.look(name) if look else settings.pipeline(name)
    except SettingsError as error:
        if name and name not in settings.pipelines:
            error.hint = _meant_as_stream(name, settings) or error.hint
        raise


def _meant_as_stream(name: str, settings: Settings) -> str:
    """Return the hint for a stream where a verb takes a pipeline's name; empty if it is none."""
    ctx = click.get_current_context(silent=True)
    if not ctx or not any("--stream" in parameter.opts for parameter in ctx.command.params):
        return ""
    for known in settings.pipelines:
        with suppress(BridgeError):  # one that is wrong, or a bucket that cannot be read: nobody asked for it
            pipeline = settings.look(known)
            log = Log(lake_of(pipeline.destination), pipeline.name)
            if name in log.view(log.latest()).tables:
                return f"{name} is a stream: give {'' if len(settings.pipelines) == 1 else f'{known} '}-s {name}"
    return ""


def _on_command_line(option: str) -> bool:
    ctx = click.get_current_context(silent=True)
    return bool(ctx and ctx.get_parameter_source(option) is ParameterSource.COMMANDLINE)


def _file(file: Path | None, inline: dict[str, str | None]) -> Path:
    given = [f"--{key.replace('_', '-')}" for key, value in inline.items() if value]
    if given:
        raise SettingsError(f"{given[0]} needs --to", hint="give the bucket: --to ./lake; or use a bridge.yaml")
    return settings_file(file)


def settings_in(path: Path) -> Settings:
    """Return the settings of a file. What `.env` beside it says of AWS counts for the bucket as if it were exported.

    boto3 looks into the environment only; what is there wins.
    """
    for name, value in read_dotenv(path.absolute().parent / ".env").items():
        if name.startswith("AWS_"):
            os.environ.setdefault(name, value)
    return load(path, os.environ, environment())


def settings_file(file: Path | None) -> Path:
    """Return the settings file that was given, else the nearest one upward. Raises `SettingsError` if there is none."""
    path = file or find_file(Path.cwd())
    if path is None:
        hint = "singer-bridge init starts a project; or name a bucket: --to ./lake"
        raise SettingsError(f"no {FILE_NAME} here or above", hint=hint, folder=Path.cwd())
    return path


def typed(pipeline: Pipeline) -> str:
    """Return what is typed to choose this pipeline once more, for hints."""
    ctx, env = click.get_current_context(silent=True), environment()
    if to := ctx and ctx.params.get("to"):
        return shlex.join(["--to", str(to), "--name", pipeline.name])
    return f"{pipeline.name.removeprefix(f'{env}.')} --env {env}" if env else pipeline.name


def committed(pipeline: Pipeline) -> tuple[Storage, View]:
    """Return the lake after the pipeline's last commit. Raises `SettingsError` when there is none."""
    storage = lake_of(pipeline.destination)
    log = Log(storage, pipeline.name)
    head = log.latest()
    if not head:
        hint = _why_no_commit(pipeline.name, storage)
        raise SettingsError("this pipeline has no commit yet", hint=hint, pipeline=pipeline.name, bucket=storage.uri)
    return storage, log.view(head)


def _why_no_commit(name: str, storage: Storage) -> str:
    known = in_bucket(storage)
    if name in known:
        held = holder(storage, name)
        if held and not held.get("brief"):
            return f"a run is under way since {held.get('since')}; nothing is committed yet"
        return "it ran, and nothing came of it: `singer-bridge runs list` says why"
    if not _on_command_line("to"):
        env, there = environment(), f"; the bucket has: {', '.join(known)}" if known else ""
        own = f"{name.removeprefix(f'{env}.')} --env {env}" if env else name
        return f"nothing loaded yet; singer-bridge run {own}{there}"
    if not known:
        return "nothing loaded yet; run it first, with this --to and --name"
    return did_you_mean(name, known) or f"run it first; the bucket has: {', '.join(known)}"


def in_bucket(storage: Storage) -> list[str]:
    """Return the names of the pipelines that somebody ran into this bucket."""
    return sorted(name for name in storage.list(".bridge") if name != "tables" and _is_pipeline(storage, name))


def _is_pipeline(storage: Storage, name: str) -> bool:
    try:
        return storage.size(meta(name, "lease.json")) is not None or any(storage.list(meta(name, "commits")))
    except LakeError:  # a file, where pipelines have folders
        return False


def _default_name(bucket: str, tap: str | None) -> str:
    """Return the name of the tap, or of the only pipeline in the bucket."""
    if tap:
        return Path(tap.split()[0]).name
    found = in_bucket(lake_of(inline_destination(bucket)))
    if len(found) == 1:
        return found[0]
    hint = f"give --name, one of: {', '.join(found)}" if found else "nothing was loaded there yet; check --to"
    raise SettingsError("which pipeline?", hint=hint, bucket=bucket)
