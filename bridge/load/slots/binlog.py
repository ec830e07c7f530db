"""Which server the bookmarks in a binary log are from: MySQL's or MariaDB's, read by pipelinewise-tap-mysql.

A bookmark names a file and a place in it. After RESET MASTER, a restore or a failover, a server may have another file
of the same name, and the tap would go on in the middle of it. `.bridge/<pipeline>/binlog.json` notes by stream which
server its bookmark is from. A run whose server is another one is refused, unless the tap goes on from GTIDs.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import asdict, dataclass, field
from typing import Any

from bridge.errors import CorruptLake, SlotError
from bridge.exact_json import NotJson, dumps, loads
from bridge.lake.log import Snapshot
from bridge.lake.paths import pipeline_key
from bridge.lake.storage import Storage
from bridge.load.tap.database.connection import NotAsked
from bridge.load.tap.database.source_database import SourceDatabase
from bridge.load.tap.slot_source import tap_settings
from bridge.protocol.singer.state import bookmark
from bridge.settings.commands import reload
from bridge.settings.options import Pipeline

_SECONDS = 30
"""How long the server may take to answer."""
_RIGHT = "the server does not show its binary logs to the tap's user, who needs the right REPLICATION CLIENT"


@dataclass(frozen=True, slots=True)
class BinlogPlace:
    """Where in which server's log a stream's bookmark is. `gtid`: MariaDB's last transaction before it."""

    server: str
    file: str = ""
    position: int = 0
    gtid: str | None = None


@dataclass(frozen=True, slots=True)
class Binlog:
    """The server's answer about its log. `error`: why there is none."""

    server: str = ""
    sizes: dict[str, int] = field(default_factory=dict)
    gtids: dict[tuple[str, int], str | None] = field(default_factory=dict)
    error: str = ""

    def place(self, mark: tuple[str, int] | None) -> BinlogPlace:
        """A bookmark's place in this log."""
        return BinlogPlace(self.server, *mark, self.gtids.get(mark)) if mark else BinlogPlace(self.server)

    def refusal(self, mark: tuple[str, int], noted: BinlogPlace | None) -> str:
        """Why a bookmark is not from this log; empty if it may be."""
        file, position = mark
        if noted and noted.server != self.server:
            return f"the bookmark is from another server ({noted.server}, now {self.server})"
        if file not in self.sizes:
            return f"the server no longer has the binary log {file}: it was purged, or the server was reset or restored"
        if position > self.sizes[file]:
            return f"the binary log {file} ends before the bookmark: the server was reset or restored"
        now = self.place(mark)
        if noted and noted.gtid is not None and (noted.file, noted.position) == mark and now.gtid != noted.gtid:
            return f"the binary log {file} has other transactions than the bookmark: the server was reset or restored"
        return ""


def places(state: Any, streams: Collection[str]) -> dict[str, tuple[str, int] | None]:
    """By stream, the file and the position of its bookmark; None: it has none."""
    marks = {stream: bookmark(state, stream) for stream in streams}
    return {stream: _place(mark) if isinstance(mark, dict) else None for stream, mark in marks.items()}


def _place(mark: dict[str, Any]) -> tuple[str, int] | None:
    file, position = mark.get("log_file"), mark.get("log_pos")
    return (file, position) if isinstance(file, str) and isinstance(position, int) else None


