"""What replication from PostgreSQL needs of server, slot and selected tables; and what the tap would lose."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from bridge.errors import SlotError
from bridge.findings import Check, Finding, fine, first_of, run_checks, warning
from bridge.load.slots import Database, SlotFacts, SlotSource, connect
from bridge.load.slots.log_ready import NO_LOG, PLUGIN, Table, read_tables, require_logical, require_rights
from bridge.protocol.singer.catalog import (
    Catalog,
    columns,
    key_properties,
    replication_method,
    root_facts,
    selected_streams,
    stream_id,
)

_MUCH_LOG = 1 << 30
"""If a slot keeps more bytes of log, somebody should look: a server whose disk is full stops."""


@dataclass(frozen=True, slots=True)
class _Stream:
    """A selected stream, and the table that it reads."""

    id: str
    schema: str
    table: str
    log_based: bool
    has_key: bool
    doubles: frozenset[str]
    """Columns that the catalog declares as numbers without saying how many digits."""


def postgres_checks(source: SlotSource, catalog: Catalog) -> list[Check]:
    """The checks of the database that a tap reads these streams from. Nothing on the server changes."""
    return [("postgres", lambda: _checked(source, _streams(catalog)))]


def _streams(catalog: Catalog) -> list[_Stream]:
    selected = selected_streams(catalog)
    return [
        _Stream(
            id=stream_id(entry),
            schema=str(root_facts(entry).get("schema-name") or "public"),
            table=str(entry.get("table_name") or stream_id(entry).partition("-")[2]),
            log_based=replication_method(catalog, stream_id(entry)) == "LOG_BASED",
            has_key=bool(key_properties(entry)),
            doubles=frozenset(path[0] for path, schema in columns(entry).items() if _is_double(schema)),
        )
        for entry in catalog["streams"]
        if stream_id(entry) in selected
    ]


def _checked(source: SlotSource, streams: Sequence[_Stream]) -> Iterator[Finding]:
    log_based = [stream for stream in streams if stream.log_based]
    try:
        with connect(source) as database:
            sql = "select current_setting('server_version'), user, current_database()"
            ((version, user, name),) = database.query(sql)
            yield fine("postgres", f"PostgreSQL {version}, database {name}, as {user}")
            if log_based:
                yield from run_checks(_log_checks(database, source))
            tables = _tables(database, streams)
            yield from run_checks([("source tables", lambda: _log_tables(log_based, tables))] if log_based else [])
            if source.kind == "meltanolabs":
                yield from run_checks([("numeric", lambda: _numerics(streams, tables))])
    except SlotError as failure:
        # Without LOG_BASED streams a run does not connect, so it would not fail.
        if log_based:
            raise
        text = f"{failure.message}; so no run compares how many rows it has"
        yield warning("postgres", text, failure.hint or "the tap itself may reach it")


def _tables(database: Database, streams: Sequence[_Stream]) -> dict[tuple[str, str], Table]:
    return read_tables(database, [(stream.schema, stream.table) for stream in streams])


def _log_checks(database: Database, source: SlotSource) -> list[Check]:
    return [
        ("wal_level", lambda: _wal_level(database)),
        ("replication", lambda: _rights(database)),
        ("slot", lambda: _slot(database, source)),
        ("free slots", lambda: _free_slots(database)),
    ]


def _wal_level(database: Database) -> Iterator[Finding]:
    yield fine("wal_level", require_logical(database))


def _rights(database: Database) -> Iterator[Finding]:
    require_rights(database)
    yield fine("replication", "the role may replicate")


def _slot(database: Database, source: SlotSource) -> Iterator[Finding]:
    names = [name for name in (source.shared_slot, source.slot) if name]
    slots = {facts.name: facts for facts in database.slots(names)}
    facts = next((slots[name] for name in names if name in slots), None)
    if facts is None:
        hint = f"SELECT pg_create_logical_replication_slot('{source.slot}', '{PLUGIN}');"
        raise SlotError(f"there is no replication slot {source.slot}", hint=hint)
    if facts.plugin != PLUGIN:
        hint = f"drop it and create one with {PLUGIN}, or name another one in {source.setting}"
        raise SlotError(f"the slot {facts.name} uses {facts.plugin}, which the tap cannot read", hint=hint)
    here = database.one("select current_database()")
    if facts.database != here:
        hint = f"create one in {here}, under another name, and set {source.setting}"
        raise SlotError(f"the slot {facts.name} belongs to the database {facts.database}", hint=hint)
    if not facts.lost:
        database.try_copy(facts.name, f"singer_bridge_doctor_{os.getpid()}")
    yield from _slot_log(facts)


def _slot_log(facts: SlotFacts) -> Iterator[Finding]:
    if facts.lost:
        hint = (
            f"SELECT pg_drop_replication_slot('{facts.name}'), create it again, then `singer-bridge run --full`; "
            "raise max_slot_wal_keep_size"
        )
        raise SlotError(f"the slot {facts.name} has lost log that it needs: changes are missing", hint=hint)
    text = f"{facts.name}, {facts.plugin}, keeps {facts.behind_bytes / (1 << 20):,.1f} MiB of log"
    if facts.active_pid is not None:
        fix = "a run of LOG_BASED streams needs it for itself"
        yield warning("slot", f"{text}, read by process {facts.active_pid} now", fix)
    elif facts.wal_status == "unreserved":
        fix = "run now; raise max_slot_wal_keep_size"
        yield warning("slot", f"{text}: the server is about to remove some of it", fix)
    elif facts.behind_bytes > _MUCH_LOG:
        yield warning("slot", text, "run the pipeline more often, or drop the slot if nobody reads it: the disk fills")
    else:
        yield fine("slot", text)


def _free_slots(database: Database) -> Iterator[Finding]:
    """Each process of the tap reads a copy of the slot, which takes one slot while it runs."""
    for setting, used in (
        ("max_replication_slots", "select count(*) from pg_replication_slots"),
        ("max_wal_senders", "select count(*) from pg_stat_replication"),
    ):
        most, taken = int(database.setting(setting)), int(database.one(used))
        text = f"{most - taken} of {setting} = {most}"
        if most - taken < 1:
            yield warning("free slots", f"none is free: {text}", f"raise {setting}, or drop slots that nobody reads")
        else:
            yield fine("free slots", text)


def _log_tables(streams: Sequence[_Stream], tables: dict[tuple[str, str], Table]) -> Iterator[Finding]:
    existing = [(stream, tables[place]) for stream in streams if (place := (stream.schema, stream.table)) in tables]
    problems = {
        "no change of a partitioned table comes under its name": (
            [stream.id for stream, table in existing if table.kind == "p"],
            "select its partitions, whose names the log has, or set replication_method: FULL_TABLE",
        ),
        "the log has nothing of views and unlogged tables": (
            [stream.id for stream, table in existing if table.kind in NO_LOG or table.persistence != "p"],
            "set streams.<stream>.replication_method: FULL_TABLE",
        ),
        "UPDATE and DELETE do not come, without REPLICA IDENTITY": (
            [stream.id for stream, table in existing if table.kind == "r" and not table.has_identity],
            "ALTER TABLE <table> REPLICA IDENTITY FULL, or give it a primary key",
        ),
        "without a key each change is one more row": (
            [stream.id for stream, _ in existing if not stream.has_key],
            "set streams.<stream>.key_properties, so that a change replaces its row",
        ),
    }
    for problem, (affected, fix) in problems.items():
        if affected:
            yield warning("source tables", f"{problem}: {first_of(affected)}", fix)
    if not any(affected for affected, _ in problems.values()):
        yield fine("source tables", f"{len(existing)} LOG_BASED, each with its key and REPLICA IDENTITY")


def _is_double(schema: dict[str, Any]) -> bool:
    return "number" in schema.get("type", ()) and not {"multipleOf", "precision"} & set(schema)


def _numerics(streams: Sequence[_Stream], tables: dict[tuple[str, str], Table]) -> Iterator[Finding]:
    doubles = [
        f"{stream.id}.{column}"
        for stream in streams
        if (table := tables.get((stream.schema, stream.table)))
        for column in table.numerics
        if column in stream.doubles
    ]
    if doubles:
        fix = "`singer-bridge discover` writes multipleOf for those with a scale; write it for others: docs/postgres.md"
        yield warning("numeric", f"the tap declares NUMERIC as a double, 15 digits: {first_of(doubles)}", fix)
