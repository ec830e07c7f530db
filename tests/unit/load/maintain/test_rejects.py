"""What could not be stored: kept with its neighbours' commit, found, read, loaded when it fits, deleted."""

from __future__ import annotations

import re
import shutil
from typing import Any

import duckdb
import orjson
import pytest

from bridge.errors import DataError
from bridge.lake.commit.rollback import roll_back
from bridge.load.maintain.rejects.purge import purge
from bridge.load.maintain.rejects.replay import rehearse, replay
from bridge.load.maintain.rejects.survey import Criteria, find, orphans
from bridge.load.write.context import WriteContext
from bridge.load.write.rejects import write_rejects
from tests.support.pipe import Found
from tests.support.shelf import BIG, INT, WIDE, Shelf, record, schema, state, wire


def ids(found: Found) -> list[int]:
    return sorted(row["id"] for row in found.rows("s"))


def stored(shelf: Shelf) -> list[tuple[int, int]]:
    """`id` and `n` of the rows of `s`, as another engine reads them."""
    query = f"select id, n from read_parquet('{shelf.lake}/p/s/*.parquet', union_by_name=true) order by id"
    return [(number, int(n)) for number, n in duckdb.sql(query).fetchall()]


def spoilt(shelf: Shelf) -> Found:
    """A run with three rejects, of two reasons, among its rows."""
    messages = [schema(), record(1), record(2, BIG), record(3, "x"), record(4), record(5, BIG + 1), state(5)]
    return shelf.say(*messages)


def test_a_reject_says_all_that_is_to_know(shelf: Shelf) -> None:
    """Reason, pointer, original bytes, run, and the record's number among those of its stream in the run."""
    found = spoilt(shelf)
    assert found.error is None
    assert ids(found) == [1, 4]
    kept = shelf.kept()
    assert [(r["offset"], r["reason"], r["pointer"]) for r in kept] == [
        (2, "integer beyond 64 bits", "/n"),
        (3, "not an integer", "/n"),
        (5, "integer beyond 64 bits", "/n"),
    ]
    assert {(r["run"], r["stream"], r["format"]) for r in kept} == {("run", "s", 1)}
    assert orjson.loads(kept[0]["raw"].replace(str(BIG), "0"))["record"] == {"id": 2, "n": 0}


def test_offsets_count_through_segments_commits_and_schemas(shelf: Shelf) -> None:
    """A record's number is that of the run, whichever file, schema or commit it came into, other streams apart."""
    messages: list[dict[str, Any]] = [schema(), schema("t")]
    for number in range(1, 31):
        messages.append(record(number, BIG if number % 10 == 7 else 0))
        messages.append(record(number, "x" if number == 4 else 0, "t"))
        if number == 15:
            messages.append(schema(n=INT | {"maximum": 5}))
        messages.append(state(number))
    shelf.say(*messages, commit={"every": "1s"})
    assert [r["offset"] for r in shelf.kept(stream="s")] == [7, 17, 27]
    assert [r["offset"] for r in shelf.kept(stream="t")] == [4]


def test_listed_by_stream_run_and_reason(shelf: Shelf) -> None:
    """Counts and bytes add up to the files, without reading them; what is chosen is all that is listed."""
    spoilt(shelf)
    shelf.load(b"hello\n" + wire(schema("t"), record(1, "x", "t")))
    found = shelf.listed()
    assert [(g.stream, g.reason, g.records) for g in found] == [
        ("s", "integer beyond 64 bits", 2),
        ("s", "not an integer", 1),
        (None, "not a Singer message", 1),
        ("t", "not an integer", 1),
    ]
    files = list((shelf.lake / ".bridge/p/rejects").rglob("*.jsonl"))
    assert sum(g.bytes for g in found) == sum(file.stat().st_size for file in files)
    assert {g.stream for g in shelf.listed(reason="NOT AN")} == {"s", "t"}
    assert [g.records for g in shelf.listed(stream="(stdout)")] == [1]
    assert shelf.listed(run="another") == []


