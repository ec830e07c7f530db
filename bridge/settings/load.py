"""bridge.yaml, parsed strictly: each error names file, line and key, none shows a secret.

```
files + .env + environment -> yamlfile (lines) -> project, tree (layers, variables) -> options (types) -> Settings
```
Only the pipeline that is asked for is filled in and checked: a variable that another one lacks stops no run. What is
wrong with the files as such, a name or a key at the top, stops all.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from bridge.errors import SettingsError, did_you_mean
from bridge.settings.layers import SettingsLayers, read_project
from bridge.settings.options import Pipeline
from bridge.settings.reading import is_missing, read_bucket, read_pipeline
from bridge.settings.service import Service, read_service
from bridge.settings.text.command_output import OUTPUTS
from bridge.settings.text.variables import Variables, read_dotenv

FILE_NAME = "bridge.yaml"

_ENVIRONMENT = "SINGER_BRIDGE_ENV"


@dataclass(frozen=True)
class Pipelines(Mapping[str, Pipeline]):
    """The pipelines by their names in the file. Each is checked when it is taken out, and may raise SettingsError."""

    project: SettingsLayers = field(repr=False)
    variables: Variables = field(repr=False)
    environment: str | None
    _read: dict[tuple[str, bool, bool], Pipeline] = field(default_factory=dict, repr=False)

    def __getitem__(self, name: str) -> Pipeline:
        return self.read(name)

    def read(self, name: str, *, source: bool = True, tables: bool = False) -> Pipeline:
        """A pipeline, with its source or without; see `read_pipeline`."""
        key = name, source, tables
        if key not in self._read:
            expand = self.variables.expand
            pipeline, problems = read_pipeline(
                self.project, expand, name, self.environment, source=source, tables=tables
            )
            if problems:
                raise _first([error for _, error in problems], self.project, self.variables)
            if not pipeline:
                hint = "no command is run here; `singer-bridge doctor` does run it"
                raise SettingsError("only a command knows a value that has to be known", hint=hint, pipeline=name)
            self._read[key] = pipeline
        return self._read[key]

    def __contains__(self, name: object) -> bool:
        return name in self.project.pipelines

    def __iter__(self) -> Iterator[str]:
        return iter(self.project.pipelines)

    def __len__(self) -> int:
        return len(self.project.pipelines)


@dataclass(frozen=True)
class Settings:
    """All pipelines of one project, in one environment or none."""

    path: Path
    environment: str | None
    pipelines: Pipelines
    environments: tuple[str, ...] = ()
    """All that the file has."""

    def pipeline(self, name: str | None, *, source: bool = True, tables: bool = False) -> Pipeline:
        """The pipeline of that name in the file, without a name the only one. Raises SettingsError.

        `source=False` leaves the source out: no variable that only the tap needs has to be set. Who writes to `tables`
        without it says so, and has all other settings; others have what it takes to look at the lake.
        """
        return self.pipelines.read(self._chosen(name), source=source, tables=tables)

    @property
    def service(self) -> Service:
        """The section `service`. Raises `SettingsError` if it is wrong, or lacks a variable."""
        of = self.pipelines
        service, problems = read_service(of.project.service, of.variables.expand)
        if service is None:
            raise _first(problems, of.project, of.variables)
        return service

    def refused(self, name: str | None) -> tuple[Pipeline, SettingsError] | None:
        """A pipeline whose settings are wrong with its bucket alone, and what is wrong with it.

        None if its settings are right, or do not even tell the bucket.
        """
        try:
            name = self._chosen(name)
        except SettingsError:
            return None
        try:
            self.pipelines.read(name)
        except SettingsError as error:
            of = self.pipelines
            pipeline = read_bucket(of.project, of.variables.expand, name, of.environment)
            return (pipeline, error) if pipeline else None
        return None

    def _chosen(self, name: str | None) -> str:
        names = ", ".join(sorted(self.pipelines))
        if name is None and len(self.pipelines) == 1:
            return next(iter(self.pipelines))
        if name is None:
            raise SettingsError("which pipeline? there are several", hint=f"give one of the names: {names}")
        if name not in self.pipelines:
            raise SettingsError(
                "unknown pipeline", hint=did_you_mean(name, self.pipelines) or f"there are: {names}", name=name
            )
        return name


@dataclass(frozen=True)
class Problem:
    """Something that is wrong with the settings of a pipeline, or with the file as such."""

    error: SettingsError
    pipeline: str | None = None
    environment: str | None = None


def find_file(start: Path) -> Path | None:
    """The nearest bridge.yaml in `start` or a folder above it, None if there is none."""
    start = start.absolute()
    return next((folder / FILE_NAME for folder in (start, *start.parents) if (folder / FILE_NAME).is_file()), None)


def load(
    path: Path, environ: Mapping[str, str], env: str | None = None, *, commands: bool = True, renew: bool = False
) -> Settings:
    """The settings of a file in an environment, by default that of SINGER_BRIDGE_ENV. Raises SettingsError.

    `.env` beside the file fills in what `environ` does not have. Relative paths are relative to the file they stand in.
    With `commands=False` no `${cmd:...}` is run: `***` stands for what it would print. With `renew`, one that was run
    more than ten minutes ago is run again.
    """
    project, variables, chosen = _open(path.absolute(), environ, commands=commands, renew=renew)
    if project.problems:
        error = _first([error for _, error in project.problems], project, variables)
        error.files = project.files
        raise error
    environment = project.environment(env or chosen)
    pipelines = Pipelines(project, variables, environment)
    return Settings(path.absolute(), environment, pipelines, tuple(project.environments))


def read_settings(path: Path, env: str | None = None, *, renew: bool = False) -> Settings:
    """The settings of a file, with this process's variables. Those of stores in `.env` beside it are set in it.

    `renew`, before a run: see `load`.

    boto3 and Google's library read only the environment; a variable that is set there already wins.
    """
    for name, value in read_dotenv(path.absolute().parent / ".env").items():
        if name.startswith(("AWS_", "GOOGLE_")):
            os.environ.setdefault(name, value)
    return load(path, os.environ, env, renew=renew)


class SettingsFile:
    """A settings file that may change: bridge.yaml, what it includes, and `.env` beside it."""

    def __init__(self, path: Path, environment: str | None) -> None:
        """Nothing is read yet."""
        self.path, self.environment = path.absolute(), environment
        self._files: tuple[Path, ...] = (self.path,)
        self._stamp: tuple[tuple[str, int, int, int], ...] | None = None

    def has_changed(self) -> bool:
        """Whether any file is other than it was when the last `read` began, or what a `${cmd:...}` prints.

        A command that failed is tried again after a minute, in a thread.
        """
        return self._look() != self._stamp

    def read(self) -> Settings:
        """Read it, and again if it changes meanwhile. Raises `SettingsError`; repairing the wrong file is a change."""
        OUTPUTS.forget_failures()
        for last in (False, True):
            self._stamp = self._look()
            problem = None
            try:
                settings = read_settings(self.path, self.environment)
                self._files = settings.pipelines.project.files
            except SettingsError as error:
                problem, self._files = error, error.files or self._files
            if last or not self.has_changed():
                break
        if problem:
            raise problem
        return settings

    def _look(self) -> tuple[tuple[str, int, int, int], ...]:
        stats = [("${cmd:...}", OUTPUTS.version(), 0, 0)]
        for path in dict.fromkeys((self.path, *self._files, self.path.parent / ".env")):
            with suppress(OSError):
                stat = path.stat()
                stats.append((str(path), stat.st_mtime_ns, stat.st_size, stat.st_ino))
        return tuple(stats)


def check(path: Path, environ: Mapping[str, str], env: str | None = None) -> list[Problem]:
    """All problems, each once: in one environment, or without any and in each. No `${cmd:...}` is run.

    A key that every environment has is not missing where none is chosen. Raises SettingsError for an environment that
    the file does not have.
    """
    try:
        project, variables, chosen = _open(path.absolute(), environ)
    except SettingsError as error:
        return [Problem(error)]
    project.environment(env or chosen)
    return _all_problems(project, variables, [env] if env else [None, *project.environments])


def _all_problems(project: SettingsLayers, variables: Variables, environments: list[str | None]) -> list[Problem]:
    variables = variables.without_commands
    problems = [Problem(error) for _, error in project.problems]
    problems += [Problem(error) for error in read_service(project.service, variables.expand)[1]]
    for name in project.pipelines:
        wrong = {each: read_pipeline(project, variables.expand, name, each)[1] for each in environments}
        if len(wrong) > 1:
            missing = {key for each in project.environments for key, error in wrong[each] if is_missing(error)}
            wrong[None] = [(key, error) for key, error in wrong[None] if not is_missing(error) or key in missing]
        problems += [Problem(error, name, each) for each, errors in wrong.items() for _, error in errors]
    unique: dict[str, Problem] = {}
    for problem in problems:
        unique.setdefault(problem.error.message, problem)
    return list(unique.values())


def _first(errors: list[SettingsError], project: SettingsLayers, variables: Variables) -> SettingsError:
    """The error to report: wrong settings first, then missing ones. Its hint says how to see the others."""
    error = next((each for each in errors if not is_missing(each)), errors[0])
    every = _all_problems(project, variables, [None, *project.environments])
    if len(every) > 1:
        error.hint += f"{'; ' if error.hint else ''}singer-bridge config check shows all {len(every)}"
    return error


def _open(
    path: Path, environ: Mapping[str, str], *, commands: bool = False, renew: bool = False
) -> tuple[SettingsLayers, Variables, str | None]:
    values = {**read_dotenv(path.parent / ".env"), **environ}
    variables = Variables(values, commands=commands, renew=renew)
    return read_project(path, variables.without_commands.expand), variables, values.get(_ENVIRONMENT)
