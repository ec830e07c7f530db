"""Run records: written at start and end, listed newest first, never in the way of the next run."""

from __future__ import annotations

import json
import re
import sys
import time
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from bridge.errors import CorruptLake
from bridge.lake.runs import (
    RunFile,
    counted_ids,
    ids_ahead,
    is_run_id,
    log_key,
    new_run_id,
    newest_opened,
    previous_run,
    read_attempts,
    read_log,
    read_opened,
    read_run,
    read_runs,
)
from bridge.lake.storage import Storage, open_storage
from bridge.load.run.run import Run
from bridge.operate.verify.check import verify
from bridge.settings.options import Pipeline
from bridge.settings.values.request import Request
from tests.support.pipe import wire


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    """A local bucket."""
    return open_storage(str(tmp_path / "lake"))


def test_run_ids_sort_and_differ() -> None:
    """An id begins with the time of its start, to the millisecond, and is not given twice."""
    ids = list[str]()
    for _ in range(200):
        ids.append(new_run_id())
        time.sleep(0.001)  # 0.77 ms later, the id is a later one
    assert all(re.fullmatch(r"\d{8}T\d{6}Z-[a-z0-9]{5}", run) for run in ids)
    assert ids == sorted(set(ids))
    assert len({new_run_id() for _ in range(200)}) > 195


def test_a_run_that_only_started_was_killed(storage: Storage) -> None:
    """The record is there from the start, as running; the end completes it and keeps what the start said."""
    record = RunFile(storage, "flights", "r1", tap="tap-x")
    started = read_run(storage, "flights", "r1")
    assert started
    assert (started.status, started.tap, started.stored["format"]) == ("running", "tap-x", 1)
    assert (started.ended, started.records, "ended" in started.stored) == (None, None, False)
    record.finish(status="failed", commits=3)
    ended = read_run(storage, "flights", "r1")
    assert ended
    assert ended.stored | {"ended": None} == started.stored | {"status": "failed", "commits": 3, "ended": None}


def test_a_record_of_another_version_is_read(storage: Storage) -> None:
    """Keys that we do not know stay in what is stored; what an older version did not write has its default."""
    RunFile(storage, "flights", "r1", colour="red").finish(status="success", streams={"a": {"records": 2, "new": 1}})
    record = read_run(storage, "flights", "r1")
    assert record
    assert (record.records, record.streams["a"].seconds, record.commits, record.error) == (2, 0.0, None, None)
    assert (record.stored["colour"], record.stored["streams"]["a"]["new"]) == ("red", 1)
    assert (record.opened, record.previous, record.batch) == (True, None, None)


def test_runs_are_listed_newest_first(storage: Storage) -> None:
    """The latest runs come first, as many as were asked for; other pipelines and other files do not count."""
    for second in (1, 3, 2):
        RunFile(storage, "flights", f"20260101T00000{second}Z-aaaa")
    RunFile(storage, "other", "20260101T000009Z-aaaa")
    storage.write(".bridge/flights/runs/notes.txt", b"mine")
    found = [run.run_id[:16] for run in read_runs(storage, "flights", 2)]
    assert found == ["20260101T000003Z", "20260101T000002Z"]
    assert list(read_runs(storage, "never-ran", 5)) == []


def test_runs_since(storage: Storage) -> None:
    """Only runs that began at a time or later, whatever zone it is given in; each is read when it is asked for."""
    for second in (1, 2, 3):
        RunFile(storage, "flights", f"20260101T00000{second}Z-aaaa")
    zone = timezone(timedelta(hours=2))
    found = read_runs(storage, "flights", since=datetime(2026, 1, 1, 2, 0, 2, tzinfo=zone))
    storage.write(".bridge/flights/runs/20260101T000001Z-aaaa.json", b"torn, but too old to be read")
    assert [run.run_id[14] for run in found] == ["3", "2"]


@pytest.mark.parametrize(
    ("text", "known"), [("20260101T000001Z-aaaa", True), ("flights", False), ("20260101T000001Z", False)]
)
def test_a_run_id_is_known_by_its_form(text: str, known: bool) -> None:
    """A name on the command line is told from a run's id."""
    assert is_run_id(text) is known
    assert is_run_id(new_run_id())


def test_an_unknown_run_is_none(storage: Storage) -> None:
    """No record and no log is an answer, not an error."""
    assert read_run(storage, "flights", "r9") is None
    assert read_log(storage, "flights", "r9") is None


@pytest.mark.parametrize("torn", [b"", b"{", b"3", b'"text"'])
def test_a_damaged_record_says_so(storage: Storage, torn: bytes) -> None:
    """A record that is no JSON object names itself, and says that it may be deleted."""
    storage.write(".bridge/flights/runs/r1.json", torn)
    with pytest.raises(CorruptLake, match=r"file=.bridge/flights/runs/r1\.json") as caught:
        read_run(storage, "flights", "r1")
    assert "delete" in caught.value.hint


def test_the_log_is_beside_the_record(storage: Storage) -> None:
    """A run's log is kept under its id, as the tap wrote it."""
    storage.write(log_key("flights", "r1"), b"INFO \xff hello\n")
    assert log_key("flights", "r1") == ".bridge/flights/logs/r1.log"
    assert read_log(storage, "flights", "r1") == b"INFO \xff hello\n"


def test_a_record_is_plain_json(storage: Storage, tmp_path: Path) -> None:
    """People and other tools read it with any JSON parser, whatever a STATE holds."""
    RunFile(storage, "flights", "r1").finish(state={"bookmarks": {"a": {"id": 2**60, "name": "é"}}})
    assert (
        json.loads((tmp_path / "lake/.bridge/flights/runs/r1.json").read_text())["state"]["bookmarks"]["a"]["id"]
        == 2**60
    )


