"""The crash points: the instants between two changes that a run makes, and their names.

Each change of the bucket or the spool has a kind, told from its key, its verb and the functions under way; a point is
where one kind of change is over and another is about to be made. The bucket is the same at every instant of a point.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

__all__ = ["POINTS", "Event", "Point", "change_of", "points_of"]


@dataclass(frozen=True)
class Event:
    """A system call that changes a path, or a request. `source` differs from `target` if something moves or is copied.

    `key` and `data` are those of the storage's method under way; `names` our functions that are under way in the
    thread that makes the change, and `main` those of the main thread, innermost first.
    """

    verb: str
    source: str
    target: str
    key: str
    data: bytes | None
    names: tuple[str, ...]
    main: tuple[str, ...]


_EFFECTS = {"os.rename", "os.link", "PUT", "COPY", "COMPLETE", "os.remove", "DELETE", "ABORT"}
_OWN = (
    (".json", "the owner of a table"),
    (".manifest", "the manifest"),
    (".symlinks/manifest", "the manifest"),
)


def change_of(event: Event) -> str:
    """Return the kind of change. What only prepares one (a folder, a temporary file) is `...`."""
    if event.target.startswith("spool:"):
        return _of_spool(event)
    if event.verb == "ctypes.dlsym":
        return "the table is exchanged"
    path = event.target if "publish" in event.main or not event.key else event.key
    if "/pending/" in event.source or "/trash/" in path or not path.startswith(".bridge/"):
        return _of_file(event, path)
    if path.endswith("lease.json"):
        return "closing" if "close" in event.names else "the lease"
    return _of_note(event, path) if event.verb in _EFFECTS else "..."


def _of_spool(event: Event) -> str:
    if "retire" in event.names:
        return "a segment is let go"
    if "/manifests/" in event.target or "manifests" in event.target:
        return "the spool is sealed"
    return "a segment"


def _of_note(event: Event, path: str) -> str:
    """Return the kind of a change to one of the lake's small files."""
    if event.verb == "os.remove":
        return "..."  # its temporary file
    if path.startswith(".bridge/tables/"):
        return next(kind for end, kind in _OWN if path.endswith(end))
    if "/commits/" in path:
        record = json.loads(event.data or b"{}")
        return _RECORDS.get(record["kind"], "") or _REASONS[record["reason"].split(" ")[0]]
    names = {"lake.json": "the lake", "state.json": "state.json", "schemas": "the schema", "rejects": "the rejects"}
    return next(kind for name, kind in names.items() if name in path)


_RECORDS = {"fence": "the fence", "data": "the commit", "void": "void"}
_REASONS = {"state.json": "an edited STATE", "staged": "a restart"}


def _of_file(event: Event, path: str) -> str:
    """Return the kind of a change to a Parquet file, pending or visible."""
    if "publish" not in event.main:
        if event.verb in ("os.remove", "DELETE", "ABORT"):
            return "an abort"
        return "a pending file"
    if event.verb == "ABORT" or "abort" in event.names:
        return "a pending file is aborted"
    if event.verb == "DELETE":
        return "old files go"
    if event.verb == "COPY" and "/trash/" in event.target:
        return "a copy for the trash"
    if event.verb == "os.rename" and "/pending/" not in event.source:
        put_back = "/trash/" in event.source and "/trash/" not in event.target
        return "a file is made visible" if put_back else "old files go"
    return "a file is made visible" if event.verb in ("os.rename", "COPY", "COMPLETE") else "..."


class _Step(Protocol):
    change: str
    phase: str


@dataclass(frozen=True)
class Point:
    """A named instant. `after` and `before` are kinds of changes, any if empty; `where`: the backends that have it.

    `phase` is "recovery" for step 1 of the protocol, "void" while it takes a commit back, "run" after it.
    """

    name: str
    after: tuple[str, ...] = ()
    before: tuple[str, ...] = ()
    phase: str = ""
    where: tuple[str, ...] = ("local", "s3")

    def hit(self, last: _Step | None, coming: _Step | None) -> bool:
        """Return whether the instant between these two changes is this point."""
        if self.phase and not (coming and coming.phase == self.phase):
            return False
        return _fits(self.after, last) and _fits(self.before, coming)


def _fits(kinds: tuple[str, ...], step: _Step | None) -> bool:
    return not kinds or (step is not None and step.change in kinds)


def points_of(steps: Sequence[Any]) -> list[list[str]]:
    """Return the names of the points that each instant before a step is."""
    found = []
    last: Any = None
    ahead: list[Any] = [None] * len(steps)
    coming: Any = None
    for number in range(len(steps) - 1, -1, -1):
        coming = steps[number] if steps[number].change != "..." else coming
        ahead[number] = coming
    for number, step in enumerate(steps):
        found.append([point.name for point in POINTS if point.hit(last, ahead[number])])
        last = step if step.change != "..." else last
    return found


POINTS: list[Point] = []
