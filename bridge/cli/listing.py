"""Groups of verbs whose name alone lists: `runs` is `runs list`."""

from __future__ import annotations

import click

__all__ = ["Listing"]


class Listing(click.Group):
    """A group that calls its verb `list` where none is named; options go to it: `runs --json`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        asks_for_help = bool(args) and args[0] in ctx.help_option_names
        # The shell completes the names of the verbs, which come in the place of the one that is missing.
        if not ctx.resilient_parsing and not asks_for_help and (not args or args[0].startswith("-")):
            args = ["list", *args]
        return super().parse_args(ctx, args)
