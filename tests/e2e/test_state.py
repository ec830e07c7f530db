"""A STATE brought along before the first run, with the real command, a real tap and Spark."""

from __future__ import annotations

import json

import pytest

import bridge
from tests.e2e.conftest import TAP, Project, stream
from tests.support.shell import Done

pytestmark = pytest.mark.usefixtures("in_process")


@pytest.mark.timeout(300)
def test_the_first_run_goes_on_where_another_tool_left_off(project: Project) -> None:
    """A STATE imported before the first run, and edited by hand on top, is where the tap starts."""
    split = {
        "completed": {"singer_state": {"bookmarks": {"users": {"replication_key": "id", "replication_key_value": 10}}}},
        "partial": {"singer_state": {"bookmarks": {"users": {"replication_key_value": 50}}}},
    }
    (project.folder / "meltano.json").write_text(json.dumps(split))
    choice = ("--to", "lake", "--name", "smoke")
    assert project.command("state", "import", "meltano.json", "--format", "meltano", *choice).code == 0
    assert project.state()["bookmarks"]["users"]["replication_key_value"] == 50
    edited = {"bookmarks": {"users": {"replication_key": "id", "replication_key_value": 90}, "gone": {"id": 1}}}
    (project.lake / ".bridge/smoke/state.json").write_text(json.dumps(edited))
    done = project.run({"streams": [stream()]})
    assert done.code == 0, done.err
    assert done.json["state_before"] == edited
    assert project.ids("users")[-10:] == list(range(91, 101))
    assert min(project.ids("users")) >= 90
    told = project.command("state", "history", *choice, "--json").json
    assert [(step["kind"], step["reason"]) for step in told] == [
        ("data", ""),
        ("state", "state.json was edited by hand"),
        ("state", "state import --format meltano"),
    ]
    rows = {row["stream"]: row["commit"] for row in project.command("state", "list", *choice, "--json").json}
    assert rows["users"] == told[0]["commit"] == 3


@pytest.mark.timeout(300)
def test_how_the_last_run_ended_for_a_stream(project: Project) -> None:
    """Whatever became of the rest of the run; a stream that `--resume` leaves out keeps its status."""
    store = bridge.StateStore(project.lake, "smoke")
    assert store.last_status("a") is None
    streams = [stream("a", 30), stream("b", 40)]
    settings = {"streams": streams, "state": {"every": 10}}
    (project.folder / "fail.json").write_text(json.dumps(settings | {"fail": {"at": 55}}))
    (project.folder / "fine.json").write_text(json.dumps(settings))

    def run(config: str, *flags: str) -> Done:
        source = f"{{tap: {TAP}, config: {config}}}"
        text = f"pipelines: {{smoke: {{source: {source}, destination: {{bucket: lake}}}}}}"
        (project.folder / "bridge.yaml").write_text(text)
        return project.command("run", "smoke", *flags)

    assert run("fail.json").code != 0
    ended = store.last_run()
    assert ended and (ended.status, store.last_status("a"), store.last_status("b")) == ("failed", "success", "failed")
    assert project.command("discover", "smoke").code == 0
    resumed = run("fine.json", "--resume")
    assert resumed.code == 0 and "the last run completed them: a" in resumed.out
    ended = store.last_run()
    assert ended and (ended.status, "a" in ended.info["streams"]) == ("success", False)
    assert (store.last_status("a"), store.last_status("b")) == ("success", "success")
    assert store.last_status("c") is None
    assert len(project.ids("b")) >= 40
