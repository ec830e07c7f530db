"""Names of the reference that are not built yet: refused with those words, never accepted and ignored."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from bridge.errors import NotAvailable

__all__ = ["Verbs", "later_options"]

_F = TypeVar("_F", bound=Callable[..., Any])


class Verbs(click.Group):
    """A group of verbs that knows which of the reference's verbs it does not have yet."""

    def __init__(self, *args: Any, later: tuple[str, ...] = (), **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.later = later

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in self.later:
            hint = f"see `{ctx.command_path} --help`"
            raise NotAvailable("this verb is not available yet", hint=hint, verb=cmd_name)
        return super().get_command(ctx, cmd_name)


def _refuse(ctx: click.Context, option: click.Parameter, value: Any) -> Any:
    if value:
        hint = f"see `{ctx.command_path} --help`"
        raise NotAvailable("this option is not available yet", hint=hint, option=option.opts[0])
    return value


def later_options(*flags: str, switches: tuple[str, ...] = ()) -> Callable[[_F], _F]:
    """Add options that are only there to be refused: `flags` take a value, `switches` take none."""

    def add(function: _F) -> _F:
        for flag in (*flags, *switches):
            option = click.option(
                flag, hidden=True, expose_value=False, is_eager=True, callback=_refuse, is_flag=flag in switches
            )
            function = option(function)
        return function

    return add
