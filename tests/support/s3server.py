"""A store that speaks S3, over real HTTP on loopback, in a process of its own; it can be told to misbehave.

`S3Server` starts it, sets this process's AWS_* variables so that boto3 finds it (they are back as they were when it
ends), and tells it over HTTP which faults to inject. The store is moto; one lock around every request makes
conditional puts as atomic as Amazon's. The process ends with the one that started it, however that ends.
"""

from __future__ import annotations

import io
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from tests.support.copysource import with_conditional_copies

ROOT = Path(__file__).parents[2]


class S3Server:
    """The store, from the side of a test. `environ` is what a program needs to reach it."""

    def __init__(self, words: Sequence[str] = (), address: str = "127.0.0.1") -> None:
        """`words` start it where it has this address."""
        self._words, self._address = words, address
        self.endpoint = ""
        self.environ: dict[str, str] = {}

    def __enter__(self) -> S3Server:
        command = [*self._words, sys.executable, "-W", "ignore", "-m", "tests.support.s3server", self._address]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT, text=True)
        assert self._process.stdout is not None
        self.endpoint = f"http://{self._address}:{int(self._process.stdout.readline())}"
        self._enter_environ()
        return self

    def __exit__(self, *_: object) -> None:
        self._set(self._before)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.terminate()  # a process that a failing test left behind may have its input open, too
        self._process.wait(timeout=10)
        self._process.stdin.close()
        self._process.stdout.close()

    def _enter_environ(self) -> None:
        """Let this process's environment name the server, and nothing else of Amazon's."""
        self.environ = {
            "AWS_ACCESS_KEY_ID": "testing",
            "AWS_SECRET_ACCESS_KEY": "very-secret-key",
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_REGION": "us-east-1",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_CONFIG_FILE": os.devnull,
            "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        }
        self._before = {name: value for name, value in os.environ.items() if name.startswith("AWS_")}
        self._set(self.environ)

    @staticmethod
    def _set(variables: dict[str, str]) -> None:
        for name in [name for name in os.environ if name.startswith("AWS_")]:
            del os.environ[name]
        os.environ.update(variables)

    def client(self) -> Any:
        """A plain client, to look at the store from outside."""
        import boto3
        from botocore.config import Config

        return boto3.client("s3", endpoint_url=self.endpoint, config=Config(retries={"total_max_attempts": 3}))

    def bucket(self, name: str) -> str:
        """Create a bucket if there is none of this name."""
        self.client().create_bucket(Bucket=name)
        return name

    def storage(self, uri: str = "s3://lake/team", **options: Any) -> Any:
        """Open a bucket that is created if it is missing."""
        from bridge.lake.storage import open_storage
        from bridge.settings.values.stores import S3Options

        self.bucket(uri.removeprefix("s3://").partition("/")[0])
        return open_storage(uri, S3Options(**{"endpoint_url": self.endpoint} | options))

    def fault(self, action: str, match: str = "", **rule: Any) -> None:
        """Misbehave from now on.

        `match`: a regular expression in `METHOD /bucket/key?query`. Of the requests that match, `skip` are let
        through, then `times` (None: all others) meet with the `action`:
        error: answer `status` and `code` (with `extra` elements, or a `body`), `when` "before" or "after" doing it;
        reset: close the connection without an answer, before or after doing it;
        late: close it now and do the request at `release`, or `seconds` later;
        delay: do it `seconds` later, or answer so much later;
        hold: wait before or after doing it until `release`; kill, stop: send `pid` SIGKILL (and close) or SIGSTOP;
        ignore_conditions: do it whatever is there; short: send half of the answer's body, then close.
        """
        self._control("faults", {"action": action, "match": match} | rule)

    def habit(self, second_complete: str) -> None:
        """Choose what the second completion of an upload is answered with: "200", "NoSuchUpload" or "500"."""
        self._control("habit", {"second_complete": second_complete})

    def clear(self) -> None:
        """Behave again, let go what was held, and forget the log."""
        self._control("clear", {})

    def release(self) -> None:
        """Let go what was held, and inject no more faults; the habit and the log stay."""
        self._control("release", {})

    def purge(self) -> None:
        """Abort all uploads, as a lifecycle rule does."""
        self._control("purge", {})

    def fill(self, bucket: str, keys: list[str]) -> None:
        """Create many objects at once; each holds one byte."""
        self._control("fill", {"bucket": bucket, "keys": keys})

    def log(self) -> list[str]:
        """Each request since `clear` as `METHOD /bucket/key?query status`; the status is 0 where none was sent."""
        return list(self._control("log", {}))

    def held(self) -> int:
        """How many requests are being held."""
        return int(self._control("held", {}))

    def wait_for_held(self, count: int = 1) -> None:
        """Wait until so many requests are being held; 0: until all that were late are done."""
        until = time.monotonic() + 60
        while self.held() != count:
            assert time.monotonic() < until, self.log()
            time.sleep(0.01)

    def _control(self, what: str, data: dict[str, Any]) -> Any:
        request = urllib.request.Request(f"{self.endpoint}/-/{what}", json.dumps(data).encode(), method="POST")
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.loads(answer.read())


Answer = tuple[str, list[tuple[str, str]], bytes]


class _Rule:
    def __init__(self, facts: dict[str, Any]) -> None:
        self.facts = facts
        self.action = facts["action"]
        self.after = facts.get("when", "before") == "after"
        self._match = re.compile(facts["match"])
        self._skip, self._times, self._seen = facts.get("skip", 0), facts.get("times", 1), 0

    def applies(self, request: str) -> bool:
        if not self._match.search(request):
            return False
        self._seen += 1
        return self._seen > self._skip and (self._times is None or self._seen <= self._skip + self._times)


class _Store:
    """The WSGI application: moto behind a lock, the faults before it."""

    def __init__(self, moto: Any) -> None:
        self._moto = moto
        self._one = threading.Lock()
        self._guard = threading.Lock()
        self._released = threading.Event()
        self._rules: list[_Rule] = []
        self._log: list[str] = []
        self._held = 0
        self._second_complete = "200"
        self._ended: dict[str, Answer | None] = {}

    def __call__(self, environ: dict[str, Any], start: Any) -> list[bytes]:
        length = int(environ.get("CONTENT_LENGTH") or 0)
        body = environ["wsgi.input"].read(length) if length else b""
        path, query = environ["PATH_INFO"], environ.get("QUERY_STRING", "")
        if path.startswith("/-/"):
            answer = json.dumps(self._controlled(path[3:], json.loads(body))).encode()
            start("200 OK", [("Content-Type", "application/json"), ("Content-Length", str(len(answer)))])
            return [answer]
        request = f"{environ['REQUEST_METHOD']} {path}" + (f"?{query}" if query else "")
        with self._guard:
            number = len(self._log)
            self._log.append(f"{request} 0")
            applying = [rule for rule in self._rules if rule.applies(request)]

        def do() -> Answer:
            return self._do({**environ, "wsgi.input": io.BytesIO(body)})

        status, headers, data = self._misbehave(applying[0], environ, do) if applying else do()
        with self._guard:
            if number < len(self._log):
                self._log[number] = f"{request} {status.split()[0]}"
        start(status, headers)
        return [data]

    def _misbehave(self, rule: _Rule, environ: dict[str, Any], do: Callable[[], Answer]) -> Answer:
        facts, action = rule.facts, rule.action
        if action == "ignore_conditions":
            for name in ("HTTP_IF_MATCH", "HTTP_IF_NONE_MATCH", "HTTP_X_AMZ_COPY_SOURCE_IF_MATCH"):
                environ.pop(name, None)
            return do()
        if action == "late":
            threading.Thread(target=self._do_late, args=(do, facts.get("seconds", 60)), daemon=True).start()
            _close(environ)
        answer = do() if rule.after or action == "short" else None
        if action == "error":
            if "body" in facts:
                return f"{facts['status']} OK", [("Content-Type", "application/xml")], facts["body"].encode()
            return _error(facts["status"], facts["code"], environ["REQUEST_METHOD"], facts.get("extra", {}))
        if action == "reset":
            _close(environ)
        if action == "short":
            assert answer is not None
            return answer[0], answer[1], answer[2][: len(answer[2]) // 2]
        if action == "delay":
            time.sleep(facts["seconds"])
        if action == "hold":
            with self._holding() as released:
                released.wait(60)
        if action in ("kill", "stop"):
            os.kill(facts["pid"], signal.SIGKILL if action == "kill" else signal.SIGSTOP)
            if action == "kill":
                _close(environ)
        return answer or do()

    def _do_late(self, do: Callable[[], Answer], seconds: float) -> None:
        with self._holding() as released:
            released.wait(seconds)
            do()

    @contextmanager
    def _holding(self) -> Iterator[threading.Event]:
        with self._guard:
            self._held += 1
            released = self._released
        yield released
        with self._guard:
            self._held -= 1

    def _do(self, environ: dict[str, Any]) -> Answer:
        upload = re.search(r"uploadId=([^&]+)", environ.get("QUERY_STRING", ""))
        method = environ["REQUEST_METHOD"]
        with self._one:
            if upload and method == "POST" and upload[1] in self._ended:
                return self._complete_again(upload[1])
            answer: dict[str, Any] = {}

            def start(status: str, headers: list[tuple[str, str]], exc_info: Any = None) -> Callable[[bytes], None]:
                answer.update(status=status, headers=headers)
                return lambda data: None

            data = b"".join(self._moto(environ, start))
            whole = answer["status"], answer["headers"], data
            if upload and method in ("POST", "DELETE") and answer["status"].startswith("2"):
                self._ended[upload[1]] = whole if method == "POST" else None
        return whole

    def _complete_again(self, upload: str) -> Answer:
        before = self._ended[upload]
        if self._second_complete == "500":
            return _error(500, "InternalError", "POST", {})
        if before is None or self._second_complete == "NoSuchUpload":
            return _error(404, "NoSuchUpload", "POST", {})
        return before

    def _controlled(self, what: str, data: dict[str, Any]) -> Any:
        with self._guard:
            if what == "faults":
                self._rules.append(_Rule(data))
            elif what == "habit":
                self._second_complete = data["second_complete"]
            elif what in ("clear", "release"):
                self._rules = []
                self._released.set()
                self._released = threading.Event()
                if what == "clear":
                    self._log, self._second_complete = [], "200"
            elif what == "purge":
                self._purge()
            elif what == "fill":
                self._fill(data["bucket"], data["keys"])
            elif what == "held":
                return self._held
            return list(self._log)

    def _purge(self) -> None:
        with self._one:
            for backend in _backends():
                for bucket in backend.buckets.values():
                    self._ended.update(dict.fromkeys(bucket.multiparts))
                    bucket.multiparts.clear()

    def _fill(self, bucket: str, keys: list[str]) -> None:
        with self._one:
            for backend in _backends():
                for key in keys if bucket in backend.buckets else []:
                    backend.put_object(bucket, key, b"x")


def _backends() -> Iterator[Any]:
    from moto.s3.models import s3_backends

    for account in s3_backends.values():
        yield from account.values()


def _error(status: int, code: str, method: str, extra: dict[str, str]) -> Answer:
    parts = {"Code": code, "Message": extra.get("Message", f"this is {code}")} | extra
    body = "".join(f"<{name}>{escape(value)}</{name}>" for name, value in parts.items())
    data = f'<?xml version="1.0" encoding="UTF-8"?><Error>{body}</Error>'.encode()
    if method == "HEAD":
        data = b""
    return f"{status} {code}", [("Content-Type", "application/xml"), ("Content-Length", str(len(data)))], data


def _close(environ: dict[str, Any]) -> None:
    environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
    raise ConnectionResetError


def _die_with_parent() -> None:
    sys.stdin.read()
    os._exit(0)


def main() -> None:
    """Serve at the address that is given until standard input ends; print the port first."""
    import logging

    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
    from werkzeug.serving import make_server

    logging.getLogger("werkzeug").setLevel(logging.CRITICAL)
    store = _Store(with_conditional_copies(DomainDispatcherApplication(create_backend_app)))
    server = make_server(sys.argv[1], 0, store, threaded=True, request_handler=MotoRequestHandler)
    threading.Thread(target=_die_with_parent, daemon=True).start()
    print(server.port, flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
