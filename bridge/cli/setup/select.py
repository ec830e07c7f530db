"""`select`: choose streams and columns, or see what is chosen and why."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from bridge.cli.plain import echo
from bridge.cli.selection import Chosen, choose, environment, options
from bridge.cli.show import as_json, console, count_of, note, print_table
from bridge.errors import SettingsError, did_you_mean
from bridge.settings.load import find_file, load
from bridge.singer.catalog import Catalog, stream_id, user_streams_first
from bridge.singer.selection import Choice, choices, is_glob, loaded_streams, reselected, unmatched
from bridge.tap.catalog_overrides import overridden


@click.command(short_help="Choose streams and columns.")
@options
@click.argument("patterns", metavar="[PATTERN]...", nargs=-1)
@click.option("--exclude", is_flag=True, help="Leave out what the patterns name.")
@click.option("--rm", "remove", is_flag=True, help="Take the patterns out of the list again.")
@click.option("--list", "list_", is_flag=True, help="Show what is selected, and why; also done without a PATTERN.")
@click.option("--all", "everything", is_flag=True, help="With --list: what is left out, too.")
@click.option("--json", "json_output", is_flag=True, help="As JSON, all streams and columns.")
def select(
    name: str | None,
    file: Path | None,
    to: str | None,
    pipeline_name: str | None,
    patterns: tuple[str, ...],
    exclude: bool,
    remove: bool,
    list_: bool,
    everything: bool,
    json_output: bool,
) -> int:
    """Choose streams and columns by globs: they are added to source.select of bridge.yaml, the last match wins.

    A PATTERN is a stream or stream.column, such as "public-*" or "public-users.email"; "!" excludes.

    \b
    singer-bridge select flights "public-*" "!public-users.name"
    singer-bridge select flights --list --all
    """
    chosen, words = _resolved(name, file, to, pipeline_name, patterns)
    if list_ and (words or exclude or remove):
        raise SettingsError("--list only looks", hint="leave out PATTERN, --exclude and --rm")
    if not words and (exclude or remove):
        raise SettingsError("no pattern", hint='give one, such as "public-users.email"')
    catalog = _catalog(chosen)
    if words:
        signed = [f"!{word}" for word in words] if exclude else words
        chosen = _changed(chosen, file, to, catalog, signed, remove=remove, quiet=json_output)
    found = _choices(chosen, catalog)
    if json_output:
        as_json(_json(chosen, found))
    elif words:
        _summary(found)
    else:
        _table(found, everything=everything)
    return 0


def _resolved(
    name: str | None, file: Path | None, to: str | None, pipeline_name: str | None, patterns: tuple[str, ...]
) -> tuple[Chosen, list[str]]:
    """Return the pipeline and the patterns: where there is one pipeline only, the first word may be a pattern."""
    if name is None or to is not None or pipeline_name is not None:
        words = [name, *patterns] if name is not None and pipeline_name is not None else list(patterns)
        return choose(None if pipeline_name is not None else name, file, to, pipeline_name), words
    path = file or find_file(Path.cwd())
    known = load(path, os.environ, environment()).pipelines if path else {}
    if name not in known and len(known) == 1:
        return choose(None, file, to, None), [name, *patterns]
    return choose(name, file, to, None), list(patterns)


def _catalog(chosen: Chosen) -> Catalog:
    """Return the kept catalog: neither tap nor network is needed then. Else ask the tap."""
    from bridge.tap.catalog_store import Kept

    catalog = Kept(chosen.home, chosen.pipeline).read()
    if catalog is None:
        from bridge.tap.source import Source

        catalog = Source(chosen.pipeline, chosen.home).discover()
    if catalog is None:
        hint = (
            "this tap does not discover: it decides by itself what it sends; or write a catalog and set source.catalog"
        )
        raise SettingsError("there is nothing to choose from", hint=hint, pipeline=chosen.pipeline.name)
    return catalog


def _choices(chosen: Chosen, catalog: Catalog) -> list[Choice]:
    patterns = chosen.pipeline.source.select
    told, _ = overridden(catalog, chosen.pipeline, loaded_streams(catalog, patterns))
    return choices(told, patterns)


@dataclass(frozen=True, slots=True)
class _Place:
    """Where the pipeline is written, and the list that it has there, `${...}` not filled in."""

    file: Path
    key: tuple[str | int, ...]
    written: list[str] | None


def _changed(
    chosen: Chosen, file: Path | None, to: str | None, catalog: Catalog, words: list[str], *, remove: bool, quiet: bool
) -> Chosen:
    """Write the new list, and return the pipeline as the settings have it now."""
    settings = None if to is not None else file or find_file(Path.cwd())
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
    """Refuse what can only be a slip of the pen; a glob may speak of streams that are still to come."""
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


def _written(chosen: Chosen, settings: Path, before: Sequence[str], words: list[str], *, remove: bool) -> Chosen:
    from bridge.project.selection import write_selection

    place = _place(settings, chosen.pipeline.name)
    new = [word.replace("${", "$${") for word in words]
    old = before if place.written is None else place.written
    wanted = reselected(old, new, remove=remove)
    text = write_selection(place.file, place.key, wanted) if wanted != place.written else None
    now = choose(None, settings, None, _own_name(settings, chosen.pipeline.name))
    if text is not None and now.pipeline.source.select != reselected(before, words, remove=remove):
        place.file.write_bytes(text)
        hint = f"an environment has a list of its own, which wins; write it there: select: {list(wanted)}"
        raise SettingsError("the list in the pipeline is not the one that counts", hint=hint, file=place.file)
    return now


def _own_name(settings: Path, name: str) -> str:
    """Return the pipeline's name in the file: in the bucket its environment stands before it."""
    env = load(settings, os.environ, environment()).environment
    return name.removeprefix(f"{env}.") if env else name


