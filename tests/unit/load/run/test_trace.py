"""A run exists from its first moment: whatever ends it leaves a record that says so, and costs next to nothing."""

from __future__ import annotations

import os
import shutil
import signal
import threading
import time
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from msgspec import to_builtins

from bridge.errors import LakeError
from bridge.lake.lease import take
from bridge.lake.log import Snapshot
from bridge.lake.pipeline_state import PipelineState
from bridge.lake.run_status import current, failures, fresh_since, last_run, last_success
from bridge.lake.runs import RunFile, RunRecord, Since, read_log, read_opened, read_runs
from bridge.lake.storage.local.storage import LocalStorage
from bridge.load.run.result import Counts, Result
from bridge.load.run.run import Run
from bridge.load.run.scratch import Scratch
from bridge.load.run.stop import Stop
from bridge.load.run.trace import RunTrace
from bridge.serve.facts.facts import facts_by_clock
from bridge.serve.launch.launch import launch
from bridge.settings.options import Pipeline
from bridge.settings.values.request import Request
from tests.support.pipe import wire
from tests.support.shell import Typed

SCHEMA = {"type": "SCHEMA", "stream": "s", "schema": {"properties": {"id": {"type": "integer"}}}, "key_properties": []}


@pytest.fixture
def lake(folder: Path, without_spark: None) -> LocalStorage:
    """The lake of pipeline `p`, into which runs load without Spark."""
    return LocalStorage(folder / "lake")


def pipeline(lake: LocalStorage, *tap: str, **settings: Any) -> Pipeline:
    """The pipeline `p` with this tap."""
    source = {"tap": list(tap), "discover": "never"} | settings.pop("source", {})
    return Pipeline.model_validate(
        {"name": "p", "source": source, "destination": {"bucket": str(lake.root)}} | settings
    )


def says(folder: Path, *messages: dict[str, Any]) -> tuple[str, ...]:
    """The command of a tap that says this."""
    (folder / "said").write_bytes(wire(*messages))
    return ("sh", "-c", f"cat {folder}/said")


def rows(count: int) -> list[dict[str, Any]]:
    """So many records, with a STATE after each."""
    messages = [SCHEMA]
    for number in range(1, count + 1):
        messages.append({"type": "RECORD", "stream": "s", "record": {"id": number}})
        messages.append({"type": "STATE", "value": {"bookmarks": {"s": {"id": number}}}})
    return messages


def run(chosen: Pipeline, **asked: Any) -> Result:
    return Run(chosen, Request(**asked), Path(".singer-bridge").absolute()).execute()


def a_while_ago() -> str:
    """The id of a run that began then."""
    return f"{datetime.now(timezone.utc) - timedelta(minutes=9):%Y%m%dT%H%M%SZ}-aaaa"


def recorded(lake: LocalStorage) -> list[RunRecord]:
    """All records, newest first."""
    return list(read_runs(lake, "p"))


@pytest.mark.parametrize(
    ("tap", "settings", "asked", "error"),
    [
        (("tap-nowhere",), {}, {}, "TapNotFound"),
        (("sh", "-c", "exit 3"), {"source": {"select": ["*"], "discover": "auto"}}, {}, "TapError"),
        (("sh", "-c", "exit 0"), {"source": {"catalog": "nowhere.json"}}, {}, "SettingsError"),
        (("sh", "-c", "exit 0"), {"source": {"parallelism": 2}}, {"max_records": 5}, "SettingsError"),
        (("sh", "-c", "echo '{'; exit 1"), {}, {}, "TapError"),
    ],
    ids=["no tap", "discovery fails", "no catalog", "a setting forbids it", "the tap fails"],
)
def test_whatever_ends_a_run_is_on_record(
    lake: LocalStorage, tap: tuple[str, ...], settings: dict[str, Any], asked: dict[str, Any], error: str
) -> None:
    """The record has the outcome, the error with its hint, and when it ended; a run that ended early opened nothing."""
    result = run(pipeline(lake, *tap, **settings), **asked)
    (record,) = recorded(lake)
    assert record.run_id == result.run_id
    assert record.error
    assert result.error
    assert (record.status, record.error.type, record.error.hint) == ("failed", error, result.error.hint)
    assert (bool(record.ended), record.opened) == (True, tap[-1] == "echo '{'; exit 1")


