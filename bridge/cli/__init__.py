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

DOORS = ["plain"]
"""The modules that other wings may import; tests/test_architecture.py holds them to it."""

_GROUPS = {
    "Set up": {
        "init": "Start a project: bridge.yaml and the files beside it.",
        "add": "Add a pipeline to bridge.yaml.",
        "remove": "Remove a pipeline from bridge.yaml; its tables stay.",
        "discover": "Ask the tap which streams it has.",
        "select": "Choose the streams and columns to load.",
        "install": "Install the tap into a virtual environment of its own.",
        "config": "Check the settings, or show what they amount to.",
        "doctor": "Check everything that a run needs, and say how to fix it.",
        "completion": "Let your shell complete verbs, options and pipelines.",
    },
    "Run": {
        "run": "Load pipelines.",
        "serve": "Run pipelines by their schedules.",
        "trigger": "Ask the service to run a pipeline.",
        "schedule": "Let cron run pipelines.",
        "smoke": "Check that a tap follows the Singer protocol.",
        "demo": "Try everything on real data, from a PostgreSQL of its own.",
    },
    "Look": {
        "status": "Show how each pipeline stands.",
        "runs": "List runs, and show how each ended.",
        "commits": "List commits, and show what each changed.",
        "tables": "List tables, show their rows, print how to query them.",
        "views": "List views, show a row by its key.",
        "sql": "Ask tables, runs, commits and bookmarks in SQL.",
        "dbt": "Write sources.yml, by which dbt reads the lake.",
        "state": "Show the bookmarks; set, edit, reset, import or export them.",
        "rejects": "Show records that could not be stored; load or delete them.",
    },
    "Repair": {
        "rollback": "Go back to an earlier commit, data and STATE.",
        "recover": "Finish or undo what a dead run left, without tap or Spark.",
        "unlock": "Free a pipeline that a dead run still holds.",
        "verify": "Check the lake against its commit log, and repair it.",
        "reconcile": "Ask the source once more: is the lake as it is?",
        "forget": "Take a person's rows out of all that could bring them back.",
        "compact": "Merge the small files of tables into large ones.",
    },
}
_FOLDERS = {"Set up": "setup", "Run": "run", "Look": "look", "Repair": "repair"}
_MODULES = {
    verb: "bridge.cli.state" if verb == "state" else f"bridge.cli.{_FOLDERS[group]}.{verb}"
    for group, verbs in _GROUPS.items()
    for verb in verbs
}
_SUMMARIES = {verb: text for verbs in _GROUPS.values() for verb, text in verbs.items()}
_WIDEST = max(map(len, _SUMMARIES))


class _Verbs(click.Group):
    """Finds a verb's module by its name, so that `state get` never pays for what `run` needs."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_MODULES)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in _MODULES:
            return None
        command: click.Command = getattr(importlib.import_module(_MODULES[name]), name)
        command.short_help = _SUMMARIES[name]  # shells show it beside what they complete
        flags.prepare(command, name)
        return command

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Leave out the blank line above the text, so that the whole help fits a screen."""
        with formatter.indentation():
            formatter.write_text(str(self.help).removeprefix("\b").strip())

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Leave out the options: the first line names both, so that the whole help fits a screen."""
        self.format_commands(ctx, formatter)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Leave out the blank line above the first group, so that the whole help fits a screen."""
        for group, verbs in _GROUPS.items():
            if verbs is not _GROUPS["Set up"]:
                formatter.write_paragraph()
            formatter.write_heading(group)
            with formatter.indentation():
                formatter.write_dl([(verb.ljust(_WIDEST), text) for verb, text in verbs.items()])


@click.command(
    cls=_Verbs,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
    no_args_is_help=True,
    options_metavar="",
    subcommand_metavar="VERB [NAME] [OPTIONS] | VERB -h | --version",
)
@click.version_option(__version__, "--version", prog_name="singer-bridge", message="%(prog)s %(version)s")
def cli() -> None:
    """\b
    Run any Singer tap into a lakehouse, exactly once, on Spark.
    """


def set_up_output() -> None:
    """Let no text of a lake or a library disturb what this process prints."""
    logging.getLogger().addHandler(logging.NullHandler())  # libraries' logs are not ours: py4j's tell of a JVM's end
    if isinstance(sys.stdout, TextIOWrapper):  # as stderr does: a bookmark may hold half of a character
        sys.stdout.reconfigure(errors="backslashreplace")


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit: 0, or the code that the error's kind has."""
    set_up_output()
    # Milliseconds, not a second, after which Arrow's allocator gives memory back: small runs are not longer. It reads
    # this when it is loaded.
    os.environ.setdefault("MIMALLOC_PURGE_DELAY", "10")
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
