"""Tables that are not one pipeline's alone: files that were there before, and pipelines that append to one table."""

from __future__ import annotations

import json
from pathlib import Path

import duckdb
import pytest

from tests.e2e.conftest import TAP, Done, Project, stream

_SETTINGS = """\
defaults: {{destination: {{bucket: lake, path: team, shared: true, load_method: append-only}}}}
pipelines:
  north: {{source: {{tap: {tap}, config: {north}}}}}
  south: {{source: {{tap: {tap}, config: {south}}}}}
  alone: {{source: {{tap: {tap}, config: {north}}}, destination: {{shared: false}}}}
"""


def ids(lake: Path, source: str = "team/users/*.parquet") -> list[int]:
    return [row[0] for row in duckdb.sql(f"select id from read_parquet('{lake}/{source}') order by id").fetchall()]


@pytest.mark.slow
def test_adopted_and_shared(project: Project) -> None:
    """Strange files are refused, then adopted; a second pipeline adds its rows; one that shares nothing is refused."""
    configs = {
        name: json.dumps({"seed": 1, "streams": [stream(records=n)]}) for name, n in (("north", 20), ("south", 30))
    }
    (project.folder / "bridge.yaml").write_text(_SETTINGS.format(tap=TAP, **configs))
    old = project.lake / "team/users/old.parquet"
    old.parent.mkdir(parents=True)
    duckdb.sql(f"copy (select unnest([-2, -1])::bigint as id) to '{old}' (format parquet)")

    def run(*arguments: str) -> Done:
        return project.command("run", *arguments, "--json", "--no-progress")

    refused = run("north")
    assert refused.code == 3, refused.err
    assert "run --adopt" in refused.json["error"]["hint"]
    assert ids(project.lake) == [-2, -1]
    north = run("north", "--adopt")
    assert north.code == 0, north.err
    assert "1 file(s) with 2 rows were adopted, as commit 2" in north.json["warnings"]  # 1 is a fence: a run failed
    south = run("south")
    assert south.code == 0, south.err
    assert ids(project.lake) == sorted([-2, -1, *range(1, 21), *range(1, 31)])
    manifest = (project.lake / ".bridge/tables/team/users.manifest").read_text().splitlines()
    assert sorted(manifest) == sorted(map(str, (project.lake / "team/users").glob("*.parquet")))
    alone = run("alone")
    assert (alone.code, alone.json["error"]["message"].split(" folder=")[0]) == (
        3,
        "the table belongs to another pipeline",
    )
    assert len(ids(project.lake)) == 52
