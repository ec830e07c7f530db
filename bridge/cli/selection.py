"""Which pipelines a verb is about: NAME in bridge.yaml, or `--to URI --name N` without any file."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import click
from click.core import ParameterSource

from bridge.errors import BridgeError, SettingsError, did_you_mean
from bridge.lake.lease import holder
from bridge.lake.log import Log, Snapshot
from bridge.lake.presence import pipelines_in
from bridge.lake.storage import Storage, lake_of
from bridge.load.tap.catalog_store import with_names
from bridge.load.tap.source import home_folder
from bridge.settings.inline import inline_destination, inline_pipeline, typed_as
from bridge.settings.load import FILE_NAME, Settings, find_file, read_settings
from bridge.settings.options import Pipeline

ENVIRONMENT = "bridge.environment"
"""Where the context of a verb keeps what `--env` says."""

_INLINE = ("tap", "pip_url", "tap_config", "catalog", "load_method")


@dataclass(frozen=True, slots=True)
class ChosenPipeline:
    """A pipeline and the project folder that belongs to it."""

    pipeline: Pipeline
    home: Path

    @property
    def with_names(self) -> Pipeline:
        """The pipeline that knows all names of its streams, by the stored catalog."""
        return with_names(self.pipeline, self.home)

    @property
    def log(self) -> Log:
        """The commit log, with the storage that it lies in."""
        return Log(lake_of(self.pipeline.destination), self.pipeline.name)


@dataclass(frozen=True, slots=True)
class Selection:
    """The arguments and flags that choose pipelines, as typed; see `bridge.cli.options` for the options."""

    names: tuple[str, ...] = ()
    """NAMEs of the settings file."""
    file: Path | None = None
    to: str | None = None
    pipeline_name: str | None = None
    """`--name`: the pipeline's name in the bucket of `--to`."""
    everything: bool = False
    """`--all`: every pipeline of the file."""
    tap: str | None = None
    pip_url: str | None = None
    """The package that has the tap, to be installed."""
    tap_config: str | None = None
    catalog: str | None = None
    load_method: str | None = None

    @property
    def word(self) -> str | None:
        """The word that was typed in the place of NAME, if any."""
        return self.names[0] if self.names else None

    @property
    def name(self) -> str | None:
        """The one NAME, or `--name`; None if neither was typed."""
        return self.word or self.pipeline_name

    @property
    def several(self) -> bool:
        """Whether more than one pipeline was asked for; `--all` counts as several."""
        return self.everything or len(self.names) > 1

    def of(self, name: str | None) -> Selection:
        """The same selection with another NAME, or none."""
        return replace(self, names=(name,) if name else ())

    def in_its_environment(self) -> Selection:
        """The same selection if messages were copied, which call a pipeline of an environment `prod.shop`.

        The verb then runs in that environment, as if `--env` said it.
        """
        env = (self.word or "").partition(".")[0]
        if environment() in (None, env) and self.to is None and all(name.startswith(f"{env}.") for name in self.names):
            with suppress(SettingsError):  # the verb says it
                settings = settings_in(settings_file(self.file))
                if env in settings.environments and not set(self.names) & settings.pipelines.keys():
                    click.get_current_context().meta[ENVIRONMENT] = env
                    return replace(self, names=tuple(name.removeprefix(f"{env}.") for name in self.names))
        return self

    def pipeline(self, *, source: bool = True, tables: bool = False) -> ChosenPipeline:
        """The one pipeline that is meant. `source=False`: nothing of its source is read, nor need be right.

        `tables`: the verb writes to tables, so it needs all other settings; see `Settings.pipeline`.

        Raises `SettingsError` if the arguments mean none, or two.
        """
        if self.to is not None:
            return self._inline(self.to)
        path = self._file()
        settings = settings_in(path)
        return ChosenPipeline(_pipeline_in(settings, self.name, source=source, tables=tables), home_folder(path))

    def pipelines(self, *, source: bool = True) -> list[ChosenPipeline]:
        """The pipelines that are meant, each once, in the order in which they were typed."""
        self.refuse_contradictions()
        if not self.several:
            return [self.pipeline(source=source)]
        path = self._file()
        settings = settings_in(path)
        names = list(settings.pipelines) if self.everything else dict.fromkeys(self.names)
        return [ChosenPipeline(_pipeline_in(settings, name, source=source), home_folder(path)) for name in names]

    def refused(self) -> list[tuple[ChosenPipeline, SettingsError]]:
        """The pipelines whose settings are wrong, as far as these tell which bucket they have."""
        if self.to is not None:
            return []
        path = self._file()
        settings = settings_in(path)
        names = list(settings.pipelines) if self.everything else (self.names or (None,))
        refused = [each for name in names if (each := settings.refused(name))]
        return [(ChosenPipeline(pipeline, home_folder(path)), error) for pipeline, error in refused]

    def siblings(self) -> list[ChosenPipeline]:
        """All pipelines of the file whose settings are right; none with `--to`."""
        if self.to is not None:
            return []
        path = self._file()
        return [ChosenPipeline(each, home_folder(path)) for each in readable_in(settings_in(path))]

    def refuse_contradictions(self) -> None:
        """Raise `SettingsError` for `--all` or several NAMEs with options that speak of one pipeline."""
        if self.everything and (self.names or self.to or self.pipeline_name):
            raise SettingsError("--all means every pipeline of the file", hint="leave out NAME, --to and --name")
        if len(self.names) > 1 and (self.to or self.pipeline_name):
            raise SettingsError("--to and --name speak of one pipeline", hint="give one NAME")

    def _inline(self, bucket: str) -> ChosenPipeline:
        if _on_command_line("env"):
            raise SettingsError("--env chooses in a bridge.yaml", hint="leave --env out with --to")
        name = self.word
        if name and self.pipeline_name and name != self.pipeline_name:
            raise SettingsError(
                "two names for one pipeline", hint="give NAME or --name", name=name, other=self.pipeline_name
            )
        chosen = self.pipeline_name or name or _default_name(bucket, self.tap)
        values = {key: getattr(self, key) for key in _INLINE}
        pipeline = inline_pipeline(name=chosen, bucket=bucket, environ=dict(os.environ), **values)
        return ChosenPipeline(pipeline, home_folder(None))

    def _file(self) -> Path:
        if given := [f"--{key.replace('_', '-')}" for key in _INLINE if getattr(self, key)]:
            raise SettingsError(f"{given[0]} needs --to", hint="give the bucket: --to ./lake; or use a bridge.yaml")
        return settings_file(self.file)


