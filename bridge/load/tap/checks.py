"""What a run needs of the tap: its program, the settings that it requires, the selected streams."""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Iterator
from pathlib import Path

from bridge.durations import duration
from bridge.errors import SettingsError, TapError, did_you_mean
from bridge.findings import Check, Finding, fine, first_of, run_checks, warning
from bridge.load.slots import slot_source
from bridge.load.slots.postgres_checks import postgres_checks
from bridge.load.tap.about import About, about
from bridge.load.tap.catalog_overrides import overridden
from bridge.load.tap.catalog_store import catalog_file
from bridge.load.tap.digits import with_digits
from bridge.load.tap.installed import tap_version
from bridge.load.tap.source import Source
from bridge.protocol.singer.catalog import Catalog, selected_streams, stream_id, stream_ids, user_streams_first
from bridge.protocol.singer.selection import loaded_streams, select, unmatched
from bridge.settings.commands import selecting
from bridge.settings.options import Pipeline


def tap_checks(pipeline: Pipeline, home: Path) -> list[Check]:
    """The checks of a pipeline's tap. They start only its `--about` and `--discover`, and keep nothing."""
    return [("tap", lambda: _tap(pipeline, home))]


def _tap(pipeline: Pipeline, home: Path) -> Iterator[Finding]:
    source = Source(pipeline, home)
    program = source.argv[0]
    yield fine("tap", f"{Path(program).name} {tap_version(program)} at {program}")
    checks: list[Check] = [("tap --about", lambda: _about(source)), ("tap --discover", lambda: _discover(source))]
    yield from run_checks(checks)


def _about(source: Source) -> Iterator[Finding]:
    answer = about(source.argv, source.environ)
    if answer is None:
        yield fine("tap --about", "this tap has no --about, so its settings cannot be checked")
        return
    yield fine("tap --about", f"{answer.name} {answer.version}, {len(answer.settings)} settings")
    yield from run_checks([("tap settings", lambda: _settings(source, answer))])


def _settings(source: Source, answer: About) -> Iterator[Finding]:
    config = source.pipeline.source.config
    given = set(json.loads(config.read_text()) if isinstance(config, Path) else config)
    missing = [setting.name for setting in answer.required if setting.name not in given and setting.default is None]
    declared = {setting.name for setting in answer.settings}
    unknown = sorted(given - declared) if declared else []
    if missing:
        hint = _guesses(sorted(given - declared), missing) or "write them under source.config"
        raise SettingsError("settings that the tap requires are missing", hint=hint, missing=", ".join(missing))
    if unknown:
        fix = _guesses(unknown, declared) or "remove them, or correct them"
        yield warning("tap settings", f"the tap does not know: {first_of(unknown)}", fix)
    else:
        yield fine("tap settings", "all that it requires are set")


def _discover(source: Source) -> Iterator[Finding]:
    began = time.monotonic()
    discovered = _ask(source)
    if discovered is None:
        given = source.pipeline.source.catalog or source.catalogs.file.exists()
        yield fine("tap --discover", f"this tap has no --discover: it runs with{'' if given else 'out'} a catalog")
        yield from run_checks([("streams", lambda: _given(source))] if given else [])
        return
    streams = stream_ids(discovered)
    if not streams:
        hint = "look at what the tap's user may see, and at its settings"
        raise TapError("the tap finds no streams", hint=hint)
    first = [stream_id(entry) for entry in user_streams_first(discovered)]
    count = f"{len(streams)} stream{'' if len(streams) == 1 else 's'}"
    yield fine("tap --discover", f"{count} in {duration(time.monotonic() - began)}: {first_of(first)}")
    yield from run_checks([("streams", lambda: _streams(source, discovered))])


def _ask(source: Source) -> Catalog | None:
    """Ask the tap for its catalog; the one from an earlier discovery stays as it is."""
    try:
        catalog = source.ask()
    except TapError as error:
        if "pkg_resources" in error.hint:
            error.hint = f"add setuptools to source.pip_url: the tap needs it and does not say so\n{error.hint}"
        raise
    return None if catalog is None else with_digits(source.database, catalog)[0]


def _streams(source: Source, discovered: Catalog) -> Iterator[Finding]:
    """Compare what the tap has now with the catalog that a run would pass."""
    settings, existing = source.pipeline.source, stream_ids(discovered)
    file = catalog_file(source.home, source.pipeline.name)
    if settings.catalog or file.exists():
        passed = source.catalog([], refresh=False, compare=False)[0]
    else:
        passed = select(discovered, settings.select) if settings.select else None
    if passed is None:
        yield _without_catalog(source.pipeline, discovered)
        return
    selected = sorted(selected_streams(passed))
    if not selected:
        hint = "choose some: singer-bridge select, or source.select"
        raise SettingsError("no stream is selected", hint=hint, catalog=settings.catalog or file)
    if removed := [stream for stream in selected if stream not in existing]:
        hint = "; ".join(
            filter(
                None,
                [
                    _guesses(removed, {*existing}.difference(stream_ids(passed))),
                    "singer-bridge discover shows what changed",
                ],
            )
        )
        raise SettingsError("the tap no longer has some selected streams", hint=hint, gone=first_of(removed))
    for pattern, guess in unmatched(discovered, settings.select):
        fix = "" if pattern in source.catalogs.removed else guess  # a similar name would be another table
        yield warning("streams", f"source.select has a pattern that matches nothing: {pattern}", fix or "remove it")
    yield fine("streams", f"{len(selected)} of {len(existing)} selected: {first_of(selected)}")
    if slots := slot_source(source.pipeline, source.argv):
        catalog, _ = overridden(passed, source.pipeline, selected)
        yield from run_checks(postgres_checks(slots, catalog))


def _given(source: Source) -> Iterator[Finding]:
    """Look at the catalog of a tap that does not say what it has. Raises `SettingsError` if it selects nothing."""
    passed = source.catalog([], refresh=False, compare=False)[0] or {"streams": []}
    selected = sorted(selected_streams(passed))
    yield fine("streams", f"{len(selected)} of {len(passed['streams'])} selected: {first_of(selected)}")


def _without_catalog(pipeline: Pipeline, discovered: Catalog) -> Finding:
    """What a run loads when no catalog is passed: what the tap itself selects, for many taps nothing."""
    loaded = loaded_streams(discovered, [])
    if loaded:
        return fine("streams", f"no catalog is passed: the tap decides, and selects {first_of(sorted(loaded))}")
    name, first = pipeline.name, stream_id(user_streams_first(discovered)[0])
    text = "nothing is selected, and there is no catalog: with most taps a run then loads no record"
    fix = f"singer-bridge discover {name}, then choose: {selecting(name, first)}"
    return warning("streams", text, fix)


def _guesses(names: Collection[str], candidates: Collection[str]) -> str:
    return "; ".join(f"{name}: {guess}" for name in names if (guess := did_you_mean(name, candidates)))