def test_rejects_of_uncommitted_neighbours_are_none(shelf: Shelf) -> None:
    """Rows that a failed run could not commit take their rejects with them: the next run has both again, once."""
    messages = [schema(), record(1), state(1), record(2), record(3, "x")]
    assert shelf.say(*messages, fails=True).error
    assert shelf.listed() == []
    found = shelf.say(schema(), record(2), record(3, "x"), state(3))
    assert ids(found) == [1, 2]
    assert [g.records for g in shelf.listed()] == [1]


def test_held_rows_hold_their_rejects(shelf: Shelf) -> None:
    """While rows wait for their bookmark, so do the rejects among them; another stream's commit does not name them."""
    marks = {"progress_markers": {"replication_key": "id", "replication_key_value": 2}}
    said = {"bookmarks": {"s": marks, **state(1, "t")["value"]["bookmarks"]}}
    messages = [schema(), record(1), record(2, "x"), {"type": "STATE", "value": {"bookmarks": {"s": marks}}}]
    messages += [schema("t"), record(1, "x", "t"), record(2, 0, "t"), {"type": "STATE", "value": said}]
    found = shelf.say(*messages, fails=True)
    assert found.streams() == ["t"]
    assert [(g.stream, g.records) for g in shelf.listed()] == [("t", 1)]


def test_an_overwrite_replaces_the_rejects_too(shelf: Shelf) -> None:
    """A table loaded anew has the rejects of that load, not those of the one before; undone with it."""
    full = {"load_method": "overwrite"}
    shelf.say(schema(bookmarks=False), record(1, "a"), record(2, "b"), record(3), **full)
    assert [g.records for g in shelf.listed()] == [2]
    before = shelf.log.head()
    shelf.say(schema(bookmarks=False), record(1), record(2, "b"), record(3), **full)
    assert [g.records for g in shelf.listed()] == [1]
    roll_back(shelf.storage, "p", before)
    assert [g.records for g in shelf.listed()] == [2]


# on_reject and max


def test_fail_commits_nothing_of_the_epoch(shelf: Shelf) -> None:
    """The error shows the first reject with its place and reason; neither its rows nor its STATE are stored."""
    shelf.say(schema(), record(1), state(1))
    found = shelf.say(schema(), record(2), record(3, "x"), state(3), rejects={"on_reject": "fail"})
    assert isinstance(found.error, DataError)
    assert found.error.exit_code == 1
    for part in ("a record cannot be stored", "stream=s", "not an integer", "pointer=/n", "offset=2"):
        assert part in str(found.error)
    assert ids(found) == [1]
    assert found.state == state(1)["value"]
    assert shelf.listed() == []


@pytest.mark.parametrize(("limit", "fails"), [(3, False), (2, True)])
def test_max_counts_over_the_run(shelf: Shelf, limit: int, fails: bool) -> None:
    """As many rejects as `rejects.max` are allowed in a run, over all its commits, and none more."""
    messages: list[dict[str, Any]] = [schema(), record(0)]
    for number in (1, 2, 3):
        messages += [record(number, "x"), state(number)]
    found = shelf.say(*messages, rejects={"max": limit})
    assert (isinstance(found.error, DataError) and "too many rejects" in str(found.error)) == fails
    again = shelf.say(schema(), record(4, "x"), record(5), state(5), rejects={"max": 1})
    assert again.error is None


# replay


def widened(shelf: Shelf) -> Found:
    """The run after which big numbers fit."""
    return shelf.say(schema(n=WIDE), record(6, BIG + 2), state(6))


def test_replay_loads_what_fits(shelf: Shelf) -> None:
    """One commit has the rows, exactly once and exact, and names what was consumed and what is left; STATE stays."""
    spoilt(shelf)
    before = widened(shelf).state
    assert rehearse(shelf.storage, shelf.pipeline(), Criteria()).fit == 2
    head = shelf.log.head()
    done = shelf.replay()
    assert (done.fit, dict(done.streams["s"].left)) == (2, {"not a number": 1})
    assert done.commit == shelf.log.head() == head + 1
    assert stored(shelf) == [(1, 0), (2, BIG), (4, 0), (5, BIG + 1), (6, BIG + 2)]
    assert shelf.view().state == before
    [left] = shelf.kept()
    assert (left["offset"], left["reason"], left["run"]) == (3, "not a number", "run")
    again = shelf.replay()
    assert (again.fit, again.commit) == (0, head + 1)


