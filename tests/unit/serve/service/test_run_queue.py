"""Which runs the service starts, and which it leaves to others."""

from __future__ import annotations

import os
import resource
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from bridge.errors import SettingsError
from bridge.lake.lease import take
from bridge.lake.run_status import failures
from bridge.lake.runs import RunFile, new_run_id, read_runs
from bridge.lake.storage import open_storage
from bridge.serve.service.timetable import Due
from tests.support.receiver import receiver
from tests.support.service import Queue, until

FILE = """
pipelines:
  shop:
    source: {tap: [sh, -c, exit 1]}
    destination: {bucket: ./lake}
    schedule: {cron: "0 6 * * *", timezone: Europe/Paris}
    retry: {attempts: 2, backoff: 1s}
  manual: {source: {tap: [sh, -c, exit 0]}, destination: {bucket: ./lake}}
"""


@pytest.fixture
def queue(tmp_path: Path) -> Queue:
    (tmp_path / "bridge.yaml").write_text(FILE)
    open_storage(str(tmp_path / "lake"), None).prepare()
    return Queue(tmp_path)


@contextmanager
def descriptors_used_up() -> Iterator[None]:
    limit, used = resource.getrlimit(resource.RLIMIT_NOFILE), list[int]()
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, limit[1]))
    try:
        with suppress(OSError):
            while True:
                used.append(os.open(os.devnull, os.O_RDONLY))
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limit)
        for each in used:
            os.close(each)


def now() -> datetime:
    return datetime.now(timezone.utc)


@pytest.mark.parametrize("status", ["success", "failed"])
def test_a_run_that_another_one_has_done_is_left_out(status: str, queue: Queue, tmp_path: Path) -> None:
    """cron, or a second service, was faster: the run began when this one was due, so nothing is started."""
    RunFile(open_storage(str(tmp_path / "lake"), None), "shop", new_run_id()).finish(status=status)
    queue.runs.start_due(Due("shop", now() - timedelta(seconds=5), "schedule"))
    queue.until_empty()
    assert queue.log == [("left_out", "shop", "another run has come first")]


@pytest.mark.parametrize("text", [b"{", b'{"status": "success"}', None], ids=["torn", "odd", "ahead"])
def test_a_record_that_tells_no_time_leaves_no_run_out(text: bytes | None, queue: Queue, tmp_path: Path) -> None:
    """Nobody knows when such a run began: it is no reason to leave out one that is due."""
    storage, later = open_storage(str(tmp_path / "lake"), None), now() + timedelta(days=2)
    run = new_run_id() if text else f"{later:%Y%m%dT%H%M%SZ}-aaaa"
    RunFile(storage, "manual", run, started=later.isoformat()).finish(status="success")
    if text:
        storage.write(f".bridge/manual/runs/{run}.json", text)
    queue.runs.start_due(Due("manual", now() + timedelta(seconds=2), "schedule"))
    queue.until_empty()
    assert [entry[:2] for entry in queue.log if entry[0] != "waits"] == [("started", "manual"), ("finished", "manual")]


def test_a_run_that_waits_is_due_once(queue: Queue, tmp_path: Path) -> None:
    """While another run holds the pipeline: one waits for all that are due, says so once, and can be stopped."""
    lease = take(open_storage(str(tmp_path / "lake"), None), "shop", "another")
    for minutes in (3, 2, 1):
        queue.runs.start_due(Due("shop", now() - timedelta(minutes=minutes), "schedule"))
    (live,) = queue.runs.live()
    assert (live.pipeline, live.status, live.reason) == ("shop", "waiting", "schedule")
    until(lambda: queue.turn() or queue.log)
    until(lambda: queue.runs.live()[0].status == "waiting")
    assert [entry[:2] for entry in queue.log] == [("waits", "shop")]
    assert queue.runs.not_run(live.run_id) is None
    assert queue.runs.stop(live.run_id)
    assert not queue.runs.stop(live.run_id)
    assert queue.runs.live() == []
    assert queue.runs.not_run(live.run_id) == "stopped before it started"
    assert queue.log[-1] == ("left_out", "shop", "stopped before it started")
    lease.close(head=0, clean=True)


def test_a_run_that_finds_no_descriptors_is_tried_again(queue: Queue) -> None:
    """It waits, which is said once, and starts when there are some again."""
    queue.runs.start_due(Due("shop", now(), "schedule"))
    with descriptors_used_up():
        until(lambda: queue.turn() or [entry for entry in queue.log if entry[0] == "waits"])
    queue.until_empty()
    assert [entry[0] for entry in queue.log if entry[0] != "started"] == ["waits", "finished"]


