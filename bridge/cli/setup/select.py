"""`select`: choose streams and columns, or show which are chosen and why."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from bridge.cli.options import json_option, pipeline_verb
from bridge.cli.plain import echo
from bridge.cli.selection import ChosenPipeline, Selection, environment
from bridge.cli.show import as_json, console, count_of, note, print_table
from bridge.errors import SettingsError, did_you_mean
from bridge.load.tap.catalog_overrides import overridden
from bridge.protocol.singer.catalog import Catalog, stream_id, user_streams_first
from bridge.protocol.singer.selection import Choice, choices, is_glob, loaded_streams, reselected, unmatched
from bridge.settings.load import find_file, load


@click.command()
@pipeline_verb
@click.argument("patterns", metavar="[PATTERN]...", nargs=-1)
@click.option("--exclude", is_flag=True, help="Leave out what the patterns name.")
@click.option("--rm", "remove", is_flag=True, help="Remove the patterns from the list.")
@click.option("--list", "list_", is_flag=True, help="Show what is selected, and why; the default without a PATTERN.")
@click.option("--all", "every", is_flag=True, help="With --list: what is left out, too.")
@json_option("As JSON, all streams and columns.")
def select(
    selection: Selection,
    patterns: tuple[str, ...],
    exclude: bool,
    remove: bool,
    list_: bool,
    every: bool,
    json_output: bool,
) -> int:
    """Choose streams and columns by globs; they are added to source.select of bridge.yaml, and the last match wins.

    A PATTERN is a stream or stream.column, such as "public-*" or "public-users.email"; "!" excludes.

    \b
    singer-bridge select flights "public-*" "!public-users.name"
    singer-bridge select flights --list --all
    """
    chosen, words = _resolved(selection, patterns)
    if list_ and (words or exclude or remove):
        raise SettingsError("--list only looks", hint="leave out PATTERN, --exclude and --rm")
    if not words and (exclude or remove):
        raise SettingsError("no pattern", hint='give one, such as "public-users.email"')
    catalog = _catalog(chosen)
    if words:
        signed = [f"!{word}" for word in words] if exclude else words
        chosen = _changed(chosen, selection, catalog, signed, remove=remove, quiet=json_output)
    listed = _choices(chosen, catalog)
    if json_output:
        as_json(_json(chosen, listed))
    elif words:
        _summary(listed)
    else:
        _table(listed, every=every)
    return 0


def _resolved(selection: Selection, patterns: tuple[str, ...]) -> tuple[ChosenPipeline, list[str]]:
    """The pipeline and the patterns. If there is only one pipeline, the first word may be a pattern."""
    word = selection.word
    if word is not None and selection.pipeline_name is not None:
        return selection.of(None).pipeline(), [word, *patterns]
    if word is not None and selection.to is None:
        path = selection.file or find_file(Path.cwd())
        pipelines = load(path, os.environ, environment()).pipelines if path else {}
        if word not in pipelines and len(pipelines) == 1:
            return selection.of(None).pipeline(), [word, *patterns]
    return selection.pipeline(), list(patterns)


def _catalog(chosen: ChosenPipeline) -> Catalog:
    """The stored catalog, which needs neither tap nor network; else ask the tap."""
    from bridge.load.tap.catalog_store import CatalogStore

    catalog = CatalogStore(chosen.home, chosen.pipeline).read()
    if catalog is None:
        from bridge.load.tap.source import Source

        catalog = Source(chosen.pipeline, chosen.home).discover()
    if catalog is None:
        hint = "this tap has no --discover; it chooses its streams itself; or write a catalog and set source.catalog"
        raise SettingsError("there is nothing to choose from", hint=hint, pipeline=chosen.pipeline.name)
    return catalog


def _choices(chosen: ChosenPipeline, catalog: Catalog) -> list[Choice]:
    patterns = chosen.pipeline.source.select
    effective, _ = overridden(catalog, chosen.pipeline, loaded_streams(catalog, patterns))
    return choices(effective, patterns)


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a pipeline is written, and its list there, with `${...}` as written."""

    file: Path
    key: tuple[str | int, ...]
    written: list[str] | None


def _changed(
    chosen: ChosenPipeline, selection: Selection, catalog: Catalog, words: list[str], *, remove: bool, quiet: bool
) -> ChosenPipeline:
    """Write the new list, and return the pipeline with it."""
    settings = None if selection.to is not None else selection.file or find_file(Path.cwd())
    if settings is None:
        raise SettingsError("there is no bridge.yaml to write into", hint="only --list goes with --to")
    before = chosen.pipeline.source.select
    _check(before, words, catalog, remove=remove)
    after = reselected(before, words, remove=remove)
    if not loaded_streams(catalog, after):
        first = [stream_id(entry) for entry in user_streams_first(catalog)[:20]]
        hint = f"nothing was written; the catalog has: {', '.join(first)}"
        raise SettingsError("no stream would be selected", hint=hint, select=after)
    now = _written(chosen, settings, before, words, remove=remove)
    if now.pipeline.source.select == before and not quiet:
        console().print("nothing changed: the list says so already")
    for sign, colour, lines in (("-", "red", [w for w in before if w not in after]), ("+", "green", after)):
        for line in lines if not quiet else ():
            if sign == "-" or line not in before:
                console().print(f"[{colour}]{sign}[/] ", end="")
                echo(line)
    return now


