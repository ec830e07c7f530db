"""The command line: one file a verb, imported when it is called."""

from __future__ import annotations

import importlib
import sys
from typing import Any

import click

from bridge import __version__
from bridge.errors import BridgeError, NotAvailable

__all__ = ["main"]

_GROUPS = {
    "Run": {"run": "Load one pipeline.", "demo": "Watch the whole of it on real data."},
    "Look": {
        "runs": "What ran, and how it ended.",
        "state": "The bookmarks, as the tap said them.",
        "tables": "What is in the lake.",
    },
    "Set up": {"discover": "Ask the tap for its catalog.", "install": "Put the tap into a venv of its own."},
}
_LATER = {
    *("add", "compact", "completion", "config", "doctor", "init", "recover", "rejects", "rollback", "schedule"),
    *("select", "smoke", "status", "unlock", "verify"),
}


class _Verbs(click.Group):
    """Finds a verb's module by its name, so that `state get` never pays for what `run` needs."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [verb for verbs in _GROUPS.values() for verb in verbs]

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name in _LATER:
            raise NotAvailable("this verb is not available yet", hint="see `singer-bridge --help`", verb=name)
        if name not in self.list_commands(ctx):
            return None
        command: click.Command = getattr(importlib.import_module(f"bridge.cli.{name}"), name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for group, verbs in _GROUPS.items():
            with formatter.section(group):
                formatter.write_dl(list(verbs.items()))


@click.command(
    cls=_Verbs,
    context_settings={"help_option_names": ["-h", "--help"]},
    no_args_is_help=True,
)
@click.version_option(__version__, "--version", prog_name="singer-bridge", message="%(prog)s %(version)s")
def cli() -> None:
    """Run any Singer tap into a lakehouse, exactly once, on Spark.

    \b
    singer-bridge run flights
    singer-bridge run --tap tap-x --tap-config config.json --to ./lake --name x
    """


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit: 0, or the code that the error's kind has."""
    try:
        result: Any = cli.main(arguments, standalone_mode=False)
        code = result if isinstance(result, int) else 0
    except BridgeError as error:
        code = report(error)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        code = 2
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    except (click.Abort, KeyboardInterrupt):
        code = 130
    except BrokenPipeError:  # `| head` has seen enough
        sys.stderr.close()
        code = 0
    sys.exit(code)


def report(error: BridgeError) -> int:
    """Print an error for people on stderr and return its exit code."""
    click.secho("error: ", fg="red", bold=True, err=True, nl=False)
    click.echo(error.message, err=True)
    if error.hint:
        click.secho("hint: ", fg="yellow", err=True, nl=False)
        click.echo(error.hint, err=True)
    return error.exit_code
