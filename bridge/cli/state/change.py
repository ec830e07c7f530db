"""`state set`, `edit`, `clear`, `merge`, `copy`."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from typing import Any

import click

from bridge.cli.answer import Answer
from bridge.cli.confirm import change, commit_confirmed, read_committed, store_of, warn
from bridge.cli.options import changing, partition_option, pipeline_verb, stream_option, streams_option
from bridge.cli.plain import echo
from bridge.cli.selection import ChosenPipeline, Selection, in_environment, typed
from bridge.cli.state.exchange import last_is_value, read_argument
from bridge.cli.state.streams import context_of, expect_existing, expect_partition
from bridge.errors import BridgeError, SettingsError
from bridge.exact_json import dumps
from bridge.lake.state.exchange import FORMATS
from bridge.lake.state.exchange.foreign import ConversionRequest
from bridge.load.maintain.resets import reset, would_double
from bridge.protocol.singer.state import bookmark, known_as
from bridge.protocol.singer.state_edits import check_shape, merged, parsed, same, with_bookmarks, with_partition

_NO_STATE = ("no STATE was given", "give JSON, a file, or - for stdin")


@click.command("set")
@pipeline_verb
@click.argument("value", metavar="STATE", required=False)
@stream_option("Set this stream's bookmark; the others keep theirs.")
@partition_option("With -s: set the part of the bookmark that has this context; the others stay.")
@click.option("--force", is_flag=True, help="With -s: even if no such stream, or partition, exists.")
@changing()
def set_(
    selection: Selection,
    *,
    value: str | None,
    stream: str | None,
    partition: str | None,
    force: bool,
    answer: Answer,
) -> None:
    """Replace the STATE: JSON, a file, or - for stdin. With -s, replace one stream's bookmark.

    \b
    singer-bridge state set flights state.json
    singer-bridge state set flights -s public-users '{"replication_key": "id", "replication_key_value": 5}'
    """
    selection, value = last_is_value(selection, value, *_NO_STATE)
    data, what = read_argument(value), f"state set{f' -s {stream}' if stream else ''}"
    chosen = selection.pipeline()
    if partition is not None:
        _set_partition(chosen, stream, partition, parsed(data, "the bookmark"), answer, force=force)
        return
    if stream is None:
        state = FORMATS["singer"].read(data, ConversionRequest()).value
        change(chosen.pipeline, lambda _: state, answer, what)
    else:
        before = store_of(chosen.pipeline).get()
        given = {known_as(before, chosen.with_names.names_of(stream)): parsed(data, "the bookmark")}
        if not force:
            expect_existing(chosen, before, stream)
        change(chosen.pipeline, lambda state: with_bookmarks(state, given), answer, what)


def _set_partition(
    chosen: ChosenPipeline, stream: str | None, partition: str, mark: Any, answer: Answer, *, force: bool
) -> None:
    """Set the bookmark of one context."""
    context = context_of(stream, partition)
    if not isinstance(mark, dict) or not same(mark.get("context", context), context):
        hint = """such as '{"replication_key": "id", "replication_key_value": 5}', without another context"""
        raise SettingsError("the bookmark of a partition is a JSON object", hint=hint)
    _change_partition(chosen, str(stream), context, mark, answer, f"state set -s {stream}", force=force)


def _change_partition(
    chosen: ChosenPipeline,
    stream: str,
    context: dict[str, Any],
    mark: dict[str, Any] | None,
    answer: Answer,
    verb: str,
    *,
    force: bool = False,
) -> None:
    names = chosen.with_names.names_of(stream)
    if not force:
        expect_partition(bookmark(store_of(chosen.pipeline).get(), names), context, stream)

    def apply(state: Any) -> Any:
        return with_bookmarks(state, {known_as(state, names): with_partition(bookmark(state, names), context, mark)})

    change(chosen.pipeline, apply, answer, f"{verb} --partition {dumps(context).decode().strip()}")


@click.command("merge")
@pipeline_verb
@click.argument("value", metavar="STATE", required=False)
@changing()
def merge(selection: Selection, *, value: str | None, answer: Answer) -> None:
    """Merge a STATE into the stored one. It is JSON, a file, or - for stdin; objects are merged, lists replaced.

    \b
    singer-bridge state merge flights partial.json
    singer-bridge state merge flights '{"bookmarks": {"public-users": {"replication_key_value": 5}}}'
    """
    selection, value = last_is_value(selection, value, *_NO_STATE)
    given = FORMATS["singer"].read(read_argument(value), ConversionRequest()).value
    chosen = selection.pipeline().pipeline
    change(chosen, lambda state: merged(state, given), answer, "state merge")


@click.command("clear")
@pipeline_verb
@streams_option
@partition_option("With one -s: reset the part of the bookmark that has this context; the others stay.")
@changing()
def clear(selection: Selection, streams: tuple[str, ...], partition: str | None, answer: Answer) -> None:
    """Reset streams: all, or those of -s. The next run extracts them from the start.

    The tables stay as they are, so append-only tables will have those rows twice; `run --full` replaces them. Without a
    terminal, resetting all streams needs --yes.

    \b
    singer-bridge state clear flights --yes
    singer-bridge state clear flights -s public-users -s public-orders
    """
    chosen = selection.pipeline()
    if partition is not None:
        context = context_of(streams[0] if len(streams) == 1 else None, partition)
        _change_partition(chosen, streams[0], context, None, answer, f"state clear -s {streams[0]}")
        return
    what = " ".join(["state clear", *(f"-s {stream}" for stream in streams)])

    pipeline = chosen.with_names

    def apply(state: Any) -> Any:
        return reset(pipeline, state, streams)

    state = store_of(chosen.pipeline).get()
    apply(state)  # raises for impossible requests, before there is a warning about doubled rows
    doubled = would_double(pipeline, chosen.log, state, streams, typed(chosen.pipeline))
    if not streams:
        hint = f"{doubled}; to clear them all the same: --yes" if doubled else "to clear them: --yes; or name some: -s"
        answer.require_consent(hint, "all bookmarks would be cleared, and there is no terminal to ask on")
    if doubled:
        warn(doubled)
    change(chosen.pipeline, apply, answer, what)


@click.command("copy")
@pipeline_verb
@click.argument("target", metavar="DST", required=False)
@click.option("--from-env", metavar="ENV", help="The source's environment; default: that of --env.")
@streams_option
@changing()
def copy(
    selection: Selection, *, target: str | None, from_env: str | None, streams: tuple[str, ...], answer: Answer
) -> None:
    """Copy the STATE of NAME to pipeline DST, in place of its own. Without DST: to NAME in another environment.

    \b
    singer-bridge state copy flights flights_v2
    singer-bridge state copy flights --from-env staging --env prod
    """
    with in_environment(from_env):
        source = replace(selection, pipeline_name=None).pipeline(source=False).pipeline
    into = target or (None if selection.pipeline_name else selection.word)
    chosen = selection.of(into).pipeline().pipeline
    if (source.name, source.destination.place) == (chosen.name, chosen.destination.place):
        raise SettingsError("a STATE cannot be copied onto itself", hint="give NAME and DST, or --from-env")
    state = store_of(source).get()
    if state is None:
        raise SettingsError("there is no STATE to copy", hint="see `singer-bridge state list`", pipeline=source.name)
    given = {stream: bookmark(state, stream) for stream in streams}
    if missing := [stream for stream, value in given.items() if value is None]:
        raise SettingsError("no bookmark of this stream", hint="see `singer-bridge state list`", stream=missing[0])
    what = " ".join([f"state copy {source.name}", *(f"-s {stream}" for stream in streams)])
    change(chosen, lambda old: with_bookmarks(old, given) if streams else state, answer, what)


@click.command("edit")
@pipeline_verb
@changing()
def edit(selection: Selection, answer: Answer) -> None:
    """Open the STATE in $EDITOR, and commit what you save. If it is not valid JSON, the editor opens again.

    \b
    singer-bridge state edit flights
    singer-bridge state edit --to ./lake --name x --dry-run
    """
    chosen = selection.pipeline().pipeline
    store = store_of(chosen)
    if not answer.dry_run:
        store.refuse_if_held()
    seen = store.read() if answer.dry_run else read_committed(store)
    text = dumps({"bookmarks": {}} if seen.state is None else seen.state, indent=2).decode()
    edited = _edited(text)
    if edited is None:
        click.echo("nothing was saved, nothing is changed", err=True)
        return
    try:
        commit_confirmed(chosen, store, seen, parsed(edited, "the STATE"), answer, "state edit")
    except BridgeError as error:
        error.hint += f"; what you wrote is kept in {_saved_copy(edited)}"
        raise


def _edited(text: str) -> str | None:
    """The saved JSON; None if nothing was saved."""
    while True:
        saved = click.edit(text, extension=".json")
        if saved is None:
            return None
        try:
            check_shape(parsed(saved, "the STATE"))
        except SettingsError as error:
            echo(f"error: {error.message}", err=True)
            if not click.confirm("edit it again?", default=True, err=True):
                raise
            text = saved
        else:
            return saved


def _saved_copy(text: str) -> str:
    with tempfile.NamedTemporaryFile("w", prefix="state-", suffix=".json", delete=False) as file:
        file.write(text)
    return file.name
