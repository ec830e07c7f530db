"""The runs of a smoke test, each short, none of which leaves anything behind."""

from __future__ import annotations

import os
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import orjson

from bridge.durations import duration
from bridge.errors import SettingsError, TapError
from bridge.load.tap.about import About, about
from bridge.load.tap.batch_files import Batches
from bridge.load.tap.catalog_overrides import overridden, with_methods, without_log
from bridge.load.tap.process import Tap
from bridge.load.tap.source import Source
from bridge.operate.smoke.catalogs import check_catalog
from bridge.operate.smoke.listener import Listener, is_less
from bridge.operate.smoke.verdicts import Verdicts
from bridge.protocol.singer.catalog import Catalog, replication_key, replication_method, selected_streams, stream_ids
from bridge.protocol.singer.selection import loaded_streams, select

_PATIENCE = timedelta(seconds=10)
"""A tap should end this soon after it was told to stop."""
_BROKEN = "{this is not JSON"


@dataclass
class Trial:
    """One tap under test. `check` makes the checks that need no Java; `first` has what the first run sent."""

    source: Source
    streams: tuple[str, ...]
    max_records: int
    max_seconds: float
    static: bool
    tick: Callable[[], None]
    stage: Callable[[str], object] = str
    verdicts: Verdicts = field(default_factory=Verdicts)
    catalog: Catalog | None = None
    about: About | None = None
    first: Listener | None = None
    seconds: float = 0.0
    """Duration of the first run, from the start of the tap to its last message."""
    capped: bool = False

    def check(self) -> None:
        """Make all of them. Raises `TapNotFound`, and `SettingsError` for streams that do not exist."""
        self.verdicts.shows_values = not self.source.pipeline.mask
        self.stage("asking --about")
        self._ask_about()
        self.stage("discovering")
        self._discover()
        self.stage("first run")
        self.first = self._run(None, first=True)
        self._check_state(self.first)
        self._again(self.first)
        self.stage("a broken config")
        self._check_bad_config()
        self.stage("SIGTERM")
        self._check_sigterm()

    def sample(self) -> Iterator[tuple[str, Any]]:
        """Yield up to `max_records` records of each selected stream, with its name; nothing is stored."""
        self._discover()
        catalog = self.catalog
        for name in sorted(selected_streams(catalog)) if catalog else [""]:
            self.stage(f"reading some records of {name}" if name else "reading some records")
            self.catalog = select(catalog, (), (name,)) if catalog else None
            for stream, record in self._run(None).recorded:
                yield stream, orjson.loads(record)

    def _ask_about(self) -> None:
        self.about = about(self.source.argv, self.source.environ)
        if self.about is None:
            self.verdicts.skip("about", "the tap does not answer --about, as older ones do not")
        else:
            self.verdicts.make("about")

    def _can(self, capability: str) -> bool:
        """Whether the tap can do a thing: as it says; if it says nothing, we assume it can."""
        return self.about is None or not self.about.capabilities or capability in self.about.capabilities

    def _discover(self) -> None:
        stored, discovered = self.source.catalogs.read(), None
        if not self._can("discover"):
            self.verdicts.skip("discover", "the tap says that it has no capability `discover`")
        else:
            try:
                discovered = self.source.ask()
            except TapError as error:
                self.verdicts.fail("discover", error.message, error.hint)
            else:
                self.verdicts.make("discover")
        catalog = discovered or stored
        if catalog is None:
            self.verdicts.skip("discover", "the tap runs instead: it does not discover")
            self.verdicts.skip("catalog", "there is none")
            if self.streams:
                raise SettingsError("--stream needs a catalog", hint="this tap has no --discover: leave --stream out")
            return
        check_catalog(catalog, self.verdicts)
        merged = self.source.catalogs.merged(discovered, keep=False).catalog if discovered else catalog
        self.catalog = self._selected(merged)

    def _selected(self, catalog: Catalog) -> Catalog:
        """The catalog as a run would pass it; if nobody selected streams, all of them, in full."""
        patterns = self.source.pipeline.source.select
        chosen = self.streams or (() if patterns or loaded_streams(catalog, patterns) else tuple(stream_ids(catalog)))
        loaded = loaded_streams(catalog, patterns, chosen)
        catalog, _ = overridden(catalog, self.source.pipeline, loaded)
        catalog, log_based = without_log(catalog, loaded)
        if log_based:
            why = f"read as FULL_TABLE here, as a trial must not use up a replication slot: {', '.join(log_based)}"
            self.verdicts.skip("log-based", why)
        return with_methods(select(catalog, patterns, chosen) if patterns or chosen else catalog)

    @contextmanager
    def _tap(self, state: Any) -> Iterator[Tap]:
        with open(os.devnull, "wb") as log, self.source.start(self.catalog, state, log) as tap:
            yield tap

    def _listener(self, verdicts: Verdicts) -> Listener:
        names = stream_ids(self.catalog) if self.catalog else []
        keys = {name: key for name in names if (key := replication_key(self.catalog, name))}
        # A tap that follows changes sends a row twice that changed while it was read.
        repeats = {name for name in names if replication_method(self.catalog, name) in ("LOG_BASED", "INCREMENTAL")}
        batches = Batches(store=self.source.pipeline.destination.store_options)
        return Listener(verdicts, replication=keys, may_repeat=repeats, batches=batches)

    def _run(self, state: Any, *, first: bool = False) -> Listener:
        """Run the tap up to the caps and return what it sent. Only the first run's findings count."""
        verdicts = self.verdicts if first else Verdicts()
        listener, began = self._listener(verdicts), time.monotonic()
        capped = False
        with self._tap(state) as tap:
            try:
                for chunk in tap.chunks(idle=timedelta(seconds=self.max_seconds), tick=self.tick):
                    capped = listener.feed(chunk, self.max_records) or time.monotonic() - began > self.max_seconds
                    if first:
                        self.seconds = time.monotonic() - began
                    if capped:
                        tap.terminate()
                        break
                else:
                    self._ended(tap, listener)
            except TapError as error:
                text = error.message if first else f"a run from its own STATE: {error.message}"
                self.verdicts.fail("exit-code", text, error.hint)
        self.capped = self.capped or (first and capped)
        if first and capped:
            self.verdicts.skip("exit-code", f"stopped after {listener.records:,} records: raise --max-records")
        return listener

    def _ended(self, tap: Tap, listener: Listener) -> None:
        if listener.unfinished:
            hint = "write a line end after each message, also the last one"
            self.verdicts.warn("stdout", "the last line has no end", hint)
        listener.finish()
        tap.wait(idle=_PATIENCE, tick=self.tick)
        self.verdicts.make("exit-code")

    def _check_state(self, listener: Listener) -> None:
        if not self._can("state"):
            for check in ("state", "resume", "repeat"):
                self.verdicts.skip(check, "the tap says that it has no capability `state`")
            return
        if not listener.records and not listener.states:
            self.verdicts.skip("state", "no record came")
        elif not listener.states and self.capped:
            self.verdicts.skip("state", "none came before --max-records: raise it")
        elif not listener.states:
            self.verdicts.fail("state", "records came, but no STATE", "write one at least at each stream's end")
        else:
            self.verdicts.make("state")
            if listener.unmarked and not self.capped:
                text = f"{listener.unmarked:,} records came after the last STATE"
                self.verdicts.warn("state", text, "write a STATE at the end")
        for name, sent in listener.streams.items():
            if not self.capped and sent.highest is not None and sent.bookmark is not None:
                self._advanced(name, sent.bookmark, sent.highest)

    def _advanced(self, name: str, bookmark: Any, highest: Any) -> None:
        if is_less(bookmark, highest):
            text = "the last bookmark is older than the newest record"
            example = f"bookmark {bookmark}, record {highest}"
            self.verdicts.warn("replication-key", text, "records will come again", stream=name, example=example)

    def _again(self, listener: Listener) -> None:
        """Run twice more from the first run's STATE: the second must begin there, the third must be the same."""
        if not self._can("state"):
            return
        bookmarks = {name: sent.bookmark for name, sent in listener.streams.items() if sent.bookmark is not None}
        if listener.state is None or not bookmarks:
            why = "no STATE came" if listener.state is None else "no stream has a bookmark with a replication key"
            self.verdicts.skip("resume", why)
            self.verdicts.skip("repeat", why)
            return
        self.stage("second run, from its STATE")
        second = self._run(listener.state)
        self._resumed(second, bookmarks)
        self.stage("third run, from the same STATE")
        third = self._run(listener.state)
        self.verdicts.make("repeat")
        both = (
            min(len(second.recorded), len(third.recorded))
            if self.max_records in (second.records, third.records)
            else None
        )
        if second.recorded[:both] != third.recorded[:both]:
            note = self.verdicts.fail if self.static else self.verdicts.warn
            text = f"two runs from one STATE differ: {len(second.recorded):,} records, then {len(third.recorded):,}"
            note("repeat", text, "does the source change meanwhile? If not, the tap's order or values are not stable")

    def _resumed(self, second: Listener, bookmarks: dict[str, Any]) -> None:
        self.verdicts.make("resume")
        for name, mark in bookmarks.items():
            sent = second.streams.get(name)
            column = self._column(name, second)
            if sent is None or column is None:
                continue
            for stream, record in second.recorded:
                if stream == name:
                    self._not_older(name, column, record, mark)

    def _column(self, name: str, listener: Listener) -> str | None:
        if key := replication_key(self.catalog, name):
            return key
        sent = listener.streams.get(name)
        return sent.bookmarks[0] if sent and sent.bookmarks else None

    def _not_older(self, name: str, column: str, record: bytes, mark: Any) -> None:
        value = orjson.loads(record).get(column)
        if is_less(value, mark):
            hint = "begin at the bookmark that --state gives: otherwise each run loads everything again"
            text, example = "a record from before the bookmark came again", f"{value}, bookmark {mark}"
            self.verdicts.fail("resume", text, hint, stream=name, example=example)

    def _check_bad_config(self) -> None:
        with tempfile.TemporaryDirectory(prefix="singer-bridge-") as folder, open(os.devnull, "wb") as log:
            path = Path(folder) / "config.json"
            path.write_text(_BROKEN)
            tap = Tap(self.source.argv, config=path, environ=self.source.environ, log=log, redact=self.source.redact)
            self.verdicts.make("bad-config")
            with tap:
                try:
                    for _ in tap.chunks(idle=_PATIENCE, tick=self.tick):
                        pass
                    tap.wait(idle=_PATIENCE, tick=self.tick)
                except TapError:
                    return
        hint = "end with an exit code other than 0: to a runner 0 means complete, and it would empty tables"
        self.verdicts.fail("bad-config", "a config that is not JSON is accepted, with exit code 0", hint)

    def _check_sigterm(self) -> None:
        listener, ended = Listener(Verdicts(), replication={}, may_repeat=set()), False
        with self._tap(None) as tap:
            chunks = tap.chunks(idle=timedelta(seconds=self.max_seconds), tick=self.tick)
            try:
                first = next(chunks, None)
            except TapError:
                first = None
            if first is None or tap.ended:
                self.verdicts.skip("sigterm", "the tap ended before it could be told to stop")
                return
            listener.feed(first, self.max_records)
            tap.signal(signal.SIGTERM)
            until = time.monotonic() + _PATIENCE.total_seconds()
            try:
                for chunk in tap.chunks(idle=_PATIENCE, tick=lambda: self._before(until)):
                    listener.feed(chunk, 2**62)
                tap.wait(idle=_PATIENCE, tick=lambda: self._before(until))
                ended = True
            except TimeoutError:
                pass
            except TapError as error:
                ended = "silent" not in error.message and "did not exit" not in error.message
        self.verdicts.make("sigterm")
        if not ended:
            hint = "end soon after SIGTERM: a runner that has waited long enough kills it"
            self.verdicts.fail("sigterm", f"it still ran {duration(_PATIENCE)} after SIGTERM", hint)
        elif listener.unfinished:
            self.verdicts.warn("sigterm", "it ended in the middle of a line", "end between two messages")

    def _before(self, until: float) -> None:
        self.tick()
        if time.monotonic() > until:
            raise TimeoutError
