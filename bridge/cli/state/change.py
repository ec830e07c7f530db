"""`state set`, `edit`, `clear`, `merge`, `copy`."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import click

from bridge.cli.confirm import Answer, change, commit_confirmed, settled, store_of, warn
from bridge.cli.plain import echo
from bridge.cli.selection import changing, choose, in_environment, options
from bridge.cli.state.exchange import read_argument
from bridge.cli.state.known import expect_known, would_double
from bridge.errors import BridgeError, SettingsError
from bridge.exact_json import dumps
from bridge.singer.state import bookmark, known_as
from bridge.singer.state_edits import check_shape, merged, parsed, with_bookmarks, without_bookmarks
from bridge.state.exchange import FORMATS


@click.command("set", short_help="Replace the STATE, or one stream's bookmark.")
@options
@click.argument("value", metavar="STATE", required=False)
@click.option("-s", "--stream", metavar="STREAM", help="Set this stream's bookmark; the others keep theirs.")
@click.option("--force", is_flag=True, help="With -s: also of a stream that nobody knows.")
@changing
def set_(
    name: str | None,
    value: str | None,
    file: Path | None,
    to: str | None,
    pipeline_name: str | None,
    stream: str | None,
    force: bool,
    **said: bool,
) -> None:
    """Replace the STATE: JSON, a file, or - for stdin. With -s, one stream's bookmark.

    \b
    singer-bridge state set flights state.json
    singer-bridge state set flights -s public-users '{"replication_key": "id", "replication_key_value": 5}'
    """
    name, value = _last_is_value(name, value)
    data, what = read_argument(value), f"state set{f' -s {stream}' if stream else ''}"
    chosen = choose(name, file, to, pipeline_name)
    if stream is None:
        state = FORMATS["singer"].read(data, None, ())
        change(chosen.pipeline, lambda _: state, Answer(**said), what)
    else:
        before = store_of(chosen.pipeline).get()
        given = {known_as(before, chosen.named.names_of(stream)): parsed(data, "the bookmark")}
        if not force:
            expect_known(chosen, before, stream)
        change(chosen.pipeline, lambda state: with_bookmarks(state, given), Answer(**said), what)


@click.command("merge", short_help="Lay bookmarks over the stored ones.")
@options
@click.argument("value", metavar="STATE", required=False)
@changing
def merge(
    name: str | None, value: str | None, file: Path | None, to: str | None, pipeline_name: str | None, **said: bool
) -> None:
    """Lay a STATE over the stored one, object by object: JSON, a file, or - for stdin. Lists are replaced whole.

    \b
    singer-bridge state merge flights partial.json
    singer-bridge state merge flights '{"bookmarks": {"public-users": {"replication_key_value": 5}}}'
    """
    name, value = _last_is_value(name, value)
    given = FORMATS["singer"].read(read_argument(value), None, ())
    chosen = choose(name, file, to, pipeline_name).pipeline
    change(chosen, lambda state: merged(state, given), Answer(**said), "state merge")


@click.command("clear", short_help="Have streams start from the beginning.")
@options
@click.option("-s", "--stream", "streams", multiple=True, metavar="STREAM", help="Only this one; may be repeated.")
@changing
def clear(
    name: str | None,
    file: Path | None,
    to: str | None,
    pipeline_name: str | None,
    streams: tuple[str, ...],
    **said: bool,
) -> None:
    """Forget all bookmarks, or those of some streams: the next run extracts them from the beginning.

    The tables stay as they are, so append-only ones will have those rows twice; `run --full` replaces them. Without a
    terminal all bookmarks go only with --yes.

    \b
    singer-bridge state clear flights --yes
    singer-bridge state clear flights -s public-users -s public-orders
    """
    chosen, answer = choose(name, file, to, pipeline_name), Answer(**said)
    what = " ".join(["state clear", *(f"-s {stream}" for stream in streams)])

    pipeline = chosen.named

    def apply(state: Any) -> Any:
        if streams:
            return without_bookmarks(state, [known_as(state, pipeline.names_of(stream)) for stream in streams])
        if state is None:
            raise SettingsError("there is no STATE to clear", hint="the next run starts from the beginning already")
        return {"bookmarks": {}} if isinstance(state, dict) and "bookmarks" in state else {}

    state = store_of(chosen.pipeline).get()
    apply(state)  # raises for what cannot be meant, before anything is said of doubled rows
    doubled = would_double(chosen, state, streams)
    if not (streams or answer.dry_run or answer.yes or answer.asks):
        hint = f"{doubled}; to clear them all the same: --yes" if doubled else "to clear them: --yes; or name some: -s"
        raise SettingsError("all bookmarks would be cleared, and nobody is there to be asked", hint=hint)
    if doubled:
        warn(doubled)
    change(chosen.pipeline, apply, answer, what)


@click.command("copy", short_help="Take over another pipeline's STATE.")
@options
@click.argument("target", metavar="DST", required=False)
@click.option("--from-env", metavar="ENV", help="The source's environment; default: that of --env.")
@click.option("-s", "--stream", "streams", multiple=True, metavar="STREAM", help="Only this one; may be repeated.")
@changing
def copy(
    name: str | None,
    target: str | None,
    file: Path | None,
    to: str | None,
    pipeline_name: str | None,
    from_env: str | None,
    streams: tuple[str, ...],
    **said: bool,
) -> None:
    """Replace the STATE of pipeline DST by that of NAME; without DST, that of NAME in another environment.

    \b
    singer-bridge state copy flights flights_v2
    singer-bridge state copy flights --from-env staging --env prod
    """
    with in_environment(from_env):
        source = choose(name, file, to, None, look=True).pipeline
    chosen = choose(target or (None if pipeline_name else name), file, to, pipeline_name).pipeline
    if (source.name, source.destination.bucket) == (chosen.name, chosen.destination.bucket):
        raise SettingsError("a STATE cannot be copied onto itself", hint="give NAME and DST, or --from-env")
    state = store_of(source).get()
    if state is None:
        raise SettingsError("there is no STATE to copy", hint="see `singer-bridge state list`", pipeline=source.name)
    given = {stream: bookmark(state, stream) for stream in streams}
    if missing := [stream for stream, value in given.items() if value is None]:
        raise SettingsError("no bookmark of this stream", hint="see `singer-bridge state list`", stream=missing[0])
    what = " ".join([f"state copy {source.name}", *(f"-s {stream}" for stream in streams)])
    change(chosen, lambda old: with_bookmarks(old, given) if streams else state, Answer(**said), what)


@click.command("edit", short_help="Change the STATE in your editor.")
@options
@changing
def edit(name: str | None, file: Path | None, to: str | None, pipeline_name: str | None, **said: bool) -> None:
    """Open the STATE in $EDITOR, and commit what was saved. JSON that is broken is opened again.

    \b
    singer-bridge state edit flights
    singer-bridge state edit --to ./lake --name x --dry-run
    """
    chosen, answer = choose(name, file, to, pipeline_name).pipeline, Answer(**said)
    store = store_of(chosen)
    if not answer.dry_run:
        store.refuse_if_held()
    seen = store.read() if answer.dry_run else settled(store)
    text = dumps({"bookmarks": {}} if seen.state is None else seen.state, indent=2).decode()
    edited = _edited(text)
    if edited is None:
        click.echo("nothing was saved, nothing is changed", err=True)
        return
    try:
        commit_confirmed(chosen, store, seen, parsed(edited, "the STATE"), answer, "state edit")
    except BridgeError as error:
        error.hint += f"; what you wrote is kept in {_kept(edited)}"
        raise


def _edited(text: str) -> str | None:
    """Return what was saved as JSON, None if nothing was."""
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


def _kept(text: str) -> str:
    with tempfile.NamedTemporaryFile("w", prefix="state-", suffix=".json", delete=False) as file:
        file.write(text)
    return file.name


def _last_is_value(name: str | None, value: str | None) -> tuple[str | None, str]:
    """Take a single word for the STATE: NAME may be left out where there is one pipeline."""
    if value is None:
        name, value = None, name
    if value is None:
        raise SettingsError("no STATE was given", hint="give JSON, a file, or - for stdin")
    return name, value
