"""The command line as it is typed, in this process: what it printed, and its exit code."""

from __future__ import annotations

import json
import resource
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import click
import pytest

from bridge.cli import cli, main


@dataclass(frozen=True)
class Done:
    """One finished command."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """What it printed on stdout, as one document."""
        return json.loads(self.out)


Typed = Callable[[str], Done]


@contextmanager
def children_seconds() -> Iterator[Callable[[], float]]:
    """Measure the processor time of the programs that the block starts and waits for, on however busy a machine."""

    def used() -> float:
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return usage.ru_utime + usage.ru_stime

    before = used()
    yield lambda: used() - before


def type_in(capfd: pytest.CaptureFixture[str]) -> Typed:
    """Return what types a line after `singer-bridge`, in the current folder."""

    def typed(line: str) -> Done:
        capfd.readouterr()
        with pytest.raises(SystemExit) as ended:
            main(shlex.split(line))
        printed = capfd.readouterr()
        return Done(int(str(ended.value.code)), printed.out, printed.err)

    return typed


def leaves() -> dict[str, click.Command]:
    """Every verb that does something, by the words that are typed."""
    found: dict[str, click.Command] = {}

    def walk(command: click.Command, words: str) -> None:
        if not isinstance(command, click.Group):
            found[words] = command
            return
        context = click.Context(command)
        for word in command.list_commands(context):
            inner = command.get_command(context, word)
            assert inner, word
            walk(inner, f"{words} {word}".strip())

    walk(cli, "")
    return found
