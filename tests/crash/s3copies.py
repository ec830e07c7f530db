"""An S3 server that can be copied: moto over real HTTP, forked with all it holds, uploads under way included.

All copies inherit one listening socket, so that a bucket has the same address in each; one of them answers at a time.
A copy costs some milliseconds, as a folder's copy does: each crash starts from the same bucket.
"""

from __future__ import annotations

import faulthandler
import io
import os
import select
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil

from tests.support.copysource import with_conditional_copies

ENVIRON = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_DEFAULT_REGION": "us-east-1"}
_ANSWER_WITHIN = 60
_LOOK_AGAIN = 5


class Server:
    """One copy. It answers while it is awake; what it holds then is what `copy` copies."""

    def __init__(self, folder: Path, pid: int, endpoint: str) -> None:
        self._folder, self._pid, self.endpoint = folder, pid, endpoint

    def _ask(self, what: str) -> str:
        with socket.socket(socket.AF_UNIX) as asking:
            asking.settimeout(_ANSWER_WITHIN)
            asking.connect(str(self._folder / str(self._pid)))
            asking.sendall(what.encode())
            return asking.recv(64).decode()

    def copy(self) -> Server:
        """Return a new server that holds the same; it sleeps."""
        return Server(self._folder, int(self._ask("copy")), self.endpoint)

    def wake(self) -> None:
        """Have it answer requests; no other may be awake."""
        self._ask("wake")

    def sleep(self) -> None:
        self._ask("sleep")

    def say_stacks(self) -> None:
        os.kill(self._pid, signal.SIGUSR1)

    def close(self) -> None:
        """End it; its copies live on."""
        self._ask("end")


@contextmanager
def server(folder: Path) -> Iterator[Server]:
    """Start an empty server, and end it with all its copies. `folder` is for its sockets: a short path."""
    with socket.socket(socket.AF_UNIX) as ready:
        ready.bind(str(folder / "ready"))
        ready.listen()
        ready.settimeout(60)
        words = [sys.executable, "-m", __name__, str(folder), str(os.getpid())]
        environ = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
        pid = os.spawnve(os.P_NOWAIT, sys.executable, words, environ)
        try:
            said, _ = ready.accept()
            with said:
                port = int(said.recv(64).decode())
            yield Server(folder, pid, f"http://127.0.0.1:{port}")
        finally:
            with suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


class _Copies:
    """What runs in the server's process."""

    def __init__(self, folder: Path, owner: int) -> None:
        from moto.server import DomainDispatcherApplication, create_backend_app
        from werkzeug.serving import WSGIRequestHandler, make_server

        class Quiet(WSGIRequestHandler):
            protocol_version = "HTTP/1.1"  # a client that asks whether to go on with a body gets an answer

            def handle_one_request(self) -> None:
                super().handle_one_request()
                self.close_connection = True

            def log(self, *args: Any) -> None:
                pass

        self._folder, self._owner = folder, owner
        self._moto = with_conditional_copies(DomainDispatcherApplication(create_backend_app))
        self._one_at_a_time = threading.Lock()
        self._server = make_server("127.0.0.1", 0, self._answer, threaded=True, request_handler=Quiet)
        self._awake = False
        self.port = self._server.port
        self._listen()

    def _answer(self, environ: dict[str, Any], start_response: Any) -> list[bytes]:
        """Answer one request. A client that stands still in the middle of one keeps nobody else waiting."""
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        with self._one_at_a_time:  # a condition of a put and the put itself belong together
            return list(self._moto(environ | {"wsgi.input": io.BytesIO(body)}, start_response))

    def _listen(self) -> None:
        self._control = socket.socket(socket.AF_UNIX)
        self._control.bind(str(self._folder / str(os.getpid())))
        self._control.listen()

    def serve(self) -> None:
        while psutil.pid_exists(self._owner):  # else the tests were killed
            sockets = [self._control, *([self._server.socket] if self._awake else [])]
            ready, _, _ = select.select(sockets, [], [], _LOOK_AGAIN)
            if self._control in ready:
                with suppress(OSError):  # who asked has gone away meanwhile
                    self._obey()
            elif ready:
                self._server._handle_request_noblock()

    def _obey(self) -> None:
        asked, _ = self._control.accept()
        with asked:
            what = asked.recv(64).decode()
            if what == "copy":
                with self._one_at_a_time:
                    pid = os.fork()
                if not pid:
                    self._control.close()
                    self._awake = False
                    self._listen()
                    pid = os.getpid()
                    asked.sendall(str(pid).encode())
                return
            self._awake = what == "wake"
            asked.sendall(b"ok")
        if what == "end":
            self._control.close()
            os.unlink(self._folder / str(os.getpid()))
            os._exit(0)


def _main(folder: Path, owner: int) -> None:
    os.setpgid(0, 0)
    faulthandler.register(signal.SIGUSR1)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # ended copies leave nothing
    copies = _Copies(folder, owner)
    with socket.socket(socket.AF_UNIX) as ready:
        ready.connect(str(folder / "ready"))
        ready.sendall(str(copies.port).encode())
    copies.serve()
    os._exit(0)  # nothing to put away: many copies end at once, when their tests were killed


if __name__ == "__main__":
    _main(Path(sys.argv[1]), int(sys.argv[2]))
