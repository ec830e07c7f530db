"""What goes wrong in silence is said: tables that would grow, rows without a STATE, a bookmark that stands still."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import TAP, Done, Project, stream

pytestmark = pytest.mark.usefixtures("in_process")


def write_settings(project: Project, streams: list[dict[str, Any]], **more: Any) -> None:
    """A pipeline whose tap gets no catalog. `more` are keys of the pipeline, and `state` of the tap's settings."""
    config = {"seed": 1, "streams": streams, "state": more.pop("state", {})}
    source = {"tap": TAP, "config": config}
    pipeline = {"source": source, "destination": {"bucket": "lake"}, **more}
    (project.folder / "bridge.yaml").write_text(json.dumps({"pipelines": {"smoke": pipeline}}))


def run(project: Project) -> Done:
    return project.command("run", "smoke", "--json", timeout=300)


def test_a_first_run_discovers_by_itself(project: Project) -> None:
    """Whole tables, with a key and without, are replaced by each run; nobody typed `discover`, and no row is lost."""
    whole = {"replication_method": "FULL_TABLE"}
    write_settings(project, [stream("rates", 20, **whole), stream("notes", 20, key_properties=[], **whole)])
    for _ in range(2):
        done = run(project)
        assert done.code == 0, done.err
        assert {s["load_method"] for s in done.json["streams"].values()} == {"overwrite"}
        assert done.json["warnings"] == []
        assert project.ids("rates") == project.ids("notes") == list(range(1, 21))
    assert not (project.folder / ".singer-bridge/catalogs/smoke.json").exists()
    facts = json.loads((project.folder / "lake/.bridge/smoke/streams/rates.json").read_bytes())
    assert facts["replication_method"] == "FULL_TABLE"
    planned = project.command("run", "smoke", "--dry-run", "--json").json["streams"]
    assert {each["reason"] for each in planned} == {"the tap discovers it as FULL_TABLE"}


def test_rows_without_a_state_can_be_refused(project: Project) -> None:
    """`fail`: nothing of them is committed, exit 1, and the error says what to do. Whole tables need no STATE."""
    streams = [stream("users", 30), stream("rates", 20, replication_method="FULL_TABLE")]
    write_settings(project, streams, on_no_state="fail", state={"never": True})
    refused = run(project)
    assert refused.code == 1
    assert refused.json["error"]["message"] == "the tap sent rows and no STATE streams=users"
    assert "on_no_state: warn" in refused.json["error"]["hint"]
    assert project.rows("users") == project.rows("rates") == []
    write_settings(project, streams[1:], on_no_state="fail", state={"never": True})
    assert run(project).code == 0
    assert len(project.rows("rates")) == 20


@pytest.mark.slow
def test_a_bookmark_that_stands_still(project: Project) -> None:
    """The third run that brings rows and does not move it warns; `status` and `doctor` show it."""
    schema = {"properties": {"id": {"type": "integer"}, "at": {"type": "integer"}}}
    opening = {"type": "SCHEMA", "stream": "users", "schema": schema, "key_properties": ["id"]}
    rows = [{"type": "RECORD", "stream": "users", "record": {"id": n, "at": 7}} for n in range(5)]
    position = {"bookmarks": {"users": {"replication_key": "at", "replication_key_value": 7}}}
    lines = [opening | {"bookmark_properties": ["at"]}, *rows, {"type": "STATE", "value": position}]
    (project.folder / "tap.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    source = {"tap": str(Path(TAP).with_name("tap-replay")), "config": {"path": "tap.jsonl", "honour_state": False}}
    pipeline = {"source": source, "destination": {"bucket": "lake", "load_method": "upsert"}}
    (project.folder / "bridge.yaml").write_text(json.dumps({"pipelines": {"smoke": pipeline}}))
    warned = [[text for text in run(project).json["warnings"] if "has not moved" in text] for _ in range(5)]
    assert [len(texts) for texts in warned] == [0, 0, 0, 1, 0]
    assert len(project.rows("users")) == 5
    [facts] = project.command("status", "smoke", "--json").json
    assert facts["marks"] == {"standstill": ["users"]}
    assert "bookmark stands still" in project.command("status", "smoke").out
    checks = project.command("doctor", "smoke", "--no-spark", "--json").json["checks"]
    assert any(check["check"] == "last run" and "has not moved in 3 runs" in check["found"] for check in checks)
