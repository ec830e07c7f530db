"""Which server the bookmarks in a binary log are from: MySQL's or MariaDB's, read by pipelinewise-tap-mysql.

A bookmark names a file and a place in it. After RESET MASTER, a restore or a failover, a server may have another file
of the same name, and the tap would go on in the middle of it. `.bridge/<pipeline>/binlog.json` notes by stream which
server its bookmark is from. A run whose server is another one is refused, unless the tap goes on from GTIDs.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from bridge.errors import CorruptLake, SlotError
from bridge.exact_json import NotJson, dumps, loads
from bridge.lake.log import Snapshot
from bridge.lake.paths import pipeline_key
from bridge.settings.commands import reload
from bridge.settings.options import Pipeline
from bridge.singer.state import bookmark
from bridge.slots import ask_mysql
from bridge.storage import Storage
from bridge.tap.installed import tap_package
from bridge.tap.slot_source import tap_settings

_TAP = "pipelinewise-tap-mysql"
_SECONDS = 60
"""How long the server may take to answer."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where in which server's log a stream's bookmark is. `gtid`: MariaDB's last transaction before it."""

    server: str
    file: str = ""
    position: int = 0
    gtid: str | None = None


@dataclass(frozen=True, slots=True)
class Binlog:
    """What the server says of its log. `error`: why it says nothing."""

    server: str = ""
    sizes: dict[str, int] = field(default_factory=dict)
    gtids: dict[tuple[str, int], str | None] = field(default_factory=dict)
    error: str = ""

    def place(self, mark: tuple[str, int] | None) -> Place:
        """A bookmark's place in this log."""
        return Place(self.server, *mark, self.gtids.get(mark)) if mark else Place(self.server)

    def refusal(self, mark: tuple[str, int], noted: Place | None) -> str:
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
    program: str
    storage: Storage
    view: Snapshot
    streams: list[str]
    full: bool
    server: str = ""

    @property
    def marks(self) -> dict[str, tuple[str, int] | None]:
        """By stream, the file and the position of its committed bookmark."""
        return places(self.view.state, self.streams)

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
        mark = bookmark(self.view.state, stream)
        return bool(tap_settings(self.pipeline).get("use_gtid") and isinstance(mark, dict) and mark.get("gtid"))

    def _ask(self, marks: dict[str, tuple[str, int] | None]) -> Binlog:
        asked = {"config": tap_settings(self.pipeline), "positions": sorted({mark for mark in marks.values() if mark})}
        facts = ask_server(self.program, asked)
        if "error" in facts:
            return Binlog(error=facts["error"])
        gtids = {(file, place): gtid for file, place, gtid in facts["gtids"]}
        return Binlog(facts["server"], facts["sizes"], gtids)

    def _read(self) -> dict[str, Place]:
        stored = self.storage.read_versioned(self._key)
        if not stored:
            return {}
        try:
            return {stream: Place(**place) for stream, place in loads(stored.data)["streams"].items()}
        except (NotJson, KeyError, TypeError, AttributeError) as error:
            hint = f"delete it, then {reload(self.pipeline, self.streams)}"
            raise CorruptLake("binlog.json cannot be read", hint=hint, file=self._key) from error

    def _write(self, streams: dict[str, Place]) -> None:
        stored = self.storage.read_versioned(self._key)
        note = {"format": 1, "streams": {stream: asdict(place) for stream, place in sorted(streams.items())}}
        self.storage.compare_and_swap(self._key, dumps(note, indent=2), stored.etag if stored else None)


def binlog_guard(
    pipeline: Pipeline, argv: Sequence[str], storage: Storage, view: Snapshot, streams: list[str], *, full: bool
) -> BinlogGuard | None:
    """The guard of a run of LOG_BASED `streams`, None if its tap reads no binary log that we know."""
    if not streams or not reads_mysql(argv):
        return None
    return BinlogGuard(pipeline, argv[0], storage, view, streams, full)


def reads_mysql(argv: Sequence[str]) -> bool:
    """Whether the tap is one of MySQL and MariaDB that we know."""
    return tap_package(argv[0])[0].lower() == _TAP


def ask_server(program: str, asked: dict[str, Any]) -> dict[str, Any]:
    """What `ask_mysql` answers, started by the Python of the tap; `error` says why there is no answer."""
    argv, limit = [_python(program), ask_mysql.__file__], _SECONDS + int(asked.get("whole", 0))
    try:
        ended = subprocess.run(argv, input=dumps(asked), capture_output=True, timeout=limit, check=True)
        return dict(loads(ended.stdout))
    except (OSError, subprocess.SubprocessError, NotJson, TypeError, ValueError) as error:
        return {"error": f"{type(error).__name__}: {error}"}


def _python(program: str) -> str:
    """The Python beside the tap's program, which has its driver; otherwise ours, which may have one."""
    place = Path(shutil.which(program) or program)
    with suppress(OSError):
        for folder in (place.parent, place.resolve().parent):
            if (python := folder / "python").is_file():
                return str(python)
    return sys.executable
