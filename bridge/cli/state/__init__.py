"""`state`: the bookmarks of the commit log, and all ways to change them.

```
look.py      list, get, history            confirm.py   before and after, the question, the commit
change.py    set, edit, clear, merge, copy exchange.py  export, import
streams.py   which streams exist, and which rows would double
```
"""

from __future__ import annotations

import click

from bridge.cli.listing import Listing
from bridge.cli.state.change import clear, copy, edit, merge, set_
from bridge.cli.state.exchange import export, import_
from bridge.cli.state.look import get, history, list_

__all__ = ["state"]


class _State(Listing):
    """`show` is another word for `get`."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return super().get_command(ctx, "get" if cmd_name == "show" else cmd_name)


@click.group(cls=_State)
def state() -> None:
    """Show the bookmarks, or change them. Each change is a commit."""


for _command in (list_, get, set_, edit, clear, merge, copy, history, export, import_):
    state.add_command(_command)