def environment() -> str | None:
    """The value of `--env` for the verb that is running; None without it."""
    ctx = click.get_current_context(silent=True)
    return ctx.meta.get(ENVIRONMENT) if ctx else None


@contextmanager
def in_environment(env: str | None) -> Iterator[None]:
    """Choose in another environment than `--env` says, if one is given."""
    meta = click.get_current_context().meta
    before = meta.get(ENVIRONMENT)
    meta[ENVIRONMENT] = before if env is None else env
    try:
        yield
    finally:
        meta[ENVIRONMENT] = before


def _pipeline_in(settings: Settings, name: str | None, *, source: bool, tables: bool = False) -> Pipeline:
    try:
        return settings.pipeline(name, source=source, tables=tables)
    except SettingsError as error:
        if name and name not in settings.pipelines:
            error.hint = _stream_hint(name, settings) or error.hint
        raise


def readable_in(settings: Settings) -> list[Pipeline]:
    """The pipelines of a file whose settings are right."""
    pipelines = []
    for name in settings.pipelines:
        with suppress(SettingsError):
            pipelines.append(settings.pipeline(name))
    return pipelines


def _stream_hint(name: str, settings: Settings) -> str:
    """The hint for a stream where a verb takes a pipeline's name; empty if it is none."""
    ctx = click.get_current_context(silent=True)
    if not ctx or not any("--stream" in parameter.opts for parameter in ctx.command.params):
        return ""
    for pipeline in settings.pipelines:
        with suppress(BridgeError):  # this is only a guess: a pipeline that cannot be read is none of its matter
            log = ChosenPipeline(settings.pipeline(pipeline, source=False), Path()).log
            if name in log.snapshot(log.latest()).tables:
                chosen = "" if len(settings.pipelines) == 1 else f"{pipeline} "
                return f"{name} is a stream: give {chosen}-s {shlex.quote(name)}"
    return ""


def _on_command_line(option: str) -> bool:
    ctx = click.get_current_context(silent=True)
    return bool(ctx and ctx.get_parameter_source(option) is ParameterSource.COMMANDLINE)


def settings_in(path: Path) -> Settings:
    """The settings of a file, in the environment that `--env` says."""
    return read_settings(path, environment())


def settings_file(
    file: Path | None, hint: str = "singer-bridge init starts a project; or name a bucket: --to ./lake"
) -> Path:
    """The settings file that was given, else the nearest one upward. Raises `SettingsError` if there is none."""
    path = file or find_file(Path.cwd())
    if path is None:
        raise SettingsError(f"no {FILE_NAME} here or above", hint=hint, folder=Path.cwd())
    return path


def typed(pipeline: Pipeline) -> str:
    """The arguments that choose this pipeline again, for hints."""
    ctx = click.get_current_context(silent=True)
    return typed_as(pipeline.name, environment(), ctx.params.get("to") if ctx else None)


def committed(pipeline: Pipeline, *, required: bool = True) -> tuple[Storage, Snapshot]:
    """The lake after the last commit. Raises `SettingsError` if a commit is `required` and there is none."""
    storage = lake_of(pipeline.destination)
    log = Log(storage, pipeline.name)
    head = log.latest()
    if required and not head:
        hint = _why_no_commit(pipeline.name, storage)
        raise SettingsError("this pipeline has no commit yet", hint=hint, pipeline=pipeline.name, bucket=storage.uri)
    return storage, log.snapshot(head)


def _why_no_commit(name: str, storage: Storage) -> str:
    names = pipelines_in(storage)
    if name in names:
        held = holder(storage, name)
        if held and not held.get("brief"):
            return f"a run is under way since {held.get('since')}; nothing is committed yet"
        return "it ran, and nothing came of it: `singer-bridge runs list` says why"
    if not _on_command_line("to"):
        env, others = environment(), f"; the bucket has: {', '.join(names)}" if names else ""
        own = f"{name.removeprefix(f'{env}.')} --env {env}" if env else name
        return f"nothing loaded yet; singer-bridge run {own}{others}"
    if not names:
        return "nothing loaded yet; run it first, with this --to and --name"
    return did_you_mean(name, names) or f"run it first; the bucket has: {', '.join(names)}"


def _default_name(bucket: str, tap: str | None) -> str:
    """The name of the tap, or of the only pipeline in the bucket."""
    if tap:
        return Path(tap.split()[0]).name
    names = pipelines_in(lake_of(inline_destination(bucket)))
    if len(names) == 1:
        return names[0]
    hint = f"give --name, one of: {', '.join(names)}" if names else "nothing was loaded there yet; check --to"
    raise SettingsError("which pipeline?", hint=hint, bucket=bucket)