def test_a_run_of_a_part_does_not_replace_the_schedule(queue: Queue) -> None:
    """What is due waits beside a run of one stream, but not beside a whole one."""
    queue.runs.start("shop", "--stream", "orders")
    for _ in range(2):
        queue.runs.start_due(Due("shop", now(), "schedule"))
    assert [live.reason for live in queue.runs.live()] == ["request", "schedule"]


def test_a_run_keeps_its_id(queue: Queue, tmp_path: Path) -> None:
    """What is shown while it waits finds it until its end, and its record afterwards, whatever attempts come."""
    second_waits = f"mkdir {tmp_path}/first || until test -e {tmp_path}/go; do sleep 0.05; done; exit 1"
    tap = f"test $0 = --help || {{ {second_waits}; }}"
    (tmp_path / "bridge.yaml").write_text(FILE.replace("[sh, -c, exit 1]", f"[sh, -c, '{tap}']"))
    assert queue.settings.refresh()
    queue.runs.start_due(Due("shop", now(), "schedule"))
    (waiting,) = queue.runs.live()

    def attempts() -> tuple[str, ...]:
        (live,) = queue.runs.live()
        assert live.has_id(waiting.run_id)
        return live.attempts

    until(lambda: queue.turn() or len(attempts()) == 2)
    first, second = attempts()
    assert first == waiting.run_id
    (tmp_path / "go").touch()
    queue.until_empty()
    records = read_runs(open_storage(str(tmp_path / "lake"), None), "shop")
    assert {record.run_id for record in records} == {first, second}
    assert [entry[:3] for entry in queue.log] == [("started", "shop", first), ("finished", "shop", second)]


def test_a_run_whose_process_is_killed_is_tried_again(queue: Queue, tmp_path: Path) -> None:
    """As after a failure: `retry` counts it as an attempt. The last one is not tried again."""
    tap = f"test $0 = --help || until test -e {tmp_path}/go; do sleep 0.05; done; exit 1"
    (tmp_path / "bridge.yaml").write_text(FILE.replace("[sh, -c, exit 1]", f"[sh, -c, '{tap}']"))
    assert queue.settings.refresh()
    queue.runs.start_due(Due("shop", now(), "schedule"))
    lake = open_storage(str(tmp_path / "lake"), None)
    for attempt in (1, 2):
        until(lambda attempt=attempt: queue.turn() or len(queue.runs.live()[0].attempts) == attempt)
        until(lambda attempt=attempt: len([*read_runs(lake, "shop")]) == attempt)
        (job,) = queue.runs._jobs
        job.runner.signal(signal.SIGKILL)
    queue.until_empty()
    records = [*read_runs(lake, "shop")]
    assert [(record.attempt, record.status) for record in records] == [(2, "running"), (1, "running")]
    kinds = ["started", "finished", "noted", "started", "finished"]
    assert [entry[0] for entry in queue.log] == kinds
    assert queue.log[2] == ("noted", "shop: attempt 2 of 2 starts in 1 s")
    failed = failures(lake, "shop")
    assert failed
    assert failed.count == 1


@pytest.mark.filterwarnings("ignore:'imghdr' is deprecated")
def test_a_receiver_that_hangs_keeps_no_slot(queue: Queue, tmp_path: Path) -> None:
    """What only waits for a receiver does not count among `max_runs`."""
    file = tmp_path / "bridge.yaml"
    with receiver(None) as hanging:
        notify = f'notify: [{{url: "json://127.0.0.1:{hanging.port}/"}}], source'
        text = FILE.replace("manual: {source", f"manual: {{{notify}").replace("exit 0", "exit 1")
        file.write_text(f"service: {{max_runs: 1}}\n{text}")
        assert queue.settings.refresh()
        first = queue.runs.start("manual")
        until(lambda: queue.turn() or hanging.bodies)
        second = queue.runs.start("shop")
        until(lambda: queue.turn() or queue.status(second) == "running")
        assert [live.run_id for live in queue.runs.live()] == [first, second]
        assert queue.runs.stop(second)
        hanging.ended.set()
        queue.until_empty()