def _place(settings: Path, name: str) -> _Place:
    from bridge.project.selection import raw_selection
    from bridge.settings.layers import read_project

    node = read_project(settings.absolute(), lambda text, _: (text, [])).pipelines.get(_own_name(settings, name))
    if node is None:
        hint = "edit it by hand: source.select"
        raise SettingsError("the pipeline's file was not found", hint=hint, pipeline=name)
    return _Place(node.origin.folder / Path(node.origin.label).name, node.key, raw_selection(node))


def _json(chosen: Chosen, found: list[Choice]) -> dict[str, Any]:
    streams: dict[str, dict[str, Any]] = {}
    for choice in found:
        said = {"status": choice.status, "why": choice.why}
        if not choice.path:
            streams[choice.stream] = {"stream": choice.stream, **said, "columns": []}
        else:
            streams[choice.stream]["columns"].append({"column": choice.column, **said})
    select = chosen.pipeline.source.select
    return {"format": 1, "pipeline": chosen.pipeline.name, "select": list(select), "streams": list(streams.values())}


def _summary(found: list[Choice]) -> None:
    streams, columns = ([c for c in found if bool(c.path) is path] for path in (False, True))
    chosen = {c.stream for c in streams if c.loaded}
    out = [c for c in columns if not c.loaded and c.stream in chosen and c.status == "excluded"]
    left = f", {len(out)} of their columns left out" if out else ""
    console().print(f"{len(chosen)} of {len(streams)} streams selected{left}")


def _table(found: list[Choice], *, everything: bool) -> None:
    shown = [choice for choice in found if everything or choice.loaded]
    rows: list[list[str]] = []
    styles: list[str] = []
    for number, c in enumerate(shown):
        if number and not c.path:
            rows, styles = [*rows, [""] * 4], [*styles, ""]
        rows.append(["" if c.path else c.stream, c.column, c.status, c.why])
        styles.append("" if c.loaded else "dim")
    print_table(["stream", "column", "status", "why"], rows, folds=["why"], styles=styles)
    hidden = [c for c in found if not everything and not c.loaded]
    numbers = {"stream": sum(not c.path for c in hidden), "column": sum(bool(c.path) for c in hidden)}
    if hidden:
        left = " and ".join(count_of(number, thing) for thing, number in numbers.items() if number)
        note("not shown", "dim", f"{left}; see --all")
