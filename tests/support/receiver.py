"""A real HTTP server on loopback that takes what receivers are told, fails, or never answers."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Receiver:
    """`bodies` are those of the requests so far. `status`: what is answered; None: nothing, until the test ends."""

    def __init__(self, status: int | None = 200) -> None:
        self.status = status
        self.bodies: list[dict[str, Any]] = []
        self.authorizations: list[str | None] = []
        self.port = 0
        self.ended = threading.Event()

    @property
    def kinds(self) -> list[str]:
        """The kinds of facts in the titles, in order."""
        return [kind for body in self.bodies for kind in body["title"].partition(": ")[2].split(", ")]


@contextmanager
def receiver(status: int | None = 200) -> Iterator[Receiver]:
    """A server as long as the block lasts."""
    state = Receiver(status)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            state.authorizations.append(self.headers["Authorization"])
            state.bodies.append(body)
            if state.status is None:
                state.ended.wait(60)
                return
            self.send_response(state.status)
            self.end_headers()

        def log_message(self, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        state.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield state
        finally:
            state.ended.set()
            server.shutdown()
            thread.join()
