"""The SQL of logical replication slots: look at, copy, advance and drop them. Knows nothing of taps or lakes.

psycopg comes with the extra `postgres`. Positions are LSNs as numbers; PostgreSQL writes them as `16/B374D848`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from bridge.errors import DatabaseUnreachable, SlotError
from bridge.load.tap.slot_source import SlotSource

_EXTRA = "pip install 'singer-bridge[postgres]'"
_TRUST = "ALTER SYSTEM SET output_plugin_libraries = pgoutput, test_decoding, wal2json; SELECT pg_reload_conf()"
"""Since 15.20, and the releases of that day, PostgreSQL trusts listed plugins only, by default not wal2json. Slots that
exist stop working with that update, too."""
_PATIENCE = timedelta(seconds=10)
"""How long connecting may take."""
_ANSWER = timedelta(seconds=60)
"""How long a statement may take that reads no log."""
_MIN_VERSION = 120000
"""pg_copy_logical_replication_slot came with PostgreSQL 12."""


@dataclass(frozen=True, slots=True)
class SlotFacts:
    """One slot as `pg_replication_slots` has it."""

    name: str
    plugin: str
    database: str
    active_pid: int | None
    """The server's process through which somebody reads it; None if nobody does."""
    restart_lsn: int | None
    """The server keeps its log from here on. None if it has removed it."""
    confirmed_lsn: int | None
    """Transactions committed before this position are never sent again."""
    wal_status: str
    """`reserved`, `extended`, `unreserved`, or `lost`: the server has removed log that it needs."""
    behind_bytes: int
    """How much log the server keeps because of it."""

    @property
    def lost(self) -> bool:
        """Whether the server has removed log that it needs: no later change can be read from it."""
        return self.wal_status == "lost" or self.restart_lsn is None


