"""`streams/<stream>.json`: each stream's bookmark and table, for people and other programs. Derived: no run reads it.

It is written after each commit, of the streams that the commit changed, and says as of which commit it is true. If it
cannot be written, the commit stands, and the next one tries again. What a killed run did not write, the next opening
does. A run that was suspended right before it wrote, and replaced meanwhile, may leave an older file until the stream
changes again; `verify` reports it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from bridge.errors import LakeError
from bridge.exact_json import NotJson, dumps, loads
from bridge.lake.log import Log, Snapshot, bookmarks
from bridge.lake.paths import pipeline_key
from bridge.lake.records import CommitRecord, TableState
from bridge.lake.storage import Storage
from bridge.lake.storage.parallel import parallel_map
from bridge.protocol.singer.catalog import (
    Catalog,
    StreamEntry,
    is_selected,
    record_name,
    replication_method,
    stream_id,
)
from bridge.protocol.singer.state import bookmark
from bridge.protocol.singer.state_edits import same


def _selected_last(catalog: Catalog | None) -> list[StreamEntry]:
    """The entries of a catalog; of several with one record name the selected one counts."""
    return sorted(catalog["streams"], key=is_selected) if catalog else []


@dataclass(frozen=True, slots=True)
class Replication:
    """A stream's id and replication method, as a catalog says them; None: nobody says."""

    id: str
    method: str | None = None


def _declared(entry: StreamEntry) -> Replication:
    return Replication(stream_id(entry), replication_method({"streams": [entry]}, stream_id(entry)))


def stream_file(pipeline: str, table: TableState) -> str:
    """The key of a stream's file, which is named as its table's folder."""
    return pipeline_key(pipeline, "streams", f"{table.folder.rsplit('/', 1)[-1]}.json")


def read_stream(storage: Storage, pipeline: str, table: TableState) -> dict[str, Any]:
    """The facts in a stream's file; empty if there is none, or if it cannot be read."""
    try:
        facts = loads(storage.read(stream_file(pipeline, table)) or b"{}")
    except NotJson:
        return {}
    return facts if isinstance(facts, dict) else {}


def replication_of(facts: Mapping[str, Any], stream: str) -> Replication:
    """A stream's replication, as its file says it."""
    method = facts.get("replication_method")
    return Replication(str(facts.get("tap_stream_id") or stream), str(method) if method else None)


def replication_methods(log: Log, snapshot: Snapshot) -> dict[str, str | None]:
    """The replication methods that the stream files say, by each name of a stream."""
    methods = dict[str, str | None]()
    for stream, table in snapshot.stream_tables.items():
        replication = replication_of(read_stream(log.storage, log.pipeline, table), stream)
        methods |= dict.fromkeys((replication.id, stream), replication.method)
    return methods


def wrong_facts(facts: Mapping[str, Any], snapshot: Snapshot, stream: str) -> list[str]:
    """The keys of a stream's file that are not true of this view."""
    table = snapshot.tables[stream]
    names = (replication_of(facts, stream).id, stream)
    expected = {"bookmark": bookmark(snapshot.state, names), "rows": table.rows, "files": len(table.files)}
    return [name for name, value in expected.items() if not same(facts.get(name), value)]


class StreamFiles:
    """Keeps the stream files of one pipeline true, for its writer. `late`: streams whose file could not be written."""

    def __init__(self, log: Log, snapshot: Snapshot, catalog: Catalog | None = None) -> None:
        """`snapshot` is the lake that the files show. `catalog`: what the tap is given, else what it declares.

        Where there is neither, what a stream's file says counts.
        """
        self._log, self._view = log, snapshot
        self._replication = {record_name(each): _declared(each) for each in _selected_last(catalog)}
        self.late: set[str] = set()

    def follow(self, snapshot: Snapshot, record: CommitRecord | None = None) -> None:
        """Write the files of the streams that changed since the last call. What fails is tried again by the next one.

        `record` is the last commit that is no fence; it is read if it is absent.
        """
        with suppress(LakeError):
            self.late |= self._changed(self._view, snapshot)
            self._view = snapshot
            self.write(snapshot, self.late, record)
            self.late = set()

    def mend(self) -> None:
        """Write the files that are not true, as after a run that was killed."""
        log, snapshot, streams = self._log, self._view, sorted(self._view.stream_tables)
        with suppress(LakeError):
            facts = parallel_map(
                log.storage, lambda s: read_stream(log.storage, log.pipeline, snapshot.tables[s]), streams
            )
            self.write(snapshot, [s for s, each in zip(streams, facts, strict=True) if wrong_facts(each, snapshot, s)])

    def _changed(self, before: Snapshot, after: Snapshot) -> set[str]:
        marks = {**bookmarks(before.state), **bookmarks(after.state)}
        has_ids = not marks.keys() <= after.stream_tables.keys()
        changed = set[str]()
        for stream, table in after.stream_tables.items():
            names = (self._of(after, stream).id, stream) if has_ids else (stream,)
            old = before.tables.get(stream)
            moved = bookmark(before.state, names) != bookmark(after.state, names)
            if moved or (table is not old and table != old):
                changed.add(stream)
        return changed

    def write(self, snapshot: Snapshot, streams: Collection[str], record: CommitRecord | None = None) -> None:
        """Write the files of these streams; `record` as in `follow`.

        Raises `LakeError`.
        """
        existing = sorted(set(streams) & snapshot.stream_tables.keys())
        if not existing:
            return
        log, last = self._log, record or self._log.record(snapshot.last_change)
        commit = {"commit": snapshot.last_change, "run": last.run if last else None, "at": last.at if last else None}

        def facts_of(stream: str) -> dict[str, Any]:
            table, replication = snapshot.tables[stream], self._of(snapshot, stream)
            return {
                "format": 1,
                "stream": stream,
                "tap_stream_id": replication.id,
                "bookmark": bookmark(snapshot.state, (replication.id, stream)),
                "replication_method": replication.method,
                "rows": table.rows,
                "files": len(table.files),
                "schema": table.schema,
                **commit,
            }

        files = {stream_file(log.pipeline, snapshot.tables[stream]): facts_of(stream) for stream in existing}
        log.storage.write_all({key: dumps(facts, indent=2) for key, facts in files.items()})

    def _of(self, snapshot: Snapshot, stream: str) -> Replication:
        if stream not in self._replication:
            facts = read_stream(self._log.storage, self._log.pipeline, snapshot.tables[stream])
            self._replication[stream] = replication_of(facts, stream)
        return self._replication[stream]
