"""Can a pipeline's tables be read from the log of their database, and if not, why? Nothing on the server stays changed.

PostgreSQL: `wal_level`, the role's rights, wal2json, by which the taps that we know read. MySQL and MariaDB: the format
of the binary log, and the user's rights.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from bridge.errors import SlotError
from bridge.load.slots.database import Database, connect
from bridge.load.tap.database.columns import table_of
from bridge.load.tap.database.connection import NotAsked
from bridge.load.tap.database.source_database import Place, SourceDatabase
from bridge.load.tap.slot_source import LONGEST_NAME, SlotSource, slot_source, tap_settings
from bridge.protocol.singer.catalog import StreamEntry, stream_id
from bridge.settings.options import Pipeline

PLUGIN = "wal2json"
"""Both taps of PostgreSQL that we know read the log through it."""
NO_LOG = {"v": "a view", "m": "a materialized view", "f": "a foreign table"}
_PATIENCE = timedelta(seconds=5)
"""A new slot waits for the transactions that are open."""
_TABLES = """
select n.nspname, c.relname, c.relkind::text, c.relpersistence::text, c.relreplident::text,
  exists (select from pg_index i where i.indrelid = c.oid and i.indisprimary),
  array(select a.attname::text from pg_attribute a where a.attrelid = c.oid and a.attnum > 0
        and not a.attisdropped and a.atttypid = 'numeric'::regtype order by a.attnum)
from pg_class c join pg_namespace n on n.oid = c.relnamespace
where (n.nspname::text, c.relname::text) in (select * from unnest(%s::text[], %s::text[]))
order by 1, 2
"""


@dataclass(frozen=True, slots=True)
class PostgresTable:
    """A table as PostgreSQL knows it. `identity` is its letter: `d`efault, `n`othing, `f`ull, `i`ndex."""

    kind: str
    persistence: str
    identity: str
    has_primary_key: bool
    numerics: Sequence[str]

    @property
    def has_identity(self) -> bool:
        """Whether the log says which row an UPDATE or a DELETE is of."""
        return self.identity in ("f", "i") or (self.identity == "d" and self.has_primary_key)

    @property
    def problem(self) -> str:
        """Why the log lacks its changes; empty if it has them."""
        if self.kind == "p":
            return "a partitioned table, whose changes come under its partitions' names"
        if self.kind in NO_LOG:
            return NO_LOG[self.kind]
        if self.persistence != "p":
            return "an unlogged table"
        return "" if self.has_identity else "no REPLICA IDENTITY"


@dataclass(frozen=True, slots=True)
class LogReady:
    """The database's answer. `problem`: why no table can be read from its log; empty if they can."""

    problem: str = ""
    tables: Mapping[str, str] = field(default_factory=dict)
    """By stream, why its table cannot; empty if it can."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """The settings that the tap needs for it, and does not have."""
    statement: str = ""
    """The statement to type in the database before the first run; empty if there is none."""


def log_ready(pipeline: Pipeline, asked: SourceDatabase, entries: Collection[StreamEntry]) -> LogReady | None:
    """Ask the database of a known tap about these streams; None for any other tap."""
    places = {stream_id(entry): table_of(entry) for entry in entries}
    try:
        if asked.kind == "mysql":
            return _mysql(asked, places)
        source = slot_source(pipeline, asked.argv)
        if source is None or source.kind == "other":
            return None
        with connect(source) as database:
            return _postgres(pipeline, source, database, places)
    except SlotError as error:
        return LogReady(problem="; ".join(filter(None, (error.message, error.hint))))
    except NotAsked as reason:
        return LogReady(problem=f"the database was not asked: {reason}")


def require_logical(database: Database) -> str:
    """The server's `wal_level`. Raises `SlotError` if its log lacks what LOG_BASED needs."""
    level = database.setting("wal_level")
    if level != "logical":
        hint = "ALTER SYSTEM SET wal_level = logical, then restart PostgreSQL (managed ones have a parameter for it)"
        raise SlotError(f"the server's wal_level is {level}: its log lacks what LOG_BASED needs", hint=hint)
    return level