def _check(before: Sequence[str], words: list[str], catalog: Catalog, *, remove: bool) -> None:
    """Refuse patterns that match nothing. A glob only gets a warning: it may be meant for future streams."""
    if remove:
        for word in words:
            if word not in before:
                hint = did_you_mean(word, before) or f"the list has: {', '.join(before) or 'nothing'}"
                raise SettingsError("the list has no such pattern", hint=hint, pattern=word)
        return
    for text, guess in unmatched(catalog, words):
        if not is_glob(text):
            hint = guess or "see `singer-bridge select --list --all`; nothing was written"
            raise SettingsError("the pattern matches nothing", hint=hint, pattern=text)
        console(err=True).print(f"[yellow]warning:[/] {text} matches nothing in the catalog", soft_wrap=True)


def _written(
    chosen: ChosenPipeline, settings: Path, before: Sequence[str], words: list[str], *, remove: bool
) -> ChosenPipeline:
    from bridge.operate.project.selection import write_selection

    place = _place(settings, chosen.pipeline.name)
    new = [word.replace("${", "$${") for word in words]
    old = before if place.written is None else place.written
    requested = reselected(old, new, remove=remove)
    text = write_selection(place.file, place.key, requested) if requested != place.written else None
    now = Selection((_own_name(settings, chosen.pipeline.name),), settings).pipeline()
    if text is not None and now.pipeline.source.select != reselected(before, words, remove=remove):
        place.file.write_bytes(text)
        hint = f"an environment has a list of its own, which wins; write it there: select: {list(requested)}"
        raise SettingsError("the list in the pipeline is not the one that counts", hint=hint, file=place.file)
    return now


def _own_name(settings: Path, name: str) -> str:
    """The pipeline's name in the file, without the environment that it has in the bucket."""
    env = load(settings, os.environ, environment()).environment
    return name.removeprefix(f"{env}.") if env else name


def _place(settings: Path, name: str) -> _Place:
    from bridge.operate.project.selection import raw_selection
    from bridge.settings.layers import read_project

    node = read_project(settings.absolute(), lambda text, _: (text, [])).pipelines.get(_own_name(settings, name))
    if node is None:
        hint = "edit it by hand: source.select"
        raise SettingsError("the pipeline's file was not found", hint=hint, pipeline=name)
    return _Place(node.origin.folder / Path(node.origin.label).name, node.key, raw_selection(node))


def _json(chosen: ChosenPipeline, listed: list[Choice]) -> dict[str, Any]:
    streams: dict[str, dict[str, Any]] = {}
    for choice in listed:
        facts = {"status": choice.status, "why": choice.why}
        if not choice.path:
            streams[choice.stream] = {"stream": choice.stream, **facts, "columns": []}
        else:
            streams[choice.stream]["columns"].append({"column": choice.column, **facts})
    select = chosen.pipeline.source.select
    return {"format": 1, "pipeline": chosen.pipeline.name, "select": list(select), "streams": list(streams.values())}


def _summary(listed: list[Choice]) -> None:
    streams, columns = ([c for c in listed if bool(c.path) is path] for path in (False, True))
    chosen = {c.stream for c in streams if c.loaded}
    out = [c for c in columns if not c.loaded and c.stream in chosen and c.status == "excluded"]
    left = f", {len(out)} of their columns left out" if out else ""
    console().print(f"{len(chosen)} of {len(streams)} streams selected{left}")


def _table(listed: list[Choice], *, every: bool) -> None:
    shown = [choice for choice in listed if every or choice.loaded]
    rows: list[list[str]] = []
    styles: list[str] = []
    for number, c in enumerate(shown):
        if number and not c.path:
            rows, styles = [*rows, [""] * 4], [*styles, ""]
        rows.append(["" if c.path else c.stream, c.column, c.status, c.why])
        styles.append("" if c.loaded else "dim")
    print_table(["stream", "column", "status", "why"], rows, folds=["why"], styles=styles)
    hidden = [c for c in listed if not every and not c.loaded]
    numbers = {"stream": sum(not c.path for c in hidden), "column": sum(bool(c.path) for c in hidden)}
    if hidden:
        left = " and ".join(count_of(number, thing) for thing, number in numbers.items() if number)
        note("not shown", "dim", f"{left}; see --all")
