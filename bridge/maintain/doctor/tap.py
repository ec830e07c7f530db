"""What a run needs of the tap: its program, the settings that it asks for, the streams that are selected."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bridge.errors import SettingsError, TapError, did_you_mean
from bridge.maintain.doctor.finding import Check, Finding, fine, looked_at, warning
from bridge.maintain.doctor.postgres import postgres_checks
from bridge.settings.options import Pipeline
from bridge.singer.catalog import selected_streams, stream_id, stream_ids, user_streams_first
from bridge.singer.selection import loaded_streams, select, unmatched
from bridge.slots import slot_source
from bridge.tap.about import About, about
from bridge.tap.catalog_overrides import overridden
from bridge.tap.installed import tap_version
from bridge.tap.source import Source, catalog_file

_LISTED = 8


class _Tap:
    """The tap of one pipeline; what an earlier check found is there for a later one."""

    def __init__(self, pipeline: Pipeline, home: Path) -> None:
        self.pipeline, self.home = pipeline, home
        self.source: Source | None = None

    def found(self) -> Iterator[Finding]:
        """Whether its program is there."""
        self.source = Source(self.pipeline, self.home)
        program = self.source.argv[0]
        yield fine("tap", f"{Path(program).name} {tap_version(program)} at {program}")
        yield from looked_at([("tap --about", self._about), ("tap --discover", self._discover)])

    def _about(self) -> Iterator[Finding]:
        assert self.source
        said = about(self.source.argv, self.source.environ)
        if said is None:
            yield fine("tap --about", "not known to this tap, so its settings cannot be checked")
            return
        yield fine("tap --about", f"{said.name} {said.version}, {len(said.settings)} settings")
        yield from looked_at([("tap settings", lambda: self._settings(said))])

    def _settings(self, said: About) -> Iterator[Finding]:
        config = self.pipeline.source.config
        given = set(json.loads(config.read_text()) if isinstance(config, Path) else config)
        missing = [setting for setting in said.required if setting.name not in given and setting.default is None]
        known = {setting.name for setting in said.settings}
        if missing:
            names = ", ".join(setting.name for setting in missing)
            meant = [guess for name in sorted(given - known) if (guess := _guess(name, [m.name for m in missing]))]
            hint = "; ".join(meant) or "write them under source.config"
            raise SettingsError("settings that the tap requires are missing", hint=hint, missing=names)
        unknown = sorted(given - known) if known else []
        if unknown:
            fix = "; ".join(filter(None, (_guess(name, known) for name in unknown)))
            yield warning(
                "tap settings", f"unknown to the tap: {_some(unknown)}", fix or "remove them, or correct them"
            )
        else:
            yield fine("tap settings", "all that it requires are there")

    def _discover(self) -> Iterator[Finding]:
        assert self.source
        began = time.monotonic()
        found = _discovered(self.pipeline, self.home)
        if found is None:
            yield fine("tap --discover", "not known to this tap: it runs without a catalog")
            return
        streams = stream_ids(found)
        if not streams:
            hint = "look at what the tap's user may see, and at its settings"
            raise TapError("the tap finds no streams", hint=hint)
        first = [stream_id(entry) for entry in user_streams_first(found)]
        many = f"{len(streams)} stream{'' if len(streams) == 1 else 's'}"
        yield fine("tap --discover", f"{many} in {time.monotonic() - began:.1f} s: {_some(first)}")
        yield from looked_at([("streams", lambda: self._streams(found))])

    def _streams(self, found: dict[str, Any]) -> Iterator[Finding]:
        """Compare what the tap has now with the catalog that a run would pass."""
        source = self.pipeline.source
        kept = catalog_file(self.home, self.pipeline.name)
        if source.catalog or kept.exists():
            assert self.source
            passed = self.source.catalog([], refresh=False, compare=False)[0]
        else:
            passed = select(found, source.select) if source.select else None
        if passed is None:
            yield self._without_catalog(found)
            return
        selected = sorted(selected_streams(passed))
        if not selected:
            hint = "choose some: singer-bridge select, or source.select"
            raise SettingsError("no stream is selected", hint=hint, catalog=source.catalog or kept)
        gone = [stream for stream in selected if stream not in stream_ids(found)]
        if gone:
            guesses = [guess for name in gone if (guess := _guess(name, stream_ids(found)))]
            hint = "; ".join([*guesses, "singer-bridge discover shows what is new and gone"])
            raise SettingsError("selected streams that the tap no longer has", hint=hint, gone=_some(gone))
        strange = unmatched(found, source.select)
        for pattern, guess in strange:
            yield warning("streams", f"source.select has a pattern that means nothing: {pattern}", guess or "remove it")
        yield fine("streams", f"{len(selected)} of {len(stream_ids(found))} selected: {_some(selected)}")
        assert self.source
        if slots := slot_source(self.pipeline, self.source.argv):
            told, _ = overridden(passed, self.pipeline, selected)
            yield from looked_at(postgres_checks(slots, told))

    def _without_catalog(self, found: dict[str, Any]) -> Finding:
        """Say what a run loads to which no catalog is passed: what the tap selects by itself, for many taps nothing."""
        loaded = loaded_streams(found, [])
        if loaded:
            return fine("streams", f"no catalog is passed: the tap itself decides, and selects {_some(sorted(loaded))}")
        name = self.pipeline.name
        first = stream_id(user_streams_first(found)[0])
        text = "nothing is selected, and no catalog is kept: of most taps a run then loads no record"
        fix = f"singer-bridge discover {name}, then choose: singer-bridge select {name} {shlex.quote(first)}"
        return warning("streams", text, fix)


def tap_checks(pipeline: Pipeline, home: Path) -> list[Check]:
    """Return the checks of a pipeline's tap. Only its `--about` and `--discover` are started; nothing is kept."""
    return [("tap", _Tap(pipeline, home).found)]


def _discovered(pipeline: Pipeline, home: Path) -> dict[str, Any] | None:
    """Ask the tap for its catalog; the one that an earlier discovery kept stays as it is."""
    try:
        return Source(pipeline, home).ask()
    except TapError as error:
        if "pkg_resources" in error.hint:
            error.hint = f"add setuptools to source.pip_url: the tap needs it and does not say so\n{error.hint}"
        raise


def _guess(name: str, known: Any) -> str:
    guess = did_you_mean(name, known)
    return f"{name}: {guess}" if guess else ""


def _some(names: list[str]) -> str:
    return ", ".join(names[:_LISTED]) + (f" and {len(names) - _LISTED} more" if len(names) > _LISTED else "")