@dataclass(slots=True)
class BinlogGuard:
    """One run's note of the server. `view` is the last commit."""

    pipeline: Pipeline
    database: SourceDatabase
    storage: Storage
    snapshot: Snapshot
    streams: list[str]
    full: bool
    server: str = ""

    @property
    def marks(self) -> dict[str, tuple[str, int] | None]:
        """By stream, the file and the position of its committed bookmark."""
        return places(self.snapshot.state, self.streams)

    @property
    def _key(self) -> str:
        return pipeline_key(self.pipeline.name, "binlog.json")

    def begin(self) -> list[str]:
        """Compare server and bookmarks, and note the server; return warnings. Raises `SlotError` if rows are lost."""
        marks, noted = self.marks, self._read()
        log = self._ask(marks)
        if log.error:
            return [f"the server of the binary log is not compared with that of the last run: {log.error}"]
        self.server = log.server
        by_gtid = {s for s in marks if self._uses_gtid(s)}
        reasons = {
            stream: reason
            for stream, mark in marks.items()
            if mark and stream not in by_gtid and (reason := log.refusal(mark, noted.get(stream)))
        }
        if reasons and not self.full:
            hint = f"its rows can no longer be followed; load again: {reload(self.pipeline, list(reasons))}"
            raise SlotError(next(iter(reasons.values())), hint=hint, stream=next(iter(reasons)))
        # A full run that dies leaves the old bookmark, so the note of another server stays until one has ended.
        self._write(noted | {s: log.place(mark) for s, mark in marks.items() if s not in reasons})
        return []

    def close(self, *, ended: bool) -> list[str]:
        """Note where the committed bookmarks are. `ended`: the tap ended well and all of it is committed."""
        if not self.server or (self.full and not ended):
            return []
        marks = self.marks
        log = self._ask(marks)
        if log.error:
            return []
        if log.server != self.server:
            return [f"the server changed during the run: it was {self.server}, now {log.server}"]
        self._write(self._read() | {stream: log.place(mark) for stream, mark in marks.items()})
        return []

    def _uses_gtid(self, stream: str) -> bool:
        mark = bookmark(self.snapshot.state, stream)
        return bool(tap_settings(self.pipeline).get("use_gtid") and isinstance(mark, dict) and mark.get("gtid"))

    def _ask(self, marks: dict[str, tuple[str, int] | None]) -> Binlog:
        try:
            with self.database:
                return _binlog(self.database, sorted({mark for mark in marks.values() if mark}))
        except NotAsked as reason:
            return Binlog(error=str(reason))

    def _read(self) -> dict[str, BinlogPlace]:
        stored = self.storage.read_versioned(self._key)
        if not stored:
            return {}
        try:
            return {stream: BinlogPlace(**place) for stream, place in loads(stored.data)["streams"].items()}
        except (NotJson, KeyError, TypeError, AttributeError) as error:
            hint = f"delete it, then {reload(self.pipeline, self.streams)}"
            raise CorruptLake("binlog.json cannot be read", hint=hint, file=self._key) from error

    def _write(self, streams: dict[str, BinlogPlace]) -> None:
        stored = self.storage.read_versioned(self._key)
        note = {"format": 1, "streams": {stream: asdict(place) for stream, place in sorted(streams.items())}}
        self.storage.compare_and_swap(self._key, dumps(note, indent=2), stored.etag if stored else None)


def binlog_guard(
    pipeline: Pipeline,
    database: SourceDatabase,
    storage: Storage,
    snapshot: Snapshot,
    streams: list[str],
    *,
    full: bool,
) -> BinlogGuard | None:
    """The guard of a run of LOG_BASED `streams`, None if its tap reads no binary log that we know."""
    if not streams or database.kind != "mysql":
        return None
    return BinlogGuard(pipeline, database, storage, snapshot, streams, full)


def _binlog(database: SourceDatabase, positions: Collection[tuple[str, int]]) -> Binlog:
    """Ask the server about its log, and about these positions in it. Raises `NotAsked`."""
    mariadb, mysql = "select @@global.server_id, @@global.gtid_domain_id", "select @@global.server_uuid"
    statements = ("select version()", mariadb, mysql, "show binary logs")
    version, own, other, files = database.ask([(sql, []) for sql in statements], each=_SECONDS, whole=_SECONDS)
    kind, who = ("mariadb", own) if "mariadb" in str(version).lower() else ("mysql", other)
    if not who or files is None:
        raise NotAsked(_RIGHT)
    sizes = {str(name): int(size) for name, size, *_ in files}
    existing = [(file, place) for file, place in positions if kind == "mariadb" and place <= sizes.get(file, -1)]
    queries = [("select binlog_gtid_pos(%s, %s)", list(mark)) for mark in existing]
    answers = database.ask(queries, each=_SECONDS, whole=_SECONDS) if queries else []
    gtids = {mark: answer[0][0] for mark, answer in zip(existing, answers, strict=True) if answer}
    return Binlog(f"{kind} {' '.join(map(str, who[0]))}", sizes, gtids)
