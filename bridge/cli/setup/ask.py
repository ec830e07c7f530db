"""The questions of `add`: the settings that a tap needs. Secrets are not shown."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import click

from bridge.cli.plain import echo, plain
from bridge.cli.show import console
from bridge.errors import did_you_mean
from bridge.load.tap.about import About, Setting
from bridge.operate.project.entry import finds_source, variable_name

_TYPES: dict[str, Any] = {"integer": click.INT, "number": click.FLOAT, "boolean": click.BOOL}


@dataclass
class Answers:
    """Answers: settings by their name, secrets by the variable that will hold them."""

    values: dict[str, Any] = field(default_factory=dict)
    secrets: dict[str, str] = field(default_factory=dict)
    needed: set[str] = field(default_factory=set)
    """Settings whose variable is set, now or before."""


def somebody_answers() -> bool:
    """Whether a person can answer: not in a pipe, not in CI."""
    return sys.stdin.isatty() and sys.stdout.isatty() and not os.environ.get("CI")


def ask_settings(description: About, prefix: str, variables: Mapping[str, str]) -> Answers:
    """Ask for required settings, or for those of the connection, and then for any other setting by its name.

    A secret whose variable is set is not asked for.
    """
    answers = Answers()
    asked = list(description.required) or list(filter(finds_source, description.settings))
    if asked and not description.required:
        console().print("[dim]the tap marks no setting as required; Enter leaves one out[/]")
    for setting in asked:
        if setting.kind not in ("object", "array"):
            _ask(setting, prefix, variables, answers)
    for setting in _others(description, asked):
        _ask(setting, prefix, variables, answers)
    return answers


def _ask(setting: Setting, prefix: str, variables: Mapping[str, str], answers: Answers) -> None:
    variable = variable_name(prefix, setting.name)
    if setting.secret and variable in variables:
        answers.needed.add(setting.name)
        return
    answer = _question(setting)
    if answer == "":
        return
    if setting.secret:
        answers.secrets[variable] = str(answer)
        answers.needed.add(setting.name)
    else:
        answers.values[setting.name] = answer


def _others(description: About, asked: list[Setting]) -> Iterator[Setting]:
    """Yield further settings, named one at a time, until the answer is empty."""
    others = {setting.name: setting for setting in description.settings if setting not in asked}
    while others:
        name = click.prompt("another setting, by its name (Enter: no more)", default="", show_default=False).strip()
        if not name:
            return
        if name in others:
            yield others.pop(name)
        else:
            hint = did_you_mean(name, others) or f"there are: {', '.join(others)}"
            echo(f"the tap has no setting {name}: {hint}")


class _Json(click.ParamType):  # type: ignore[type-arg]  # generic in new versions of click only
    """An object or a list, typed as JSON."""

    name = "JSON"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "":
            return value
        try:
            return json.loads(value)
        except ValueError:
            self.fail(f'{value!r} is not JSON, such as ["a"] or {{"a": 1}}', param, ctx)


def _question(setting: Setting) -> Any:
    """An answer of the setting's type, or an empty text."""
    if setting.description:
        console().print(setting.description, soft_wrap=True, markup=False, style="dim")
    kind: Any = click.Choice([str(choice) for choice in setting.choices]) if setting.choices else None
    kind = kind or (_Json() if setting.kind in ("object", "array") else _TYPES.get(setting.kind, click.STRING))
    default = "" if setting.default is None or setting.kind in ("object", "array") else setting.default
    if default == "" and not isinstance(kind, _Json):
        kind = _OrNothing(kind)
    return click.prompt(
        plain(setting.name), default=default, hide_input=setting.secret, type=kind, show_default=default != ""
    )


class _OrNothing(click.ParamType):  # type: ignore[type-arg]  # generic in new versions of click only
    """A type, or nothing at all: Enter leaves the setting out."""

    def __init__(self, kind: Any) -> None:
        self.kind, self.name = kind, kind.name

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return value if value == "" else self.kind.convert(value, param, ctx)
