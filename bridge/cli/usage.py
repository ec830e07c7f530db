"""Wrong usage, reported like every other error, with a guess at the verb that was meant."""

from __future__ import annotations

import re

import click

from bridge.errors import SettingsError, did_you_mean

_ELSEWHERE = {
    "help": "singer-bridge -h shows all verbs, singer-bridge run -h one",
    "list": "ours: status for pipelines, runs list, tables list, select --list for streams",
    "logs": "ours: singer-bridge runs show NAME --logs",
    "show": "ours: config show, runs show, tables show, state get",
    "sync": "ours: singer-bridge run NAME",
    "test": "ours: singer-bridge doctor NAME",
    "validate": "ours: singer-bridge config check",
    "version": "ours: singer-bridge --version",
}
"""Other tools' words for our verbs."""


def wrong_usage(error: click.ClickException) -> SettingsError:
    """The error for what the command line's parser refuses."""
    ctx = getattr(error, "ctx", None)
    path = ctx.command_path if ctx else "singer-bridge"
    if ctx and (word := re.fullmatch(r"No such command '(.*)'\.", error.message, re.DOTALL)):
        return _no_verb(word[1], ctx)
    if isinstance(error, click.NoSuchOption):
        existing = [flag for option in ctx.command.params for flag in option.opts] if ctx else []
        guess = did_you_mean(error.option_name, existing)
        return SettingsError(f"no option {error.option_name}", hint=f"{guess} {path} -h lists them".strip())
    return SettingsError(_message(error), hint=f"{path} -h shows what it takes" if ctx else "-h shows what it takes")


def _no_verb(word: str, ctx: click.Context) -> SettingsError:
    group, top = ctx.command, ctx.parent is None
    existing = group.list_commands(ctx) if isinstance(group, click.Group) else []
    guess = (_ELSEWHERE.get(word, "") if top else "") or did_you_mean(word, existing)
    typed = " ".join([*ctx.command_path.split()[1:], word])
    joint = "; " if guess and not guess.endswith("?") else " "
    hint = guess if guess.startswith("singer-bridge") else f"{guess}{joint}{ctx.command_path} -h lists them".strip()
    return SettingsError(f'no verb "{typed}"', hint=hint)


def _message(error: click.ClickException) -> str:
    """The parser's message in our style: lower-case, the flag first, no full stop."""
    parameter = error.param if isinstance(error, click.BadParameter) else None
    if parameter is None or isinstance(error, click.MissingParameter):
        text = error.format_message().rstrip(".")
        return text[:1].lower() + text[1:]
    name = max(parameter.opts, key=len) if isinstance(parameter, click.Option) else parameter.human_readable_name
    return f"{name}: {error.message.rstrip('.')}"
