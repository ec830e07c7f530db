"""Several runs in one process, each with its own Spark; and what `--resume` and `--max-records` leave for later."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import duckdb
import pytest

from tests.e2e.conftest import TAP, Done, Project, stream

STREAMS = [stream("first", 100), stream("second", 100), stream("third", 100)]


@pytest.fixture
def pipelines(tmp_path: Path) -> Project:
    """One pipeline that loads, one whose tap dies in its second stream, one that has a lot."""
    config = {"seed": 1, "state": {"every": 10}, "streams": STREAMS}
    write(
        tmp_path,
        good={"seed": 1, "streams": [stream("users", 50)]},
        dies=config | {"fail": {"at": 155, "how": "exit"}},
        large={"seed": 1, "state": {"every": 100}, "streams": [stream("users", 100_000)]},
    )
    return Project(tmp_path)


def write(folder: Path, **configs: Any) -> None:
    """Write a bridge.yaml with a pipeline for each of the tap's settings."""
    pipelines = {
        name: {"source": {"tap": TAP, "select": ["*"], "config": config}, "destination": {"bucket": "lake"}}
        for name, config in configs.items()
    }
    (folder / "bridge.yaml").write_text(json.dumps({"pipelines": pipelines}))


def typed(project: Project, line: str) -> Done:
    """Type a line in the project."""
    return project.command(*shlex.split(line), timeout=400)


def loaded(project: Project, table: str) -> list[int]:
    """The ids in a table."""
    rows = duckdb.sql(f"select id from '{project.lake}/{table}/*.parquet' order by id").fetchall()
    return [row[0] for row in rows]


def results(done: Done) -> dict[str, Any]:
    """The runs' results, by pipeline."""
    return {result["pipeline"]: result for result in done.json}


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_several_sparks_one_after_another_and_what_is_left_out(pipelines: Project) -> None:
    """Each pipeline is loaded whole in one process, whatever the one before it came to; a resumed one goes on."""
    done = typed(pipelines, "run dies good large --keep-going --max-records 1000 --json")
    assert done.code == 1, done.err
    ran = results(done)
    assert [ran[name]["status"] for name in ("dies", "good", "large")] == ["failed", "success", "success"]
    assert loaded(pipelines, "good/users") == list(range(1, 51))
    assert loaded(pipelines, "dies/first") == list(range(1, 101))
    assert {name: facts["complete"] for name, facts in ran["dies"]["streams"].items()} == {
        "first": True,
        "second": False,
    }

    assert ran["large"]["streams"]["users"]["records"] == 1000
    assert "--max-records" in ran["large"]["warnings"][-1]
    assert loaded(pipelines, "large/users") == list(range(1, 1001))

    write(pipelines.folder, dies={"seed": 2, "streams": [stream("first", 200), *STREAMS[1:]]})
    plan = typed(pipelines, "run dies --resume --dry-run --json").json
    assert plan["skipped"] == ["first"]
    resumed = typed(pipelines, "run dies --resume --json")
    assert resumed.code == 0, resumed.err
    assert resumed.json["skipped"] == ["first"]
    assert resumed.json["streams"].keys() == {"second", "third"}
    assert loaded(pipelines, "dies/first") == loaded(pipelines, "dies/second") == loaded(pipelines, "dies/third")
    assert resumed.json["state"]["bookmarks"]["first"]["replication_key_value"] == 100
