"""`lookback` through the command: a tap that keeps to its bookmark, rows that came late, and the STATE in the lake."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

from tests.e2e.conftest import Project

TAP = """\
import json, sys, time

pytestmark = pytest.mark.usefixtures("in_process")

def say(**message):
    print(json.dumps(message), flush=True)

given = None
if "--state" in sys.argv:
    state = json.load(open(sys.argv[sys.argv.index("--state") + 1]))
    given = state.get("bookmarks", {}).get("users", {}).get("replication_key_value")
    time.sleep(1.2)  # a commit is due from the first STATE on
json.dump(given, open("given.json", "w"))
properties = {"id": {"type": "integer"}, "k": {"type": "integer"}, "name": {"type": "string"}}
say(type="SCHEMA", stream="users", schema={"properties": properties}, key_properties=["id"], bookmark_properties=["k"])
for row in sorted(json.load(open("rows.json")), key=lambda row: row["k"]):
    if given is None or row["k"] >= given:
        say(type="RECORD", stream="users", record=row)
        bookmark = {"replication_key": "k", "replication_key_value": row["k"]}
        say(type="STATE", value={"bookmarks": {"users": bookmark}})
"""
SETTINGS: dict[str, Any] = {
    "source": {"tap": [sys.executable, "tap.py"]},
    "destination": {"bucket": "lake", "load_method": "upsert"},
    "commit": {"every": "1s"},
    "streams": {"users": {"lookback": 10}},
}


def load(project: Project, rows: dict[int, tuple[int, str]]) -> None:
    """Run the tap over a source that has these rows: by `id`, `k` and `name`."""
    source = [{"id": number, "k": k, "name": name} for number, (k, name) in rows.items()]
    (project.folder / "rows.json").write_text(json.dumps(source))
    done = project.command("run", "smoke", "--json", timeout=500)
    assert done.code == 0, done.err


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_rows_that_came_late_within_the_window_arrive(project: Project) -> None:
    """The second run's tap starts earlier, each key is there once, and no STATE that is stored goes back."""
    (project.folder / "bridge.yaml").write_text(json.dumps({"pipelines": {"smoke": SETTINGS}}))
    (project.folder / "tap.py").write_text(TAP)
    rows = {number: (number * 10, "first") for number in range(1, 11)}
    load(project, rows)
    assert json.loads((project.folder / "given.json").read_text()) is None
    assert project.state()["bookmarks"]["users"]["replication_key_value"] == 100
    late = {11: (93, "late"), 12: (80, "too late"), 13: (104, "new"), 9: (95, "changed")}
    load(project, rows | late)
    assert json.loads((project.folder / "given.json").read_text()) == 90
    found = {row[0]: row[1:] for row in project.rows("users", "id, k, name")}
    assert len(project.ids("users")) == len(found)
    assert found == {number: row for number, row in (rows | late).items() if row[1] != "too late"}
    records = [json.loads(path.read_text()) for path in sorted(project.lake.glob(".bridge/smoke/commits/*.json"))]
    stored = [record["state"]["bookmarks"]["users"]["replication_key_value"] for record in records if record["state"]]
    assert (stored, stored[-1]) == (sorted(stored), 104)