def test_what_is_written_beside_a_stream_that_lost_its_bookmark(tmp_path: Path, without_spark: None) -> None:
    """A run that failed before the stream came leaves its file as the log has it, and `verify` has nothing to say."""
    said = tmp_path / "said"
    tap = f"text = open({str(said)!r}).read(); print(text); exit('\"b\"' in text)"
    source = {"tap": [sys.executable, "-c", tap]}
    pipeline = Pipeline.model_validate(
        {"name": "p", "source": source | {"discover": "never"}, "destination": {"bucket": str(tmp_path / "lake")}}
    )

    def messages(stream: str, **bookmarks: int) -> bytes:
        schema = {"properties": {"id": {"type": "integer"}}}
        return wire(
            {"type": "SCHEMA", "stream": stream, "schema": schema, "key_properties": [], "bookmark_properties": ["id"]},
            {"type": "RECORD", "stream": stream, "record": {"id": 1}},
            {"type": "STATE", "value": {"bookmarks": bookmarks}},
        )

    storage = open_storage(str(tmp_path / "lake"))
    for stream, status in (("a", "success"), ("b", "failed")):
        said.write_bytes(messages(stream, **{stream: 1}))
        result = Run(pipeline, Request(), tmp_path / "home").execute()
        assert result.status == status
    assert result.state == {"bookmarks": {"b": 1}}
    assert verify(storage, "p").findings == []
    facts = json.loads(storage.read(".bridge/p/streams/a.json") or b"")
    assert (facts["bookmark"], facts["rows"]) == (None, 1)


UNREADABLE = [b"", b"{", b"[]", b'{"run_id": "x"}', b'{"status": "running", "started": 3}', b"\xff" * 9, b"[" * 100_000]


def later(minutes: float) -> str:
    """The id of a run that began so many minutes from now."""
    return f"{datetime.now(timezone.utc) + timedelta(minutes=minutes):%Y%m%dT%H%M%SZ}-aaaa"


@pytest.mark.parametrize("text", UNREADABLE, ids=lambda text: repr(text[:20]))
def test_an_unreadable_record_is_a_row(storage: Storage, text: bytes) -> None:
    """It has its id, the time in it, what is wrong and what to type; the runs beside it are as they were."""
    first, second, third = (later(minutes) for minutes in (-30, -20, -10))
    for run in (first, third):
        RunFile(storage, "flights", run).finish(status="success")
    storage.write(f".bridge/flights/runs/{second}.json", text)
    rows = list(read_runs(storage, "flights"))
    assert [(row.run_id, row.status) for row in rows] == [
        (third, "success"),
        (second, "unreadable"),
        (first, "success"),
    ]
    assert rows[1].error
    assert (rows[1].started[:10], rows[1].ended, rows[1].records) == (rows[0].started[:10], None, None)
    assert ("unreadable" in rows[1].error.message, "delete it" in rows[1].error.hint) == (True, True)
    assert rows[1].stored["error"]["hint"] == rows[1].error.hint
    json.dumps(rows[1].stored)
    assert [row.run_id for row in read_attempts(storage, "flights", 9)] == [third, first]
    assert [row.run_id for row in read_opened(storage, "flights", 9)] == [third, first]


def test_a_record_behind_a_link_that_leads_out(storage: Storage, tmp_path: Path) -> None:
    """Somebody else's file is not read, and hides no run."""
    run = later(-10)
    RunFile(storage, "flights", run).finish(status="success")
    (tmp_path / "secret").write_text("{}")
    (tmp_path / f"lake/.bridge/flights/runs/{later(-5)}.json").symlink_to(tmp_path / "secret")
    assert [row.status for row in read_runs(storage, "flights")] == ["unreadable", "success"]


def test_an_id_of_nobodys_calendar(storage: Storage) -> None:
    """It is a row all the same."""
    storage.write(".bridge/flights/runs/99999999T999999Z-aaaa.json", b"{")
    storage.write(".bridge/flights/runs/20260230T000000Z-aaaa.json", b"{")
    assert [row.started for row in read_runs(storage, "flights")] == ["1970-01-01T00:00:00+00:00"] * 2


def test_what_may_have_loaded_is_not_passed_by(storage: Storage) -> None:
    """Nobody knows whether an unreadable run loaded anything: the next one has it before it."""
    held, torn = later(-10), later(-20)
    RunFile(storage, "flights", later(-30)).finish(status="success")
    storage.write(f".bridge/flights/runs/{torn}.json", b"{")
    assert previous_run(storage, "flights") == torn
    RunFile(storage, "flights", held, opened=False, previous=torn).finish(status="held")
    assert previous_run(storage, "flights") == torn
    newest = newest_opened(storage, "flights")
    assert newest
    assert (newest.run_id, newest.is_readable) == (torn, False)


def test_a_run_from_the_future_counts_last(storage: Storage) -> None:
    """By its id it is the newest row; for all that goes by the last run, those of a right clock came after it."""
    far, ahead, now, before = (later(minutes) for minutes in (60 * 24 * 900, 60 * 48, 0, -60))
    for run in (far, ahead, now, before):
        RunFile(storage, "flights", run).finish(status="success")
    assert [row.run_id for row in read_runs(storage, "flights")] == [far, ahead, now, before]
    assert counted_ids(storage, "flights") == [now, before, far, ahead]
    assert [row.run_id for row in read_attempts(storage, "flights", 9)] == [now, before, far, ahead]
    assert previous_run(storage, "flights") == now
    in_time = datetime.now(timezone.utc) + timedelta(days=3)
    assert counted_ids(storage, "flights", in_time) == [ahead, now, before, far]
    assert ids_ahead([far, ahead, now, before], in_time) == [far]
