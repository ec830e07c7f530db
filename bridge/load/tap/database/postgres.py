"""A connection to PostgreSQL. psycopg comes with the extra `postgres`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from bridge.load.tap.database.connection import Answer, NotAsked, Query
from bridge.load.tap.slot_source import SlotSource

_CONNECT = 10
"""Seconds for connecting."""
_SETTINGS = "select set_config('timezone', 'UTC', false), set_config('statement_timeout', %s, false)"
_EXTRA = "pip install 'singer-bridge[postgres]'"


class PostgresConnection:
    """Each statement is its own transaction."""

    def __init__(self, source: SlotSource) -> None:
        """Connect. Raises `NotAsked`."""
        if not source.parameters or source.tunnel:
            raise NotAsked("set source.replication_slot.url to an address of the database")
        try:
            import psycopg
        except ImportError:
            raise NotAsked(_EXTRA) from None
        parameters: dict[str, Any] = {"connect_timeout": _CONNECT, **source.parameters}
        self._error = psycopg.Error
        try:
            self._connection = psycopg.connect(autocommit=True, **parameters)
        except psycopg.Error as error:
            raise _lost(error) from None

    def ask(self, queries: Sequence[Query], each: float, whole: float) -> list[Answer]:
        end = time.monotonic() + whole
        try:
            self._connection.execute(_SETTINGS, [str(int(each * 1000))])
            return [self._answer(query) if time.monotonic() < end else None for query in queries]
        except self._error as error:
            raise _lost(error) from None

    def close(self) -> None:
        with suppress(self._error):
            self._connection.close()

    def _answer(self, query: Query) -> Answer:
        sql, values = query
        try:
            # A text has no type of its own, so the server reads it as the column's.
            return self._connection.execute(sql, [v if isinstance(v, list) else str(v) for v in values]).fetchall()
        except self._error:
            if self._connection.closed:
                raise
            return None


def _lost(error: Exception) -> NotAsked:
    return NotAsked((str(error).strip().splitlines() or [type(error).__name__])[0])
