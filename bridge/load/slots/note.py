"""`.bridge/<pipeline>/slot.json`: how far each stream of a slot is safe in the lake, and which may have lost rows.

It is written before the slot moves, so the slot is never ahead of it. The commit log stays the truth about bookmarks:
this note says which of them the run that made them has proven.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from bridge.errors import CorruptLake
from bridge.exact_json import NotJson, dumps, loads
from bridge.lake.paths import pipeline_key
from bridge.lake.storage import Storage
from bridge.load.slots.branch import Branch, Server
from bridge.load.slots.database import lsn, text

_FORMAT = 1


@dataclass(frozen=True, slots=True)
class Safe:
    """Every change of a stream whose transaction was committed before `position` is in the lake.

    `bookmark` is the LSN of the committed bookmark that proves it; None: its snapshot may not be whole.
    """

    position: int
    bookmark: int | None


@dataclass(frozen=True, slots=True)
class Note:
    """The note that the last run with LOG_BASED streams left.

    `guarded`: its tap read copies of the slot. `exposed` streams may have lost rows: an unguarded run reads them, or
    read them and did not end cleanly; or the server was set back. Only a run that loads them from the start removes
    them from this list. `copies` were to be made of the slot; the next run drops those that are still there.
    """

    slot: str
    run: str
    guarded: bool
    streams: dict[str, Safe] = field(default_factory=dict)
    exposed: tuple[str, ...] = ()
    server: Server | None = None
    copies: tuple[str, ...] = ()


class NoteFile:
    """The note in the bucket. It is swapped by its version, so a run that was overtaken cannot change it."""

    def __init__(self, storage: Storage, pipeline: str) -> None:
        """Raises `CorruptLake` for a note that cannot be read."""
        self._storage, self._key = storage, pipeline_key(pipeline, "slot.json")
        self.uri = storage.uri
        stored = storage.read_versioned(self._key)
        self._version = stored.etag if stored else None
        self.note: Note | None = None
        if stored:
            try:
                self.note = _parsed(loads(stored.data))
            except (NotJson, KeyError, TypeError, ValueError, AttributeError) as error:
                hint = "delete it, and load the LOG_BASED streams again with --full"
                raise CorruptLake("slot.json cannot be read", hint=hint, file=self._key) from error

    def write(self, note: Note) -> bool:
        """Replace the note durably; return False, with nothing changed, if another run has written one since."""
        if note == self.note:
            return True
        version = self._storage.compare_and_swap(self._key, dumps(_to_json(note), indent=2), self._version)
        if version is None:
            return False
        self.note, self._version = note, version
        return True


def _to_json(note: Note) -> dict[str, Any]:
    streams = {
        stream: {"position": text(safe.position), "bookmark": None if safe.bookmark is None else text(safe.bookmark)}
        for stream, safe in note.streams.items()
    }
    facts = {"format": _FORMAT, "slot": note.slot, "run": note.run, "guarded": note.guarded}
    server = {"server": _server_to_json(note.server)} if note.server else {}
    return {**facts, "streams": streams, "exposed": list(note.exposed), **server, "copies": list(note.copies)}


def _server_to_json(server: Server) -> dict[str, Any]:
    branch = server.branch
    timelines = {str(timeline): text(begin) for timeline, begin in branch.timelines} if branch else {}
    facts = {"system": branch.system if branch else None, "timelines": timelines}
    return {**facts, "confirmed": text(server.confirmed), "tip": text(server.tip), "durable": text(server.durable)}


def _parsed(note: Any) -> Note:
    streams = {
        stream: Safe(lsn(safe["position"]) or 0, lsn(safe["bookmark"])) for stream, safe in note["streams"].items()
    }
    server = _parsed_server(note["server"]) if "server" in note else None
    return Note(
        note["slot"],
        note["run"],
        note["guarded"],
        streams,
        tuple(note["exposed"]),
        server,
        tuple(note.get("copies", ())),
    )


def _parsed_server(server: Any) -> Server:
    timelines = tuple((int(timeline), lsn(begin) or 0) for timeline, begin in server["timelines"].items())
    branch = Branch(server["system"], timelines) if server["system"] else None
    confirmed, tip, durable = (lsn(server[name]) or 0 for name in ("confirmed", "tip", "durable"))
    return Server(branch, confirmed, tip, durable)