def test_replay_into_an_object_with_a_variant(shelf: Shelf) -> None:
    """A record that fits by now is stored, with the value in the field's first type."""
    for n, (said, a) in enumerate([(INT, 7), ({"type": "string"}, "x"), (INT, 8)]):
        message = schema(n=INT if n < 2 else WIDE)
        message["schema"]["properties"]["o"] = {"type": "object", "properties": {"a": said}}
        rows = [{"type": "RECORD", "stream": "s", "record": {"id": i, "n": i, "o": {"a": a}}} for i in (n, BIG)]
        rows[1]["record"]["id"] = n + 10
        shelf.say(message, *rows, state(n), streams={"s": {"on_type_change": "variant" if n < 2 else "rewrite"}})
    assert shelf.replay().fit == 1
    query = f"select id, o from read_parquet('{shelf.lake}/p/s/*.parquet', union_by_name=true) where id > 9 order by id"
    assert duckdb.sql(query).fetchall() == [(10, {"a": 7, "a__string": None}), (12, {"a": 8, "a__string": None})]


def test_replay_by_choice(shelf: Shelf) -> None:
    """Only what was chosen is looked at; rejects beside it in the same file stay as they are."""
    spoilt(shelf)
    widened(shelf)
    assert shelf.replay(reason="not an integer").fit == 0
    assert shelf.replay(run="another").fit == 0
    done = shelf.replay(reason="beyond 64", stream="s")
    assert done.fit == 2
    assert [(g.reason, g.records) for g in shelf.listed()] == [("not an integer", 1)]


def test_replay_leaves_what_has_no_table(shelf: Shelf) -> None:
    """Lines that are no messages, and rejects of a stream without a table, stay, and it is said why."""
    shelf.load(b"hello\n" + wire(schema(), record(1, "x"), state(1)))
    done = shelf.replay()
    assert done.fit == 0
    assert "no Singer messages" in done.streams[None].why
    assert len(shelf.kept()) == 2


def test_replay_keeps_to_the_settings(shelf: Shelf) -> None:
    """What `columns` leaves out is not stored by a replay either, renamed columns have their names."""
    shaped = {"streams": {"s": {"columns": ["!secret*"], "rename": {"n": "number"}}}}
    secret = {"secret_1": "hidden"}
    for columns, number in ((INT, 1), (WIDE, 3)):
        message = schema(n=columns)
        message["schema"]["properties"]["secret_1"] = {"type": "string"}
        messages = [record(number), record(number + 1, BIG)]
        for one in messages:
            one["record"] |= secret
        shelf.say(message, *messages, state(number + 1), **shaped)
    assert replay(shelf.storage, shelf.pipeline(**shaped), Criteria()).fit == 1
    query = f"select * from read_parquet('{shelf.lake}/p/s/*.parquet', union_by_name=true) order by id"
    found = duckdb.sql(query)
    assert found.columns == ["id", "number"]
    assert [(one, int(n)) for one, n in found.fetchall()] == [(1, 0), (2, BIG), (3, 0), (4, BIG)]


@pytest.mark.parametrize(
    "keys", [{"load_method": "upsert", "key_properties": ["id"]}, {"transform": "select * from stream"}]
)
def test_replay_refuses_what_only_a_run_can(shelf: Shelf, keys: dict[str, Any]) -> None:
    """An old record must not replace a newer row, and SQL needs the engine: it is said, and the rejects stay."""
    spoilt(shelf)
    widened(shelf)
    done = replay(shelf.storage, shelf.pipeline(streams={"s": keys}), Criteria())
    assert done.fit == 0
    assert "set the bookmark back and run" in done.streams["s"].why
    assert len(shelf.kept()) == 3


def test_replay_asks_the_log_whether_a_table_is_merged(shelf: Shelf) -> None:
    """Run records are not needed for it. Of a table of an older version nobody knows: refused, until it is set."""
    spoilt(shelf)
    widened(shelf)
    shutil.rmtree(shelf.lake / ".bridge/p/runs", ignore_errors=True)
    for path in (shelf.lake / ".bridge/p/commits").iterdir():
        path.write_text(re.sub(r'"upserts": \w+', '"_": 0', path.read_text()))
    unknown = rehearse(shelf.storage, shelf.pipeline(), Criteria())
    assert (unknown.fit, "set its load_method" in unknown.streams["s"].why) == (0, True)
    chosen = shelf.pipeline(streams={"s": {"load_method": "append-only"}})
    assert rehearse(shelf.storage, chosen, Criteria()).fit > 0
    for path in (shelf.lake / ".bridge/p/commits").iterdir():
        path.write_text(path.read_text().replace('"_": 0', '"upserts": true'))
    assert "an upsert" in rehearse(shelf.storage, chosen, Criteria()).streams["s"].why


