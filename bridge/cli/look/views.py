"""`views`: rows of views by their keys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from bridge.cli.listing import Listing
from bridge.cli.options import json_option, pipeline_verb, view_verb
from bridge.cli.selection import Selection
from bridge.cli.show import as_json, count, print_table
from bridge.cli.survey import one_or_all
from bridge.errors import SettingsError, did_you_mean
from bridge.query.values import cell, json_value

if TYPE_CHECKING:
    from bridge.query.view import View


@click.group(cls=Listing)
def views() -> None:
    """List views, and show a row of one by its key."""


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
    from bridge.query.views import list_views

    chosen, code = one_or_all(selection)
    facts = [fact for each in chosen for fact in list_views(each.log)]
    if json_output:
        as_json(facts)
        return code
    if not facts:
        click.echo("there are no views: `views` of a pipeline in bridge.yaml makes them")
        return code
    columns = ["pipeline", "view", "stream", "keys", "groups", "commit"]
    rows = [
        [*(fact[name] for name in columns[:3]), ", ".join(fact["keys"]), count(fact["groups"]), str(fact["commit"])]
        for fact in facts
    ]
    without = () if len(chosen) > 1 else ("pipeline",)
    print_table(columns, rows, right=["groups", "commit"], folds=["keys"], without=without)
    return code


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
    selection: Selection, view: str, keys: Sequence[str], nulls: Sequence[str], at: int | None, json_output: bool
) -> int:
    """Show the row of VIEW that has a key, and the commit that it is of. Exit 1 if there is none.

    \b
    singer-bridge views get by_active --key true
    singer-bridge views get by_active --to ./lake --name flights --key active=false --json
    """
    from bridge.query.keys import key_by_column, key_from_text

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
    from bridge.query.follow import LatestCommit
    from bridge.query.view import View

    chosen, code = one_or_all(selection)
    commits = {each.pipeline.name: LatestCommit(each.log) for each in chosen}
    if len(commits) > 1:
        views_of = {
            pipeline: [view for view, table in commit.now().tables.items() if table.view]
            for pipeline, commit in commits.items()
        }
        having = [pipeline for pipeline, existing in views_of.items() if name in existing]
        if len(having) > 1:
            hint = f"give the pipeline's --name, one of: {', '.join(having)}"
            raise SettingsError("several pipelines have this view", hint=hint, view=name)
        if not having:
            every = sorted({view for existing in views_of.values() for view in existing})
            hint = did_you_mean(name, every) or f"there are: {', '.join(every) or 'none'}"
            raise SettingsError("no such view", hint=hint, view=name)
        commits = {having[0]: commits[having[0]]}
    ((pipeline, commit),) = commits.items()
    return pipeline, View(commit, name, at), code
