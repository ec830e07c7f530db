"""What is in the lake twice, or will be: refused before it happens, or said when it has."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bridge.errors import SettingsError
from bridge.lake.file_records import FileAdd, LiveFile
from bridge.lake.log import Log, Snapshot
from bridge.lake.pipeline_state import PipelineState
from bridge.lake.records import CommitRecord, TableState
from bridge.lake.storage.local.storage import LocalStorage
from bridge.load.run.checks.repeats import Seen
from bridge.load.run.result import Counts
from bridge.load.run.streams import StreamPlan, Streams
from bridge.load.run.tables.table_plan import TablePlanner
from bridge.load.run.tables.undeclared import outlook, refusal
from bridge.protocol.singer.catalog import Catalog
from bridge.protocol.singer.messages import Schema
from bridge.settings.destination import StreamKeys
from bridge.settings.options import Pipeline
from tests.support.catalogs import catalog, stream
from tests.unit.load.run.test_table_plan import pipeline

ROWS = TableState("p/s", None, {"old.parquet": LiveFile(1, 5)})
AT = StreamPlan("s", ("s",), is_known=True, bookmark="at")
NO_KEY = {"table_key_properties": [], "selected": True}


def placement(root: Path, found: Catalog | None, state: Any = None, settings: Pipeline | None = None) -> TablePlanner:
    (root / "p/s").mkdir(parents=True, exist_ok=True)
    view = Snapshot(1, PipelineState(state), {"s": ROWS})
    return TablePlanner(LocalStorage(root), settings or pipeline(root), view, found, full=False, append=False)


def with_streams(root: Path, **streams: StreamKeys) -> Pipeline:
    return pipeline(root).model_copy(update={"streams": streams})


def test_unknown_without_a_key_is_refused_before_the_run(tmp_path: Path) -> None:
    """Where the catalog says that there is no key, the table has rows and nothing says where the tap goes on."""
    made = placement(tmp_path, catalog(stream("s", **NO_KEY)), {"bookmarks": {"s": {}}})
    assert made.streams.repeating(["s"]) == ["s"]


@pytest.mark.parametrize(
    ("facts", "state", "keys"),
    [
        (NO_KEY | {"replication_method": "FULL_TABLE"}, None, {}),
        (NO_KEY | {"replication_method": "INCREMENTAL"}, None, {}),
        (NO_KEY | {"replication_key": "id"}, None, {}),
        (NO_KEY | {"table_key_properties": ["id"]}, None, {}),
        (NO_KEY, {"bookmarks": {"s": {"page": 3}}}, {}),
        (NO_KEY, {"page": 3}, {}),  # a flat STATE is one position for all
        (NO_KEY | {"parent_tap_stream_id": "up"}, {"bookmarks": {"up": {"page": 3}}}, {}),
        (NO_KEY, None, {"load_method": "append-only"}),
        (NO_KEY, None, {"key_properties": ["id"]}),
        ({"selected": True}, None, {}),  # the SCHEMA may still name a key
    ],
)
def test_what_is_decided_is_not_refused(tmp_path: Path, facts: Any, state: Any, keys: Any) -> None:
    """A method, a key, a bookmark of its own, its parent's or the tap's, or a setting: somebody has decided."""
    settings = with_streams(tmp_path, s=StreamKeys(**keys))
    assert placement(tmp_path, catalog(stream("s", **facts)), state, settings).streams.repeating(["s"]) == []


def test_without_a_catalog_the_first_row_is_refused(tmp_path: Path) -> None:
    """The SCHEMA says whether there is a key; a stream of which no row comes is left in peace."""
    (tmp_path / "p/s").mkdir(parents=True)
    (tmp_path / "p/s/old.parquet").touch()
    plain = {"properties": {"id": {"type": "integer"}}}
    assert isinstance(placement(tmp_path, None).open(Schema("s", plain, None, None))[0].refused, SettingsError)
    for keys, bookmarks in ((["id"], None), (None, ["id"])):
        assert placement(tmp_path, None).open(Schema("s", plain, keys, bookmarks))[0].refused is None


def test_a_decided_key_merges(tmp_path: Path) -> None:
    """`auto` with a key and nothing else known merges by that key, as an upsert that was set."""
    (tmp_path / "p/s").mkdir(parents=True)
    (tmp_path / "p/s/old.parquet").touch()
    made = placement(tmp_path, None)
    opened, _ = made.open(Schema("s", {"properties": {"id": {"type": "integer"}}}, ["id"], None))
    assert (opened.method, opened.keyed, made.layouts["s"].keys) == ("upsert", True, ("id",))


def test_the_lines_of_a_refusal_name_each_stream(tmp_path: Path) -> None:
    """Up to eight of them, and how many more; of a tap that is not ours what the target's settings can say."""
    error = refusal(pipeline(tmp_path), [f"s{n}" for n in range(10)])
    assert error.hint.count("replication_method: FULL_TABLE}\n") == 8
    assert "# and 2 more" in error.hint
    assert " s: {load_method: overwrite}" in refusal(pipeline(tmp_path), ["s"], piped=True).hint


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        (NO_KEY, "a second run is refused: no key"),
        (NO_KEY | {"table_key_properties": ["id"]}, "all rows again, merged by id"),
        (NO_KEY | {"replication_method": "FULL_TABLE"}, "replaces the table"),
        (NO_KEY | {"replication_method": "INCREMENTAL", "replication_key": "at"}, "adds rows after its at"),
        ({"replication_method": "LOG_BASED", "table_key_properties": ["id"]}, "changes, merged by id"),
    ],
)
def test_what_each_run_does(tmp_path: Path, facts: Any, said: str) -> None:
    """`discover` and the dry run say it of each stream before anything runs."""
    assert Streams(pipeline(tmp_path), catalog(stream("s", **facts)), Snapshot())["s"].each_run == said


