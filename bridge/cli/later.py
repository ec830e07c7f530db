"""Verbs of the reference that are not built yet: refused with those words, never accepted and ignored."""

from __future__ import annotations

from typing import Any

import click

from bridge.errors import NotAvailable

__all__ = ["Verbs"]


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