def test_metadata_columns_of_a_replay(shelf: Shelf) -> None:
    """Replayed rows have the metadata columns that a run's rows have."""
    with_them = {"add_record_metadata": True}
    shelf.say(schema(), record(1), record(2, BIG, time_extracted="2024-01-01T00:00:00Z"), state(2), **with_them)
    shelf.say(schema(n=WIDE), record(3), state(3), **with_them)
    assert replay(shelf.storage, shelf.pipeline(**with_them), Criteria()).fit == 1
    columns = "id, year(_sdc_extracted_at), _sdc_batched_at is null"
    query = f"select {columns} from read_parquet('{shelf.lake}/p/s/*.parquet', union_by_name=true) order by id"
    assert duckdb.sql(query).fetchall()[1] == (2, 2024, False)


def test_a_rollback_past_a_replay_brings_the_rejects_back(shelf: Shelf) -> None:
    """The rows go and the records are rejects again, so that nothing is lost and a second replay loads them once."""
    spoilt(shelf)
    widened(shelf)
    before, head = shelf.kept(), shelf.log.head()
    shelf.replay()
    roll_back(shelf.storage, "p", head)
    assert shelf.kept() == before
    assert shelf.replay().fit == 2
    assert [number for number, _ in stored(shelf)] == [1, 2, 4, 5, 6]


# purge


def test_purge_deletes_and_records(shelf: Shelf) -> None:
    """What is chosen is gone from log and bucket; what is not stays, in the same file or others; tables stay."""
    spoilt(shelf)
    gone, head, _ = purge(shelf.storage, "p", Criteria(reason="beyond"))
    assert [(g.reason, g.records) for g in gone] == [("integer beyond 64 bits", 2)]
    assert next(shelf.log.history(head)).kind == "purge"
    assert [r["offset"] for r in shelf.kept()] == [3]
    purge(shelf.storage, "p", Criteria())
    assert list((shelf.lake / ".bridge/p/rejects").rglob("*.jsonl")) == []
    assert shelf.listed() == []
    assert shelf.say(schema(), record(6), state(6)).error is None


def test_purge_takes_orphans(shelf: Shelf) -> None:
    """Reject files that no commit counts go with a purge of everything, and with it only."""
    shelf.say(schema(), record(1), state(1))
    job = WriteContext(str(shelf.lake), "p", "dead", 1, "", "zstd", {})
    write_rejects(shelf.storage, job, "s", [{"stream": "s", "reason": "not an integer", "raw": b"{}"}])
    assert shelf.listed() == []
    [orphan] = orphans(shelf.storage, "p", shelf.view(), Criteria())
    purge(shelf.storage, "p", Criteria(stream="s"))
    assert shelf.storage.size(orphan)
    head = shelf.log.head()
    purge(shelf.storage, "p", Criteria())
    assert shelf.storage.size(orphan) is None
    assert shelf.log.head() <= head + 1, "nothing was in the log: no commit for it, but perhaps a fence"


def test_snapshots_forget_what_the_retention_deleted(shelf: Shelf) -> None:
    """The log names reject files that exist: else each snapshot would be longer than the one before."""
    spoilt(shelf)
    spoilt(shelf)
    first, second = find(shelf.storage, "p", shelf.view(), Criteria())
    shelf.storage.delete(first.file)
    assert [file.file for file in find(shelf.storage, "p", shelf.view(), Criteria())] == [second.file]
    for number in range(shelf.log.head(), 101):
        shelf.say(schema(), record(number), state(number))
    snapshot = next(shelf.log.history(100))
    assert list(snapshot.rejected or ()) == [second.file]
    assert [g.records for g in shelf.listed(reason="not an")] == [1]
