"""Positions in a database's log: as OLake keeps them, and as the Singer taps keep them that resume from them.

Each tap has its own bookmark for such a position; the shapes are from the sources of the taps. A tap of another
database, or one that keeps something else, such as singer-io's tap-mssql (versions of change tracking) and
tap-postgres (stream names that begin with the database's), is not in the list.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

TOKEN, WAL, BINLOG, CDC = "resume token", "LSN of PostgreSQL", "position in MySQL's binlog", "LSN of SQL Server"
VERSION = 1
"""The stream's version. Without one these taps make a new one for each run or record, which empties tables."""
_LOG_BASED = {"last_replication_method": "LOG_BASED"}
_KEY, _VALUE = "replication_key", "replication_key_value"
_SLOT = (
    "the tap has to read a slot that is as old as the position, decoded by wal2json, such as OLake's own; "
    "it misses changes that its slot does not have"
)


@dataclass(frozen=True, slots=True)
class LogTap:
    """A tap that resumes from a kind of position. `note` is what to look at before it does."""

    kind: str
    note: str = ""
    reads_cursors: bool = True
    """Whether it also goes on from a replication key and its value alone, which a tap of MongoDB does not."""


TAPS = {
    "meltanolabs-tap-mongodb": LogTap(TOKEN, "streams are named after collections; set no prefix", reads_cursors=False),
    "pipelinewise-tap-mongodb": LogTap(TOKEN, reads_cursors=False),
    "tap-mongodb": LogTap(TOKEN, reads_cursors=False),
    "meltanolabs-tap-postgres": LogTap(WAL, _SLOT),
    "pipelinewise-tap-postgres": LogTap(WAL, _SLOT),
    "pipelinewise-tap-mysql": LogTap(BINLOG, "OLake keeps no GTID: leave use_gtid off"),
    "tap-mysql": LogTap(BINLOG),
    "pipelinewise-tap-mssql": LogTap(CDC),
}
"""By the package's name: tap-mongodb and tap-mysql are singer-io's."""


@dataclass(frozen=True, slots=True)
class OlakePosition:
    """Where a stream is. `value`: a token, an LSN as a number or as 20 hex digits, or a file and a byte in it."""

    kind: str
    value: Any


def stream_position(state: dict[str, Any]) -> OlakePosition | None:
    """The position in the `state` of OLake's entry for one stream."""
    token = state.get("_data") or (state.get("resume_token") or {}).get("_data")
    if isinstance(token, str):
        return OlakePosition(TOKEN, token)
    return _cdc(state.get("lsn"))


def global_position(state: Any) -> OlakePosition | None:
    """The common position in the `state` of OLake's `global`. Earlier versions kept MySQL's one level higher."""
    if not isinstance(state, dict):
        return None
    lsn, inner = state.get("lsn"), state.get("state")
    if isinstance(lsn, str) and re.fullmatch(r"[0-9A-Fa-f]{1,8}/[0-9A-Fa-f]{1,8}", lsn):
        high, low = lsn.split("/")
        return OlakePosition(WAL, (int(high, 16) << 32) + int(low, 16))
    place = (inner if isinstance(inner, dict) else state).get("position") or {}
    if isinstance(place.get("Name"), str) and isinstance(place.get("Pos"), int):
        return OlakePosition(BINLOG, (place["Name"], place["Pos"]))
    return _cdc(lsn)


def _cdc(lsn: Any) -> OlakePosition | None:
    digits = str(lsn).replace(":", "").lower()
    return OlakePosition(CDC, digits) if re.fullmatch(r"[0-9a-f]{20}", digits) else None


def name_of(tap: str | None, namespace: str, table: str) -> str:
    """The stream as the tap calls it."""
    if tap == "meltanolabs-tap-mongodb":
        return table.lower()
    return f"{namespace}-{table}" if namespace else table


def bookmark_of(tap: str, position: OlakePosition) -> dict[str, Any] | None:
    """The bookmark from which the tap resumes; None if it does not read positions of this kind."""
    value = position.value
    if tap not in TAPS or TAPS[tap].kind != position.kind:
        return None
    if tap == "meltanolabs-tap-mongodb":
        return {_KEY: "replication_key", _VALUE: value}
    if tap == "pipelinewise-tap-mongodb":
        return {**_LOG_BASED, "token": {"_data": value}}
    if tap == "tap-mongodb":
        return _oplog(value)
    if tap == "meltanolabs-tap-postgres":
        return {_KEY: "_sdc_lsn", _VALUE: value}
    if position.kind == WAL:
        return {**_LOG_BASED, "lsn": value, "version": VERSION}
    if position.kind == BINLOG:
        return {**_LOG_BASED, "log_file": value[0], "log_pos": value[1], "version": VERSION}
    return {"lsn": value, "initial_full_table_complete": True}


def _oplog(token: str) -> dict[str, Any] | None:
    """The time of a resume token: after the mark 82 of its type, four bytes are seconds and four count in a second."""
    if not re.match(r"82[0-9A-Fa-f]{16}", token):
        return None
    time = {"oplog_ts_time": int(token[2:10], 16), "oplog_ts_inc": int(token[10:18], 16)}
    return {**_LOG_BASED, "initial_full_table_complete": True, **time, "version": VERSION}


def position_of(tap: str, bookmark: Any) -> OlakePosition | None:
    """The position in a bookmark of the tap, for OLake; None if OLake could not go on from this bookmark.

    A time of MongoDB's oplog is no token, and a stream of meltanolabs-tap-mongodb does not say its database.
    """
    if not isinstance(bookmark, dict) or tap not in TAPS:
        return None
    value: Any = None
    if tap == "pipelinewise-tap-mongodb":
        value = (bookmark.get("token") or {}).get("_data")
    elif tap == "meltanolabs-tap-postgres":
        value = bookmark.get(_VALUE) if bookmark.get(_KEY) == "_sdc_lsn" else None
    elif tap == "pipelinewise-tap-postgres":
        value = None if bookmark.get("xmin") else bookmark.get("lsn")
    elif TAPS[tap].kind == CDC:
        return _cdc(bookmark.get("lsn"))
    elif TAPS[tap].kind == BINLOG and "max_pk_values" not in bookmark:
        file, place = bookmark.get("log_file"), bookmark.get("log_pos")
        value = (file, place) if isinstance(file, str) and isinstance(place, int) else None
    return None if value is None else OlakePosition(TAPS[tap].kind, value)


def stream_state(position: OlakePosition) -> dict[str, Any]:
    """The position as OLake keeps it in the entry of one stream."""
    return {"_data" if position.kind == TOKEN else "lsn": position.value}


def global_state(positions: Collection[OlakePosition], server_id: int) -> dict[str, Any]:
    """The earliest of several positions as OLake keeps it for all streams of PostgreSQL, or of MySQL."""
    kinds = {position.kind for position in positions}
    assert len(kinds) == 1
    if kinds == {WAL}:
        lsn = min(position.value for position in positions)
        return {"lsn": f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"}
    file, place = min((position.value for position in positions), key=_in_binlog)
    return {"server_id": server_id, "state": {"position": {"Name": file, "Pos": place}}}


def is_common(position: OlakePosition) -> bool:
    """Whether OLake keeps one such position for all streams."""
    return position.kind in (WAL, BINLOG)


def _in_binlog(place: tuple[str, int]) -> tuple[str, int, int]:
    """Orders places: a file's number counts on beyond its six digits."""
    base, _, number = place[0].rpartition(".")
    return base, int(number) if number.isdigit() else 0, place[1]
