"""`views`: rows of views by their keys."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any

import click
from rich.text import Text

from bridge.cli.listing import Listing
from bridge.cli.options import json_option, pipeline_verb, view_verb
from bridge.cli.selection import ChosenPipeline, Selection
from bridge.cli.show import as_json, console, count, count_of, marked, note, print_table
from bridge.cli.survey import one_or_all, pipeline_names
from bridge.errors import SettingsError, did_you_mean
from bridge.read.query.values import cell, json_value

if TYPE_CHECKING:
    from bridge.load.maintain.view_check import CheckedView, KeyDifference
    from bridge.read.query.view import View


_NONE = "there are no views: `views` of a pipeline in bridge.yaml makes them"


@click.group(cls=Listing)
def views() -> None:
    """List views, show a row of one by its key, and check them."""


@views.command("list")
@pipeline_verb
@json_option()
def list_(selection: Selection, json_output: bool) -> int:
    """List views: of NAME, or of all pipelines of the file or bucket.

    Each has the stream that it groups, its keys, the number of its groups, and the commit that this is of.

    \b
    singer-bridge views list flights
    singer-bridge views list --to ./lake --name x --json
    """
    from bridge.read.query.views import list_views

    chosen, code = one_or_all(selection)
    facts = [fact for each in chosen for fact in list_views(each.log)]
    if json_output:
        as_json(facts)
        return code
    if not facts:
        click.echo(_NONE)
        return code
    columns = ["pipeline", "view", "stream", "keys", "groups", "commit"]
    rows = [
        [*(fact[name] for name in columns[:3]), ", ".join(fact["keys"]), count(fact["groups"]), str(fact["commit"])]
        for fact in facts
    ]
    without = () if len(chosen) > 1 else ("pipeline",)
    print_table(columns, rows, right=["groups", "commit"], folds=["keys"], without=without)
    return code


@views.command("verify")
@partial(view_verb, required=False)
@click.option("--repair", is_flag=True, help="Fill a view that is wrong again, by one commit, and check again.")
@json_option("Print a JSON array with an object for each view.")
def verify(selection: Selection, view: str | None, *, repair: bool, json_output: bool) -> int:
    """Compute the SELECT of each view again, or of VIEW alone, and compare it with the view, row by row.

    One word is a NAME if there is such a pipeline, else a VIEW. Spark reads the whole table of the view's stream.
    Nothing is changed. Exit code 0: every view is what its SELECT gives; 3: one is not. A run may be active meanwhile,
    but not with --repair: exit code 4.

    \b
    singer-bridge views verify flights
    singer-bridge views verify by_active --repair
    """
    selection, view = _pipeline_and_view(selection, view, is_view=False)
    chosen, code = one_or_all(selection, tables=repair)
    views_of = [(each, names) for each in chosen if (names := _views_of(each, view))]
    if view and not views_of:
        every = sorted({name for each in chosen for name in _views_of(each, None)})
        hint = did_you_mean(view, every) or f"there are: {', '.join(every) or 'none'}"
        raise SettingsError("no such view", hint=hint, view=view)
    facts = []
    for each, names in views_of:
        checked, commit = _verified(each, names, repair=repair)
        facts += [_verdict(each, one, commit) for one in checked]
        for one in () if json_output else checked:
            _say(one)
        if commit and not json_output:
            click.echo(f"filled again by commit {commit}")
    if json_output:
        as_json(facts)
    elif not facts:
        click.echo(_NONE)
    return max([code, *(3 for fact in facts if fact["status"] == "error")])


def _pipeline_and_view(selection: Selection, view: str | None, *, is_view: bool) -> tuple[Selection, str | None]:
    """The pipelines and the view that were typed. `is_view`: one word is a view, even if a pipeline has its name."""
    if view is not None or selection.word is None:
        return selection, view
    may_be_name = not is_view and selection.pipeline_name in (None, selection.word)
    if may_be_name and selection.word in pipeline_names(selection):
        return selection, None
    return selection.of(None), selection.word


def _views_of(chosen: ChosenPipeline, name: str | None) -> list[str]:
    """The views of a pipeline after its last commit; of this name, if one is given."""
    tables = chosen.log.snapshot(chosen.log.latest()).tables
    return sorted(one for one, table in tables.items() if table.view and name in (None, one))


def _verified(
    chosen: ChosenPipeline, names: Sequence[str], *, repair: bool
) -> tuple[Sequence[CheckedView], int | None]:
    """The views, checked, and the commit that filled some of them again."""
    from bridge.load.maintain.view_check import fill_again, verify_views

    storage, pipeline, err = chosen.log.storage, chosen.with_names, console(err=True)
    with err.status(f"verifying views of {pipeline.name}") if err.is_terminal else nullcontext():
        if not repair:
            return verify_views(storage, pipeline, names), None
        refilled = fill_again(storage, pipeline, names)
    for text in refilled.notes:
        note("note", "bold", text)
    return refilled.views, refilled.commit


def _verdict(chosen: ChosenPipeline, one: CheckedView, commit: int | None) -> dict[str, Any]:
    """The object that `--json` prints for one view."""
    facts = {"pipeline": chosen.pipeline.name, "view": one.view, "stream": one.stream, "commit": one.commit}
    facts |= {"status": "error" if one.problem else "ok", "groups": one.groups, "problem": one.problem or None}
    facts |= {"fix": one.fix or None, "repairable": one.repairable, "repaired": commit}
    return facts | {"differing": one.differing, "differences": [asdict(difference) for difference in one.differences]}


def _say(one: CheckedView) -> None:
    of = f"{count_of(one.groups, 'group')}, commit {one.commit}"
    if not one.problem:
        console().print(marked("ok", f"{one.view}: {of}"), soft_wrap=True)
        return
    keys = f", {count_of(one.differing, 'key')} differ{'s' * (one.differing == 1)}" if one.differing else ""
    console().print(marked("error", f"{one.view}: {one.problem}{keys}; {of}"), soft_wrap=True)
    for difference in one.differences:
        console().print(Text(f"  {_pairs(difference.key)}: {_sides(difference)}"), soft_wrap=True)
    if more := one.differing - len(one.differences):
        console().print(f"  and {count_of(more, 'more key')}")
    console().print(Text(f"  fix: {one.fix}"), soft_wrap=True)


def _sides(difference: KeyDifference) -> str:
    """The rows of a key that only one side has; of hidden columns only if no other differs."""
    shown = difference.visible
    if shown.stored == shown.selected:
        shown = difference
    sides = {"only the view has": shown.stored, "only its SELECT gives": shown.selected}
    texts = {
        words: [_pairs({name: value for name, value in row.items() if name not in difference.key}) for row in rows]
        for words, rows in sides.items()
    }
    return "; ".join(f"{words} {' and '.join(rows)}" for words, rows in texts.items() if rows)


def _pairs(values: dict[str, Any]) -> str:
    return ", ".join(f"{name}={'NULL' if value is None else cell(value)}" for name, value in values.items())


@views.command("get")
@view_verb
@click.option(
    "-k",
    "--key",
    "keys",
    multiple=True,
    metavar="[COLUMN=]VALUE",
    help="The key's value; of several columns one each, by name or in their order.",
)
@click.option("--null", "nulls", multiple=True, metavar="COLUMN", help="This column of the key is NULL.")
@click.option("--at", type=click.IntRange(0), metavar="COMMIT", help="Read the view as it was after this commit.")
@json_option("Print one JSON object; its row is null if there is none.")
def get(
    selection: Selection, view: str | None, keys: Sequence[str], nulls: Sequence[str], at: int | None, json_output: bool
) -> int:
    """Show the row of VIEW that has a key, and the commit that it is of. Exit 1 if there is none.

    \b
    singer-bridge views get flights by_active --key true
    singer-bridge views get by_active --to ./lake --name flights --key active=false --json
    """
    from bridge.read.query.keys import key_by_column, key_from_text

    selection, view = _pipeline_and_view(selection, view, is_view=True)
    if view is None:
        raise SettingsError("which view?", hint="such as: singer-bridge views get by_active --key true")
    pipeline, opened, code = _view(selection, view, at)
    columns = opened.key_columns
    key = key_from_text(view, columns, key_by_column(view, columns, keys, nulls))
    row, commit = opened.look_up(key)
    if json_output:
        plain_row = None if row is None else {name: json_value(value) for name, value in row.items()}
        as_json({"pipeline": pipeline, "view": view, "commit": commit, "row": plain_row})
    elif row is None:
        click.echo(f"no row of {view} has this key at commit {commit}", err=True)
    else:
        lines = [[name, "NULL" if value is None else cell(value)] for name, value in row.items()]
        print_table(["column", "value"], lines, folds=["value"])
        click.echo(f"commit {commit}")
    return code or int(row is None)


def _view(selection: Selection, name: str, at: int | None) -> tuple[str, View, int]:
    """The pipeline that has this view, the view, and the exit code of pipelines that cannot be read."""
    from bridge.read.query.follow import LatestCommit
    from bridge.read.query.view import View

    chosen, code = one_or_all(selection)
    commits = {each.pipeline.name: LatestCommit(each.log) for each in chosen}
    if len(commits) > 1:
        views_of = {
            pipeline: [view for view, table in commit.now().tables.items() if table.view]
            for pipeline, commit in commits.items()
        }
        having = [pipeline for pipeline, existing in views_of.items() if name in existing]
        if len(having) > 1:
            hint = f"give the pipeline's NAME before it, one of: {', '.join(having)}"
            raise SettingsError("several pipelines have this view", hint=hint, view=name)
        if not having:
            every = sorted({view for existing in views_of.values() for view in existing})
            hint = did_you_mean(name, every) or f"there are: {', '.join(every) or 'none'}"
            raise SettingsError("no such view", hint=hint, view=name)
        commits = {having[0]: commits[having[0]]}
    ((pipeline, commit),) = commits.items()
    return pipeline, View(commit, name, at), code
