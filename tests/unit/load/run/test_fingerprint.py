"""What changed under the bookmarks since the last success is told, and nothing that did not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bridge.lake.file_records import LiveFile
from bridge.lake.log import Snapshot
from bridge.lake.pipeline_state import PipelineState
from bridge.lake.records import TableState
from bridge.lake.runs import RunFile
from bridge.lake.storage.local.storage import LocalStorage
from bridge.load.run.checks.fingerprint import changed_since, fingerprint, last_fingerprint
from bridge.protocol.singer.catalog import Catalog
from bridge.settings.options import Pipeline
from tests.support.catalogs import catalog, stream
from tests.support.shell import Typed
from tests.unit.conftest import Load

BY_ID = catalog(stream("users", selected=True, replication_method="INCREMENTAL", replication_key="id"))
BY_AT = catalog(stream("users", selected=True, replication_method="INCREMENTAL", replication_key="at"))
FULL = catalog(stream("users", selected=True, replication_method="FULL_TABLE"))
BOOKMARK = {"bookmarks": {"users": {"replication_key": "id", "replication_key_value": 7}}}
TABLE = {"users": TableState("p/users", "c", {"a": LiveFile(1, 3)}, None)}


@pytest.fixture
def pipeline(settings: Load) -> Any:
    def make(tap: str = "/opt/tap-x --flag", **config: Any) -> Pipeline:
        base = {"source": {"tap": tap, "config": config}, "destination": {"bucket": "lake"}}
        return settings(json.dumps({"pipelines": {"shop": base}})).pipeline("shop")

    return make


def taken(pipeline: Pipeline, given: Catalog | None = BY_ID) -> dict[str, Any]:
    return fingerprint(pipeline, [pipeline.source.argv[0]], given)


def test_no_secret_is_in_it_and_none_changes_it(pipeline: Any) -> None:
    """Passwords and what is inside of addresses are left out, so that a new one is no new source."""
    one = taken(pipeline(host="db", password="hunter2-old", url="postgres://me:hunter2-old@db/x"))
    two = taken(pipeline(host="db", password="hunter2-new", url="postgres://me:hunter2-new@db/x"))
    assert one == two
    assert "hunter2" not in json.dumps(one)
    assert set(one["config"]) == {"host", "url"}
    assert "db" not in one["config"].values()


def test_what_is_the_same_elsewhere_is_the_same(pipeline: Any) -> None:
    """Another folder of the tap and another order of settings change nothing."""
    one = taken(pipeline("/opt/tap-x --flag", a={"x": 1, "y": 2}, b=1))
    two = taken(pipeline("/usr/bin/tap-x --flag", b=1, a={"y": 2, "x": 1}))
    assert one == two
    assert changed_since(pipeline(), one, two, Snapshot(1, PipelineState(BOOKMARK), TABLE)) == []


def test_a_settings_file_counts_like_settings(pipeline: Any, tmp_path: Path) -> None:
    """A JSON file is read for its settings, whatever it is called."""
    (tmp_path / "tap.json").write_text('{"host": "db", "password": "hunter2-old"}')
    base = {"source": {"tap": "tap-x --flag", "config": "tap.json"}, "destination": {"bucket": "lake"}}
    (tmp_path / "bridge.yaml").write_text(json.dumps({"pipelines": {"shop": base}}))
    from bridge.settings.load import load

    of_file = taken(load(tmp_path / "bridge.yaml", {}).pipeline("shop"))
    assert of_file["config"] == taken(pipeline(host="db"))["config"]


def test_changes_are_told_with_what_to_do(pipeline: Any) -> None:
    """Command, version and settings, each once and each with a remedy; settings by name only."""
    before = taken(pipeline(start_date="2020", host="db"))
    view = Snapshot(1, PipelineState(BOOKMARK), TABLE)
    (text,) = changed_since(pipeline(), before, taken(pipeline(start_date="2010", port=1, host="db")), view)
    assert "port, start_date" in text
    assert "host" not in text
    assert "--full" in text
    (text,) = changed_since(pipeline(), before, taken(pipeline("tap-y", start_date="2020", host="db")), view)
    assert "`tap-x --flag` to `tap-y`" in text
    newer = before | {"tap": before["tap"] | {"version": "2.0"}}
    (text,) = changed_since(pipeline(), before, newer, view)
    assert "from version unknown to 2.0" in text


def test_nothing_to_say(pipeline: Any) -> None:
    """Without a bookmark, without an earlier success, or in a run that starts over, no change matters."""
    one, two = taken(pipeline(a=1)), taken(pipeline("tap-y", a=2), BY_AT)
    assert changed_since(pipeline(), one, two, Snapshot()) == []
    assert changed_since(pipeline(), None, one, Snapshot(1, PipelineState(BOOKMARK), TABLE)) == []
    assert changed_since(pipeline(), one, two, Snapshot(1, PipelineState(BOOKMARK), TABLE), None) == []
    assert all(
        "users" not in text
        for text in changed_since(pipeline(), one, two, Snapshot(1, PipelineState(BOOKMARK), TABLE), ["users"])
    )


@pytest.mark.parametrize("before", [None, BY_ID])
@pytest.mark.parametrize("bookmark", [BOOKMARK["bookmarks"]["users"], {"id": 7}])
def test_another_replication_key_under_a_bookmark(pipeline: Any, before: Catalog | None, bookmark: Any) -> None:
    """It is told what will happen and how to begin anew: known from the bookmark itself, or from the last success."""
    view = Snapshot(1, PipelineState({"bookmarks": {"users": bookmark}}), TABLE)
    then = taken(pipeline(), before) if before else None
    told = changed_since(pipeline(), then, taken(pipeline(), BY_AT), view)
    if before is None and "replication_key" not in bookmark:
        assert told == []
        return
    (text,) = told
    assert "the replication key of users changed from id to at" in text
    assert "skip rows" in text
    assert text.endswith("To load it anew: `singer-bridge run shop --full -s users`")


def test_another_replication_method_over_a_table(pipeline: Any) -> None:
    """Rows that would come twice, and a table that would be replaced, are told before they are."""
    full, by_id = taken(pipeline(), FULL), taken(pipeline(), BY_ID)
    (text,) = changed_since(pipeline(), full, by_id, Snapshot(1, PipelineState({"bookmarks": {"users": {}}}), TABLE))
    assert "from FULL_TABLE to INCREMENTAL" in text
    assert "a second time" in text
    assert "--full -s users" in text
    (text,) = changed_since(pipeline(), by_id, full, Snapshot(1, PipelineState(BOOKMARK), TABLE))
    assert "will be replaced" in text
    assert changed_since(pipeline(), full, by_id, Snapshot(1, PipelineState(), {})) == []


def test_the_last_success_is_what_counts(tmp_path: Path) -> None:
    """Failed runs, those of versions that knew no fingerprint, and unreadable ones are passed over."""
    storage = LocalStorage(tmp_path)
    assert last_fingerprint(storage, "p") is None
    one, two, three = ({"tap": {"n": n}, "config": {}, "streams": {}} for n in (1, 2, 3))
    for day, (status, facts) in enumerate([("success", one), ("success", two), ("failed", three)], 1):
        RunFile(storage, "p", f"2026010{day}T000000Z-aaaa", fingerprint=facts).finish(status=status)
    RunFile(storage, "p", "20260109T000000Z-aaaa").finish(status="success")
    RunFile(storage, "p", "20260110T000000Z-aaaa", fingerprint={"later": 1}).finish(status="success")
    assert last_fingerprint(storage, "p") == two
    storage.write(".bridge/p/runs/20260111T000000Z-aaaa.json", b"{")
    assert last_fingerprint(storage, "p") == two


def test_it_is_told_before_anything_starts(folder: Path, typed: Typed) -> None:
    """A dry run says what a run would warn of; one that starts over would warn of nothing."""
    source = {"tap": "tap-smoke", "config": {"streams": [{"name": "users", "records": 3}]}}
    pipelines = {"shop": {"source": source, "destination": {"bucket": "lake"}}}
    (folder / "bridge.yaml").write_text(json.dumps({"pipelines": pipelines}))
    (folder / "state.json").write_text('{"bookmarks": {"users": {"replication_key": "n", "replication_key_value": 2}}}')
    assert typed("discover").code == 0
    done = typed("run --dry-run --state state.json")
    assert "warning: the replication key of users changed from n to id" in done.out
    (said,) = json.loads(typed("run --dry-run --state state.json --json").out)["warnings"]
    assert "--full -s users" in said
    assert json.loads(typed("run --dry-run --state state.json --json --full -s users").out)["warnings"] == []


def test_a_dry_run_says_where_the_tap_starts(folder: Path, typed: Typed) -> None:
    """The STATE is JSON, a stream's bookmark its value; with --full there are none, as the tap gets none."""
    source = {"tap": "tap-smoke", "config": {"streams": [{"name": "users", "records": 3}]}}
    pipelines = {"shop": {"source": source, "destination": {"bucket": "lake"}}}
    (folder / "bridge.yaml").write_text(json.dumps({"pipelines": pipelines}))
    state = '{"bookmarks":{"users":{"replication_key":"id","replication_key_value":2,"x":null}}}'
    (folder / "state.json").write_text(state)
    assert typed("discover").code == 0
    lines = typed("run --dry-run --state state.json").out.splitlines()
    (said,) = (line.removeprefix("state: ") for line in lines if line.startswith("state: "))
    assert json.loads(said) == json.loads(state)
    assert next(line.split()[-1] for line in lines if line.startswith("users")) == "2"
    full = "run --dry-run --state state.json --full"
    assert "state: ignored, --full starts from the beginning" in typed(full).out.splitlines()
    assert "replication_key" not in typed(full).out
    assert json.loads(typed(f"{full} --json").out)["streams"][0]["bookmark"] is None
    assert json.loads(typed(f"{full} -s users --json").out)["state"] is None
