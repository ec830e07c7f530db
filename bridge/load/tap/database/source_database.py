"""The database that a pipeline's tap reads, if it is a PostgreSQL, a MySQL or a MariaDB below a tap that is known."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import cached_property
from typing import Any, Literal

from bridge.load.tap.database.connection import Answer, Connection, NotAsked, Query
from bridge.load.tap.database.mysql import MySqlConnection
from bridge.load.tap.database.postgres import PostgresConnection
from bridge.load.tap.installed import tap_package
from bridge.load.tap.slot_source import SlotSource, slot_source, tap_settings
from bridge.settings.options import Pipeline

Place = tuple[str, str]
"""The schema and the name of a table; MySQL has databases for schemas."""
Kind = Literal["postgres", "mysql"]
"""`mysql` is MariaDB, too."""

NO_DATABASE = "only PostgreSQL, MySQL and MariaDB are asked, below a tap that is known"
_MYSQL_TAP = "pipelinewise-tap-mysql"
_IDLE = 60
"""Seconds after which a connection is not used again, as what lies between may have dropped it, and after which a
database that did not answer is asked again."""


class SourceDatabase:
    """It is connected to when it is first asked in a `with` block, until the outermost block ends. For one thread.

    `pipeline`: None where another program starts the tap. `argv`: the tap's command.
    """

    def __init__(self, pipeline: Pipeline | None, argv: Sequence[str]) -> None:
        self.argv = argv
        self._pipeline = pipeline
        self._depth, self._asked_at = 0, 0.0
        self._connection: Connection | None = None
        self._reason: NotAsked | None = None
        """Why the last question was not asked."""

    def __enter__(self) -> SourceDatabase:
        self._depth += 1
        return self

    def __exit__(self, *_: object) -> None:
        self._depth -= 1
        if not self._depth:
            self._forget()

    @cached_property
    def kind(self) -> Kind | None:
        """None: it is no database that can be asked."""
        if self._pipeline is None:
            return None
        if tap_package(self.argv[0])[0].lower() == _MYSQL_TAP:
            return "mysql"
        return "postgres" if self._postgres and self._postgres.kind != "other" else None

    @property
    def name(self) -> str:
        """PostgreSQL's database, of which there may be others on the server; empty for MySQL."""
        return self._postgres.database if self._postgres else ""

    @property
    def settings(self) -> dict[str, Any]:
        return tap_settings(self._pipeline) if self._pipeline else {}

    def ask(self, queries: Sequence[Query], *, each: float, whole: float) -> list[Answer]:
        """An answer to each query, which takes `each` seconds at most; after `whole` seconds no other one is begun.

        Raises `NotAsked`, and for a minute again without trying.
        """
        with self:
            if time.monotonic() - self._asked_at > _IDLE:
                self._forget()
            if self._reason:
                raise self._reason
            try:
                self._connection = self._connection or self._connect()
                return self._connection.ask(queries, each, whole)
            except NotAsked as reason:
                self._forget()
                self._reason = reason
                raise
            finally:
                self._asked_at = time.monotonic()

    def rows(self, sql: str, values: list[Any], *, seconds: float) -> list[Sequence[Any]]:
        """The rows of one statement. Raises `NotAsked` if it gives none in time."""
        [answer] = self.ask([(sql, values)], each=seconds, whole=seconds)
        if answer is None:
            raise NotAsked(f"the database did not answer in {seconds:.0f} s")
        return answer

    def among(self, places: Sequence[Place]) -> Query:
        """The SQL behind `(schema, table) in`, with its values."""
        if self.kind == "postgres":
            schemas, tables = [schema for schema, _ in places], [table for _, table in places]
            return "(select * from unnest(%s::text[], %s::text[]))", [schemas, tables]
        return f"({', '.join(['(%s, %s)'] * len(places))})", [name for place in places for name in place]

    def quoted(self, *names: str) -> str:
        """An identifier with what qualifies it, as statements write it."""
        quote = "`" if self.kind == "mysql" else '"'
        return ".".join(quote + name.replace(quote, quote * 2).replace("%", "%%") + quote for name in names)

    @cached_property
    def _postgres(self) -> SlotSource | None:
        return slot_source(self._pipeline, self.argv) if self._pipeline else None

    def _connect(self) -> Connection:
        if self.kind == "mysql":
            return MySqlConnection(self.argv[0], self.settings)
        if self.kind == "postgres" and self._postgres:
            return PostgresConnection(self._postgres)
        raise NotAsked(NO_DATABASE)

    def _forget(self) -> None:
        connection, self._connection, self._reason = self._connection, None, None
        if connection:
            connection.close()
