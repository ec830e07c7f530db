"""Show a change of the STATE, ask, and commit it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rich.text import Text

from bridge.cli import events
from bridge.cli.answer import Answer, is_quiet
from bridge.cli.plain import echo
from bridge.cli.selection import typed
from bridge.cli.show import console
from bridge.exact_json import dumps
from bridge.lake.state.store import StateStore, Stored
from bridge.lake.storage import lake_of
from bridge.operate.rollback_warnings import piped_warning
from bridge.protocol.singer.state_edits import StateDifference, differences, plain, same
from bridge.settings.options import Pipeline


def store_of(pipeline: Pipeline) -> StateStore:
    """The STATE store of a pipeline; its name includes the environment."""
    return StateStore.at(lake_of(pipeline.destination), pipeline.name)


def read_committed(store: StateStore) -> Stored:
    """The STATE. A hand-edited `state.json` is committed first, as the next run would do."""
    seen = store.read()
    if not seen.edited:
        return seen
    _say(*store.update(lambda state: state).notes)
    return store.read()


def change(pipeline: Pipeline, apply: Callable[[Any], Any], answer: Answer, reason: str) -> None:
    """Commit `apply(STATE)`. The differences go to stderr, the result to stdout.

    On a terminal this asks first, and commits exactly what was confirmed: if the STATE changed meanwhile, nothing.
    """
    store = store_of(pipeline)
    if answer.dry_run:
        before = store.read()
        _finish(pipeline, before.version, before.state, plain(apply(before.state)), answer)
    elif answer.asks:
        store.refuse_if_held()
        seen = read_committed(store)
        commit_confirmed(pipeline, store, seen, plain(apply(seen.state)), answer, reason)
    else:
        written = store.update(apply, reason=reason)
        _say(*written.notes)
        _finish(pipeline, written.version, written.before, written.after, answer)


def commit_confirmed(
    pipeline: Pipeline, store: StateStore, seen: Stored, after: Any, answer: Answer, reason: str
) -> None:
    """Ask, and replace the STATE that was read, if it is still the same."""
    version = seen.version
    if not same(seen.state, after) and not answer.dry_run:
        if answer.asks:
            print_differences(differences(seen.state, after))
        answer.goes_ahead("commit this?")
        version = store.compare_and_swap(version, after, reason=reason)
    _finish(pipeline, version, seen.state, after, answer, shown=answer.asks and not answer.dry_run)


def _finish(pipeline: Pipeline, version: int, before: Any, after: Any, answer: Answer, *, shown: bool = False) -> None:
    changes = differences(before, after)
    if not shown and not is_quiet():
        print_differences(changes)
    changed = [{"stream": c.stream, "key": c.part, "before": c.before, "after": c.after} for c in changes]
    facts = {"before": before, "after": after, "changed": changed}
    text = f"the STATE is that of commit {version} now"
    if not changes:
        text = f"nothing to change, commit {version} has this STATE"
    answer.finish(pipeline.name, version, facts, text, changes=bool(changes))
    if changes and not is_quiet() and (text := piped_warning(pipeline, typed(pipeline))):
        warn(text)


def print_differences(changes: Sequence[StateDifference], *, err: bool = True) -> None:
    """Print each change, before and after."""
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


def warn(text: str) -> None:
    """Print a warning on stderr."""
    if events.is_json():
        events.emit("warning", "warning", message=text)
    else:
        echo(f"warning: {text}", err=True)


def _say(*notes: str) -> None:
    for text in notes if not is_quiet() else ():
        if events.is_json():
            events.emit("info", "note", message=text)
        else:
            echo(f"note: {text}", err=True)
