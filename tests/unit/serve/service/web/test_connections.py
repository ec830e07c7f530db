"""Whoever reaches the page's port can hold little, and not for long: others, and runs, keep their descriptors."""

from __future__ import annotations

import asyncio
import resource
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from bridge.serve.service.web import hub
from bridge.serve.service.web.auth import connections
from bridge.serve.service.web.auth.access import LoginRules
from bridge.serve.service.web.auth.connections import raise_file_limit
from bridge.serve.service.web.auth.guard import LoginGuard
from bridge.serve.service.web.server import page_served
from bridge.settings.service import Service
from tests.support.busy_lake import write_settings

from .conftest import TOKEN, Waiting

_HEAD = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n"


@pytest.fixture
def port(tmp_path: Path) -> Iterator[int]:
    urls: list[str] = []
    file = write_settings(tmp_path, ["shop"])
    with page_served(file, None, Waiting(), Service(port=0, token=TOKEN), urls.append):
        yield int(urls[0].rstrip("/").rpartition(":")[2])


def connected(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=30)


def is_closed(one: socket.socket) -> bool:
    try:
        return one.recv(1) == b""
    except ConnectionError:
        return True


def healthy(port: int) -> bool:
    with urlopen(f"http://127.0.0.1:{port}/healthz", timeout=10) as answer:
        return bool(answer.status == 200)


def test_a_thousand_connections_without_a_request(port: int) -> None:
    """The service holds 256 of them, the newest ones, and answers others all the while."""
    resource_limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    assert resource_limit == resource.RLIM_INFINITY or resource_limit > 3000
    with ExitStack() as stack:
        idle = []
        for count in range(1100):
            one = stack.enter_context(closing(connected(port)))
            one.sendall(b"" if count % 2 else _HEAD)
            idle.append(one)
            if count % 200 == 199:
                assert healthy(port)
        assert healthy(port)
        assert all(is_closed(one) for one in idle[: 1100 - connections.most_connections()])


@pytest.mark.parametrize(
    "sent",
    [b"", _HEAD, b"POST /pipelines/shop/run HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100\r\n\r\nhalf"],
    ids=["nothing", "half a head", "half a body"],
)
def test_a_request_that_does_not_end(port: int, sent: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is closed after its time, also one that sends a byte now and then."""
    monkeypatch.setattr(connections, "_PATIENCE", 0.4)
    with closing(connected(port)) as one:
        one.sendall(sent)
        deadline = time.monotonic() + 20
        try:
            while time.monotonic() < deadline:
                one.sendall(b"X" if sent else b"")
                one.settimeout(0.1)
                try:
                    if not one.recv(65536):
                        return
                except TimeoutError:
                    continue
        except ConnectionError:
            return
    pytest.fail("it was never closed")


def test_a_request_that_is_broken_off(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Nothing is answered, and no line of the service's log is spent on it."""
    guard, sent = LoginGuard(make_no_answer, LoginRules.of("127.0.0.1", None, tmp_path / "out")), list[Any]()

    async def receive() -> dict[str, Any]:
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": "/x", "query_string": b"", "headers": [(b"host", b"127.0.0.1")]}
    asyncio.run(guard(scope, receive, send))
    assert not sent
    assert not caplog.records


async def make_no_answer(*_: Any) -> None:
    pytest.fail("the request was never whole")


def test_a_connection_that_is_used_stays(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its time begins anew with each request."""
    monkeypatch.setattr(connections, "_PATIENCE", 2.0)
    with closing(connected(port)) as one:
        for _ in range(4):
            one.sendall(_HEAD + b"\r\n")
            answer = b""
            while not answer.endswith(b"}"):
                answer += one.recv(65536)
            assert answer.startswith(b"HTTP/1.1 200")
            time.sleep(0.7)


def test_those_who_listen_are_limited(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """One more than may listen gets 503, and is told what to do; the others go on."""
    monkeypatch.setattr(hub, "_MOST", 3)
    request = f"GET /api/events HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {TOKEN}\r\n\r\n".encode()
    with ExitStack() as stack:
        listeners = [stack.enter_context(closing(connected(port))) for _ in range(4)]
        answers = []
        for one in listeners:
            one.sendall(request)
            answers.append(one.recv(65536))
        assert [answer.split(b" ")[1] for answer in answers] == [b"200", b"200", b"200", b"503"]
        assert healthy(port)


def test_the_service_takes_the_descriptors_that_it_may_have() -> None:
    """The soft limit, often 1,024, becomes the hard one, up to a bound; connections get a quarter."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (512, before[1]))
        assert connections.most_connections() == 128
        raise_file_limit()
        soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        assert soft == (65_536 if before[1] == resource.RLIM_INFINITY else min(before[1], 65_536))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
