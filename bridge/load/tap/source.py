"""The inputs of a tap: its command, environment, catalog and STATE; and `--discover`."""

from __future__ import annotations

import os
import re
import shlex
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

from bridge.errors import SettingsError, TapError
from bridge.load.tap.catalog_overrides import overridden, wants_catalog
from bridge.load.tap.catalog_store import CatalogStore, Declared, Discovery
from bridge.load.tap.database.columns import SourceTables, read_tables
from bridge.load.tap.database.connection import NotAsked
from bridge.load.tap.database.kafka import KAFKA_TAP, refuse_gaps
from bridge.load.tap.database.source_database import SourceDatabase
from bridge.load.tap.digits import with_digits, with_new_digits
from bridge.load.tap.installed import tap_package, tap_version
from bridge.load.tap.new_columns import (
    ColumnNews,
    Update,
    by_database,
    decide,
    dropped_table,
    log_based,
    new_tables,
    unknown,
)
from bridge.load.tap.process import Tap, find_executable
from bridge.load.tap.session_settings import session_settings
from bridge.load.tap.slot_source import tap_settings
from bridge.load.tap.venv import Venv
from bridge.protocol.singer.catalog import (
    Catalog,
    deselected,
    has_metadata,
    parse_catalog,
    selected_streams,
    stream_id,
    stream_ids,
    stream_names,
    user_streams_first,
)
from bridge.protocol.singer.selection import is_glob, loaded_streams, select, unmatched
from bridge.settings.options import Pipeline
from bridge.settings.redact import redactor

_LISTED = 8
_WITHOUT = "run it without --stream, source.select and streams; or write a catalog yourself and set source.catalog"
_DISCOVER_LIMIT = timedelta(minutes=5)
_QUICK = timedelta(seconds=5)
"""A tap that discovers faster is asked before each run whether types have changed."""
_PATIENCE = timedelta(seconds=15)
"""A tap that is silent for this long when asked for its types is not asked again before the next `discover`."""
_FIRST_LIMIT = timedelta(minutes=2)
"""A tap that is silent for this long when a run discovers by itself is not asked again in this version."""
_HELP_LIMIT = timedelta(seconds=20)
_LONGEST_HELP = 1 << 18
_CATALOG_FLAGS = ("--catalog", "--properties")
_READ_PROPERTIES = frozenset({KAFKA_TAP, "pipelinewise-tap-s3-csv"})
"""Packages whose taps know both, and end well without a word if --properties is not there."""


def home_folder(settings_file: Path | None) -> Path:
    """The project's `.singer-bridge` folder: beside bridge.yaml or here, unless SINGER_BRIDGE_HOME is set."""
    if given := os.environ.get("SINGER_BRIDGE_HOME"):
        return Path(given).expanduser().absolute()
    return (settings_file.parent if settings_file else Path.cwd()).absolute() / ".singer-bridge"


def silent(pipeline: str, declared: Catalog | None) -> str:
    """The warning for a tap without a catalog that ended well and named no stream, if nothing was loaded before.

    `declared`: the streams that the tap has, as far as it says.
    """
    if declared is None or not declared["streams"] or selected_streams(declared):
        return (
            "the tap sent no stream, and it got no catalog: many taps extract only what is selected. Make a catalog "
            f"with `singer-bridge discover {pipeline}`, choose by `singer-bridge select {pipeline} STREAM...`"
        )
    names = [stream_id(entry) for entry in user_streams_first(declared)]
    listed = ", ".join(names[:_LISTED]) + (" ..." if len(names) > _LISTED else "")
    choose = f"Choose: `singer-bridge select {pipeline} STREAM...`, '*' for all"
    return f"the tap sent no stream: it has {listed}, and extracts only what is selected. {choose}"


