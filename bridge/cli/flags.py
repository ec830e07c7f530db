"""Flags that all verbs share: `-q`, `-v`, `--log-format`; and an environment variable for each flag.

`--limit` of `runs list` is `SINGER_BRIDGE_RUNS_LIST_LIMIT`; the command line wins. `prepare` adds this to each command
when it is loaded, so that no verb can forget it.
"""

from __future__ import annotations

import functools
import io
import os
from collections.abc import Callable
from contextlib import nullcontext, redirect_stdout
from difflib import get_close_matches
from typing import Any

import click
from click.core import ParameterSource

from bridge.cli import events
from bridge.errors import BridgeError, SettingsError

_EVERYWHERE = {
    "--file": "SINGER_BRIDGE_FILE",
    "--env": "SINGER_BRIDGE_ENV",
    "--log-format": "SINGER_BRIDGE_LOG_FORMAT",
}
"""Variables that set a flag for all verbs at once. The verb's own variable wins."""


def prepare(command: click.Command, *words: str) -> None:
    """Add the shared flags and the variables to a command, or to all of a group. `words`: what to type to call it."""
    if isinstance(command, click.Group):
        for word, inner in command.commands.items():
            prepare(inner, *words, word)
        return
    if any("--log-format" in parameter.opts for parameter in command.params):
        return  # this command is prepared already
    taken = {flag for parameter in command.params for flag in parameter.opts}
    command.params += [option for option in _common() if not taken & set(option.opts)]
    prefix = "_".join(["SINGER_BRIDGE", *words]).upper().replace("-", "_")
    for option in command.params:
        flags = [flag for flag in option.opts if flag.startswith("--")]
        if isinstance(option, click.Option) and flags and not option.hidden:
            own = [f"{prefix}_{flag[2:].upper().replace('-', '_')}" for flag in flags]
            option.envvar = [*own, *_names(option), *(_EVERYWHERE[flag] for flag in flags if flag in _EVERYWHERE)]
    command.epilog = f"Every option is also a variable: {prefix}_<OPTION>"
    if command.callback:
        command.callback = _wrapped(command.callback, f"{prefix}_")


def _common() -> list[click.Option]:
    def chosen(_ctx: click.Context, _option: click.Parameter, value: str | None) -> None:
        if value:
            events.use(value)

    def remember(ctx: click.Context, option: click.Parameter, value: bool) -> None:
        ctx.meta[f"bridge.{option.name}"] = value

    formats, text = click.Choice(events.FORMATS), "How stderr is written: for people, or one JSON object a line."
    return [
        click.Option(["-q", "--quiet"], is_flag=True, expose_value=False, callback=remember, help="Print errors only."),
        click.Option(["-v", "--verbose"], is_flag=True, expose_value=False, callback=remember, help="Show tracebacks."),
        click.Option(["--log-format"], type=formats, expose_value=False, is_eager=True, callback=chosen, help=text),
    ]


def _wrapped(callback: Callable[..., Any], prefix: str) -> Callable[..., Any]:
    """Wrap a command's function in what the shared flags do, and in the check of variables that begin with `prefix`."""

    @functools.wraps(callback)
    def call(*args: Any, **kwargs: Any) -> Any:
        ctx = click.get_current_context()
        meta = ctx.meta
        try:
            _check_variables(ctx.command, prefix)
            with redirect_stdout(io.StringIO()) if meta.get("bridge.quiet") else nullcontext():
                return callback(*args, **kwargs)
        except BridgeError as error:
            if isinstance(error, SettingsError):
                explain(error, variables())
            if meta.get("bridge.verbose") or kwargs.get("verbose"):
                events.trace(error)
            raise

    return call


def _check_variables(command: click.Command, prefix: str) -> None:
    """Raise `SettingsError` for a variable that begins like the command's own but belongs to no flag."""
    existing = {name for option in command.params for name in _names(option)}
    for name in os.environ:
        if name.startswith(prefix) and name not in existing:
            near = get_close_matches(name, existing, 1)
            hint = f"did you mean {near[0]}?" if near else "see --help for its variables, or unset it"
            raise SettingsError("no flag has this variable", hint=hint, variable=name)


def variables() -> str:
    """The variables that set flags of the running command: its command line does not show them."""
    ctx = click.get_current_context(silent=True)
    options = [option for option in ctx.command.params if _from_variable(ctx, option)] if ctx else []
    return ", ".join(filter(None, map(_variable, options)))


def explain(error: SettingsError, names: str) -> None:
    """Add the `variables` of the command to the hint."""
    if names and names not in error.hint:
        error.hint = f"{error.hint}{'; ' if error.hint else ''}set in the environment: {names}"


def refused(error: click.ClickException) -> SettingsError | None:
    """The error for a variable whose value its flag does not accept; None for a value that was typed."""
    if not isinstance(error, click.BadParameter) or not error.ctx or not isinstance(error.param, click.Option):
        return None
    if not _from_variable(error.ctx, error.param):
        return None
    hint = f"it stands for {max(error.param.opts, key=len)} of `{error.ctx.command_path}`; correct it, or unset it"
    return SettingsError(f"{_variable(error.param)}: {error.message}", hint=hint)


def _from_variable(ctx: click.Context, option: click.Parameter) -> bool:
    return bool(option.name) and ctx.get_parameter_source(str(option.name)) is ParameterSource.ENVIRONMENT


def _variable(option: click.Parameter) -> str | None:
    return next((name for name in _names(option) if os.environ.get(name)), None)


def _names(option: click.Parameter) -> list[str]:
    return [option.envvar] if isinstance(option.envvar, str) else list(option.envvar or ())
