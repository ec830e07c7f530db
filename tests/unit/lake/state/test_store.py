"""The Python API to the STATE: no update is lost, a run is never disturbed, nothing damaged reads as empty."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import bridge
from bridge.errors import CorruptLake, SettingsError
from bridge.lake.commit.open import open_committer
from bridge.lake.lease import take
from bridge.lake.log import Log
from bridge.lake.pipeline_state import PipelineState
from bridge.lake.runs import RunFile
from bridge.lake.state.store import StateStore
from tests.support.lake import FIRST, Lake, holding
from tests.support.records import staged_table

ORDERS = {"replication_key": "id", "replication_key_value": 5}


@pytest.fixture
def store(lake: Lake) -> StateStore:
    return StateStore(lake.root, "p")


# reading and writing


def test_nothing_is_made_by_reading(tmp_path: Path) -> None:
    """A pipeline that never ran has no STATE, no version and no last run; asking does not make even a folder."""
    store = StateStore(tmp_path / "lake", "p")
    assert (store.get(), store.get("s"), store.version, store.last_run()) == (None, None, 0, None)
    assert not (tmp_path / "lake").exists()


def test_the_first_write_makes_the_lake(store: StateStore, lake: Lake) -> None:
    """A pipeline that never ran is given a STATE: a commit of kind `state`, `state.json`, and the lake's id."""
    assert store.set("orders", ORDERS, reason="migration") == 1
    assert store.get("orders") == ORDERS
    assert lake.state == {"bookmarks": {"orders": ORDERS}}
    assert lake.kinds == ["state"]
    assert next(Log(lake.storage, "p").history(1)).reason == "migration"
    assert json.loads((lake.root / ".bridge/lake.json").read_text())["id"]


def test_each_write_is_one_commit(store: StateStore, lake: Lake) -> None:
    """However many bookmarks are set at once, it is one commit; what changes nothing is none."""
    assert store.set_many({"a": 1, "b": {"id": 2}}) == 1
    assert store.set_many({"a": 1, "b": {"id": 2}}) == 1
    assert store.clear("a") == 2
    assert store.get() == {"bookmarks": {"b": {"id": 2}}}
    assert store.replace({"users": 5}) == 3
    assert store.clear() == 4
    assert (store.get(), lake.state, store.version) == ({}, {}, 4)
    assert lake.kinds == ["state"] * 4


def test_a_run_starts_from_it(store: StateStore, lake: Lake) -> None:
    """What was written is where the next run starts, without a fence or a note: the writer had closed cleanly."""
    store.set("orders", ORDERS)
    lease = take(lake.storage, "p", "next")
    committer = open_committer(lake.storage, "p", "next", last=lease.last)
    lease.close(head=1, clean=True)
    assert committer.snapshot.state == {"bookmarks": {"orders": ORDERS}}
    assert (committer.notes, lake.kinds) == ([], ["state"])


def test_no_digit_is_lost(store: StateStore) -> None:
    """Integers of any size and every digit of a fraction come back as they were given."""
    store.set("s", {"big": 2**70, "f": Decimal("0.10"), "x": 0.1, "nested": [(1, 2)]})
    assert store.get("s") == {"big": 2**70, "f": Decimal("0.10"), "x": Decimal("0.1"), "nested": [[1, 2]]}
    assert str(store.get("s")["f"]) == "0.10"


@pytest.mark.parametrize("bookmark", [object(), {1, 2}])
def test_what_is_no_json_is_refused(store: StateStore, lake: Lake, bookmark: Any) -> None:
    """A bookmark that JSON cannot hold is refused, and the pipeline is left in good order."""
    store.set("a", 1)
    with pytest.raises(SettingsError, match="JSON cannot hold"):
        store.set("a", bookmark)
    with pytest.raises(SettingsError, match="null is no STATE"):
        store.replace(None)
    store.set("a", 2)
    assert lake.kinds == ["state", "state"]


def test_a_flat_state_is_replaced_whole_only(store: StateStore, lake: Lake) -> None:
    """Where nothing tells streams from other keys no single bookmark is set; the whole is."""
    store.replace({"users": 2})
    for write in (lambda: store.set("users", 3), lambda: store.clear("users")):
        with pytest.raises(SettingsError, match="per stream"):
            write()
    store.replace({"users": 3})
    assert (store.get("users"), lake.kinds) == (3, ["state", "state"])


