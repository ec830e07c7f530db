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
Words = Callable[..., tuple[int, str, str]]
"""Words that are typed, to the exit code, stdout and stderr."""


@contextmanager
def children_seconds() -> Iterator[Callable[[], float]]:
    """Measure the processor time of the programs that the block starts and waits for, on however busy a machine."""

    def used() -> float:
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return usage.ru_utime + usage.ru_stime

    before = used()
    yield lambda: used() - before


def type_words(captured: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    """Type these words after `singer-bridge`; return exit code, stdout and stderr."""
    captured.readouterr()
    with pytest.raises(SystemExit) as ended:
        main(list(words))
    return int(ended.value.code or 0), *captured.readouterr()


def type_in(captured: pytest.CaptureFixture[str]) -> Typed:
    """Return what types a line after `singer-bridge`, in the current folder."""
    return lambda line: Done(*type_words(captured, *shlex.split(line)))


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
