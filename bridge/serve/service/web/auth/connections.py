"""Bounds what anybody on the network can hold: connections, the time of a request, the time that an answer may wait.

A connection that is over a limit is closed, so that the descriptors that runs need stay free. Whoever finishes requests
is served also while others only open connections: the oldest one without a whole request makes room.
"""

from __future__ import annotations

import asyncio
import resource
from typing import Any

from h11 import IDLE, SEND_BODY
from uvicorn.protocols.http.h11_impl import H11Protocol

_PATIENCE = 10.0
"""Seconds in which a request has to come whole, head and body; and an answer that nobody reads may wait."""
_MOST, _SHARE = 256, 4
"""The most connections, and the part of this process' descriptors that they may take: a quarter."""
_FILES = 65_536
"""Descriptors that are asked for. A hard limit may be so high that closing all of them takes a while."""


def raise_file_limit() -> None:
    """Let this process, and the runs that it starts, have as many descriptors as the system allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _FILES if hard == resource.RLIM_INFINITY else min(hard, _FILES)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def most_connections() -> int:
    """How many connections may be open at once."""
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return _MOST if files == resource.RLIM_INFINITY else min(_MOST, files // _SHARE)


class BoundedProtocol(H11Protocol):
    """One connection to the page or the API."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._since = self.loop.time()
        self._request_due: asyncio.TimerHandle | None = None
        self._answer_due: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take it; if there are too many, another one that has no whole request is closed, or this one."""
        super().connection_made(transport)
        if len(self.connections) > most_connections():
            without = [one for one in self.connections if isinstance(one, BoundedProtocol) and one.is_without_request]
            min(without, key=lambda one: one._since, default=self)._abort()
        self._watch_request()

    @property
    def is_without_request(self) -> bool:
        """Whether nothing is to be answered here, as no request has come whole."""
        return self.conn.their_state in (IDLE, SEND_BODY)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch_request()

    def _watch_request(self) -> None:
        if not self.is_without_request:
            self._end_watch()
        elif self._request_due is None:
            self._request_due = self.loop.call_later(_PATIENCE, self._abort)

    def _end_watch(self) -> None:
        if self._request_due:
            self._request_due.cancel()
            self._request_due = None

    def pause_writing(self) -> None:
        """Wait for a client that does not read its answer, for a while."""
        super().pause_writing()
        self._answer_due = self.loop.call_later(_PATIENCE, self._abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._answer_due:
            self._answer_due.cancel()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._end_watch()
        if self._answer_due:
            self._answer_due.cancel()

    def _abort(self) -> None:
        self.transport.abort()
