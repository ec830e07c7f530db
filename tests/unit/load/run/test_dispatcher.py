"""The loop that sees every line: where it says that it is enough, and which streams the tap was done with."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from bridge.errors import DataError
from bridge.load.run.barriers import Barrier, BarrierPolicy
from bridge.load.run.dispatcher import Dispatcher, DispatchRules
from bridge.load.run.events import Sealed
from bridge.load.run.streams import StreamPlan, StreamProgress
from bridge.load.spool.spool import Spool
from bridge.protocol.schema.table_schema import TableSchema, from_singer
from bridge.protocol.singer.messages import Reader, Schema
from bridge.settings.redact import redactor
from tests.support.load import Tables

COLUMNS = {"type": "object", "properties": {"id": {"type": "integer"}}}


@pytest.fixture
def spool(tmp_path: Path) -> Iterator[Spool]:
    """A spool on disk."""
    (tmp_path / "spool").mkdir()
    spool = Spool(tmp_path / "spool")
    yield spool
    spool.close()


def opened(message: Schema) -> tuple[StreamProgress, TableSchema | None]:
    """Every stream is appended."""
    return StreamProgress(StreamPlan(message.stream, (message.stream,)), from_singer(message.schema, [])), None


class Taking:
    """A dispatcher that comes to no barrier by time or size, and its barriers."""

    def __init__(self, spool: Spool, **rules: Any) -> None:
        rules = {"commit_every": timedelta(hours=1), "commit_bytes": 1 << 30} | rules
        self.dispatcher = Dispatcher(BarrierPolicy(None, staged={}), spool, Tables(opened), DispatchRules(**rules))
        self.counts, self.barriers = self.dispatcher.counts, list[Barrier]()

    def feed(self, data: bytes) -> None:
        """Take what is in one chunk."""
        for event in self.dispatcher.take(Reader().feed(data)):
            assert isinstance(event, Sealed)
            self.barriers += [event.barrier] if event.barrier else []


def take(spool: Spool, *messages: Any, **rules: Any) -> Taking:
    """Feed messages: `("a", 3)` are three RECORDs of a, a mapping is a STATE of bookmarks; one chunk in all."""
    taking = Taking(spool, **rules)
    lines: list[dict[str, Any]] = [
        {"type": "SCHEMA", "stream": name, "schema": COLUMNS, "key_properties": []}
        for name in sorted({each[0] for each in messages if isinstance(each, tuple)})
    ]
    for each in messages:
        if isinstance(each, tuple):
            lines += [{"type": "RECORD", "stream": each[0], "record": {"id": n}} for n in range(each[1])]
        else:
            lines.append({"type": "STATE", "value": {"bookmarks": {name: {"id": n} for name, n in each.items()}}})
    taking.feed("".join(json.dumps(line) + "\n" for line in lines).encode())
    return taking


def test_enough_is_at_the_next_state(spool: Spool) -> None:
    """From the limit on, the first STATE at which one can commit is the last; nothing after it is taken."""
    taking = take(spool, ("a", 3), {"a": 3}, ("a", 4), {"a": 7}, ("a", 5), {"a": 12}, max_records=5)
    assert taking.dispatcher.enough
    assert taking.counts["a"].records == 7
    assert [barrier.state for barrier in taking.barriers] == [{"bookmarks": {"a": {"id": 7}}}]


def test_a_state_at_which_nothing_could_be_committed_is_passed(spool: Spool) -> None:
    """A STATE that covers none of the rows ends nothing: the tap would send them all again."""
    taking = take(spool, ("a", 9), {}, ("a", 1), {"a": 10}, max_records=5)
    assert taking.dispatcher.enough
    assert taking.counts["a"].records == 10
    assert len(taking.barriers) == 1


def test_without_a_limit_it_is_never_enough(spool: Spool) -> None:
    """Every message is taken."""
    taking = take(spool, ("a", 9), {"a": 9}, ("a", 1), {"a": 10})
    assert (taking.dispatcher.enough, taking.counts["a"].records, taking.barriers) == (False, 10, [])


def complete(taking: Taking) -> set[str]:
    """The streams that the run record calls complete, once all that was read is committed."""
    for counts in taking.counts.values():
        counts.committed = counts.records
    return {name for name, counts in taking.counts.items() if counts.to_json()["complete"]}


def test_a_stream_is_complete_when_another_ones_rows_began(spool: Spool) -> None:
    """The last one that spoke may have more to say; so may one that has not spoken yet."""
    taking = take(spool, ("a", 3), ("b", 2), ("c", 1), ("z", 0))
    assert complete(taking) == {"a", "b"}


def test_streams_that_take_turns_are_not_complete(spool: Spool) -> None:
    """Parents and children come in turns: nobody knows which turn was the last."""
    taking = take(spool, ("parent", 1), ("child", 2), ("parent", 1), ("child", 2), ("other", 1))
    assert complete(taking) == set()


def test_a_stream_with_rows_that_are_not_committed_is_not_complete(spool: Spool) -> None:
    """What the tap has sent and no commit has taken would be lost to a run that leaves the stream out."""
    taking = take(spool, ("a", 3), ("b", 2))
    taking.counts["a"].committed = 2
    assert not taking.counts["a"].to_json()["complete"]
    taking.counts["a"].rejected = 1
    assert taking.counts["a"].to_json()["complete"]


def test_a_streams_time_is_from_its_first_record_to_its_last(spool: Spool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Time counts by the chunk that brought a RECORD; a stream that came in one chunk took none."""
    taking = take(spool, ("a", 2), ("b", 1))
    assert [taking.counts[name].to_json()["seconds"] for name in "ab"] == [0.0, 0.0]
    began = taking.counts["a"].first_at
    assert began is not None
    monkeypatch.setattr("time.monotonic", lambda: began + 2.5)
    line = {"type": "RECORD", "stream": "a", "record": {"id": 9}}
    taking.feed(f"{json.dumps(line)}\n".encode())
    assert [taking.counts[name].to_json()["seconds"] for name in "ab"] == [2.5, 0.0]


