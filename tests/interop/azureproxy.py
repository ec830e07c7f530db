"""Between a client and Azurite: shows a copy as one that is under way or has failed, and loses answers.

Azurite copies at once; Azure may take its time, and tells by headers. Their values are from the documentation of "Copy
Blob".
"""

from __future__ import annotations

import http.client
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

Rule = Callable[[str, str, dict[str, str]], str]
"""Takes method, path and an answer's headers, which it may change; returns "reset" to send no answer."""


def _pass(method: str, path: str, headers: dict[str, str]) -> str:
    return ""


class Proxy:
    """A server whose answers are those of another, after `rule`."""

    def __init__(self, endpoint: str) -> None:
        self.rule: Rule = _pass
        self.log: list[str] = []
        where = urlsplit(endpoint)
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _forward(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                server = http.client.HTTPConnection(where.hostname or "", where.port or 80, timeout=60)
                server.request(self.command, self.path, body, dict(self.headers))
                answer = server.getresponse()
                data = answer.read()
                headers = {name.lower(): value for name, value in answer.getheaders()}
                server.close()
                proxy.log.append(f"{self.command} {self.path}")
                if proxy.rule(self.command, self.path, headers) == "reset":
                    self.close_connection = True
                    self.connection.close()
                    return
                self.send_response_only(answer.status, answer.reason)
                for name, value in headers.items():
                    if name not in ("transfer-encoding", "connection", "keep-alive", "content-length"):
                        self.send_header(name, value)
                length = headers.get("content-length", "0") if self.command == "HEAD" else str(len(data))
                self.send_header("Content-Length", length)
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(data)

            do_GET = do_PUT = do_HEAD = do_DELETE = do_POST = _forward

            def log_message(self, *_: Any) -> None:
                pass

            def handle(self) -> None:
                try:
                    super().handle()
                except OSError:  # the connection that a rule has closed
                    self.close_connection = True

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._server.handle_error = lambda *_: None  # type: ignore[method-assign]
        self.endpoint = f"http://127.0.0.1:{self._server.server_port}{where.path}"

    def __enter__(self) -> Proxy:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
