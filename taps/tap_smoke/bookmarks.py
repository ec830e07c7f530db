"""Where a stream resumes, and what it says about that in STATE: one class per habit of real taps.

Each is made from the bookmark of the last run and answers `first` (the first record number of this run), `version`,
`middle(n)` (the bookmark while record n is the last one sent) and `end(n)` (once the stream is through).
"""

from __future__ import annotations

from typing import Any, Protocol

from tap_smoke.records import REPLICATION_KEY
from tap_smoke.settings import StreamSettings, TapError

# constant, so that a seed gives the same bytes; real taps put the time of the run here
SIGNPOST = "2025-01-01T00:00:00+00:00"
NOTE = "Progress is not resumable if interrupted."


class Bookmark(Protocol):
    """The questions that every habit answers."""

    first: int
    version: int | None

    def middle(self, last: int) -> dict[str, Any]:
        """The bookmark while `last` is the last record sent in this run."""

    def end(self, last: int) -> dict[str, Any]:
        """The bookmark at the stream's end; `last` is 0 if this run sent no record."""


class Incremental:
    """Sorted by the replication key: every bookmark is exact, a cut run loses and repeats nothing."""

    def __init__(self, stream: StreamSettings, old: dict[str, Any]) -> None:
        self.version = stream.version
        self.old = _plain(stream, old)
        value = self.old.get("replication_key_value", 0)
        # >= sends the record at the bookmark again
        self.first = max(value, 1) if stream.inclusive else value + 1

    def middle(self, last: int) -> dict[str, Any]:
        """The bookmark while `last` is the last record sent in this run."""
        return _at(last)

    def end(self, last: int) -> dict[str, Any]:
        """The bookmark at the stream's end; `last` is 0 if this run sent no record."""
        return _at(last) if last else self.old


class Unsorted(Incremental):
    """An unsorted SDK stream: until its end the old bookmark stands, with progress markers nobody may resume from."""

    def middle(self, last: int) -> dict[str, Any]:
        """The old bookmark plus markers for `last`."""
        starting = self.old.get("replication_key_value")
        markers = {"Note": NOTE, **_at(last)}
        signs = {"replication_key_signpost": SIGNPOST, "starting_replication_value": starting}
        return {**self.old, **signs, "progress_markers": markers}


class FullTable:
    """Starts over each time; its bookmark is empty in the middle and at the end."""

    def __init__(self, stream: StreamSettings) -> None:
        self.first = 1
        self.version = stream.version

    def middle(self, last: int) -> dict[str, Any]:
        """Empty."""
        return {}

    def end(self, last: int) -> dict[str, Any]:
        """Empty."""
        return {}


class Resumable:
    """A versioned full table: a cut run is continued under its version, a finished one is followed by the next."""

    def __init__(self, stream: StreamSettings, old: dict[str, Any]) -> None:
        version = _integer(stream, old, "version", stream.version)
        cut = "last_pk_fetched" in old
        self.first = _integer(stream, old, "last_pk_fetched", 0) + 1
        self.version: int | None = version + 1 if old and not cut else version

    def middle(self, last: int) -> dict[str, Any]:
        """The version under way and the last key."""
        return {"version": self.version, "last_pk_fetched": last}

    def end(self, last: int) -> dict[str, Any]:
        """The version that is complete."""
        return {"version": self.version}


def resume(stream: StreamSettings, method: str, old: Any) -> Bookmark:
    """The habit these settings ask for, at the place where the old bookmark says."""
    if old is None:
        old = {}
    if not isinstance(old, dict):
        raise TapError(f"stream {stream.name}: its bookmark in the state is not an object")
    if method == "FULL_TABLE":
        return Resumable(stream, old) if stream.resumable else FullTable(stream)
    return Unsorted(stream, old) if stream.progress_markers else Incremental(stream, old)


def _plain(stream: StreamSettings, old: dict[str, Any]) -> dict[str, Any]:
    """The part of an old bookmark that may be resumed from: markers of a run that was cut are wiped."""
    if "replication_key_value" not in old:
        return {}
    return _at(_integer(stream, old, "replication_key_value", 0))


def _at(number: int) -> dict[str, Any]:
    return {"replication_key": REPLICATION_KEY, "replication_key_value": number}


def _integer(stream: StreamSettings, old: dict[str, Any], key: str, default: int | None) -> int:
    value = old.get(key, default)
    if not isinstance(value, int) or isinstance(value, bool):
        raise TapError(f"stream {stream.name}: {key} in the state is not a whole number")
    return value