def test_noise_without_a_commit_is_not_said_to_be_kept(spool: Spool) -> None:
    """A line that is no message is kept by the commit after it, and by nothing else."""
    taking = take(spool, max_noise=1)
    taking.feed(b"Welcome\n")
    assert "not kept, as no commit came" in taking.dispatcher.warnings()[0]
    taking.dispatcher.ignored.take_noise()
    assert taking.dispatcher.warnings() == ["1 line(s) of the tap's stdout were no Singer messages: kept as rejects"]


def test_noise_shows_no_secret(spool: Spool) -> None:
    """What a tap prints beside its messages is kept, and shown in the error, with secrets masked."""
    taking = take(spool, max_noise=1, redact=redactor(["s3cr3t-value"]))
    taking.feed(b"DEBUG password=s3cr3t-value\n")
    assert [line["raw"].rstrip() for line in taking.dispatcher.ignored.noise] == [b"DEBUG password=***"]
    with pytest.raises(DataError, match=r"first=.*password=\*\*\*"):
        taking.feed(b"again\n")


@pytest.mark.parametrize(("existing", "lines"), [((), 1), (("a",), 0)])
def test_an_ignored_version_is_said_once_for_a_table(spool: Spool, existing: tuple[str, ...], lines: int) -> None:
    """In the run that makes the table, not in each one after it."""
    tables = Tables(opened, existing=existing)
    rules = DispatchRules(timedelta(hours=1), 1 << 30)
    dispatcher = Dispatcher(BarrierPolicy(None, staged={}), spool, tables, rules)
    opening = {"type": "SCHEMA", "stream": "a", "schema": COLUMNS, "key_properties": []}
    for message in (opening, *[{"type": "ACTIVATE_VERSION", "stream": "a", "version": 1}] * 2):
        assert not list(dispatcher.take(Reader().feed(json.dumps(message).encode() + b"\n")))
    assert sum("ACTIVATE_VERSION ignored" in text for text in dispatcher.warnings()) == lines
