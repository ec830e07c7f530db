"""Die, or stand still, at the k-th step: real signals in a real process, a child that is forked for one run.

A *step* is the instant before a change: of the bucket's folder, of the spool, or by a request to S3. A file that is
created or truncated has a second one, at which it is torn: its bytes were being written. Each step is noted in a pipe
before it is taken, so that a killed process has told how far it came.
"""

from __future__ import annotations

import errno
import gc
import os
import re
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from tests.support.syscalls import CHANGES, changed_paths, tear

from .points import Event, Point, change_of, reached


@dataclass(frozen=True)
class Fault:
    """What happens at which step, counted from 0: SIGKILL or SIGSTOP; None for never. Or when it comes by a `point` for
    the `nth` time: at which step that is may depend on how threads take turns.

    `reads` counts requests that only look, and the instant after each request: a process that is stopped between a
    look and a change wakes up with what it saw.
    """

    at: int | None = None
    by: signal.Signals = signal.SIGKILL
    reads: bool = False
    full: bool = False
    """The disk is full from that step on, instead: nothing can be created any more."""
    point: Point | None = None
    nth: int = 1


@dataclass(frozen=True)
class _Step:
    change: str
    phase: str


@dataclass
class Watcher:
    """Counts the steps of this process. `note` is told each one: the change, the phase, and its path.

    `tell` is for what the work itself has to say.
    """

    lake: str
    scratch: Path
    fault: Fault
    note: Callable[[str, str, str], None]
    tell: Callable[[str], None]
    count: int = 0
    _voiding: bool = False
    _taken: list[_Step] = field(default_factory=list)
    _passed: int = 0
    _lock: Any = field(default_factory=threading.Lock)
    _inside: Any = field(default_factory=threading.local)

    def arm(self) -> None:
        """See every change from now on, for good: this process was made for it."""
        # A collection within `sys._current_frames` may let another thread start or end, and Python up to 3.11.8 and
        # 3.12.2 then stands still forever (its issue 106883).
        gc.disable()
        sys.addaudithook(self._audit)
        if see := SEERS.get(self.lake.partition("://")[0]):
            see(self)

    def mark(self, name: str) -> None:
        """Take a step that changes nothing: an instant which has a name."""
        self._step(name, name)

    def _step(self, change: str, path: str, damage: Callable[[], None] | None = None) -> None:
        phase = "recovery" if _in_main_thread("open_committer", "lake/commit/open.py") else "run"
        with self._lock:
            phase = "void" if self._voiding and phase == "recovery" else phase
            self.note(change, phase, path)
            self._voiding = self._voiding or change == "void"
            self.count += 1
            if self.fault.full:
                return
            if self._is_due(_Step(change, phase)):
                if damage:
                    damage()
                # To this very thread: it must not take one more step while another one is stopped first.
                signal.pthread_kill(threading.get_ident(), self.fault.by)

    def _is_due(self, step: _Step) -> bool:
        if self.fault.point is None:
            return self.count - 1 == self.fault.at
        self._taken.append(step)
        if not reached(self.fault.point, self._taken):
            return False
        self._passed += 1
        return self._passed == self.fault.nth

    # files

    def _audit(self, event: str, args: tuple[Any, ...]) -> None:
        if event not in CHANGES or getattr(self._inside, "hook", False):
            return
        self._inside.hook = True  # what the hook does itself is not the process's doing
        try:
            self._see(event, args)
        finally:
            self._inside.hook = False

    def _see(self, event: str, args: tuple[Any, ...]) -> None:
        paths = changed_paths(event, args)
        keys = [key for key in map(self._key, paths) if key]
        if not keys:
            return
        frame = sys._getframe(2)
        names = _names(frame)
        if keys[-1].startswith("spool:") and event in ("os.remove", "os.rmdir") and "retire" not in names:
            return  # what an earlier run left in the spool: more or less of it
        change = change_of(Event(event, keys[0], keys[-1], *_call(frame), names, _names(_main_frame())))
        self._step(change, keys[-1])
        if self.fault.full and self.count > (self.fault.at or 0) and event in ("open", "os.mkdir"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        new = event == "open" and not os.path.exists(paths[0])
        if (new or event == "os.truncate") and self.fault.by == signal.SIGKILL:
            self._step(change, f"{keys[-1]} (torn)", partial(tear, paths[0]))

    def _key(self, path: str) -> str:
        """Return a path below the bucket, or below `spool:`; nothing if it is elsewhere."""
        for root, prefix in ((self.scratch, "spool:"), (Path(self.lake), "")):
            if path == "renameat2" or Path(path).is_relative_to(root):
                return path if path == "renameat2" else f"{prefix}{Path(path).relative_to(root)}"
        return ""

    # requests

    def see_requests(self) -> None:
        """See those of boto3."""
        from botocore.httpsession import URLLib3Session

        send = URLLib3Session.send

        def seen(session: Any, request: Any) -> Any:
            return self.sent(*_of_s3(request), lambda: send(session, request))

        URLLib3Session.send = seen

    def sent(self, verb: str, source: str, target: str, send: Callable[[], Any]) -> Any:
        """Take the steps of a request, whose objects are named by container and key, and send it."""
        change, path = self._request(verb, source, target)
        counted = change and (self.fault.reads or verb not in ("GET", "HEAD"))
        if counted:
            self._step(change, path)
        answer = send()
        if counted and self.fault.reads:
            self._step(f"after {change}", path)
        return answer

    def _request(self, verb: str, source: str, target: str) -> tuple[str, str]:
        """Return the change that a request makes, `look` for one that makes none, nothing for what is not ours."""
        bucket = urlsplit(self.lake)
        key, source = (name.removeprefix(f"{bucket.netloc}{bucket.path}").lstrip("/") for name in (target, source))
        frame = sys._getframe(3)
        _, data = _call(frame)
        if key.endswith("lease.json") and threading.current_thread() is not threading.main_thread():
            return "", key  # it is renewed by a clock
        event = Event(verb, source, key, key, data, _names(frame), _names(_main_frame()))
        return ("look" if verb in ("GET", "HEAD") else change_of(event)), f"{verb} {key}"


SEERS: dict[str, Callable[[Watcher], None]] = {"s3": Watcher.see_requests}
"""What sees the requests to a store, by the scheme of a lake's URI; tests/interop adds more."""


def _of_s3(request: Any) -> tuple[str, str, str]:
    url = urlsplit(request.url)
    verb, target = _verb(request, parse_qs(url.query, keep_blank_values=True)), unquote(url.path).lstrip("/")
    source = unquote(request.headers["x-amz-copy-source"].decode()).lstrip("/") if verb == "COPY" else target
    return verb, source, target


def _verb(request: Any, query: dict[str, Any]) -> str:
    if request.method == "PUT":
        if "x-amz-copy-source" in request.headers:
            return "COPY"
        return "PART" if "partNumber" in query else "PUT"
    if request.method == "POST":
        return "CREATE" if "uploads" in query else "COMPLETE" if "uploadId" in query else "DELETE"
    if request.method == "DELETE":
        return "ABORT" if "uploadId" in query else "DELETE"
    return str(request.method)


_OURS = re.compile(r"/bridge/(\w+/)*\w+\.py$")


def _call(frame: FrameType | None) -> tuple[str, bytes | None]:
    """Return the key and the bytes of the storage's method that is under way, which a temporary file does not show."""
    key, data = "", None
    while frame is not None:
        if "/bridge/lake/storage/" in frame.f_code.co_filename:
            own = frame.f_locals
            if isinstance(own.get("key"), str):
                key = own["key"]
            if data is None and isinstance(own.get("data"), bytes):
                data = own["data"]
        frame = frame.f_back
    return key, data


def _names(frame: FrameType | None) -> tuple[str, ...]:
    """Return the functions of ours that are under way, innermost first."""
    names = []
    while frame is not None:
        if _OURS.search(frame.f_code.co_filename):
            names.append(frame.f_code.co_name)
        frame = frame.f_back
    return tuple(names)


def _main_frame() -> FrameType | None:
    return sys._current_frames().get(threading.main_thread().ident or 0)


def _in_main_thread(function: str, file: str) -> bool:
    frame = _main_frame()
    while frame is not None:
        if frame.f_code.co_name == function and frame.f_code.co_filename.endswith(f"/bridge/{file}"):
            return True
        frame = frame.f_back
    return False