def test_an_error_of_the_change_is_the_callers(store: StateStore, lake: Lake) -> None:
    """What `update`'s function raises reaches its caller as it was; the pipeline is left in good order."""
    store.set("a", 1)
    with pytest.raises(ZeroDivisionError):
        store.update(lambda state: 1 / 0)
    written = store.update(lambda state: {**state, "more": 1})
    assert (written.version, written.before, written.after["more"]) == (2, {"bookmarks": {"a": 1}}, 1)
    assert lake.kinds == ["state", "state"]


def test_the_file_of_a_stream_follows(store: StateStore, lake: Lake) -> None:
    """The file that tells people of a stream has its new bookmark; a stream without a table gets none."""
    lake.load(lake.open(FIRST), {"bookmarks": {"s": 1}})
    store.set_many({"s": 9, "unknown": 1})
    told = json.loads((lake.root / ".bridge/p/streams/s.json").read_text())
    assert (told["bookmark"], told["rows"]) == (9, 1)
    assert os.listdir(lake.root / ".bridge/p/streams") == ["s.json"]


def test_staged_rows_of_a_changed_bookmark_are_dropped(store: StateStore, lake: Lake) -> None:
    """Half a table is gone on with from its own bookmark only: set another, and its rows are no longer staged."""
    one, two = lake.pending(0), lake.pending(0)
    stages = {s: staged_table(1, file, stream=s) for s, file in (("one", one), ("two", two))}
    state = {"bookmarks": {s: {"version": 1, "pk": 5} for s in stages}}
    lake.open(FIRST).commit(PipelineState(state), [], staged=stages)
    store.set("one", {"version": 1, "pk": 2})
    log = Log(lake.storage, "p")
    assert log.snapshot(log.head()).staged.keys() == {"two"}
    lake.edit_state('{"bookmarks": {"two": {"version": 1, "pk": 3}}}')
    store.set("three", 1)
    assert log.snapshot(log.head()).staged == {}


# pipelines and environments


def test_no_two_pipelines_share(tmp_path: Path) -> None:
    """Each pipeline, and each environment of one, has a STATE of its own, in one bucket and in several."""
    names: list[tuple[str, str | None]] = [("shop", None), ("shop", "dev"), ("shop", "prod"), ("shop_v2", None)]
    for number, (name, environment) in enumerate(names):
        assert StateStore(tmp_path / "lake", name, environment=environment).set("orders", number) == 1
    for number, (name, environment) in enumerate(names):
        assert StateStore(tmp_path / "lake", name, environment=environment).get() == {"bookmarks": {"orders": number}}
    assert StateStore(tmp_path / "lake", "prod.shop").get("orders") == 2
    assert StateStore(tmp_path / "other", "shop").get() is None


@pytest.mark.parametrize("name", ["", "../other", "a/b", ".hidden", "tables", "x" * 101])
def test_names_stay_in_their_folder(tmp_path: Path, name: str) -> None:
    """What is no pipeline's name is refused before anything is read."""
    with pytest.raises(SettingsError) as caught:
        StateStore(tmp_path, name)
    assert caught.value.hint


# damage, and what was done by hand


@pytest.mark.parametrize("text", ["", "{", "\x00", '{"a": 1} x'])
def test_a_damaged_file_is_no_empty_state(store: StateStore, lake: Lake, text: str) -> None:
    """A `state.json` that is no JSON stops reading and writing with exit 3 and what to do; not one byte is changed."""
    store.set("a", 1)
    lake.edit_state(text)
    before = lake.everything()
    for ask in (store.get, store.read, lambda: store.get("a")):
        with pytest.raises(CorruptLake, match=r"state\.json is not JSON") as caught:
            ask()
        assert (caught.value.exit_code, "commit log brings back" in caught.value.hint) == (3, True)
    assert lake.everything() == before
    with pytest.raises(CorruptLake):
        store.set("a", 2)
    assert lake.kinds == ["state"]
    (lake.root / ".bridge/p/state.json").unlink()
    assert store.get("a") == 1


def test_a_damaged_commit_is_no_empty_state(store: StateStore, lake: Lake) -> None:
    """A last commit that cannot be read is an error as well."""
    store.set("a", 1)
    (lake.root / Log(lake.storage, "p").key(1)).write_bytes(b'{"format": 1')
    for ask in (store.get, lambda: store.set("a", 2)):
        with pytest.raises(CorruptLake):
            ask()


def test_a_file_before_the_first_run(store: StateStore, lake: Lake) -> None:
    """A `state.json` put into an empty bucket is the STATE, for readers at once and for the first write."""
    lake.edit_state('{"bookmarks": {"a": 1}}')
    seen = store.read()
    assert (seen.version, seen.state, seen.edited) == (0, {"bookmarks": {"a": 1}}, True)
    written = store.update(lambda state: {"bookmarks": state["bookmarks"] | {"b": 2}})
    assert (written.version, written.before) == (2, {"bookmarks": {"a": 1}})
    assert "edited by hand" in written.notes[0]
    assert (lake.state, store.read().edited) == ({"bookmarks": {"a": 1, "b": 2}}, False)


