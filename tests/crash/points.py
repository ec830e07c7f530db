"""The crash points: the instants between two changes that a run makes, and their names.

Each change of the bucket or the spool has a kind, told from its key, its verb and the functions under way; a point is
where one kind of change is over and another is about to be made. The bucket is the same at every instant of a point.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol


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
    if "/pending/spool-" in event.target and "delete_files" in event.names:
        return "a segment is let go"
    path = event.target if "publish" in event.main or not event.key else event.key
    if "/pending/" in event.source or "/trash/" in path or not path.startswith(".bridge/"):
        return _of_file(event, path)
    if path.endswith("lease.json"):
        return "closing" if "close" in event.names else "the lease"
    return _of_note(event, path) if event.verb in _EFFECTS else "..."


def _of_spool(event: Event) -> str:
    if event.verb in ("os.mkdir", "os.rmdir"):
        return "..."
    if "retire" in event.names:
        return "a segment is let go"
    if "batches/" in event.target:
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
        return _RECORDS.get(record["kind"], "") or _REASONS.get(record["reason"].split(" ")[0], "a STATE")
    return next(kind for name, kind in _NOTES.items() if name in path)


_NOTES = {
    "lake.json": "the lake",
    "state.json": "state.json",
    "published.json": "the witness",
    "schemas": "the schema",
    "rejects": "the rejects",
    "streams": "what a stream is at",
}
_RECORDS = {"fence": "the fence", "data": "the commit", "void": "void"}
_REASONS = {"state.json": "an edited STATE", "staged": "a restart"}


def _of_file(event: Event, path: str) -> str:
    """Return the kind of a change to a Parquet file, pending or visible."""
    if "settle_rewrites" in event.main:
        return "a rewriting is given up" if event.verb in ("os.remove", "ABORT") else "..."
    if "publish" not in event.main:
        if event.verb in ("os.remove", "DELETE", "ABORT"):
            return "an abort"
        return "a pending file"
    if event.verb == "ABORT" or "abort" in event.names:
        return "a pending file is aborted"
    if event.verb == "DELETE":
        return "old files go"
    if "_keep_old" in event.names or event.verb == "os.link":
        return "old bytes are kept" if event.verb in ("COPY", "os.link") else "..."
    if "_rewrite" in event.names:
        return "a file is rewritten" if event.verb in ("COMPLETE", "COPY", "os.rename") else "..."
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
    """A named instant: what has happened last, and what is about to, each one of these kinds of changes.

    With one of the two it is the border of such changes: "after the fence" is not within it. `phase` is "recovery" for
    step 1 of the protocol, "void" while that takes a commit back, "run" after it. `where`: the backends that have it.
    `beside` are kinds of changes that other threads make meanwhile, in any order: as if they were not.
    """

    name: str
    after: tuple[str, ...] = ()
    before: tuple[str, ...] = ()
    phase: str = ""
    where: tuple[str, ...] = ("local", "s3")
    beside: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        """Its name in a test's id."""
        return self.name.replace(", ", "-").replace(" ", "-")

    @property
    def recovers(self) -> bool:
        """Whether it is in step 1 of the protocol."""
        return self.phase in ("recovery", "void") or self.name in _IN_RECOVERY

    @property
    def moves_files(self) -> bool:
        """Whether it matters how pending files are kept: whole, or as uploads."""
        kinds = {*self.after, *self.before} - {"a rewriting is given up", _REWRITTEN, "old bytes are kept"}
        return bool(kinds & {*_COMING, *_BACK, "a pending file", "an abort", "the commit", "void", "a restart"})

    def hit(self, last: _Step | None, coming: _Step) -> bool:
        """Return whether the instant between these two changes is this point."""
        if self.phase and (coming if self.before else last or coming).phase != self.phase:
            return False
        was, comes = last is not None and last.change in self.after, coming.change in self.before
        if self.after and self.before:
            return was and comes
        if self.after:
            return was and coming.change not in self.after
        return comes and (last is None or last.change not in self.before)


def reached(point: Point, steps: Sequence[Any]) -> bool:
    """Return whether the instant before the last of these steps is this point, as far as can be told by then."""
    last, coming = _borders(steps, point.beside)[-1]
    return coming.change not in ("...", *point.beside) and point.hit(last, coming)


def points_of(steps: Sequence[Any]) -> list[list[str]]:
    """Return the names of the points that the instant before each step is."""
    borders = {beside: _borders(steps, beside) for beside in {point.beside for point in POINTS}}
    found = []
    for at, (last, coming) in enumerate(borders[()]):
        names = [point.name for point in POINTS if point.hit(*borders[point.beside][at])]
        if last and last.phase != "run" and coming.phase == "run":
            names.append(RECOVERED.name)
        found.append(names)
    return found