@pytest.mark.filterwarnings("ignore:'imghdr' is deprecated")
def test_a_receiver_that_fails_is_said(queue: Queue, tmp_path: Path) -> None:
    """The log of the service gets it with the run's end."""
    with receiver(500) as broken:
        notify = f'notify: [{{url: "json://127.0.0.1:{broken.port}/"}}], source'
        text = FILE.replace("manual: {source", f"manual: {{{notify}").replace("exit 0", "exit 1")
        (tmp_path / "bridge.yaml").write_text(text)
        assert queue.settings.refresh()
        queue.runs.start("manual")
        queue.until_empty()
    (finished,) = [entry for entry in queue.log if entry[0] == "finished"]
    assert "the run itself is not affected" in finished[3]["warnings"][-1]


@pytest.mark.parametrize(
    ("words", "hint"), [(("shpo",), "shop"), (("shop", "--ful"), "--full"), (("shop", "--append"), "plain run")]
)
def test_what_cannot_be_meant_is_refused(words: tuple[str, ...], hint: str, queue: Queue) -> None:
    """Before anything waits or starts."""
    with pytest.raises(SettingsError) as caught:
        queue.runs.start(*words)
    assert hint in caught.value.hint
    assert queue.runs.live() == []


def test_a_service_that_ends_takes_no_more(queue: Queue) -> None:
    """What waits is forgotten, which is said; who asks for a run is told."""
    run = queue.runs.start("shop")
    queue.runs.close(15)
    assert queue.runs.is_empty
    assert queue.log == [("left_out", "shop", "the service ends")]
    assert queue.runs.not_run(run) == "the service ends"
    with pytest.raises(SettingsError):
        queue.runs.start("manual")
    queue.runs.start_due(Due("shop", now(), "schedule"))
    assert queue.runs.is_empty


@pytest.fixture
def silent(queue: Queue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The bucket of `manual` accepts connections and never answers; one run at a time."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setattr("bridge.serve.service.run_queue._PATIENCE", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as server:
        bucket = f"s3://dead, s3: {{endpoint_url: 'http://127.0.0.1:{server.getsockname()[1]}', region: us-east-1}}"
        text = FILE.replace("exit 0]}, destination: {bucket: ./lake", f"exit 0]}}, destination: {{bucket: {bucket}")
        (tmp_path / "bridge.yaml").write_text(f"service: {{max_runs: 1}}\n{text}")
        assert queue.settings.refresh()
        yield


@pytest.mark.usefixtures("silent")
def test_a_silent_bucket_keeps_no_slot(queue: Queue) -> None:
    """The log says that its run waits, and others run."""
    run = queue.runs.start("manual")
    queue.turn()
    queue.runs.start("shop")
    until(lambda: queue.turn() or [entry for entry in queue.log if entry[:2] == ("finished", "shop")])
    waits = [entry for entry in queue.log if entry[0] == "waits"]
    assert [(entry[1], entry[2].message) for entry in waits] == [("manual", "its bucket does not answer")]
    assert queue.runs.stop(run)
    assert queue.runs.is_empty


@pytest.mark.usefixtures("silent")
def test_a_silent_bucket_does_not_keep_the_service(queue: Queue) -> None:
    """The first signal ends a run whose bucket is still asked who holds the pipeline, and the log says so."""
    queue.runs.start("manual")
    queue.turn()
    queue.runs.close(signal.SIGTERM)
    assert queue.runs.is_empty
    assert queue.log == [("left_out", "manual", "the service ends")]


def test_a_run_that_was_stopped_gets_the_second_signal_as_its_second(queue: Queue, tmp_path: Path) -> None:
    """Somebody stops it on the page, then the service ends: the run still commits. Its second signal ends it."""
    tap = f"trap : INT TERM; until test -e {tmp_path}/go; do sleep 0.05; done"
    (tmp_path / "bridge.yaml").write_text(FILE.replace("[sh, -c, exit 0]", f'[sh, -c, "{tap}"]'))
    assert queue.settings.refresh()
    run = queue.runs.start("manual")
    until(lambda: queue.turn() or (queue.runs.live() and queue.runs.live()[0].stage))
    (job,) = queue.runs._jobs
    assert queue.runs.stop(run)
    queue.runs.close(signal.SIGTERM)
    assert job.stops == [signal.SIGINT]
    queue.runs.close(signal.SIGTERM)
    assert job.stops == [signal.SIGINT, signal.SIGTERM]
    (tmp_path / "go").touch()
    queue.until_empty()


def test_the_next_run(queue: Queue) -> None:
    """In the schedule's own time zone; None without a schedule, and for a name that nobody knows."""
    following = queue.runs.next_run("shop")
    assert following
    assert following > now()
    assert f"{following:%H:%M %Z}" in ("06:00 CET", "06:00 CEST")
    assert queue.runs.next_run("manual") is None
    assert queue.runs.next_run("nobody") is None
