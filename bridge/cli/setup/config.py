"""`config`: is bridge.yaml right, what does it come to, and what may stand in it."""

from __future__ import annotations

import os
from itertools import groupby
from pathlib import Path
from typing import Any

import click

from bridge.cli.selection import choose, environment, file_options, options, settings_file
from bridge.cli.show import as_json, console, count_of
from bridge.settings.load import Problem, check, load


@click.group(short_help="Check the settings, show what they come to.")
def config() -> None:
    """Look at bridge.yaml: nothing is started, and no secret is shown."""


@config.command("check", short_help="Find all that is wrong.")
@file_options
@click.option("--json", "json_output", is_flag=True, help="Print one JSON object.")
def check_(file: Path | None, json_output: bool) -> int:
    """Find all that is wrong: in every pipeline, without an environment and in each; exit code 2 if anything is.

    \b
    singer-bridge config check
    singer-bridge config check --env prod
    """
    path = settings_file(file)
    problems = check(path, os.environ, environment())
    if json_output:
        as_json({"format": 1, "file": str(path), "problems": [_problem(problem) for problem in problems]})
        return 2 if problems else 0
    out = console()
    if not problems:
        settings = load(path, os.environ, environment())
        where = f"in {environment()}" if environment() else count_of(len(settings.environments), "environment")
        out.print(f"[green]✓[/] {path.name}: {count_of(len(settings.pipelines), 'pipeline')}, {where}", soft_wrap=True)
        return 0
    by_environment = sorted(problems, key=lambda problem: problem.environment or "")
    for name, found in groupby(by_environment, key=lambda problem: problem.environment):
        if name:
            out.print(f"in {name}:", markup=False)
        for problem in found:
            out.print("[red]✗[/] ", end="")
            out.print(problem.error.message, markup=False, soft_wrap=True)
            out.print(f"  {problem.error.hint}", style="dim", markup=False, soft_wrap=True)
    out.print(count_of(len(problems), "problem"))
    return 2


def _problem(problem: Problem) -> dict[str, Any]:
    error = problem.error
    where = {"pipeline": problem.pipeline, "environment": problem.environment}
    return {**where, "message": error.message, "hint": error.hint}


@config.command("show", short_help="Print what the settings come to.")
@options
@click.option("--all", "every", is_flag=True, help="Defaults too, marked.")
@click.option("--json", "json_output", is_flag=True, help="Print one JSON object.")
def show(
    name: str | None, file: Path | None, to: str | None, pipeline_name: str | None, every: bool, json_output: bool
) -> None:
    """Print what the settings come to after defaults, environment and variables; of all pipelines, or of one.

    Secrets are shown as ***. The output is a bridge.yaml again.

    \b
    singer-bridge config show flights
    singer-bridge config show flights --all --env prod
    """
    from bridge.settings.effective import effective, to_yaml

    if to:
        pipeline = choose(name, file, to, pipeline_name).pipeline
        env, found = None, {pipeline.name: pipeline}
    else:
        settings = load(settings_file(file), os.environ, environment())
        env, one = settings.environment, name or pipeline_name
        found = {one: settings.pipeline(one)} if one else dict(settings.pipelines)
    shown = {plain: effective(pipeline, every=every) for plain, pipeline in found.items()}
    pipelines = {"pipelines": {plain: data for plain, (data, _) in shown.items()}}
    if json_output:
        as_json({"format": 1, "environment": env, **pipelines})
        return
    if env:
        click.echo(f"# environment {env}; in the bucket: {', '.join(one.name for one in found.values())}")
    defaults = {("pipelines", plain, *key) for plain, (_, keys) in shown.items() for key in keys}
    click.echo("\n".join(to_yaml(pipelines, defaults)))


@config.command("schema", short_help="Print the JSON Schema of bridge.yaml.")
def schema() -> None:
    """Print the JSON Schema of bridge.yaml, by which editors complete and check it; `init` keeps it beside the file.

    \b
    singer-bridge config schema
    singer-bridge config schema > bridge.schema.json
    """
    from importlib.resources import files

    click.echo(files("bridge.settings").joinpath("bridge.schema.json").read_text(encoding="utf-8"), nl=False)