def require_rights(database: Database) -> None:
    """Raise `SlotError` if the role may not replicate. On managed servers, members of a certain role may."""
    sql = "select rolsuper or rolreplication from pg_roles where rolname = user"
    by_membership = (
        "select coalesce(bool_or(pg_has_role(oid, 'member')), false) from pg_roles"
        " where rolname in ('rds_replication', 'azure_replication', 'cloudsqlreplica')"
    )
    if not (database.one(sql) or database.one(by_membership)):
        role = database.one("select quote_ident(user)")
        raise SlotError("the tap's role may not replicate", hint=f"ALTER ROLE {role} REPLICATION")


def read_tables(database: Database, places: Collection[Place]) -> dict[Place, PostgresTable]:
    """The tables that exist among these."""
    values = [schema for schema, _ in places], [table for _, table in places]
    return {(schema, table): PostgresTable(*facts) for schema, table, *facts in database.query(_TABLES, *values)}


def _postgres(pipeline: Pipeline, source: SlotSource, database: Database, places: Mapping[str, Place]) -> LogReady:
    require_logical(database)
    require_rights(database)
    given = tap_settings(pipeline)
    name = "singer_" + re.sub("[^a-z0-9_]", "_", pipeline.name.lower())
    settings: dict[str, Any] = {source.setting: name[: max(source.room, 0)][:LONGEST_NAME]}
    if source.kind == "meltanolabs":
        settings |= {"auto_bootstrap_log_based": True, "log_based_single_connection": True}
        settings |= {"replication_idle_exit_seconds": 10}
    settings = {key: value for key, value in settings.items() if not given.get(key)}
    slot = source.named(settings[source.setting])[0] if source.setting in settings else source.slot
    statement = f"SELECT pg_create_logical_replication_slot('{slot}', '{PLUGIN}');"
    if any(facts.plugin == PLUGIN for facts in database.slots([slot])):
        statement = ""
    else:
        _try_plugin(database)
    existing = read_tables(database, list(places.values()))
    tables = {stream: existing[place].problem if place in existing else "" for stream, place in places.items()}
    return LogReady(tables=tables, settings=settings, statement=statement)


def _try_plugin(database: Database) -> None:
    """Make a slot for a moment. Raises `SlotError` if the server cannot."""
    name = f"singer_bridge_add_{os.getpid()}"
    database.limit(_PATIENCE)
    try:
        database.query("select pg_create_logical_replication_slot(%s, %s, true)", name, PLUGIN)
        database.query("select pg_drop_replication_slot(%s)", name)
    except SlotError as error:
        raise SlotError(f"the server cannot use {PLUGIN}: {error.message}", hint=error.hint) from error


def _mysql(database: SourceDatabase, places: Mapping[str, Place]) -> LogReady:
    among, values = database.among(list(places.values()))
    views = f"select table_schema, table_name from information_schema.views where (table_schema, table_name) in {among}"
    settings = "select @@global.log_bin, @@global.binlog_format, @@global.binlog_row_image, version()"
    queries = [(settings, []), ("show binary logs", []), ("show grants", []), (views, values)]
    log, files, grants, existing_views = database.ask(queries, each=5, whole=15)
    problem = binlog_problem(log, files, grants)
    engine = {"engine": "mariadb"} if "mariadb" in str((log or [[""]])[0][-1]).lower() else {}
    no_tables = {(str(schema), str(table)) for schema, table in existing_views or ()}
    tables = {stream: "a view" if place in no_tables else "" for stream, place in places.items()}
    return LogReady(problem, tables, {key: value for key, value in engine.items() if not database.settings.get(key)})


def binlog_problem(log: Any, files: Any, grants: Any) -> str:
    """Why the binary log cannot be read; empty if it can."""
    if not log:
        return "the server does not say whether it has a binary log"
    on, form, image, *_ = log[0]
    if str(on) not in ("1", "ON"):
        return "the server has no binary log: set log_bin and server_id, and restart it"
    if form != "ROW":
        return f"the server's binlog_format is {form}: its log has statements instead of rows; set it to ROW"
    if image != "FULL":
        return f"the server's binlog_row_image is {image}: its log lacks columns; set it to FULL"
    rights = " ".join(str(row[0]) for row in grants or ()).upper()
    if files is None or not re.search(r"REPLICATION SLAVE|ALL PRIVILEGES ON \*\.\*", rights):
        return "the user may not read the log: GRANT REPLICATION CLIENT, REPLICATION SLAVE ON *.* TO that user"
    return ""
