"""What stands before fake-gcs-server: the conditions that it ignores, and faults.

fake-gcs-server checks `ifGenerationMatch` of uploads, but of nothing else. So this proxy, as Google does, checks
`ifGenerationMatch` and `ifSourceGenerationMatch` of copies (rewriteTo, copyTo), of deletions and of reads, and answers
412. One lock around all that changes objects makes the check and the request one step. What Rust's object_store and
pyarrow send to Google's XML API to write an object is sent on as an upload. All else passes unchanged.
"""

from __future__ import annotations

import http.client
import json
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlsplit

_COPY = re.compile(r"/storage/v1(/b/[^/]+/o/[^/]+)/(?:rewriteTo|copyTo)(/b/[^/]+/o/[^/]+)")
_OBJECT = re.compile(r"(?:/download)?/storage/v1(/b/[^/]+/o/[^/]+)")
_XML = re.compile(r"/(?!storage/|upload/|download/|_internal/|batch/)([^/]+)/(.+)")
_PASSED_BY = {"transfer-encoding", "connection", "content-length", "keep-alive", "date", "server"}


@dataclass(frozen=True, slots=True)
class Answer:
    """A response."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes


@dataclass(frozen=True, slots=True)
class Request:
    """A request, with its path as it was sent."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def path(self) -> str:
        return urlsplit(self.target).path

    def condition(self, name: str) -> str | None:
        return parse_qs(urlsplit(self.target).query).get(name, [None])[0]


class Fault:
    """What happens to the requests that match: those after the first `skip`, `times` of them, None: all."""

    def __init__(
        self,
        action: str,
        match: str = "",
        *,
        skip: int = 0,
        times: int | None = 1,
        when: str = "before",
        status: int = 0,
    ) -> None:
        self.action, self.after, self.status = action, when == "after", status
        self._match, self._skip, self._times, self._count = re.compile(match), skip, times, 0

    def applies(self, line: str) -> bool:
        if not self._match.search(line):
            return False
        self._count += 1
        return self._count > self._skip and (self._times is None or self._count <= self._skip + self._times)