class Source:
    """The tap of one pipeline. Nothing runs before `discover` or `start`; `tick` may raise to end a discovery.

    `notes` are for the operator, about the catalog, `news` about new and dropped columns and tables; `discovery` is the
    result of the last one. `declared`: what a tap that gets no catalog says of its streams, None if it is not asked.
    """

    def __init__(self, pipeline: Pipeline, home: Path, tick: Callable[[], None] = lambda: None) -> None:
        self.pipeline = pipeline
        self._tick = tick
        self.home = home
        self.redact = redactor(pipeline.secrets)
        self.environ = dict(os.environ) | pipeline.source.env
        programs = Venv(home, pipeline.source.pip_url).bin if pipeline.source.pip_url else None
        self.argv = find_executable(pipeline.source.argv, programs, self.environ)
        self._flag = self.argv.pop() if self.argv[-1] in _CATALOG_FLAGS and len(self.argv) > 1 else None
        self.catalogs = CatalogStore(home, pipeline)
        self.notes: list[str] = []
        self.news: list[ColumnNews] = []
        self.discovery: Discovery | None = None
        self.declared: Catalog | None = None
        self.database = SourceDatabase(pipeline, self.argv)

    def catalog(self, only: Sequence[str], *, refresh: bool, compare: bool = True) -> tuple[Catalog | None, set[str]]:
        """The catalog to pass, if any, and the names of the streams that it deselects.

        Discovers if a selection or an override needs it, or to `refresh`, and stores the catalog for the next run. With
        `compare`, a tap that discovers quickly, or reads a log, is asked whether columns have changed; and a tap that
        gets no catalog, how its streams are replicated.
        """
        needed = bool(self.pipeline.source.select or only or wants_catalog(self.pipeline))
        needed = needed or self.pipeline.source.parallelism != 1
        catalog = None if refresh else self.catalogs.read()
        if catalog is not None and compare:
            catalog = self._retyped(catalog, only)
        if catalog is None and (needed or refresh):
            catalog = self.discover()
            self.notes += self.discovery.lines() if self.discovery else ["this tap has no --discover"]
        if catalog is None:
            self._do_without(only)
            self.declared = self._ask_declared() if compare else None
            return None, set()
        catalog = self.narrowed(catalog, self._ids(catalog, only))
        return catalog, deselected(catalog)

    def stored_catalog(self, only: Sequence[str]) -> tuple[Catalog | None, set[str]]:
        """As `catalog`, from what earlier runs have stored: the tap is not started, and nothing is written."""
        catalog = self.catalogs.read()
        if catalog is None:
            earlier = self.catalogs.declared(self.argv[0], tap_version(self.argv[0]))
            self.declared = earlier.catalog if earlier else None
            return None, set()
        catalog = self.narrowed(catalog, self._ids(catalog, only))
        return catalog, deselected(catalog)

    def _ids(self, catalog: Catalog, only: Sequence[str]) -> list[str]:
        """The ids of streams that may be named as their RECORDs are; of namesakes, the one that is selected."""
        names, loaded = stream_names(catalog), loaded_streams(catalog, self.pipeline.source.select) if only else set()
        ids = {name: names.get(name, (name,)) for name in only}
        return [next((one for one in namesakes if one in loaded), namesakes[0]) for namesakes in ids.values()]

    def _retyped(self, catalog: Catalog, only: Sequence[str]) -> Catalog:
        """The stored catalog with the present types and columns, if the tap tells them quickly.

        A run that does not ask the tap asks the database, where that is one that can be asked.
        """
        loaded = loaded_streams(catalog, self.pipeline.source.select, only)
        now, why = self._asked_again(log_based(self.pipeline, catalog, loaded))
        if now is None:
            self._ask_database(catalog, loaded, why, is_whole=not only)
            return catalog
        before = self.catalogs.discovered
        lost = self.catalogs.once(self.catalogs.missing(now), loaded)
        self.news += [dropped_table(self.pipeline, one, before, now) for one in lost]
        self.news += new_tables(self.pipeline, before, now) if before and not only else []
        update = decide(self.pipeline, before, catalog, now, loaded) if before else Update()
        self.news += update.news
        if update.columns:
            now, notes = with_new_digits(self.database, now, update.columns)
            self.notes += map(redactor(self.pipeline.secrets).text, notes)
        lines = self.catalogs.updated(now, loaded, update.columns)
        self.notes += [f"{line}; the kept catalog was brought up to date" for line in lines]
        return (self.catalogs.read() or catalog) if lines or update.columns else catalog

    def _asked_again(self, logged: Collection[str]) -> tuple[Catalog | None, str]:
        """The tap's catalog of now, or why it was not asked. What a log-based run has read is never sent again:
        for `logged` streams a slow tap is asked, too."""
        took = self.catalogs.seconds
        if self.pipeline.source.discover == "never":
            return None, "source.discover is never"
        if took is None:
            return (
                None,
                "source.catalog is a file of your own" if self.pipeline.source.catalog else "no discovery is noted",
            )
        if took > _QUICK.total_seconds() and not logged:
            return None, "the tap discovers slowly"
        began = time.monotonic()
        try:
            now, why = self.ask(_PATIENCE), "the tap's --discover answered by running"
        except TapError as error:  # if the tap is broken, the extraction will report it
            now, why = None, f"the tap's --discover failed ({error.message})"
        if (took := time.monotonic() - began) > _PATIENCE.total_seconds():
            self.catalogs.remember_seconds(took)
        return now, why

    def _ask_database(self, catalog: Catalog, loaded: Collection[str], why: str, *, is_whole: bool) -> None:
        """Report what the database has. `why` the tap was not asked; `is_whole`: the run is of all streams."""
        entries = [entry for entry in catalog["streams"] if stream_id(entry) in loaded]
        logged, before = log_based(self.pipeline, catalog, loaded), self.catalogs.discovered
        existing = {*stream_ids(catalog), *stream_ids(before)} if before else None
        try:
            tables = read_tables(self.database, entries, existing)
            lost = self.catalogs.once([name for name, names in tables.existing.items() if not names], tables.existing)
        except NotAsked as error:
            tables, lost = SourceTables({}, {}), []
            why = f"{why}, and the database was not asked ({self.redact(str(error).encode()).decode()})"
        self.news += [dropped_table(self.pipeline, name, before, tables.new_entries) for name in lost]
        self.news += new_tables(self.pipeline, before, tables.new_entries) if before and is_whole else []
        adds = self.database.kind == "mysql"
        self.news += [
            unknown(self.pipeline, one, why, adds_columns=adds) for one in logged if one not in tables.existing
        ]
        self.news += by_database(self.pipeline, catalog, tables.existing, adds_columns=adds)

    def _ask_declared(self) -> Catalog | None:
        """Ask the tap for its streams; it extracts without a catalog, as if it had not been asked.

        The answer is kept for the next run, which asks again if the tap is quick. A tap whose --help knows no
        --discover is not started with it: it would extract.
        """
        if self.pipeline.source.discover == "never" or not self.pipeline.decides_methods:
            return None
        version = tap_version(self.argv[0])
        earlier = self.catalogs.declared(self.argv[0], version)
        if earlier and (earlier.catalog is None or earlier.seconds > _QUICK.total_seconds()):
            return earlier.catalog
        began = time.monotonic()
        try:
            catalog = self.ask(_FIRST_LIMIT) if earlier or b"--discover" in self._flags() else None
        except TapError:  # if the tap is broken, the extraction will report it
            if time.monotonic() - began < _FIRST_LIMIT.total_seconds():
                return earlier.catalog if earlier else None
            catalog = None
        self.catalogs.remember_declared(Declared(self.argv[0], version, catalog, time.monotonic() - began))
        return catalog

    def _do_without(self, only: Sequence[str]) -> None:
        """Raise `SettingsError` if something was chosen that only a catalog can tell the tap."""
        if only:
            hint = "this tap has no --discover, so its streams cannot be chosen; run it without --stream"
            raise SettingsError("--stream needs a catalog", hint=hint)
        for setting, given in (
            ("source.select", self.pipeline.source.select not in ([], ["*"])),
            ("streams", wants_catalog(self.pipeline)),
            ("source.parallelism", self.pipeline.source.parallelism != 1),
        ):
            if given:
                hint = "this tap has no --discover: write a catalog and set source.catalog, or remove the setting"
                raise SettingsError("the setting has no effect without a catalog", hint=hint, setting=setting)

    def narrowed(self, catalog: Catalog, only: Sequence[str] = ()) -> Catalog:
        """The catalog for the tap, with the overrides and the selection of the settings and of `only`."""
        patterns = self.pipeline.source.select
        loaded = loaded_streams(catalog, patterns, only)
        catalog, notes = overridden(catalog, self.pipeline, loaded)
        self.notes += notes
        for text, guess in unmatched(catalog, patterns):
            if text in self.catalogs.removed:  # a similar name would be another table
                remove = f"singer-bridge select {self.pipeline.name} --rm {shlex.quote(text)}"
                self.notes.append(f"select: {text} was dropped or renamed. `{remove}`")
            elif not text.startswith("!") or not is_glob(text):  # "!*.secret_*" may be meant for future columns
                self.notes.append(f"select: {text} matches nothing. {guess}".strip())
        if patterns or only:
            return select(catalog, patterns, only)
        if catalog["streams"] and not loaded:  # most taps would send nothing; what others send would be ignored
            hint = f"choose: `singer-bridge select {self.pipeline.name} STREAM...`, '*' for all"
            raise SettingsError("the catalog selects no stream", hint=hint, file=self.catalogs.file)
        return catalog

    def discover(self, *, keep: bool = True) -> Catalog | None:
        """Run `--discover` and store the catalog, with the user's edits of the last one; None if the tap cannot.

        What changed is in `discovery`. Raises `TapError`, and `SettingsError` for an unreadable stored catalog.
        """
        self.discovery = None
        began = time.monotonic()
        discovered = self.ask()
        if discovered is None:
            return None
        took = time.monotonic() - began
        discovered, notes = with_digits(self.database, discovered)
        self.notes += map(redactor(self.pipeline.secrets).text, notes)
        self.discovery = self.catalogs.merged(discovered, keep=keep)
        if keep:
            self.catalogs.remember_seconds(took)
            self.catalogs.remember_flag(self.argv[0], self._ask_flag(discovered))
        return self.discovery.catalog

    def ask(self, limit: timedelta = _DISCOVER_LIMIT) -> Catalog | None:
        """Run `--discover` and store nothing; None if the tap answers by running.

        Raises `TapError`, also if nothing comes from the tap for as long as `limit`.
        """
        text = bytearray()
        with open(os.devnull, "wb") as log, self._tap([*self.argv, "--discover"], log) as tap:
            for chunk in tap.chunks(idle=limit, tick=self._tick):
                text += chunk
                if b"\n" in chunk and _is_message(bytes(text.split(b"\n", 1)[0])):
                    return None
            tap.wait(idle=limit, tick=self._tick)
            if not text.strip():
                raise tap.failure("the tap's --discover printed nothing")
            try:
                return parse_catalog(bytes(text))
            except TapError as error:
                begin = self.redact(bytes(text[:200])).decode(errors="replace").splitlines()[0]
                failed = tap.failure(f"the tap's --discover printed no catalog, it begins with: {begin}")
                failed.hint = f"{_WITHOUT}; {failed.hint}"
                raise failed from error

    def _ask_flag(self, catalog: Catalog) -> str:
        """The flag by which the tap takes its catalog, as its --help says.

        If it knows both, it expects an older catalog, without metadata, in --properties; some read nothing else.
        """
        if self._package() in _READ_PROPERTIES:
            return "--properties"
        words = self._flags()
        older = not any(map(has_metadata, catalog["streams"]))
        return "--properties" if b"--properties" in words and (older or b"--catalog" not in words) else "--catalog"

    def _package(self) -> str:
        """The name of the tap's package in small letters; one of PyPI may be written in either."""
        return tap_package(self.argv[0])[0].lower()

    def _flags(self) -> set[bytes]:
        """The flags that the tap's --help names."""
        text = bytearray()
        # Without settings: a tap that does not know --help must not reach its source.
        given: dict[str, Any] = {"config": {}, "environ": self.environ, "redact": self.redact}
        with suppress(TapError), open(os.devnull, "wb") as log, Tap([*self.argv, "--help"], log=log, **given) as tap:
            for chunk in tap.chunks(idle=_HELP_LIMIT, tick=self._tick):
                text += chunk
                if len(text) > _LONGEST_HELP or _is_message(bytes(text.split(b"\n", 1)[0])):
                    break  # it runs instead
        return set(re.findall(rb"--[a-z][a-z-]*", text))

    def _catalog_flag(self, catalog: Catalog) -> str:
        own = [word for word in self.argv[1:] if word.split("=")[0] in _CATALOG_FLAGS]
        if own:
            hint = "set source.catalog to that file; or write the flag last and without a value: then it is used"
            raise SettingsError("source.tap passes a catalog of its own", hint=hint, flag=own[0].split("=")[0])
        flag = self._flag or self.catalogs.flag(self.argv[0])
        if flag is None:
            flag = self._ask_flag(catalog)
            self.catalogs.remember_flag(self.argv[0], flag)
        return flag

    def _tap(self, argv: list[str], log: Any, settings: Mapping[str, Any] | None = None, **given: Any) -> Tap:
        config = {**tap_settings(self.pipeline), **settings} if settings else self.pipeline.source.config
        return Tap(argv, config=config, environ=self.environ, log=log, redact=self.redact, **given)

    def start(self, catalog: Catalog | None, state: Any, log: Any, settings: Mapping[str, Any] | None = None) -> Tap:
        """The tap for one run, not yet started. `settings` override those of the pipeline."""
        flag = {"catalog_flag": self._catalog_flag(catalog)} if catalog is not None else {}
        own, package = tap_settings(self.pipeline), self._package()
        if package == KAFKA_TAP:
            refuse_gaps(self.argv[0], self.pipeline.name, own, state)
        session = session_settings(package, own, state)
        return self._tap(self.argv, log, {**session, **(settings or {})}, catalog=catalog, state=state, **flag)


def _is_message(line: bytes) -> bool:
    with suppress(TapError):
        return parse_catalog(line) is None
    return False