def test_the_outlook_is_a_line_a_kind() -> None:
    """Two hundred streams are two lines."""
    merged = [StreamPlan(f"a{n}", (f"a{n}",), usual="upsert", keys=("id",)) for n in range(100)]
    lines = outlook([*merged, *(StreamPlan(f"b{n}", (f"b{n}",)) for n in range(100))])
    assert len(lines) == 2
    assert "a0, a1, a2, a3, a4, a5, a6, a7 and 92 more" in lines[0]
    assert outlook([StreamPlan("known", ("known",), is_known=True)]) == []


@pytest.mark.parametrize("upserts", [True, False, None])
def test_what_merged_a_table_last_is_remembered(tmp_path: Path, upserts: bool | None) -> None:
    """Where the settings leave it to the tap, the log says whether a table has each key once; an older one may not."""
    table = TableState("p/s", "0123456789abcdef", upserts=upserts)
    plan = StreamPlan("s", ("s",))
    assert plan.is_merged(table) is upserts
    assert plan.is_merged(None) is False
    assert replace(plan, setting="append-only").is_merged(table) is (upserts or False)


def opened(streams: Streams, plan: StreamPlan) -> Streams:
    streams.opened[plan.name] = plan
    return streams


def seen(root: Path, before: Any, after: Any, lows: list[Any], rows: int = 4, **given: Any) -> list[str]:
    """Return what is said of a run that added a file with these values of `at` to a table of five rows."""
    (root / "p/s").mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"id": list(range(len(lows))), "at": lows}), root / "p/s/new.parquet")
    grown = TableState("p/s", None, ROWS.files | {"new.parquet": LiveFile(1, rows)})
    counts = Counts("append-only", "", committed=rows)
    streams = Streams(given.get("settings", pipeline(root)), None, Snapshot())
    plan = replace(streams["s"], is_known=True, bookmark="at", parent=given.get("parent", ""))
    old = Snapshot(1, PipelineState(before), {"s": ROWS} if given.get("there", True) else {})
    view = Seen(opened(streams, plan), old, Snapshot(2, PipelineState(after), {"s": grown}), given.get("piped", False))
    return view.warnings({"s": counts}, LocalStorage(root))


def at(value: Any) -> dict[str, Any]:
    return {"bookmarks": {"s": {"replication_key": "at", "replication_key_value": value}}}


def day(number: int) -> datetime:
    return datetime(2024, 1, number, tzinfo=timezone.utc)


def test_a_bookmark_that_has_not_moved(tmp_path: Path) -> None:
    """An API tap that sends everything again: none of the rows is newer, and all of them are there twice."""
    [text] = seen(tmp_path, at("2024-01-03"), at("2024-01-03"), [day(1), day(3)], 1200)
    assert text.startswith("s: 0 of 1,200 row(s) are newer than the bookmark (2024-01-03), which has not moved")


