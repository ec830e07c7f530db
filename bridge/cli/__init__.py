"""The command line: one file a verb, imported when it is called."""

from __future__ import annotations

import importlib
import logging
import os
import sys
from io import TextIOWrapper
from typing import Any

import click

from bridge import __version__
from bridge.cli import events, flags
from bridge.cli.events import report
from bridge.errors import BridgeError

__all__ = ["main", "report"]

_GROUPS = {
    "Run": {
        "run": "Load pipelines.",
        "smoke": "Check that a tap keeps to the protocol.",
        "demo": "Watch the whole of it on real data.",
    },
    "Look": {
        "status": "How each pipeline stands.",
        "runs": "What ran, and how it ended.",
        "commits": "What each commit did, and what rollback takes.",
        "state": "The bookmarks, as the tap said them.",
        "tables": "What is in the lake.",
        "rejects": "What could not be stored, and why.",
    },
    "Repair": {
        "state set": "Put a STATE, or one stream's bookmark, in place.",
        "state edit": "Change the STATE in your editor.",
        "state clear": "Have streams start from the beginning.",
        "rollback": "Go back to an earlier commit, data and STATE.",
        "compact": "Join the small files of tables.",
        "recover": "Repair what a dead run left, without tap or Spark.",
        "rejects replay": "Load the rejects that fit by now.",
        "rejects purge": "Delete rejects for good.",
        "verify": "Hold the lake against its log, and mend it.",
        "unlock": "Free a pipeline whose run is gone.",
    },
    "Set up": {
        "init": "Start a project: bridge.yaml and what goes with it.",
        "add": "Add a pipeline to bridge.yaml.",
        "config": "Check the settings, show what they come to.",
        "completion": "Have the shell complete our commands.",
        "discover": "Ask the tap for its catalog.",
        "doctor": "Check all that a run needs, with a fix for each finding.",
        "install": "Put the tap into a venv of its own.",
        "schedule": "Run pipelines by cron.",
        "select": "Choose streams and columns.",
    },
}
"""What the help shows; two words are a verb of a group that stands elsewhere."""
_FOLDERS = {"Run": "run", "Look": "look", "Repair": "repair", "Set up": "setup"}
_MODULES = {
    verb: "bridge.cli.state" if verb == "state" else f"bridge.cli.{_FOLDERS[group]}.{verb}"
    for group, verbs in _GROUPS.items()
    for verb in verbs
    if " " not in verb
}


class _Verbs(click.Group):
    """Finds a verb's module by its name, so that `state get` never pays for what `run` needs."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_MODULES)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in _MODULES:
            return None
        command: click.Command = getattr(importlib.import_module(_MODULES[name]), name)
        flags.prepare(command, name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for group, verbs in _GROUPS.items():
            with formatter.section(group):
                formatter.write_dl(list(verbs.items()))


@click.command(
    cls=_Verbs,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
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
    logging.getLogger().addHandler(logging.NullHandler())  # libraries' logs are not ours: py4j's tell of a JVM's end
    if isinstance(sys.stdout, TextIOWrapper):  # as stderr does: a bookmark may hold half of a character
        sys.stdout.reconfigure(errors="backslashreplace")
    given = sys.argv[1:] if arguments is None else arguments
    events.use("json" if _asks_for_json(given) else "text")
    try:
        result: Any = cli.main(
            given, prog_name="singer-bridge", complete_var="_SINGER_BRIDGE_COMPLETE", standalone_mode=False
        )
        code = result if isinstance(result, int) else 0
    except BridgeError as error:
        code = report(error)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        code = 2
    except click.ClickException as error:
        code = _report_usage(error)
    except (click.Abort, KeyboardInterrupt):
        if sys.stdin.isatty():
            click.echo(err=True)  # the line of the question, or of ^C, is not to be the shell's
        code = 130
    except BrokenPipeError:  # `| head` has seen enough
        sys.stderr.close()
        code = 0
    sys.exit(code)


def _asks_for_json(arguments: list[str]) -> bool:
    """Look ahead: a command line that cannot be parsed has an error to print before its options are known."""
    words = " ".join(arguments).replace("--log-format=", "--log-format ")
    return "--log-format json" in words or os.environ.get("SINGER_BRIDGE_LOG_FORMAT") == "json"


def _report_usage(error: click.ClickException) -> int:
    from bridge.cli.usage import wrong_usage

    return report(flags.refused(error) or wrong_usage(error))
