"""What a tap without a catalog says of its streams: whole tables are replaced, nothing is deleted on a guess."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bridge.lake.file_records import LiveFile
from bridge.lake.log import Snapshot
from bridge.lake.pipeline_state import PipelineState
from bridge.lake.records import TableState
from bridge.lake.runs import RunFile
from bridge.lake.storage.local.storage import LocalStorage
from bridge.load.run.streams import Streams
from bridge.load.run.tables.declared import whole_tables
from bridge.load.run.tables.table_plan import TablePlanner
from bridge.load.run.tables.undeclared import outlook
from bridge.protocol.singer.catalog import Catalog
from bridge.protocol.singer.messages import Schema
from bridge.settings.destination import StreamKeys
from tests.support.catalogs import catalog, stream
from tests.unit.load.run.test_table_plan import pipeline

RATES = catalog(stream("rates", replication_method="FULL_TABLE"))
ROWS = {"rates": TableState("p/rates", None, {"old.parquet": LiveFile(1, 20)})}


def whole(root: Path, declared: Catalog | None, state: Any = None, method: str = "", **streams: Any) -> frozenset[str]:
    """The streams whose tables are replaced; with a `method` a run before this one loaded 20 rows of them by it."""
    storage, view = LocalStorage(root), Snapshot(1, PipelineState(state), ROWS if method else {})
    if method:
        RunFile(storage, "p", "20260101T000000Z-aaaa").finish(streams={"rates": {"load_method": method}})
    settings = pipeline(root).model_copy(update={"streams": streams})
    return whole_tables(declared, settings, storage, view)


@pytest.mark.parametrize("keys", [["id"], []])
def test_a_whole_table_is_replaced(tmp_path: Path, keys: list[str]) -> None:
    """With a key and without; before, it grew by all of its rows in each run, or a second run was refused."""
    (tmp_path / "p/rates").mkdir(parents=True)
    view = Snapshot()
    names = whole(tmp_path, RATES)
    made = TablePlanner(LocalStorage(tmp_path), pipeline(tmp_path), view, None, full=False, append=False, whole=names)
    opened, _ = made.open(Schema("rates", {"properties": {"id": {"type": "integer"}}}, keys, ["id"]))
    assert (opened.method, opened.plan.reason) == ("overwrite", "the tap discovers it as FULL_TABLE")
    other, _ = made.open(Schema("orders", {"properties": {"id": {"type": "integer"}}}, ["id"], ["id"]))
    assert other.method == "append-only"


def test_the_settings_have_the_last_word(tmp_path: Path) -> None:
    """A stream with a load method of its own is loaded so."""
    (tmp_path / "p/rates").mkdir(parents=True)
    settings = pipeline(tmp_path).model_copy(update={"streams": {"rates": StreamKeys(load_method="append-only")}})
    made = TablePlanner(LocalStorage(tmp_path), settings, Snapshot(), None, full=False, append=False, whole={"rates"})
    assert made.streams.expected("rates").method == "append-only"


def test_a_table_goes_on_as_the_last_run_loaded_it(tmp_path: Path) -> None:
    """One that was merged by key keeps its rows; one that was appended to, or replaced, is replaced."""
    assert whole(tmp_path, RATES, method="upsert") == frozenset()
    for method in ("append-only", "overwrite"):
        assert whole(tmp_path, RATES, method=method) == {"rates"}


@pytest.mark.parametrize(
    ("declared", "state", "streams"),
    [
        (None, None, {}),
        (catalog(stream("rates")), None, {}),
        (catalog(stream("rates", replication_method="INCREMENTAL")), None, {}),
        (catalog(stream("rates", replication_method="FULL_TABLE", parent_tap_stream_id="up")), None, {}),
        (RATES, {"bookmarks": {"rates": {"partitions": [{"context": {"up_id": 1}}]}}}, {}),
        (RATES, None, {"rates": StreamKeys(parent="up")}),
    ],
)
def test_what_may_be_a_part_is_not_replaced(tmp_path: Path, declared: Any, state: Any, streams: Any) -> None:
    """A child comes as far as its parent changed: its other rows are still in the source."""
    assert whole(tmp_path, declared, state, **streams) == frozenset()


REVIEWS = catalog(
    stream("pulls", replication_method="INCREMENTAL", replication_key="at"),
    stream("reviews", replication_method="FULL_TABLE", table_key_properties=["id"]),
)
_OF_CHILD = {"partitions": [{"context": {"repo": "r"}}]}


@pytest.mark.parametrize(
    ("reviews", "pulls", "settings", "expected"),
    [
        (_OF_CHILD, {"replication_key_value": 5}, {}, "upsert"),
        (_OF_CHILD, {"partitions": [{"context": {}, "replication_key_value": 5}]}, {}, "upsert"),
        (_OF_CHILD, {}, {}, "overwrite"),
        ({}, {"replication_key_value": 5}, {}, "overwrite"),
        ({}, {}, {"parent": "pulls"}, "upsert"),
        (_OF_CHILD, {"replication_key_value": 5}, {"parent": "reviews"}, "overwrite"),
        (_OF_CHILD, {"replication_key_value": 5}, {"replication_method": "FULL_TABLE"}, "overwrite"),
        (_OF_CHILD, {"replication_key_value": 5}, {"load_method": "append-only"}, "append-only"),
    ],
)
def test_a_child_that_the_catalog_calls_whole(
    tmp_path: Path, reviews: Any, pulls: Any, settings: Any, expected: str
) -> None:
    """tap-github sends the reviews of pull requests that changed, and says FULL_TABLE: it is merged."""
    view = Snapshot(1, PipelineState({"bookmarks": {"reviews": reviews, "pulls": pulls}}), {})
    made = pipeline(tmp_path).model_copy(update={"streams": {"reviews": StreamKeys(**settings)}})
    plan = Streams(made, REVIEWS, view).expected("reviews")
    assert plan.usual == expected
    assert (plan.usual == "upsert") == plan.is_part
    if plan.is_part:
        assert plan.reason == "a child comes as far as its parent changed: by key id"
        assert "streams: {reviews: {replication_method: FULL_TABLE}}" in outlook([plan])[0]