def _borders(steps: Sequence[Any], beside: tuple[str, ...]) -> list[tuple[Any, Any]]:
    """Return what was last, None at first, and what comes, at the instant before each step; none of it is `beside`."""
    ignored = {"...", *beside}
    ahead: list[Any] = []
    for step in reversed(steps):
        ahead.append(step if step.change not in ignored or not ahead else ahead[-1])
    found, last = [], None
    for step, coming in zip(steps, reversed(ahead), strict=True):
        found.append((last, coming))
        last = step if step.change not in ignored else last
    return found


def _around(kind: str, *, phase: str = "", name: str = "", over: str = "after {}") -> list[Point]:
    name = name or kind
    return [Point(f"before {name}", before=(kind,), phase=phase), Point(over.format(name), after=(kind,), phase=phase)]


def _publishing(phase: str, what: str) -> list[Point]:
    """The points of step 4, in a run and when it is done again."""
    return [
        Point(f"{what}, with some files visible", _COMING, _COMING, phase),
        Point(f"{what}, with old bytes kept", ("old bytes are kept",), (), phase),
        Point(f"{what}, with some files rewritten", (_REWRITTEN,), (_REWRITTEN,), phase, beside=(_VISIBLE,)),
        Point(f"{what}, with all files rewritten", (_REWRITTEN,), (), phase, beside=(_VISIBLE,)),
        Point(f"{what}, before the exchange", (), ("the table is exchanged",), phase, ("local",)),
        Point(f"{what}, after the exchange", ("the table is exchanged",), (), phase, ("local",)),
        Point(f"{what}, new files beside old ones", (_VISIBLE,), ("a copy for the trash",), phase, ("s3",)),
        Point(f"{what}, with old files copied to the trash", ("a copy for the trash",), (_GOING,), phase, ("s3",)),
        Point(f"{what}, with some old files gone", (_GOING,), (_GOING,), phase, ("local",)),
        Point(f"{what}, before the manifest", (), ("the manifest",), phase),
        Point(f"{what}, between the manifests", ("the manifest",), ("the manifest",), phase),
        Point(f"{what}, after the manifest", ("the manifest",), (), phase),
    ]


_VISIBLE, _GOING = "a file is made visible", "old files go"
_REWRITTEN = "a file is rewritten"
_COMING = (_VISIBLE, "the table is exchanged")
_BACK = ("a pending file is aborted", "a copy for the trash", _VISIBLE, _GOING)
_IN_RECOVERY = {
    "after the fence",
    "before a rewriting is given up",
    "after a rewriting is given up",
    "before a commit is taken back",
    "after a commit is taken back",
    "before old pending files are deleted",
    "some old pending files are deleted",
    "after old pending files are deleted",
    "recovered, before the tap starts",
}
RECOVERED = Point("recovered, before the tap starts")

POINTS: list[Point] = [
    # 0. open
    *_around("the lake", name="the bucket is made a lake"),
    *_around("the lease", name="the lease is taken"),
    *_around("the fence"),
    # 1. recover
    Point("before rolling forward", (), (*_COMING, "a copy for the trash", "old bytes are kept"), "recovery"),
    *_publishing("recovery", "rolling forward"),
    *_around("state.json", phase="recovery", name="state.json is repaired"),
    *_around("the witness", phase="recovery", name="the witness of state.json is repaired"),
    *_around("a rewriting is given up"),
    *_around("void", name="a commit is taken back"),
    Point("taking back, some files done", _BACK, _BACK, "void"),
    Point("taken back, before the manifest", (), ("the manifest",), "void"),
    Point("taken back, after the manifest", ("the manifest",), (), "void"),
    *_around("an edited STATE", name="an edited STATE is recorded"),
    *_around("a restart", name="a lost staged file is recorded"),
    *_around("an abort", name="old pending files are deleted"),
    Point("some old pending files are deleted", ("an abort",), ("an abort",)),
    RECOVERED,
    # the tap runs
    *_around("the owner of a table", name="a table is claimed"),
    *_around("a segment", name="a segment is written"),
    Point("while a segment is written", ("a segment",), ("a segment",)),
    *_around("the spool is sealed", name="segments are sealed"),
    Point("while segments are sealed", ("the spool is sealed",), ("the spool is sealed",)),
    *_around("a pending file", name="pending files are written"),
    Point("while pending files are written", ("a pending file",), ("a pending file",)),
    *_around("the rejects", name="rejects are kept"),
    *_around("the schema", name="a schema is kept"),
    Point("the tap has ended, before the last commit", ("the end of the tap",), ()),
    # 2 to 8. commit
    *_around("the commit", name="the commit record"),
    *_publishing("run", "publishing"),
    *_around("state.json", phase="run"),
    *_around("the witness", phase="run", name="the witness of state.json"),
    *_around("the report"),
    *_around("a segment is let go", name="segments are let go"),
    Point("while segments are let go", ("a segment is let go",), ("a segment is let go",)),
    Point("before closing", (), ("closing",)),
    Point("while closing", ("closing",), ("closing",), where=("local",)),
]
"""All points, in the order of the protocol's steps."""