def test_an_edited_file_is_seen(store: StateStore, lake: Lake) -> None:
    """Readers get a hand-edited STATE, as the next run will; a bookmark set on top keeps the rest of it."""
    store.set_many({"a": 1, "b": 1})
    lake.edit_state('{"bookmarks": {"a": 7}}')
    assert (store.get("a"), store.get("b"), store.read().edited, store.version) == (7, None, True, 1)
    store.set("c", 3)
    assert store.get() == lake.state == {"bookmarks": {"a": 7, "c": 3}}


def test_an_earlier_state_is_an_edit(store: StateStore, lake: Lake) -> None:
    """An earlier STATE of the log in `state.json` counts as any other that is written by hand."""
    for value in (1, 2, 3):
        store.set("a", value)
    lake.edit_state('{"bookmarks": {"a": 1}}')
    assert (store.get("a"), store.read().edited) == (1, True)
    store.set("b", 4)
    assert store.get() == lake.state == {"bookmarks": {"a": 1, "b": 4}}
    assert lake.kinds == ["state"] * 5


def test_a_file_that_a_death_left_behind(store: StateStore, lake: Lake) -> None:
    """After a death between commit and `state.json` the log counts, and the next write repairs the file."""
    committer = lake.open(FIRST)
    lake.load(committer, {"bookmarks": {"a": 1}})
    before = lake.state_files()
    lake.load(committer, {"bookmarks": {"a": 2}})
    lake.leave(before)
    seen = store.read()
    assert (seen.state, seen.edited) == ({"bookmarks": {"a": 2}}, False)
    store.set("b", 1)
    assert lake.state == {"bookmarks": {"a": 2, "b": 1}}


# the last run


def test_last_run(store: StateStore, lake: Lake) -> None:
    """The last run is told with its whole record; a running one that nobody holds has died."""
    record = RunFile(lake.storage, "p", "20260101T000001Z-aaaa", tap="tap-x")
    for run, status in (("20260101T000001Z-aaaa", "running"), ("20260101T000009Z-bbbb", "died")):
        with holding(lake, run):
            last = store.last_run()
            assert last
            assert (last.run_id, last.status, last.info["tap"]) == ("20260101T000001Z-aaaa", status, "tap-x")
    record.finish(status="failed", error={"message": "no"})
    last = store.last_run()
    assert last
    assert (last.status, last.info["error"]) == ("failed", {"message": "no"})
    store.set("a", 1)
    assert store.last_run() == last


# what is public


def test_of_a_settings_file(lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bucket and the full name are those of the file; what only the tap needs may be missing."""
    StateStore(lake.root, "p").set("orders", ORDERS)
    StateStore(lake.root, "prod.p").set("orders", {"id": 9})
    source = '{tap: tap-x, config: {password: "${NOWHERE}"}}'
    text = f"environments: {{prod: {{}}}}\npipelines: {{p: {{source: {source}, destination: {{bucket: {lake.root}}}}}}}"
    (tmp_path / "bridge.yaml").write_text(text)
    assert StateStore.from_file(tmp_path / "bridge.yaml", "p").get("orders") == ORDERS
    assert StateStore.from_file(tmp_path / "bridge.yaml", environment="prod").get("orders") == {"id": 9}
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SINGER_BRIDGE_ENV", "prod")
    assert StateStore.from_file().pipeline == "prod.p"
    with pytest.raises(SettingsError, match="unknown pipeline"):
        StateStore.from_file("bridge.yaml", "q")


def test_import_bridge_stays_light() -> None:
    """`import bridge` loads nothing of what the store needs; the store loads neither Spark nor Arrow."""
    program = (
        "import sys, bridge; assert not any(m.startswith('bridge.') for m in sys.modules), sys.modules; "
        "bridge.StateStore; assert not {'pyspark', 'pyarrow'} & sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_what_is_public() -> None:
    """What `bridge` says that it has is there; anything else is an ordinary AttributeError."""
    assert {name for name in bridge.__all__ if hasattr(bridge, name)} == {
        "AzureOptions",
        "BridgeError",
        "GcsOptions",
        "Lake",
        "Project",
        "Result",
        "S3Options",
        "StateStore",
        "View",
        "ViewRow",
        "__version__",
        "errors",
    }
    assert bridge.StateStore is StateStore
    with pytest.raises(AttributeError, match="Missing"):
        _ = bridge.Missing
