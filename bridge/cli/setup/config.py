"""`config`: check bridge.yaml, show what it amounts to, and print its schema."""

from __future__ import annotations

import os
from contextlib import suppress
from itertools import groupby
from pathlib import Path
from typing import Any, TypeAlias

import click

from bridge.cli.options import file_options, json_option, pipeline_verb
from bridge.cli.plain import echo
from bridge.cli.selection import Selection, environment, readable_in, settings_file
from bridge.cli.show import as_json, console, count_of, note
from bridge.errors import SettingsError, TapError
from bridge.load.tap.about import about
from bridge.load.tap.catalog_store import CatalogStore, with_names
from bridge.load.tap.process import find_executable
from bridge.load.tap.source import home_folder
from bridge.load.tap.venv import Venv
from bridge.operate.project.entry import Entry
from bridge.operate.project.taps import installables
from bridge.settings.load import Problem, check, load
from bridge.settings.options import Pipeline


@click.group()
def config() -> None:
    """Check bridge.yaml, or show what it amounts to. Nothing is started, and no secret is shown."""


@config.command("check")
@file_options
@json_option("Print one JSON object.")
def check_(file: Path | None, json_output: bool) -> int:
    """Find every mistake: in each pipeline, without an environment and in each. Exit code 2 if there is one.

    \b
    singer-bridge config check
    singer-bridge config check --env prod
    """
    path = settings_file(file)
    problems = check(path, os.environ, environment())
    among = _readable(path)
    shared = _clashes(among, home_folder(path))
    problems += [problem for problem, is_certain in shared if is_certain] + _misquoted(among, home_folder(path))
    notes = [f"{each.error.message}. {each.error.hint}" for each, is_certain in shared if not is_certain]
    faults, warnings, unknown = _views(among, home_folder(path))
    problems, notes = problems + faults, notes + warnings
    if json_output:
        facts = {"problems": [_problem(each) for each in problems], "warnings": notes, "unchecked": unknown}
        as_json({"format": 1, "file": str(path), **facts})
        return 2 if problems else 0
    _print(path, problems)
    for text in notes:
        note("warning", "yellow", text)
    for text in unknown:
        note("not checked", "dim", text)
    return 2 if problems else 0


Readable: TypeAlias = "list[tuple[str | None, list[Pipeline]]]"
"""The pipelines whose settings are right, by environment."""


def _readable(path: Path) -> Readable:
    with suppress(SettingsError):  # the file as such is wrong, and that is among the problems
        one = load(path, os.environ, environment(), commands=False)
        environments = [one.environment] if environment() else [None, *one.environments]
        return [(env, readable_in(load(path, os.environ, env, commands=False))) for env in environments]
    return []


def _clashes(among: Readable, home: Path) -> list[tuple[Problem, bool]]:
    """The pipelines that would share a folder of tables, in each environment, and whether that is certain."""
    from bridge.operate.project.clashes import clashes

    pairs = dict[tuple[str, str], tuple[Problem, bool]]()
    for env, pipelines in among:
        for each in clashes(pipelines, home):
            pair = each.first.removeprefix(f"{env}."), each.second.removeprefix(f"{env}.")
            problem = Problem(SettingsError(each.message, hint=each.hint), pair[1], env)
            pairs.setdefault(pair, (problem, each.is_certain))
    return list(pairs.values())


def _misquoted(among: Readable, home: Path) -> list[Problem]:
    """The columns that a `transform` has in double quotes, as far as stored catalogs say what the columns are."""
    from bridge.load.run.tables.catalog_columns import misquoted

    problems = dict[str, Problem]()
    for env, pipelines in among:
        for pipeline in pipelines:
            with suppress(SettingsError):  # a catalog that cannot be read, which the run reports
                catalog = CatalogStore(home, pipeline).read()
                for error in misquoted(with_names(pipeline, home), catalog):
                    problem = Problem(error, pipeline.name.removeprefix(f"{env}."), env)
                    problems.setdefault(error.message, problem)
    return list(problems.values())


def _views(among: Readable, home: Path) -> tuple[list[Problem], list[str], list[str]]:
    """The views that a run would refuse, those that it would not fill, and those of which nobody knows; each once."""
    from bridge.load.run.checks.view_outlook import by_catalog

    faults, warnings, unknown = dict[str, Problem](), dict[str, None](), dict[str, str]()
    for env, pipelines in among:
        for pipeline in (each for each in pipelines if each.views):
            outlook, plain = by_catalog(pipeline, home), pipeline.name.removeprefix(f"{env}.")
            for error in outlook.faults:
                faults.setdefault(error.message, Problem(error, plain, env))
            warnings |= dict.fromkeys(outlook.warnings)
            for view in outlook.unknown:
                text = f"view {view.name}: the columns of {view.stream} are not known yet"
                typed = f"{plain} --env {env}" if env else plain
                unknown.setdefault(text, f"{text}; `singer-bridge run {typed} --dry-run` finds out")
    return list(faults.values()), list(warnings), list(unknown.values())