class Proxy:
    """The proxy, served by threads of this process. `port` is its own, `store` that of fake-gcs-server."""

    def __init__(self) -> None:
        proxy = self
        self.store = 0
        self._alone = threading.Lock()
        self._guard = threading.Lock()
        self._released = threading.Event()
        self._faults: list[Fault] = []
        self._held = 0
        self._log: list[str] = []

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True
            wbufsize = -1

            def _handle(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                body = self.rfile.read(length) if length else b""
                answer = proxy._answer(Request(self.command, self.path, dict(self.headers), body))
                if answer is None:
                    self.close_connection = True
                    self.connection.shutdown(socket.SHUT_RDWR)
                    return
                self.send_response_only(answer.status)
                for name, value in answer.headers:
                    self.send_header(name, value)
                if not any(name.lower() == "content-length" for name, _ in answer.headers):
                    self.send_header("Content-Length", str(len(answer.body)))
                self.end_headers()
                self.wfile.write(answer.body)

            do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = do_PATCH = _handle

            def handle(self) -> None:
                try:
                    super().handle()
                except OSError:  # whoever asked is dead
                    return

            def log_message(self, *_: object) -> None:
                return

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.port = int(self._server.server_address[1])

    def start(self) -> None:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def fault(self, fault: Fault) -> None:
        with self._guard:
            self._faults.append(fault)

    def release(self, *, forget: bool = False) -> None:
        """Let go what is held, and inject no more faults."""
        with self._guard:
            self._faults = []
            self._released.set()
            self._released = threading.Event()
            if forget:
                self._log = []

    def held(self) -> int:
        return self._held

    def log(self) -> list[str]:
        return list(self._log)

    def _answer(self, request: Request) -> Answer | None:
        """None: the connection is closed without one."""
        line = f"{request.method} {unquote(request.target)}"
        with self._guard:
            self._log.append(line)
            fault = next((one for one in self._faults if one.applies(line)), None)
        if fault is None:
            return self._do(request)
        if fault.action == "late":
            threading.Thread(target=self._do_late, args=(request,), daemon=True).start()
            return None
        answer = self._do(request) if fault.after else None
        if fault.action == "reset":
            return None
        if fault.action == "error":
            return _error(fault.status, "this is a fault")
        with self._holding() as released:
            released.wait(60)
        return answer or self._do(request)

    def _do_late(self, request: Request) -> None:
        with self._holding() as released:
            released.wait(60)
            self._do(request)

    @contextmanager
    def _holding(self) -> Iterator[threading.Event]:
        with self._guard:
            self._held += 1
            released = self._released
        yield released
        with self._guard:
            self._held -= 1

    def _do(self, request: Request) -> Answer:
        upload = _as_upload(request)
        if upload.method in ("GET", "HEAD"):
            return self._read(upload)
        with self._alone:
            answer = self._refusal(upload) or self._forward(upload)
        if upload is request or answer.status >= 300:
            return answer
        return Answer(200, [("ETag", f'"{json.loads(answer.body)["generation"]}"')], b"")

    def _refusal(self, request: Request) -> Answer | None:
        checks: list[tuple[str, str | None]] = []
        if copy := _COPY.fullmatch(request.path):
            source = request.condition("ifSourceGenerationMatch")
            if source is not None and self._generation(copy[1]) == "0":
                return _error(404, "No such object")
            checks = [(copy[1], source), (copy[2], request.condition("ifGenerationMatch"))]
        elif request.method == "DELETE" and (named := _OBJECT.fullmatch(request.path)):
            checks = [(named[1], request.condition("ifGenerationMatch"))]
        for name, expected in checks:
            if expected is not None and self._generation(name) != expected:
                return _error(412, "At least one of the pre-conditions you specified did not hold.")
        return None

    def _read(self, request: Request) -> Answer:
        answer = self._forward(request)
        expected = request.condition("ifGenerationMatch")
        if expected is None or answer.status >= 300 or not _OBJECT.fullmatch(request.path):
            return answer
        headers = {name.lower(): value for name, value in answer.headers}
        actual = headers.get("x-goog-generation") or str(json.loads(answer.body)["generation"])
        return answer if actual == expected else _error(412, "conditionNotMet")

    def _generation(self, name: str) -> str:
        """That of an object of the JSON API; 0: there is none."""
        answer = self._forward(Request("GET", f"/storage/v1{name}", {}, b""))
        return str(json.loads(answer.body)["generation"]) if answer.status == 200 else "0"

    def _forward(self, request: Request) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.store, timeout=60)
        try:
            headers = {name: value for name, value in request.headers.items() if name.lower() not in _PASSED_BY}
            connection.request(request.method, request.target, body=request.body or None, headers=headers)
            answer = connection.getresponse()
            body = answer.read()
        finally:
            connection.close()
        names = [(name, value) for name, value in answer.getheaders() if name.lower() not in _PASSED_BY]
        if request.method == "HEAD":
            names.append(("Content-Length", answer.headers.get("Content-Length") or "0"))
        return Answer(answer.status, names, body)


def _as_upload(request: Request) -> Request:
    """The XML API's PUT of an object as the JSON API's upload."""
    named = _XML.fullmatch(request.path)
    if request.method != "PUT" or not named:
        return request
    match = {name.lower(): value for name, value in request.headers.items()}.get("x-goog-if-generation-match")
    condition = f"&ifGenerationMatch={match}" if match else ""
    target = f"/upload/storage/v1/b/{named[1]}/o?uploadType=media&name={quote(unquote(named[2]), safe='')}{condition}"
    return Request("POST", target, request.headers, request.body)


def _error(status: int, message: str) -> Answer:
    reason = {412: "conditionNotMet", 404: "notFound"}.get(status, "backendError")
    error = {"code": status, "message": message, "errors": [{"message": message, "domain": "global", "reason": reason}]}
    return Answer(status, [("Content-Type", "application/json")], json.dumps({"error": error}).encode())


def wait_until(condition: Callable[[], Any], what: str, seconds: float = 60) -> None:
    """Ask again and again until it holds."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)
