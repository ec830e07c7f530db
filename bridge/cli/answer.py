"""The one flow of a verb that changes something: show the plan, stop at a dry run, ask, act, print the result."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import click

from bridge.cli.show import as_json
from bridge.errors import SettingsError


def is_quiet() -> bool:
    """Whether the running verb was given `-q`."""
    return bool(click.get_current_context().meta.get("bridge.quiet"))


@dataclass(frozen=True, slots=True)
class Answer:
    """`--dry-run`, `--yes` and `--json` of one command.

    A verb computes its plan, calls `goes_ahead`, acts if that is true, and ends with `finish`.
    """

    dry_run: bool
    yes: bool
    json_output: bool

    @property
    def asks(self) -> bool:
        """Whether there is a question: it is no dry run, there is no `--yes`, and somebody is at the terminal."""
        return not (self.dry_run or self.yes) and sys.stdin.isatty()

    def require_consent(self, hint: str, text: str = "there is no terminal to ask on") -> None:
        """Raise `SettingsError` if this would change something without `--yes`, and nobody can be asked."""
        if not (self.dry_run or self.yes or sys.stdin.isatty()):
            raise SettingsError(text, hint=hint)

    def goes_ahead(self, question: str) -> bool:
        """Ask, if somebody is there to be asked. False for a dry run; raises `click.Abort` for a no."""
        if self.asks:
            click.confirm(question, abort=True, err=True)
        return not self.dry_run

    def finish(self, pipeline: str, commit: int, facts: dict[str, Any], text: str, *, changes: bool = True) -> None:
        """Tell the result on stdout: one JSON object, or a line of text. Without `changes` nothing was to be done."""
        if self.json_output:
            as_json({"format": 1, "pipeline": pipeline, "commit": commit, "dry_run": self.dry_run, **facts})
        elif changes and self.dry_run:
            click.echo("dry run: nothing was changed")
        else:
            click.echo(f"{pipeline}: {text}")
