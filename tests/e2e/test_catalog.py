"""What is chosen, and what changed, seen from the lake: selected streams and columns, kept bookmarks, warnings."""

from __future__ import annotations

import json
from typing import Any

import duckdb
import pytest

from tests.e2e.conftest import TAP, Done, Project

pytestmark = pytest.mark.usefixtures("in_process")


def write_settings(project: Project, records: int, **more: Any) -> None:
    """A pipeline of two streams in a bridge.yaml."""
    streams = [{"name": name, "records": records} for name in ("users", "orders")]
    source = {"tap": TAP, "config": {"seed": 1, "streams": streams, "secret": f"hunter2-{records}"}}
    pipeline = {"source": source, "destination": {"bucket": "lake"}, **more}
    (project.folder / "bridge.yaml").write_text(json.dumps({"pipelines": {"smoke": pipeline}}))


def run(project: Project, *flags: str) -> Done:
    return project.command("run", "smoke", "--json", *flags, timeout=300)


def test_selection_bookmarks_and_changes(project: Project) -> None:
    """A deselected stream keeps its bookmark and goes on there; columns left out stay out; changes are told once."""
    write_settings(project, 100)
    assert project.command("select", "smoke", "*", "!*.name").code == 0
    first = run(project)
    assert first.code == 0, first.err
    assert first.json["warnings"] == []
    before = project.state()["bookmarks"]
    chosen = json.loads((project.folder / "bridge.yaml").read_text())["pipelines"]["smoke"]["source"]["select"]
    assert chosen == ["*", "!*.name"]
    columns = duckdb.sql(f"from read_parquet('{project.lake}/smoke/users/*.parquet')").columns
    assert "name" not in columns
    assert "amount" in columns

    write_settings(project, 150)
    assert project.command("select", "smoke", "users").code == 0
    second = run(project)
    assert second.code == 0, second.err
    assert second.json["streams"].keys() == {"users"}
    assert second.json["streams"]["users"]["records"] == 50
    assert project.state()["bookmarks"]["orders"] == before["orders"]
    (warning,) = second.json["warnings"]
    assert "settings changed since the last successful run: streams." in warning
    for record in project.lake.glob(".bridge/smoke/runs/*.json"):
        assert "hunter2" not in record.read_text()

    refused = {"streams": {"users": {"replication_key": "n"}}}
    write_settings(project, 150, **refused)
    wrong = run(project)
    assert wrong.code == 2
    assert "cannot replicate by this key" in wrong.json["error"]["message"]

    write_settings(project, 150)
    third = run(project)
    assert third.code == 0, third.err
    assert third.json["streams"]["orders"]["records"] == 50
    assert third.json["warnings"] == []
    assert project.ids("orders") == project.ids("users") == list(range(1, 151))