class Database:
    """A connection in which each statement is its own transaction. Errors of the server are `SlotError`s."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    @property
    def version(self) -> int:
        """The server's version, such as 150004."""
        return int(self._connection.info.server_version)

    @property
    def in_recovery(self) -> bool:
        """Whether it is a standby: its log comes from the primary."""
        return bool(self.one("select pg_is_in_recovery()"))

    @property
    def copies_slots(self) -> bool:
        """Whether the server has the function that copies a slot."""
        return self.version >= _MIN_VERSION

    def close(self) -> None:
        """Close the connection; it may be closed already."""
        self._connection.close()

    def query(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        """Run one statement and return its rows. Raises `SlotError`."""
        import psycopg

        try:
            cursor = self._connection.execute(sql, values)
            return list(cursor.fetchall()) if cursor.description else []
        except psycopg.Error as error:
            closed, text = self._connection.closed, _first_line(error)
            hint = _TRUST if "may not be used as an output plugin" in text else ""
            raise (DatabaseUnreachable if closed else SlotError)(text, hint=hint) from error

    def one(self, sql: str, *values: Any) -> Any:
        """The first column of the only row."""
        return self.query(sql, *values)[0][0]

    def slot(self, name: str) -> SlotFacts | None:
        """A logical slot, None if none has that name."""
        return next(iter(self.slots([name])), None)

    def slots(self, names: Sequence[str]) -> list[SlotFacts]:
        """The facts of those logical slots that exist."""
        status = (
            "wal_status" if self.version >= 130000 else "case when restart_lsn is null then 'lost' else 'reserved' end"
        )
        here = "case when pg_is_in_recovery() then pg_last_wal_receive_lsn() else pg_current_wal_lsn() end"
        rows = self.query(
            f"select slot_name, plugin, database, active_pid, restart_lsn, confirmed_flush_lsn, {status},"
            f" coalesce(pg_wal_lsn_diff({here}, restart_lsn), 0)::bigint"
            " from pg_replication_slots where slot_type = 'logical' and slot_name = any(%s)",
            list(names),
        )
        return [
            SlotFacts(name, plugin, database, pid, lsn(restart), lsn(confirmed), str(state), int(behind))
            for name, plugin, database, pid, restart, confirmed, state, behind in rows
        ]

    def names(self, pattern: str) -> list[str]:
        """The names of the logical slots that match a regular expression."""
        sql = "select slot_name from pg_replication_slots where slot_type = 'logical' and slot_name ~ %s"
        return [str(name) for (name,) in self.query(sql, pattern)]

    def tip(self) -> int:
        """How far the server's log is on disk; of a standby, how far it is replayed."""
        here = "case when pg_is_in_recovery() then pg_last_wal_replay_lsn() else pg_current_wal_flush_lsn() end"
        return lsn(self.one(f"select {here}")) or 0

    def checkpoint(self) -> int:
        """Where the log of the last checkpoint begins; 0 if the role may not ask."""
        try:
            return lsn(self.one("select redo_lsn from pg_control_checkpoint()")) or 0
        except DatabaseUnreachable:
            raise
        except SlotError:
            return 0

    def copy(self, slot: str, name: str) -> None:
        """Copy a slot: the copy gives the same changes, and reading it does not move the original."""
        self.query("select pg_copy_logical_replication_slot(%s, %s)", slot, name)

    def advance(self, slot: str, position: int) -> int:
        """Move a slot forward; return its new position. The server reads the log on the way, which may take long."""
        self.limit(None)
        try:
            at = self.one("select end_lsn from pg_replication_slot_advance(%s, %s::pg_lsn)", slot, text(position))
        finally:
            with suppress(SlotError):  # of a connection that is closed: the statement's error says so
                self.limit(_ANSWER)
        return lsn(at) or 0

    def limit(self, duration: timedelta | None) -> None:
        """Make the server end each later statement that takes longer, with a `SlotError`; None: end none."""
        milliseconds = int(duration.total_seconds() * 1000) if duration else 0
        self.query("select set_config('statement_timeout', %s, false)", str(milliseconds))

    def drop(self, name: str) -> None:
        """Drop a slot, if it exists. If somebody still reads it, the reader is ended first."""
        self.query(
            "select pg_terminate_backend(active_pid) from pg_replication_slots"
            " where slot_name = %s and active_pid is not null",
            name,
        )
        self.query(
            "select pg_drop_replication_slot(slot_name) from pg_replication_slots where slot_name = %s and not active",
            name,
        )

    def sent(self, names: Sequence[str]) -> dict[str, int]:
        """By slot, how far the server has read the log for its reader; slots that nobody reads are left out."""
        rows = self.query(
            "select s.slot_name, r.sent_lsn from pg_replication_slots s join pg_stat_replication r"
            " on r.pid = s.active_pid where r.sent_lsn is not null and s.slot_name = any(%s)",
            list(names),
        )
        return {str(name): lsn(sent) or 0 for name, sent in rows}

    @property
    def sees_readers(self) -> bool:
        """Whether the role may see how far the server has read for each reader, not only that there are readers."""
        return bool(self.one("select pg_has_role(current_user, 'pg_read_all_stats', 'usage')"))

    def try_copy(self, slot: str, name: str) -> None:
        """Copy a slot for a moment, as a run does. Raises `SlotError` if the server refuses it."""
        self.query("select pg_copy_logical_replication_slot(%s, %s, true)", slot, name)
        self.query("select pg_drop_replication_slot(%s)", name)

    def setting(self, name: str) -> str:
        """A setting of the server, such as `wal_level`."""
        return str(self.one("select current_setting(%s)", name))


@contextmanager
def connect(source: SlotSource) -> Iterator[Database]:
    """Connect to the database that a tap's slot is in, for the block. Raises `SlotError` with a hint."""
    database = opened(source)
    try:
        yield database
    finally:
        database.close()


def opened(source: SlotSource) -> Database:
    """Connect; the caller closes it. Raises `SlotError`."""
    try:
        import psycopg
    except ImportError as error:
        raise SlotError("the extra `postgres` is not installed", hint=_EXTRA) from error
    if not source.parameters:
        hint = "set source.replication_slot.url"
        raise SlotError("the tap's settings do not tell how to connect to the database", hint=hint)
    if source.tunnel:
        hint = "set source.replication_slot.url to an address that works without the tap's SSH tunnel"
        raise SlotError("the tap connects through an SSH tunnel of its own", hint=hint)
    try:
        database = Database(psycopg.connect(autocommit=True, **parameters_of(source)))
    except psycopg.Error as error:
        hint = "check the tap's host, port, user and password, or set source.replication_slot.url"
        raise DatabaseUnreachable(f"the database cannot be reached: {_first_line(error)}", hint=hint) from error
    database.limit(_ANSWER)
    return database


def parameters_of(source: SlotSource) -> dict[str, Any]:
    """The parameters with which libpq connects."""
    patience = {"connect_timeout": int(_PATIENCE.total_seconds())}
    return {**patience, **source.parameters, "application_name": "singer-bridge"}


def lsn(value: str | None) -> int | None:
    """An LSN as a number."""
    if value is None:
        return None
    high, _, low = str(value).partition("/")
    return (int(high, 16) << 32) + int(low, 16)


def text(value: int) -> str:
    """An LSN as PostgreSQL writes it."""
    return f"{value >> 32:X}/{value & 0xFFFFFFFF:X}"


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
