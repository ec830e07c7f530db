"""`run`: load pipelines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from bridge.cli.events import report
from bridge.cli.flags import explain, variables
from bridge.cli.options import json_option, pipelines_verb, streams_option
from bridge.cli.param_types import DURATION, WINDOW
from bridge.cli.selection import ChosenPipeline, Selection
from bridge.cli.show import as_json, console
from bridge.errors import BridgeError, SettingsError
from bridge.exact_json import NotJson, loads
from bridge.settings.values.request import FLAGS, Request

_TYPES: dict[str, Any] = {
    "FILE": click.Path(path_type=Path),
    "N": click.IntRange(1),
    "30m": DURATION,
    "10m": DURATION,
    "FROM..TO": WINDOW,
}
"""The types of flags that take a value, by its name in `--help`."""


def _request_options(function: Callable[..., int]) -> Callable[..., int]:
    """Give `run` the flags of `Request`."""
    for flag in reversed(FLAGS.values()):
        kind = {"type": _TYPES[flag.metavar], "metavar": flag.metavar} if flag.metavar else {"is_flag": True}
        function = click.option(*flag.words, flag.key, help=flag.help, **kind)(function)
    return function


@click.command()
@pipelines_verb
@click.option("--keep-going", is_flag=True, help="With several pipelines: go on after one failed.")
@click.option("--tap", metavar="COMMAND", help="Tap to run, with its flags; needs --to.")
@click.option("--pip-url", metavar="P", help="Package to install the tap from, if it is not yet; needs --to.")
@click.option("--tap-config", metavar="FILE|JSON", help="The tap's settings: a file, or JSON; needs --to.")
@click.option("--catalog", metavar="FILE", help="Catalog to pass to the tap; needs --to.")
@click.option("--load-method", metavar="M", help="auto, append-only, overwrite, upsert or history; needs --to.")
@streams_option
@_request_options
@click.option("--step", metavar="7d", help="With --backfill: a run for each such part of the window.")
@click.option("--every", type=DURATION, metavar="5m", help="Run again and again, in the foreground, until Ctrl-C.")
@click.option("--dry-run", is_flag=True, help="Say what would happen, and why; change nothing.")
@json_option("Print one JSON document, and nothing else on stdout.")
@click.option("--no-progress", is_flag=True, help="Show no progress.")
@click.option("-q", "--quiet", is_flag=True, help="Print errors only.")
@click.option("-v", "--verbose", is_flag=True, help="Show the tap's log and full tracebacks.")
def run(selection: Selection, **asked: Any) -> int:
    """Load pipelines, each from its last bookmark, exactly once.

    A run that fails leaves only whole commits; the next run goes on from the last one.

    \b
    singer-bridge run flights
    singer-bridge run --tap tap-x --tap-config config.json --to ./lake --name x
    """
    from bridge.load.run.result import Result

    several = selection.several or bool(asked["step"])
    try:
        _check(asked, several=selection.several)
        selection = _with_tap(selection, quiet=asked["quiet"] or asked["json_output"])
        return _run(selection, _chosen(selection, recorded=not asked["dry_run"]), asked)
    except BridgeError as error:
        if not asked["json_output"]:
            raise
        if isinstance(error, SettingsError):
            explain(error, variables())
        result = Result("", selection.pipeline_name or ", ".join(selection.names), error=error).to_json()
        as_json([result] if several else result)
        return report(error)


def _with_tap(selection: Selection, *, quiet: bool) -> Selection:
    """The selection with the tap of `--pip-url`, installed if it is not yet, after all else was checked."""
    if not selection.pip_url or selection.to is None:
        return selection
    from bridge.load.tap.venv import Installation, Venv

    (chosen,) = (selection if selection.tap is not None else replace(selection, tap="tap")).pipelines()
    argv = chosen.pipeline.source.argv if selection.tap is not None else []
    venv, screen = Venv(chosen.home, selection.pip_url), console(err=True)
    with nullcontext() if quiet else screen.status(f"installing {venv.package}"):
        installed = venv.install(Installation(Path.cwd(), [] if not argv or "/" in argv[0] else argv[:1]))
    if installed and not quiet:
        screen.print(f"{venv.package} installed in {venv.root}", soft_wrap=True, markup=False)
    return selection if argv else replace(selection, tap=venv.only_tap())


def _chosen(selection: Selection, *, recorded: bool) -> list[ChosenPipeline]:
    """The pipelines. If settings are wrong, the runs that they refuse are `recorded`."""
    try:
        return selection.pipelines()
    except SettingsError:
        if recorded:
            from bridge.load.run.trace import record_refused

            for chosen, error in selection.refused():
                record_refused(chosen.pipeline, chosen.home, error)
        raise


def _run(selection: Selection, chosen: Sequence[ChosenPipeline], asked: dict[str, Any]) -> int:
    request, several = _request(asked), selection.several
    steps = request.backfill.steps(asked["step"]) if request.backfill and asked["step"] is not None else []
    if asked["dry_run"]:
        from bridge.cli.run.batch import resumed_batch
        from bridge.cli.run.plan import plan

        if several and request.resume:
            loaded = resumed_batch(chosen).loaded
            chosen = [each for each in chosen if each.pipeline.name not in loaded]
        siblings = selection.siblings()
        return plan(chosen, request, siblings=siblings, json_output=asked["json_output"], several=several)
    from bridge.cli.run.many import PipelineRunner
    from bridge.cli.run.reporter import RunReporter

    reporter = RunReporter(
        json=asked["json_output"],
        quiet=asked["quiet"],
        verbose=asked["verbose"],
        progress=not asked["no_progress"],
        several=several or bool(steps),
        variables=variables(),
    )
    requests = [request]
    if steps:
        from bridge.cli.run.batch import steps_left

        requests = steps_left(chosen[0], request, steps)
        if skipped := len(steps) - len(requests):
            further = f"{skipped:,} of {len(steps):,} steps are done: going on with {requests[0].backfill}"
            reporter.announce(further, "steps", skipped=skipped)
    runner = PipelineRunner(chosen, requests, reporter, keep_going=asked["keep_going"])
    return runner.repeat(asked["every"]) if asked["every"] else runner.once()


def _check(asked: dict[str, Any], *, several: bool) -> None:
    """Raise `SettingsError` for flags that do not go together."""
    if asked["state"] and several:
        raise SettingsError("--state is of one pipeline", hint="run that pipeline alone")
    if asked["backfill"] and several:
        raise SettingsError("--backfill is of one pipeline", hint="run that pipeline alone")
    if asked["step"] is not None and not asked["backfill"]:
        raise SettingsError("--step cuts the window of --backfill", hint="add --backfill FROM..TO")
    if asked["keep_going"] and not several:
        raise SettingsError("--keep-going goes with several pipelines", hint="add NAMEs, or --all")
    if asked["every"] and asked["json_output"]:
        hint = "read `singer-bridge runs list --json`, or add --log-format json for one object a line on stderr"
        raise SettingsError("--every never ends, so --json has no document to print", hint=hint)
    if asked["adopt"] and asked["dry_run"]:
        raise SettingsError("--adopt changes tables, --dry-run nothing", hint="leave one of them out")
    once = ("state", "full", "backfill", "dry_run", "adopt", "no_guard")
    if asked["every"] and any(asked[flag] for flag in once):
        hint = "do that once, without --every; then begin with it"
        raise SettingsError("--every goes on from the last bookmark", hint=hint)


def _request(asked: dict[str, Any]) -> Request:
    given = {name: asked[flag.key] for name, flag in FLAGS.items()}
    if path := given["state"]:
        given["state"] = _read_state(path)
    return Request(**given | {"streams": asked["streams"], "guard": not asked["no_guard"]})


def _read_state(path: Path) -> Any:
    try:
        state = loads(path.read_bytes())
    except OSError as error:
        raise SettingsError(f"cannot read the STATE: {error.strerror}", hint="check --state", file=path) from error
    except NotJson as error:
        raise SettingsError(
            "the STATE is not JSON", hint="--state takes the bare value of a STATE", file=path
        ) from error
    if not isinstance(state, dict):
        hint = "--state takes the bare value of a STATE; to start from the beginning use --full"
        raise SettingsError("a STATE is a JSON object", hint=hint, file=path)
    return state
