"""From bookmarks to positions in PostgreSQL's log: what is certainly in the lake, and how far a slot may move.

The server sends whole transactions, in the order of their commits: those whose commit is at the slot's position or
after it. In the log, the changes of a transaction stand before its commit, perhaps also before changes of transactions
that were sent earlier. So the LSN of a change that the tap sent is a safe position: all transactions that were
committed before it were sent before it.

A bookmark need not be such an LSN. If nothing comes for a while, meltanolabs-tap-postgres sets it to the end of the
log. But perhaps nothing came because the server was still reading the log of other tables. Then rows are skipped that
the tap never got (measured: 685 MB of another table, an idle exit of 2 seconds, both rows lost). So its bookmarks count
only as far as the server had read the log for it a moment before: what was in that part has reached the tap by now.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from typing import Any

from bridge.errors import SlotError
from bridge.load.slots.database import lsn, text
from bridge.load.slots.note import Note, Safe
from bridge.load.tap.slot_source import Kind


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

    `before`: how far it was safe when the run began. A bookmark that is not beyond that of `before` is not from this
    run: the tap started at an earlier one, and sends the rows between the two again.
    """
    if bookmark is None or before.bookmark is None:
        return before  # what changed while its snapshot was taken has to come again
    if kind != "meltanolabs":
        return Safe(max(before.position, bookmark), bookmark)
    if bookmark <= before.bookmark:
        return Safe(before.position, bookmark)
    return Safe(max(before.position, min(bookmark, sent)), bookmark)


def target(streams: Iterable[Safe]) -> int | None:
    """How far the slot may move: all streams have what was committed before. None: it stays where it is."""
    return min((safe.position for safe in streams), default=None)


def started(stream: str, bookmark: int | None, confirmed: int, note: Note | None, *, snapshot: bool) -> Safe:
    """From where a stream is safe when a run starts. Raises `SlotError` if the slot can no longer give its rows.

    `confirmed`: the slot's position; `bookmark`: the stream's committed one. `snapshot`: the run takes one of it.
    """
    if snapshot or bookmark is None:
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
    return SlotError(
        why, hint=f"run with --full -s {shlex.quote(stream)}", stream=stream, position=text(at), slot=text(confirmed)
    )
