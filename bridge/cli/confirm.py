"""How a change of the STATE is shown, asked about, and committed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import click
from rich.text import Text

from bridge.cli import events
from bridge.cli.plain import echo
from bridge.cli.show import as_json, console
from bridge.exact_json import dumps
from bridge.settings.options import Pipeline
from bridge.singer.state_edits import Difference, differences, plain, same
from bridge.state.store import StateStore, Stored
from bridge.storage import lake_of

_F = TypeVar("_F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Answer:
    """What the operator said on the command line."""

    dry_run: bool
    yes: bool
    json_output: bool

    @property
    def asks(self) -> bool:
        """Whether somebody is there to be asked, and wants to be."""
        return not self.yes and sys.stdin.isatty()


def store_of(pipeline: Pipeline) -> StateStore:
    """Return the store of a pipeline, whose name has its environment in it."""
    return StateStore.at(lake_of(pipeline.destination), pipeline.name)


def settled(store: StateStore) -> Stored:
    """Return the STATE, after a hand-edited `state.json` was recorded as the commit that the next run would make."""
    seen = store.read()
    if not (seen.edited or seen.older):
        return seen
    _say(*store.update(lambda state: state).notes)
    return store.read()


def change(pipeline: Pipeline, apply: Callable[[Any], Any], answer: Answer, reason: str) -> None:
    """Make `apply` of the STATE and commit it; what it was and is goes to stderr, the result to stdout.

    On a terminal it is asked first, and what was confirmed is what is committed: if anybody came between, nothing is.
    """
    store = store_of(pipeline)
    if answer.dry_run:
        before = store.read()
        _finish(pipeline, before.version, before.state, plain(apply(before.state)), answer)
    elif answer.asks:
        store.refuse_if_held()
        seen = settled(store)
        commit_confirmed(pipeline, store, seen, plain(apply(seen.state)), answer, reason)
    else:
        written = store.update(apply, reason=reason)
        _say(*written.notes)
        _finish(pipeline, written.version, written.before, written.after, answer)


def commit_confirmed(
    pipeline: Pipeline, store: StateStore, seen: Stored, after: Any, answer: Answer, reason: str
) -> None:
    """Commit a STATE in the place of the one that was seen, and of no other. Asks, if somebody is there."""
    version = seen.version
    if not same(seen.state, after) and not answer.dry_run:
        if answer.asks:
            print_differences(differences(seen.state, after))
            click.confirm("commit this?", abort=True, err=True)
        version = store.compare_and_swap(version, after, reason=reason)
    _finish(pipeline, version, seen.state, after, answer, shown=answer.asks and not answer.dry_run)


def _finish(pipeline: Pipeline, version: int, before: Any, after: Any, answer: Answer, *, shown: bool = False) -> None:
    changes = differences(before, after)
    if not shown and not _is_quiet():
        print_differences(changes)
    if answer.json_output:
        changed = [{"stream": c.stream, "key": c.part, "before": c.before, "after": c.after} for c in changes]
        facts = {"pipeline": pipeline.name, "commit": version, "dry_run": answer.dry_run}
        as_json({"format": 1, **facts, "before": before, "after": after, "changed": changed})
    elif not changes:
        click.echo(f"{pipeline.name}: nothing to change, commit {version} has this STATE")
    elif answer.dry_run:
        click.echo("dry run: nothing was changed")
    else:
        click.echo(f"{pipeline.name}: the STATE is that of commit {version} now")


def print_differences(changes: Sequence[Difference], *, err: bool = True) -> None:
    """Show what changed, before and after."""
    if err and events.is_json():
        for one in changes:
            events.emit("info", "state", stream=one.stream, key=one.part, before=one.before, after=one.after)
        return
    out = console(err=err)
    for one in changes:
        title = one.part if one.stream is not None else f"({one.part})"
        for line in (
            Text(title, "bold"),
            Text.assemble(("  before  ", "red"), _text(one.before)),
            Text.assemble(("  after   ", "green"), _text(one.after)),
        ):
            out.print(line, soft_wrap=True)


def _text(value: Any) -> str:
    return "none" if value is None else dumps(value).decode()


def _is_quiet() -> bool:
    return bool(click.get_current_context().meta.get("bridge.quiet"))


def warn(text: str) -> None:
    """Print what somebody should know before the next run."""
    if events.is_json():
        events.emit("warning", "warning", message=text)
    else:
        echo(f"warning: {text}", err=True)


def _say(*notes: str) -> None:
    for text in notes if not _is_quiet() else ():
        if events.is_json():
            events.emit("info", "note", message=text)
        else:
            echo(f"note: {text}", err=True)
