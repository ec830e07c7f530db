"""From bookmarks to positions in PostgreSQL's log: what is certainly in the lake, and how far a slot may move.

The server sends a transaction whole, in the order of commits, if its commit is at the slot's position or after it. Its
changes are before its commit, maybe also before changes of others that were sent earlier. So the LSN of a change that
the tap sent is a safe position: all transactions committed before it were sent before it.

A bookmark need not be such an LSN. meltanolabs-tap-postgres sets it to the end of the log when nothing came for a
while, even if nothing came because the server was still reading the log of other tables: rows that it had never read
are skipped (measured: 685 MB of another table, an idle exit of 2 seconds, both rows lost). So its bookmarks count only
as far as the server had read the log for it a moment before: by now the tap has read what was in that part.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from bridge.errors import SlotError
from bridge.slots.database import lsn, text
from bridge.slots.note import Note, Safe
from bridge.tap.slot_source import Kind


def bookmark_lsn(bookmark: Any) -> int | None:
    """The LSN in a stream's bookmark, None if it has none: such a stream starts from its snapshot."""
    if not isinstance(bookmark, dict):
        return None
    value = bookmark.get("lsn", bookmark.get("replication_key_value"))
    if isinstance(value, str) and "/" in value:
        try:
            return lsn(value)
        except ValueError:
            return None
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def proven(kind: Kind, before: Safe, bookmark: int | None, sent: int) -> Safe:
    """How far a stream is safe after a commit of a bookmark. `sent`: how far the server had read for it.

    `before` is how it stood when the run began. A bookmark that is not beyond that one does not come from this run: the
    tap got an earlier one, and the rows between the two are on their way again.
    """
    if bookmark is None or before.bookmark is None:
        return before  # what changed while its snapshot was taken has to come again
    if kind != "meltanolabs":
        return Safe(max(before.position, bookmark), bookmark)
    if bookmark <= before.bookmark:
        return Safe(before.position, bookmark)
    return Safe(max(before.position, min(bookmark, sent)), bookmark)


def target(streams: Iterable[Safe]) -> int | None:
    """How far the slot may move: every stream has what was committed before. None: nowhere."""
    return min((safe.position for safe in streams), default=None)


def started(stream: str, bookmark: int | None, confirmed: int, note: Note | None, *, anew: bool) -> Safe:
    """From where a stream is safe when a run starts. Raises `SlotError` if the slot can no longer give its rows.

    `confirmed` is the slot's position, `bookmark` the stream's committed one. `anew`: the run takes a snapshot of it.
    """
    if anew or bookmark is None:
        return Safe(confirmed, None)
    noted = note.streams.get(stream) if note and note.guarded else None
    if noted and (noted.bookmark is None or bookmark >= noted.bookmark):
        if confirmed > noted.position:
            raise _refused(stream, "somebody else has moved the replication slot", noted.position, confirmed)
        return Safe(noted.position, bookmark)
    if bookmark < confirmed:
        why = "its bookmark was set back" if noted else "the tap, or somebody else, confirmed what was not committed"
        raise _refused(stream, f"the replication slot is ahead of the bookmark: {why}", bookmark, confirmed)
    return Safe(bookmark, bookmark)


def _refused(stream: str, why: str, at: int, confirmed: int) -> SlotError:
    return SlotError(why, hint=f"run with --full -s {stream}", stream=stream, position=text(at), slot=text(confirmed))