def test_a_run_without_java_is_on_record(lake: LocalStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    """What Spark needs and does not have is a failure like others."""
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    run(pipeline(lake, "sh", "-c", "exit 0", spark={"small": 0}))
    (record,) = recorded(lake)
    assert record.error
    assert "Java was not found" in record.error.message


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_before_the_load(lake: LocalStorage, number: int) -> None:
    """A run that is stopped while its tap discovers was interrupted."""
    discovers = pipeline(lake, "sh", "-c", "touch began; sleep 60", source={"select": ["*"], "discover": "auto"})

    def stop() -> None:
        while not Path("began").exists():
            time.sleep(0.02)
        os.kill(os.getpid(), number)

    other = threading.Thread(target=stop)
    other.start()
    assert run(discovers).status == "interrupted"
    other.join()
    (record,) = recorded(lake)
    assert (record.status, record.opened, bool(record.ended)) == ("interrupted", False, True)


@pytest.mark.parametrize("where", ["bridge.load.tap.source.Source.catalog", "bridge.load.run.execution.TapReader.read"])
def test_a_bug_is_on_record(lake: LocalStorage, where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even an error that nobody expects ends the record, before the load and in it."""

    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("oops")

    monkeypatch.setattr(where, broken)
    with pytest.raises(ZeroDivisionError):
        run(pipeline(lake, "sh", "-c", "exit 0"))
    (record,) = recorded(lake)
    assert record.error
    assert (record.status, record.error.message) == ("failed", "ZeroDivisionError: oops")


@pytest.mark.usefixtures("run_ids")
def test_an_attempt_that_meets_a_holder(lake: LocalStorage, folder: Path) -> None:
    """It was held, exit code 4, and points at the holder's run; what asks for the last run gets the holder's."""
    holder = a_while_ago()
    lease = take(lake, "p", holder)
    RunFile(lake, "p", holder, commit=0)
    for _ in range(3):
        result = run(pipeline(lake, *says(folder, *rows(1))))
        assert result.error
        assert (result.status, result.error.exit_code) == ("held", 4)
    lease.close(head=0, clean=True)
    *held, _ = recorded(lake)
    assert [(record.status, record.previous, record.opened) for record in held] == [("held", holder, False)] * 3
    assert [record.run_id for record in read_opened(lake, "p", 5)] == [holder]


def test_a_bucket_without_a_place_for_the_record(lake: LocalStorage, folder: Path) -> None:
    """A lake that cannot be written, or is not mounted, gets no record, and the message says that."""
    (folder / "lake").write_text("a file")
    result = run(pipeline(lake, "tap-nowhere"))
    assert result.error
    assert result.error.exit_code == 3
    assert "`runs list` cannot show this run" in result.error.hint
    (folder / "lake").unlink()
    assert run(pipeline(lake, *says(folder, *rows(1)))).status == "success"
    shutil.rmtree(folder / "lake")
    (folder / "lake").mkdir()
    result = run(pipeline(lake, "tap-nowhere"))
    assert result.error
    assert "the lake is empty" in result.error.message
    assert "`runs list` cannot show this run" in result.error.hint
    assert list((folder / "lake").iterdir()) == [], "it may be the folder below a mount"


def test_a_run_of_one_commit_writes_its_record_three_times(
    lake: LocalStorage, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At its first moment, when it has opened the pipeline, and at its end."""
    written = spied(monkeypatch)
    result = run(pipeline(lake, *says(folder, *rows(1000))))
    assert result.commits == 1
    assert sum(key.startswith(".bridge/p/runs/") for key in written) == 3
    (record,) = recorded(lake)
    assert 0 < record.seconds["load"] <= record.seconds["total"] <= result.seconds["total"] + 0.001  # it is rounded


def test_quick_commits_do_not_write_the_record_each(
    lake: LocalStorage, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hundred commits in a moment cost a few records; the end has all of them."""
    written = spied(monkeypatch)
    began = time.monotonic()
    result = run(pipeline(lake, *says(folder, *rows(100)), commit={"rows": 1}))
    assert result.commits == 100
    assert sum(key.startswith(".bridge/p/runs/") for key in written) <= 4 + (time.monotonic() - began) / 2
    (record,) = recorded(lake)
    assert (record.commits, record.records, record.state) == (100, 100, {"bookmarks": {"s": {"id": 100}}})


def spied(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The keys that are written from now on."""
    written, write = list[str](), LocalStorage.write

    def noting(self: LocalStorage, key: str, data: bytes) -> None:
        written.append(key)
        write(self, key, data)

    monkeypatch.setattr(LocalStorage, "write", noting)
    return written


def test_a_record_that_cannot_be_written_fails_no_load(
    lake: LocalStorage, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once rows are committed, the record is only news of them."""
    update = RunFile.update

    def full(self: RunFile, **facts: Any) -> None:
        if facts.get("commits"):
            raise LakeError("no space left")
        update(self, **facts)

    monkeypatch.setattr(RunFile, "update", full)
    result = run(pipeline(lake, *says(folder, *rows(3)), commit={"rows": 1}))
    assert (result.status, result.commits) == ("success", 3)


def test_the_trace_after_a_commit(lake: LocalStorage) -> None:
    """Record and log follow at most every two seconds, sooner when a stream is complete, not after the last."""
    result = Result("20260101T000000Z-aaaa", "p")
    chosen = pipeline(lake, "true")
    trace, scratch = RunTrace(lake, chosen, result), Scratch(Path("home"), chosen, result.run_id)
    scratch.prepare(lake)
    trace.opened(Snapshot(7), lake, scratch, {"tap": "tap-x"})
    counts = result.streams["s"] = Counts("append-only", "", records=2)
    view = Snapshot(8, PipelineState({"n": 8}))
    scratch.tap_log.write_bytes(b"reading s\n")

    def shown() -> tuple[Any, ...]:
        (record,) = recorded(lake)
        return record.status, record.commit, record.commits, record.records, record.streams.get("s", None) is not None

    assert shown() == ("running", 7, 0, 0, False)
    trace.committed(view, 1, last=False)
    assert shown() == ("running", 7, 0, 0, False)
    counts.committed, counts.ended = 2, True
    trace.committed(view, 1, last=True)
    assert shown() == ("running", 7, 0, 0, False)
    trace.committed(view, 1, last=False)
    assert shown() == ("running", 8, 1, 2, True)
    assert read_log(lake, "p", result.run_id) == b"reading s\n"
    assert recorded(lake)[0].state == {"n": 8}


def test_silence_after_a_quick_commit(lake: LocalStorage, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What came too soon after the last write is written once that is due, while the tap says nothing more."""
    monkeypatch.setattr("bridge.load.run.trace._EVERY", 0.5)
    (folder / "said").write_bytes(wire(*rows(3)))
    script = f"cat {folder}/said; echo waiting >&2; while [ ! -e {folder}/go ]; do sleep 0.05; done"
    seen = list[Any]()

    def look() -> None:
        end = time.monotonic() + 30
        while time.monotonic() < end and not seen:
            for record in recorded(lake):
                log = read_log(lake, "p", record.run_id)
                if (record.commits, record.records, log) == (3, 3, b"waiting\n"):
                    seen.append((record.status, record.state))
            time.sleep(0.02)
        (folder / "go").touch()

    other = threading.Thread(target=look)
    other.start()
    assert run(pipeline(lake, "sh", "-c", script, commit={"rows": 1})).commits == 3
    other.join()
    assert seen == [("running", {"bookmarks": {"s": {"id": 3}}})]


@pytest.mark.usefixtures("run_ids")
def test_runs_that_fail_are_swept(lake: LocalStorage) -> None:
    """Each attempt deletes more records that are too old than it makes, and their logs; the last load's stays."""
    for second in range(51):
        RunFile(lake, "p", f"20200101T0000{second:02}Z-aaaa").finish(status="success")
        lake.write(f".bridge/p/logs/20200101T0000{second:02}Z-aaaa.log", b"")
    for left in (11, 1, 1):
        run(pipeline(lake, "tap-nowhere"))
        assert len(list(lake.root.glob(".bridge/p/runs/2020*"))) == left
        assert len(list(lake.root.glob(".bridge/p/logs/2020*"))) == left


@pytest.mark.usefixtures("run_ids")
def test_many_attempts_do_not_hide_the_last_load(
    lake: LocalStorage, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tap that is missing for a day costs the next run no more reads than one that is missing once."""
    loaded = run(pipeline(lake, *says(folder, *rows(1))))
    for _ in range(30):
        run(pipeline(lake, "tap-nowhere"))
    reads, read = list[str](), LocalStorage.read

    def noting(self: LocalStorage, key: str) -> bytes | None:
        reads.append(key)
        return read(self, key)

    monkeypatch.setattr(LocalStorage, "read", noting)
    assert [record.run_id for record in read_opened(lake, "p", 1)] == [loaded.run_id]
    assert len(reads) <= 3


@pytest.mark.usefixtures("run_ids")
def test_many_failures_do_not_hide_the_last_success(
    lake: LocalStorage, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many runs have failed since: its age is true, costs a few reads, and is told once."""
    success = run(pipeline(lake, *says(folder, *rows(1))))
    failing = pipeline(lake, "sh", "-c", "exit 1")
    for _ in range(35):
        assert run(failing).status == "failed"
    reads, read = list[str](), LocalStorage.read
    monkeypatch.setattr(LocalStorage, "read", lambda self, key: (reads.append(key), read(self, key))[1])
    since = fresh_since(lake, "p")
    monkeypatch.undo()
    assert since == Since(success.run_id, str(recorded(lake)[-1].ended), is_success=True)
    assert len(reads) < 10
    last = last_success(lake, "p")
    assert last
    assert last.run_id == success.run_id
    assert told_in_a_day(lake) == [("stale", success.run_id)]
    run(failing)
    assert told_in_a_day(lake) == []


@pytest.mark.usefixtures("run_ids")
def test_a_pipeline_that_never_succeeded(lake: LocalStorage) -> None:
    """Its age counts from its first run, not from its last, and is told once; so if no run even began to load."""
    for chosen in (pipeline(lake, "tap-nowhere"), pipeline(lake, "sh", "-c", "exit 1")):
        run(chosen)
        first = recorded(lake)[-1]
        assert fresh_since(lake, "p") == Since(first.run_id, first.started, is_success=False)
    assert told_in_a_day(lake) == [("stale", first.run_id)]
    run(chosen)
    assert told_in_a_day(lake) == []


def told_in_a_day(lake: LocalStorage) -> list[tuple[str, str]]:
    """What the clock tells of the pipeline a day from now, if six hours without a success are too long."""
    now = datetime.now(timezone.utc) + timedelta(days=1)
    return [(fact.kind, fact.run) for fact in facts_by_clock(lake, "p", timedelta(hours=6), now)]


@pytest.mark.usefixtures("run_ids")
def test_a_run_of_a_part_is_on_record_as_such(lake: LocalStorage) -> None:
    """Whoever looks for the last whole run has to know."""
    chosen = pipeline(lake, "tap-nowhere")
    for asked in ({"streams": ("s",)}, {"resume": True}, {"max_records": 3}, {}):
        run(chosen, **asked)
    assert [record.is_narrowed for record in reversed(recorded(lake))] == [True, True, True, False]


def test_the_last_success_stays(lake: LocalStorage) -> None:
    """It is never too old to be kept, though runs that began to load since then have failed, and are deleted."""
    old = [f"20200101T0000{second:02}Z-aaaa" for second in range(3)]
    since = {"run_id": old[0], "at": "2020-01-01T00:00:01+00:00", "is_success": True}
    RunFile(lake, "p", old[0]).finish(status="success")
    for run_id in old[1:]:
        RunFile(lake, "p", run_id, since=since).finish(status="failed")
    run(pipeline(lake, "tap-nowhere"))
    left = sorted(record.run_id for record in recorded(lake))[:-1]
    assert left == [old[0], old[2]]
    remaining = fresh_since(lake, "p")
    assert remaining
    assert remaining.run_id == old[0]


def test_records_without_the_last_success(lake: LocalStorage) -> None:
    """Those of an earlier version: the latest thirty are looked at."""
    for second, status in enumerate(["success", *["failed"] * 20]):
        RunFile(lake, "p", f"20260101T0000{second:02}Z-aaaa").finish(status=status)
    since = fresh_since(lake, "p")
    assert since
    assert (since.run_id, since.is_success) == ("20260101T000000Z-aaaa", True)


def test_a_success_that_waited_for_its_turn(lake: LocalStorage) -> None:
    """A run with an earlier id that began to load later counts, too."""
    began = "2026-01-01T00:00:00+00:00"
    old = Since("20260101T000000Z-aaaa", began, is_success=True)
    RunFile(lake, "p", "20260101T000001Z-aaaa").finish(status="success")
    RunFile(lake, "p", "20260101T000002Z-aaaa", since=to_builtins(old)).finish(status="failed")
    since = fresh_since(lake, "p")
    assert since
    assert since.run_id == "20260101T000001Z-aaaa"


def test_waiting_for_the_holder_is_no_death(lake: LocalStorage, folder: Path) -> None:
    """A run that waits for its turn has a record that says running, and is not taken for dead."""
    lease = take(lake, "p", a_while_ago())
    seen = list[str]()

    def look() -> None:
        while not (records := recorded(lake)):
            time.sleep(0.02)
        seen.append(current(lake, records[0]).status)
        lease.close(head=0, clean=True)

    other = threading.Thread(target=look)
    other.start()
    assert run(pipeline(lake, *says(folder, *rows(1))), wait=timedelta(seconds=30)).status == "success"
    other.join()
    assert seen == ["running"]


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("source: {tap: tap-x, config: {token: '${TOKEN}'}}", "TOKEN"),
        ("source: {tap: tap-x}, retry: {attemps: 3}", "attemps"),
        ("source: {tap: tap-x}, streams: {s: {load_metod: upsert}}", "load_metod"),
    ],
)
def test_settings_that_refuse_a_run(folder: Path, typed: Typed, text: str, error: str) -> None:
    """As long as they say which bucket they mean, the run is on record there, and `status` shows it."""
    (folder / "bridge.yaml").write_text(f"pipelines: {{p: {{{text}, destination: {{bucket: lake}}}}}}")
    assert typed("run --dry-run").code == 2
    assert not (folder / "lake").exists()
    assert typed("run").code == 2
    (record,) = typed("runs list --to lake --json").json
    assert (record["status"], record["error"]["type"]) == ("failed", "SettingsError")
    assert error in record["error"]["message"]


def test_settings_without_a_bucket(folder: Path, typed: Typed) -> None:
    """A run whose bucket nobody knows leaves nothing."""
    (folder / "bridge.yaml").write_text("pipelines: {p: {source: {tap: x}, destination: {buckt: lake}}}")
    assert typed("run").code == 2
    assert sorted(path.name for path in folder.iterdir()) == ["bridge.yaml"]


def test_a_dry_run_leaves_no_record(folder: Path, typed: Typed) -> None:
    """It only looks."""
    (folder / "bridge.yaml").write_text("pipelines: {p: {source: {tap: tap-nowhere}, destination: {bucket: lake}}}")
    assert typed("run --dry-run").code != 0
    assert not (folder / "lake").exists()


@pytest.mark.usefixtures("run_ids")
def test_status_counts_failures(folder: Path, typed: Typed) -> None:
    """It says how often a pipeline failed since its last success, since when, and why; a success ends that."""
    lake = LocalStorage(folder / "lake")
    settings = "pipelines: {p: {source: {tap: TAP}, destination: {bucket: lake}}}"
    (folder / "bridge.yaml").write_text(settings.replace("TAP", "[sh, -c, exit 0]"))
    assert typed("run").code == 0
    (success,) = recorded(lake)
    assert typed("status --json").json[0]["failures"] is None
    (folder / "bridge.yaml").write_text(settings.replace("TAP", "tap-nowhere"))
    for _ in range(3):
        assert typed("run").code == 1
    (row,) = typed("status --json").json
    newest, _, oldest, _ = recorded(lake)
    assert (row["status"], row["run_id"]) == ("failed", newest.run_id)
    assert "tap-nowhere" in row["failures"].pop("error")
    assert row["failures"] == {
        "count": 3,
        "since": oldest.started,
        "run_id": newest.run_id,
        "last_success": success.run_id,
        "last_success_ended": success.ended,
    }
    text = typed("status").out
    assert "failed 3 times" in text
    assert row["stale"] is None, "there is no `stale_after`"
    (folder / "bridge.yaml").write_text(
        settings.replace("TAP", "tap-nowhere").replace("{p: {", "{p: {stale_after: 1h, ")
    )
    assert success.ended
    stale_from = (datetime.fromisoformat(success.ended) + timedelta(hours=1)).isoformat()
    (row,) = typed("status --json").json
    assert (row["stale"], row["stale_from"]) == (False, stale_from)
    assert "p: failed 3 times since " in text
    (folder / "bridge.yaml").write_text(settings.replace("TAP", "[sh, -c, exit 0]"))
    assert typed("run").code == 0
    assert typed("status --json").json[0]["failures"] is None


def test_attempts_that_were_held_do_not_hide_the_holder(folder: Path, typed: Typed) -> None:
    """`status` and `runs show` show the holder's run, `runs list` both, however many attempts there were."""
    lake, holder = LocalStorage(folder / "lake"), a_while_ago()
    (folder / "bridge.yaml").write_text(
        "pipelines: {p: {source: {tap: [sh, -c, exit 0]}, destination: {bucket: lake}}}"
    )
    lease = take(lake, "p", holder)
    record = RunFile(lake, "p", holder, commit=0)
    for _ in range(4):
        assert typed("run").code == 4
    assert (typed("status --json").json[0]["run_id"], typed("status --json").json[0]["status"]) == (holder, "running")
    assert typed("runs show --json").json["run_id"] == holder
    held, running = typed("runs list -n 2 --json").json
    assert (held["status"], held["held_times"], running["run_id"]) == ("held", 4, holder)
    assert "held 4 times" in typed("runs list").out
    assert len(typed("runs list --status held --json").json) == 4
    record.finish(status="success")
    lease.close(head=0, clean=True)
    assert (typed("status --json").json[0]["run_id"], typed("status --json").json[0]["status"]) == (holder, "success")


@pytest.mark.usefixtures("run_ids")
def test_a_held_attempt_hides_no_failure(lake: LocalStorage, folder: Path) -> None:
    """Neither a holder that left no record of its own, nor one that did, hides the runs that failed before it."""
    assert run(pipeline(lake, *says(folder, *rows(1)))).status == "success"
    for _ in range(3):
        run(pipeline(lake, "tap-nowhere"))
    lease = take(lake, "p", "another program")
    assert run(pipeline(lake, *says(folder, *rows(1)))).status == "held"
    lease.close(head=1, clean=True)
    failed, last = failures(lake, "p"), last_run(lake, "p")
    assert failed
    assert last
    assert failed.success
    assert (failed.count, failed.success.status, last.status) == (3, "success", "failed")


@pytest.mark.usefixtures("run_ids")
def test_a_retry_fails_once(lake: LocalStorage) -> None:
    """Each attempt has a record, and they are one failure."""
    failing = pipeline(lake, "sh", "-c", "exit 3", retry={"attempts": 2, "backoff": "1s"})
    for count in (1, 2):
        launch(failing, Request(), Path(".singer-bridge").absolute(), stop=Stop())
        failed = failures(lake, "p")
        assert failed
        assert (failed.count, len(recorded(lake)), failed.since) == (count, 2 * count, recorded(lake)[-1].started)


def test_the_record_has_what_was_asked_for(lake: LocalStorage) -> None:
    """So that the same run can be started once more; of a plain run there is nothing."""
    for number, request in enumerate((Request(), Request(full=True, append=True, streams=("a", "b")))):
        RunTrace(lake, pipeline(lake, "true"), Result(f"20260101T00000{number}Z-aaaa", "p"), request.to_record())
    latest, plain = recorded(lake)
    assert latest.requested == {"full": True, "append": True, "streams": ["a", "b"]}
    assert plain.requested == {}


def test_what_was_read_is_written_when_it_is_news(lake: LocalStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a commit, once in a while, and not while the tap is silent; the record stays as of its last commit."""
    monkeypatch.setattr("bridge.load.run.trace._EVERY_COUNT", 0.0)
    result = Result("20260101T000000Z-aaaa", "p")
    chosen = pipeline(lake, "true")
    trace, scratch = RunTrace(lake, chosen, result), Scratch(Path("home"), chosen, result.run_id)
    scratch.prepare(lake)
    trace.catch_up()
    trace.opened(Snapshot(7), lake, scratch, {"tap": "tap-x"})
    counts = result.streams["s"] = Counts("append-only", "", records=2)
    trace.catch_up()
    (record,) = recorded(lake)
    assert (record.read, record.records, record.commit, record.commits) == (2, 0, 7, 0)
    lake.delete(".bridge/p/runs/20260101T000000Z-aaaa.json")
    trace.catch_up()
    assert recorded(lake) == []
    counts.records = 3
    trace._due_count = 0.0  # the time has come
    trace.catch_up()
    assert recorded(lake)[0].read == 3


@pytest.mark.parametrize("committed", [3, 0])
def test_a_run_that_fails_says_how_much_it_read(lake: LocalStorage, folder: Path, committed: int) -> None:
    """Read and committed are two figures, in the result, the record and its JSON: here the tap breaks after 4 rows."""
    last = [{"type": "RECORD", "stream": "s", "record": {"id": number}} for number in range(4 - committed)]
    says(folder, *rows(committed), *last)
    result = run(pipeline(lake, "sh", "-c", f"cat {folder}/said; exit 1"))
    (record,) = recorded(lake)
    assert (result.status, result.read, result.records) == ("failed", 4, committed)
    assert (record.status, record.read, record.records) == ("failed", 4, committed)
    assert record.stored["streams"]["s"]["read"] == result.to_json()["streams"]["s"]["read"] == 4


def test_how_much_was_read_is_on_record_before_the_first_commit(
    lake: LocalStorage, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that of a run that is killed it is known, too: every ten seconds, which this test does not wait for."""
    monkeypatch.setattr("bridge.load.run.trace._EVERY", 0.0)
    monkeypatch.setattr("bridge.load.run.trace._EVERY_COUNT", 0.0)
    seen = list[tuple[int | None, int | None, str]]()

    def look() -> None:
        while not (records := recorded(lake)) or not records[0].read:
            time.sleep(0.02)
        seen.append((records[0].read, records[0].records, records[0].status))
        Path("seen").touch()

    says(folder, SCHEMA, {"type": "RECORD", "stream": "s", "record": {"id": 1}})
    script = f"cat {folder}/said; while [ ! -e seen ]; do sleep 0.05; done"
    other = threading.Thread(target=look)
    other.start()
    assert run(pipeline(lake, "sh", "-c", script)).status == "success"
    other.join()
    assert seen == [(1, 0, "running")]