@pytest.mark.parametrize(
    ("value", "lows", "said"),
    [
        ("2024-01-03T00:00:00Z", [day(1), day(4)], ["the rows reach back to"]),
        ("2024-01-03T00:00:00Z", [day(3), day(4)], ["rows at the bookmark (2024-01-03T00:00:00Z) were added"]),
        ("2024-01-03T00:00:00Z", [day(4)], []),
        ("2024-01-03", [day(2), day(4)], ["the rows reach back to"]),
        (3, [1, 4], ["the rows reach back to"]),
        (3, [3, 4], ["rows at the bookmark (3) were added"]),
        (3, [4], []),
        ("opaque", [day(1)], []),
        ("2024-01-03", ["a", "b"], []),
    ],
)
def test_rows_from_before_the_bookmark(tmp_path: Path, value: Any, lows: list[Any], said: list[str]) -> None:
    """The footers of the new files say it; what cannot be compared is left alone."""
    texts = seen(tmp_path, at(value), at("2024-02-01" if isinstance(value, str) else 9), lows)
    assert len(texts) == len(said)
    assert all(words in text for words, text in zip(said, texts, strict=True))


def test_rows_at_the_bookmark_that_somebody_wants(tmp_path: Path) -> None:
    """Who chose append-only knows that a tap sends them again."""
    assert seen(tmp_path, at(3), at(9), [3, 4], settings=pipeline(tmp_path, load_method="append-only")) == []


def test_newer_rows_with_a_bookmark_that_has_not_moved(tmp_path: Path) -> None:
    """They are not there twice: the next run adds them again. Rows of a piped tap are taken back before that."""
    [text] = seen(tmp_path, at("2024-01-03"), at("2024-01-03"), [day(2), day(4)])
    assert "the next run adds them again" in text
    assert "twice" not in text
    assert seen(tmp_path, at("2024-01-03"), at("2024-01-03"), [day(2), day(4)], piped=True) == []


def test_values_that_cannot_be_compared(tmp_path: Path) -> None:
    """A warning does not say more than was looked at."""
    [text] = seen(tmp_path, at("opaque"), at("opaque"), [day(2)])
    assert "whether they were there already is not known" in text


@pytest.mark.parametrize("kind", ["delta", "parquet"])
def test_old_rows_that_were_written_again_are_not_new(tmp_path: Path, kind: str) -> None:
    """Delta and Iceberg give a file a new name when its columns change types; its rows came earlier."""
    storage = LocalStorage(tmp_path)
    (tmp_path / "p/s").mkdir(parents=True)
    for name, days in (("again.parquet", [day(1)]), ("new.parquet", [day(4)])):
        pq.write_table(pa.table({"at": days}), tmp_path / "p/s" / name)
    table = TableState("p/s", None, ROWS.files, format=kind)
    before = Snapshot(1, PipelineState(at("2024-01-03")), {"s": table})
    adds = [
        FileAdd(name="again.parquet", source=".bridge/p/pending/x", size=1, rows=5, rewritten=True),
        FileAdd(name="new.parquet", source=".bridge/p/pending/y", size=1, rows=1),
    ]
    facts: dict[str, Any] = {
        "kind": "data",
        "run": "r",
        "generation": 1,
        "nonce": "x",
        "at": "2024-01-05T00:00:00.000+00:00",
    }
    change = table.change("s", adds, ["old.parquet"])
    _, after = Log(storage, "p").create(before, CommitRecord(n=2, state=at("2024-01-04"), tables=[change], **facts))
    checked = Seen(opened(Streams(pipeline(tmp_path), None, before), AT), before, after, piped=False)
    warnings = checked.warnings({"s": Counts("append-only", "", committed=1)}, storage)
    assert bool(warnings) == (kind == "parquet")  # there a file that is written again keeps its name


def test_no_bookmark_at_all(tmp_path: Path) -> None:
    """Incremental, and the tap says no bookmark: the next run adds the same rows again. A choice is not questioned."""
    [text] = seen(tmp_path, None, {"bookmarks": {"s": {}}}, [day(1)])
    assert text.startswith("rows were added, and no bookmark came with them: s.")
    chosen = with_streams(tmp_path, s=StreamKeys(load_method="append-only"))
    assert seen(tmp_path, None, None, [day(1)], settings=chosen) == []
    assert seen(tmp_path, None, None, [day(1)], parent="up") == []
    flat = {"page": 7}
    assert seen(tmp_path, flat, flat, [day(1)]) == []


def test_a_target_says_that_rows_were_added_again(tmp_path: Path) -> None:
    """There append-only is the default, so nobody may have chosen it: said from the second run on."""
    chosen = with_streams(tmp_path, s=StreamKeys(load_method="append-only"))
    assert seen(tmp_path, None, None, [day(1)], settings=chosen, piped=True) != []
    assert seen(tmp_path, None, None, [day(1)], settings=chosen, piped=True, there=False) == []
