"""The loop of the service, without Spark: it ends at once, and says what it cannot change while it works."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta, timezone
from pathlib import Path
from urllib.request import urlopen

import pytest

from bridge.cli import main
from bridge.lake.storage.local.storage import LocalStorage
from bridge.serve.service.service import PipelineService
from tests.support.busy_lake import record_run
from tests.support.receiver import receiver
from tests.support.service import Log, until

# apprise imports a module of Python that is to go.
pytestmark = pytest.mark.filterwarnings("ignore:'imghdr' is deprecated")


@contextmanager
def beside(work: Callable[[], None]) -> Iterator[None]:
    """Do something while the service works, then end it as systemd does."""

    def act() -> None:
        try:
            work()
        finally:
            os.kill(os.getpid(), signal.SIGTERM)

    thread = threading.Thread(target=act)
    thread.start()
    try:
        yield
    finally:
        thread.join()


def served(folder: Path, work: Callable[[], None]) -> Log:
    """Run a service until the work beside it is done; return what it reported."""
    log = Log()
    PipelineService(folder / "bridge.yaml", None, log).run(beside(work))
    return log


def test_receivers_that_hang_do_not_keep_it(tmp_path: Path) -> None:
    """Ten of them, ten seconds each: SIGTERM ends the service all the same."""
    names, ended = [f"p{number}" for number in range(10)], time.monotonic()
    lake = LocalStorage(tmp_path / "lake")
    for name in names:
        record_run(lake, name, datetime.now(timezone.utc) - timedelta(hours=3), "success")
    with receiver(None) as hanging:
        more = f'stale_after: 1h, notify: [{{url: "json://127.0.0.1:{hanging.port}/"}}]'
        source = f"source: {{tap: x}}, destination: {{bucket: {tmp_path / 'lake'}}}"
        pipelines = "".join(f"  {name}: {{{source}, {more}}}\n" for name in names)
        (tmp_path / "bridge.yaml").write_text(f"pipelines:\n{pipelines}")

        def work() -> None:
            nonlocal ended
            until(lambda: hanging.bodies)
            ended = time.monotonic()

        served(tmp_path, work)
        assert time.monotonic() - ended < 9


def test_what_needs_a_restart_is_said_once(tmp_path: Path) -> None:
    """The page keeps its address and its token: the log says so, once for each change, and shows no token."""
    file = tmp_path / "bridge.yaml"
    pipelines = f"pipelines:\n  shop: {{source: {{tap: x}}, destination: {{bucket: {tmp_path / 'lake'}}}}}\n"
    file.write_text(pipelines)
    log = Log()

    def work() -> None:
        for more in ("port: 7, token: t0psecret", "port: 7, token: t0psecret, max_runs: 3", "max_runs: 4"):
            read = log.texts.count("changed")
            file.write_text(f"service: {{{more}}}\n{pipelines}")
            until(lambda read=read: log.texts.count("changed") > read)

    PipelineService(file, None, log).run(beside(work))
    (text,) = [text for text in log.texts if "started again" in text]
    assert text.endswith("service.port, service.token")


def test_the_flags_say_where_the_page_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`--host` and `--port` win over the file, whose port is taken here."""
    monkeypatch.chdir(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as taken, socket.create_server(("127.0.0.1", 0)) as free:
        ports = [server.getsockname()[1] for server in (taken, free)]
        free.close()
        (tmp_path / "bridge.yaml").write_text(
            f"service: {{port: {ports[0]}}}\n"
            "pipelines: {shop: {source: {tap: x}, destination: {bucket: lake}}}\n"
        )
        assert ended("serve") == 2
        assert ended("serve", "--port", str(ports[1]), "--host", "0.0.0.0") == 2
        assert "a token is needed" in capsys.readouterr().err

        def healthy() -> bool:
            with suppress(OSError), urlopen(f"http://localhost:{ports[1]}/healthz") as answer:
                return bool(answer.status == 200)
            return False

        with beside(lambda: until(healthy)):
            assert ended("serve", "--port", str(ports[1]), "--host", "localhost") == 0


def ended(*words: str) -> int:
    """The exit code of a command."""
    with pytest.raises(SystemExit) as end:
        main(list(words))
    return int(str(end.value.code))
