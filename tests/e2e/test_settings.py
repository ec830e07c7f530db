"""A project with environments, included files and per-stream settings, run as a user runs it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.e2e.conftest import TAP, Project, stream

pytestmark = pytest.mark.usefixtures("in_process")

MAIN = """\
defaults:
  destination: {bucket: ./lake}
  streams: {"*": {load_method: append-only}}
environments:
  prod:
    defaults: {destination: {bucket: ./prod}}
include: [more/*.yaml]
pipelines:
  broken: {source: {tap: x, config: {password: "${NOT_SET}"}}}
"""
MORE = f"""\
pipelines:
  people:
    source: {{tap: "{TAP}", config: tap.json}}
    streams:
      us*: {{load_method: overwrite}}
      orders: {{key_properties: [id]}}
"""


@pytest.mark.timeout(300)
def test_each_layer_takes_part_in_a_run(project: Project) -> None:
    """An included pipeline runs in an environment under its own name, each stream as its glob says."""
    more = project.folder / "more"
    more.mkdir()
    (project.folder / "bridge.yaml").write_text(MAIN)
    (more / "people.yaml").write_text(MORE)
    (more / "tap.json").write_text(json.dumps({"seed": 1, "streams": [stream(records=20), stream("orders", 10)]}))
    done = project.command("run", "people", "--env", "prod", "--json", timeout=240)
    assert done.code == 0, done.err
    assert done.json["pipeline"] == "prod.people"
    streams = done.json["streams"]
    assert (streams["users"]["load_method"], streams["users"]["reason"]) == ("overwrite", "as set for us*")
    assert (streams["orders"]["load_method"], streams["orders"]["reason"]) == ("append-only", "as set for *")
    assert folders(project.folder / "prod") == {"prod.people"}
    assert not project.lake.exists()
    assert project.command("state", "get", "people", "--env", "prod").json == done.json["state"]
    assert "no commit yet" in project.command("state", "get", "people").err
    refused = project.command("run", "people", "--env", "prod", "--full")
    assert (refused.code, "would double the rows" in refused.err) == (2, True)
    broken = project.command("run", "broken", "--env", "prod")
    assert (broken.code, "variable=NOT_SET" in broken.err) == (2, True)


def folders(bucket: Path) -> set[str]:
    """The pipelines that have something in a bucket."""
    return {path.name for path in (bucket / ".bridge").iterdir() if path.is_dir()} - {"tables"}
