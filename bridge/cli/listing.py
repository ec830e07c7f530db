"""Groups of verbs whose name alone means `list`: `runs` is `runs list`."""

from __future__ import annotations

import click

from bridge.cli.setup.completion import names_in_file


class Listing(click.Group):
    """A group that calls its verb `list` if none is named, with the options and the pipeline: `runs shop --json`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        # While the shell completes, the missing verb is what it looks for.
        if not ctx.resilient_parsing and self._names_no_verb(ctx, args):
            args = ["list", *args]
        return super().parse_args(ctx, args)

    def _names_no_verb(self, ctx: click.Context, args: list[str]) -> bool:
        if not args:
            return True
        if args[0].startswith("-"):
            return args[0] not in ctx.help_option_names
        return self.get_command(ctx, args[0]) is None and args[0] in names_in_file(ctx)