def _print(path: Path, problems: list[Problem]) -> None:
    out = console()
    if not problems:
        settings = load(path, os.environ, environment(), commands=False)
        where = f"in {environment()}" if environment() else count_of(len(settings.environments), "environment")
        out.print(f"[green]✓[/] {path.name}: {count_of(len(settings.pipelines), 'pipeline')}, {where}", soft_wrap=True)
        return
    by_environment = sorted(problems, key=lambda problem: problem.environment or "")
    for name, group in groupby(by_environment, key=lambda problem: problem.environment):
        if name:
            out.print(f"in {name}:", markup=False)
        for problem in group:
            out.print("[red]✗[/] ", end="")
            out.print(problem.error.message, markup=False, soft_wrap=True)
            out.print(f"  {problem.error.hint}", style="dim", markup=False, soft_wrap=True)
    out.print(count_of(len(problems), "problem"))


def _problem(problem: Problem) -> dict[str, Any]:
    error = problem.error
    where = {"pipeline": problem.pipeline, "environment": problem.environment}
    return {**where, "message": error.message, "hint": error.hint}


@config.command("show")
@pipeline_verb
@click.option("--all", "every", is_flag=True, help="Defaults too, marked.")
@json_option("Print one JSON object.")
def show(selection: Selection, every: bool, json_output: bool) -> None:
    """Print the settings after defaults, environment and variables: of all pipelines, or of one.

    Secrets are shown as ***. The output is itself a bridge.yaml.

    \b
    singer-bridge config show flights
    singer-bridge config show flights --all --env prod
    """
    from bridge.settings.effective import effective, to_yaml

    if selection.to:
        pipeline = selection.pipeline().pipeline
        env, chosen = None, {pipeline.name: pipeline}
    else:
        settings = load(settings_file(selection.file), os.environ, environment(), commands=False)
        env, one = settings.environment, selection.name
        chosen = {one: settings.pipeline(one)} if one else dict(settings.pipelines)
    shown = {plain: effective(pipeline, every=every) for plain, pipeline in chosen.items()}
    pipelines = {"pipelines": {plain: data for plain, (data, _) in shown.items()}}
    if json_output:
        as_json({"format": 1, "environment": env, **pipelines})
        return
    if env:
        click.echo(f"# environment {env}; in the bucket: {', '.join(one.name for one in chosen.values())}")
    defaults = {("pipelines", plain, *key) for plain, (_, keys) in shown.items() for key in keys}
    click.echo("\n".join(to_yaml(pipelines, defaults)))


@config.command("schema")
def schema() -> None:
    """Print the JSON Schema of bridge.yaml, with which editors complete and check it; `init` writes it beside the file.

    \b
    singer-bridge config schema
    singer-bridge config schema > bridge.schema.json
    """
    from importlib.resources import files

    click.echo(files("bridge.settings").joinpath("bridge.schema.json").read_text(encoding="utf-8"), nl=False)


@config.command("tap")
@pipeline_verb
def tap_(selection: Selection) -> None:
    """Print every setting that the tap has, as lines to paste below `config`; the tap must be installed.

    `add` writes those that the tap requires, or finds its source by. No password has to be set.

    \b
    singer-bridge config tap flights
    singer-bridge config tap flights > settings.txt
    """
    if selection.to is not None:
        raise SettingsError("config tap reads source.tap from a bridge.yaml", hint="leave out --to and --name")
    path = settings_file(selection.file, "singer-bridge init writes one")
    taps = installables(path, os.environ, environment(), selection.name)
    if len(taps) > 1:
        names = ", ".join(tap.pipeline for tap in taps)
        raise SettingsError("which pipeline? there are several", hint=f"give one of the names: {names}")
    (tap,) = taps
    environ = dict(os.environ) | tap.source.env
    programs = Venv(home_folder(path), tap.source.pip_url).bin if tap.source.pip_url else None
    argv = find_executable(tap.source.argv, programs, environ)
    described = about(argv, environ)
    if described is None:
        hint = "see its documentation"
        raise TapError("the tap does not list its settings", hint=hint, tap=Path(argv[0]).name)
    for line in Entry(argv[0], described, prefix=Path(argv[0]).name, name=tap.pipeline).all_settings():
        echo(line)
