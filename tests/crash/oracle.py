"""What must hold after a kill, and after the clean run that follows: each a function that asserts."""

from __future__ import annotations

import json
from typing import Any

import bridge
from tests.support.view_oracle import check_commits

from .project import Project


def check_bookmarks(project: Project) -> None:
    """Hold every committed bookmark against the rows that its commits name: neither leads the other."""
    history = project.history
    history.head()
    assert {record["kind"] for record in history.records} <= {"data", "fence"}, "a kill alone loses no file"
    for stream, kind in project.shape.streams.items():
        mark, rows = project.bookmark(stream), sum(history.live(stream).values())
        if kind["replication_method"] == "INCREMENTAL":
            assert mark.get("replication_key_value", 0) == rows, f"{stream}: {mark} over {rows} rows"
        elif "last_pk_fetched" in mark:
            staged = history.staged.get(stream, {"files": [], "version": None})
            assert sum(file["rows"] for file in staged["files"]) == mark["last_pk_fetched"], stream
            assert staged["version"] == mark["version"], stream
    _check_processes(project)
    _check_views(project)


def _check_views(project: Project) -> None:
    """Hold the views of each commit since the last call against their SELECTs over the tables of that commit."""
    if project.shape.views and project.history.streams:
        head = bridge.Lake(project.lake.uri).commit("crash")
        check_commits(project.lake.uri, "crash", max(project.checked, 1))
        project.checked = head


def _check_processes(project: Project) -> None:
    """Hold what is shown for all against the STATE of the process that reads a stream: its word, and nobody else's."""
    last: dict[str, Any] = project.history.records[-1] if project.history.records else {}
    groups = last.get("groups") or []
    marks = (project.history.state or {}).get("bookmarks", {})
    read = [stream for group in groups for stream in group["streams"]]
    if project.shape.processes > 1 and marks:
        assert (len(groups), sorted(read)) == (project.shape.processes, sorted(project.shape.streams)), groups
    for group in groups:
        own = (group["state"] or {}).get("bookmarks", {})
        for stream in group["streams"]:
            assert own.get(stream) == marks.get(stream), f"{stream}: {own.get(stream)}, shown as {marks.get(stream)}"


def check_clean(project: Project, expected_state: Any) -> None:
    """Hold the whole project against the source, after a run that succeeded."""
    check_bookmarks(project)
    assert project.history.state == expected_state
    assert json.loads(project.lake.read(f"{project.meta}/state.json") or b"null") == expected_state
    source = project.source_rows()
    for stream, folder in project.tables:
        if stream in source:
            assert project.lake_rows(stream) == sorted(source[stream].items()), f"{stream} is not the source"
        listed = project.table(stream)
        assert listed == set(project.history.live(stream)), f"{stream} has other files than the log says"
        uris = sorted(f"{project.lake.uri}/{folder}/{name}" for name in listed)
        assert project.manifest(stream) == uris, f"{stream} has a stale manifest"
    _check_leftovers(project)


def _check_leftovers(project: Project) -> None:
    """Find nothing of dead runs: no pending file, no spool, no secrets, no Parquet that a reader could mistake."""
    assert [path for path in project.lake.files(".bridge") if path.endswith(".parquet")] == []
    assert project.pending() == set()
    local = project.folder / ".singer-bridge"
    scratch = [path for name in ("spool", "checkpoint") for path in (local / name).glob("*/*")]
    assert scratch == []
    check_temporary(project)
    assert not project.needs_recovery(), "a clean run closes its lease"


def check_temporary(project: Project) -> None:
    """Find no settings of the tap, secrets among them, once it has ended."""
    left = sorted(path.name for path in (project.folder / "tmp").glob("singer-bridge-*"))
    assert left == [], "the tap's settings outlived it"
