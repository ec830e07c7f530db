"""The run: streams are opened, sent and closed, STATE goes between them, and faults strike where they were set."""

from __future__ import annotations

import time

from tap_smoke.catalog import select
from tap_smoke.faults import Ended, Faults, Sigterm, make_noise
from tap_smoke.messages import Dialect
from tap_smoke.settings import Settings
from tap_smoke.state import State
from tap_smoke.stream import Stream
from tap_smoke.wire import Wire


class Sync:
    """One run. A STATE never says more than the lines before it, however the run ends."""

    def __init__(self, settings: Settings, catalog_path: str | None, state_path: str | None) -> None:
        self._settings = settings
        self._dialect = Dialect(settings.style, time_extracted=settings.time_extracted)
        self._state = State(settings.state, state_path)
        self._streams = [
            Stream(settings.seed, selection, self._state.bookmark(selection.stream.name), self._dialect)
            for selection in select(settings, catalog_path)
        ]
        self._wire = Wire()
        self._sigterm = Sigterm() if settings.sigterm_ok else None
        self._faults = Faults(settings, self._wire, self._sleep)
        self._count = 0

    def run(self) -> int:
        """Write everything; the exit code."""
        make_noise(self._settings)
        if self._settings.no_output:
            return 0
        try:
            if self._settings.state.echo and self._state.given:
                self._write_state()
            if self._settings.interleave:
                self._alternate()
            else:
                self._one_by_one()
            self._finish()
        except Ended as end:
            if end.state:
                self._add_state()
            self._wire.flush()
            return end.code
        self._wire.flush()
        return 0

    def _one_by_one(self) -> None:
        for stream in self._streams:
            self._open(stream)
            while stream.left:
                self._send(stream, stream.batch)
            self._close(stream)

    def _alternate(self) -> None:
        for stream in self._streams:
            self._open(stream)
        under_way = self._streams
        while under_way:
            for stream in under_way:
                if stream.left:
                    self._send(stream, 1)
            for stream in under_way:
                if not stream.left:
                    self._close(stream)
            under_way = [stream for stream in under_way if stream.left]

    def _open(self, stream: Stream) -> None:
        self._check_sigterm()
        if self._settings.state.currently_syncing:
            self._state.syncing(stream.name)
            self._write_state()
        self._wire.add(stream.opening())
        self._faults.reached(self._count, stream.peek)

    def _send(self, stream: Stream, at_most: int) -> None:
        self._check_sigterm()
        state = self._settings.state
        count = min(at_most, stream.left, state.every - stream.sent % state.every, self._faults.room(self._count))
        if self._settings.delay_ms:
            count = 1
        self._wire.add(stream.take(count))
        self._count += count
        self._state.set(stream.name, stream.bookmark(ended=False))
        if state.currently_syncing:
            self._state.syncing(stream.name)
        self._faults.reached(self._count, stream.peek)
        if stream.sent % state.every == 0:
            self._write_state()
        if self._settings.delay_ms:
            self._wire.flush()
            self._sleep(self._settings.delay_ms / 1000)

    def _close(self, stream: Stream) -> None:
        self._check_sigterm()
        self._wire.add(stream.closing())
        self._state.set(stream.name, stream.bookmark(ended=True))
        if self._settings.state.at_end:
            self._write_state()

    def _finish(self) -> None:
        """Say that no stream is under way any more."""
        if self._settings.state.currently_syncing:
            self._state.syncing(None)
            if self._settings.state.at_end:
                self._write_state()

    def _add_state(self) -> None:
        if not self._settings.state.never:
            self._wire.add(self._dialect.state(self._state.value))

    def _write_state(self) -> None:
        if self._settings.state.never:
            return
        self._add_state()
        # a reader may wait for this line: it and all before it leave now
        self._wire.flush()
        if self._settings.batch_delay_ms:
            self._sleep(self._settings.batch_delay_ms / 1000)

    def _check_sigterm(self) -> None:
        if self._sigterm:
            self._sigterm.check()

    def _sleep(self, seconds: float) -> None:
        if self._sigterm:
            self._sigterm.sleep(seconds)
        else:
            time.sleep(seconds)
