"""Runs of few rows: the run's own process writes them; Spark takes over where more come, or where SQL needs it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

from tests.e2e.conftest import TAP, Project, stream

_NO_JAVA = {"JAVA_HOME": "/nowhere"}
_MIB = 2**20
_NAMES = re.compile(r"[0-9a-f]{32}|\d{8}T\d{6}Z-\w+|\d{4}-\d\d-\d\dT[\d:.]+(?:Z|\+00:00)")
"""What no two runs have alike: names of files, of runs, and times."""


def settings(project: Project, *sent: dict[str, Any], tap: dict[str, Any] | None = None, **more: Any) -> None:
    """Write a bridge.yaml whose pipeline `smoke` sends these streams."""
    config = {"seed": 1, "state": {"every": 100}, "streams": list(sent)} | (tap or {})
    destination = {"bucket": "lake"} | more.pop("destination", {})
    source = {"tap": TAP, "config": config} | more.pop("source", {})
    pipeline = {"source": source, "destination": destination} | more
    (project.folder / "bridge.yaml").write_text(json.dumps({"pipelines": {"smoke": pipeline}}))


def run(project: Project, *flags: str, code: int = 0) -> dict[str, Any]:
    """Run it; return what `--json` says."""
    done = project.command("run", "smoke", "--json", *flags)
    assert done.code == code, done.err
    return dict(json.loads(done.out))


@pytest.fixture
def without_java(project: Project) -> Project:
    project.environ |= _NO_JAVA
    return project


@pytest.mark.parametrize("format_", ["parquet", "delta", "iceberg"])
@pytest.mark.parametrize("method", ["append-only", "overwrite", "upsert"])
def test_no_java_is_needed(without_java: Project, method: str, format_: str) -> None:
    """Two runs of each load method into each format: each row once, with its latest values; no Spark."""
    replication = "FULL_TABLE" if method == "overwrite" else "INCREMENTAL"
    inclusive = method == "upsert"  # its second run sends the row at the bookmark again
    for records in (300, 450):
        sent = stream("users", records=records, replication_method=replication, inclusive=inclusive)
        settings(without_java, sent, destination={"load_method": method, "format": format_})
        result = run(without_java)
        assert (result["status"], result["spark"]) == ("success", None)
    assert _ids(without_java, format_) == list(range(1, 451))
    assert without_java.command("verify", "smoke").code == 0


def _ids(project: Project, format_: str) -> list[int]:
    """The ids in the table, read as its format is read."""
    if format_ == "delta":
        rows = DeltaTable(project.lake / "smoke/users").to_pyarrow_table(columns=["id"])
    elif format_ == "iceberg":
        with load_catalog("lake", uri=f"sqlite:///{project.lake}/.bridge/catalog.db") as catalog:
            rows = catalog.load_table("smoke.users").scan(selected_fields=("id",)).to_arrow()
    else:
        return project.ids("users")
    return sorted(rows["id"].to_pylist())


def test_what_a_small_run_may_meet(without_java: Project) -> None:
    """A reject, a field outside the SCHEMA, new columns, and two processes of the tap: each is accounted for."""
    change = {"at": 200, "add": "size"}
    streams = [
        stream("users", records=500, bad_value=50),
        stream("orders", records=500, extra_field=10),
        stream("items", records=500, schema_change=change),
    ]
    settings(without_java, *streams, source={"parallelism": 2})
    result = run(without_java)
    assert result["spark"] is None
    counts = {name: (one["records"], one["rejected"]) for name, one in result["streams"].items()}
    assert counts == {"users": (499, 1), "orders": (500, 0), "items": (500, 0)}
    assert without_java.rows("items", "count(size)", "1") == [(301,)]
    assert without_java.rows("orders", "count(_sdc_extra)", "1") == [(1,)]


def test_the_same_table_as_by_spark(project: Project) -> None:
    """Files are the same byte by byte, and what commits say of them, whoever writes them; but for names and times."""
    found = {}
    for small in ("8MiB", "0"):
        sent = [stream("users", records=2000, wide=100, bad_value=300), stream("orders", records=500, extra_field=9)]
        settings(project, *sent, spark={"small": small}, destination={"bucket": small, "load_method": "upsert"})
        result = run(project)
        assert (result["spark"] is None) == (small != "0")
        lake = project.folder / small
        files = [
            path.read_bytes() for name in ("users", "orders") for path in sorted(lake.glob(f"smoke/{name}/*.parquet"))
        ]
        commits = sorted((lake / ".bridge/smoke/commits").glob("[0-9]*.json"))
        found[small] = files, [_NAMES.sub("", commit.read_text()) for commit in commits]
    assert found["8MiB"] == found["0"]
    assert len(found["0"][0]) == 2


def _carriers(project: Project) -> Iterator[tuple[int, bool]]:
    """Run it; yield again and again how many commits there are, and whether there is a JVM."""
    argv = [sys.executable, "-m", "bridge", "run", "smoke", "--json"]
    process = subprocess.Popen(argv, cwd=project.folder, env=project.environ, stdout=subprocess.PIPE, text=True)
    assert process.stdout
    try:
        while process.poll() is None:
            java = False
            with suppress(psutil.NoSuchProcess):  # they may end at any moment
                children = psutil.Process(process.pid).children(recursive=True)
                java = any(child.name() == "java" for child in children)
            yield len(list((project.lake / ".bridge/smoke/commits").glob("[0-9]*.json"))), java
            time.sleep(0.02)
        assert process.returncode == 0
        assert json.loads(process.stdout.read())["spark"] == "more than spark.small of rows wait"
    finally:
        process.kill()
        process.communicate()


def test_spark_takes_over_in_the_middle(project: Project) -> None:
    """Commits are made before there is a JVM, and after it is up; each row is there once."""
    small, large = stream("users", records=2000), stream("orders", records=6000, wide=20_000)
    tap = {"batch_delay_ms": 50, "state": {"every": 50}}
    settings(project, small, large, tap=tap, commit={"every": "1s"}, spark={"small": "1MiB"})
    seen = list(_carriers(project))
    assert max(commits for commits, java in seen if not java) > 1
    assert seen[-1][0] > min(commits for commits, java in seen if java) + 1
    assert (project.ids("users"), project.ids("orders")) == ([*range(1, 2001)], [*range(1, 6001)])


@pytest.mark.parametrize("needs", ["rows", "view", "transform"])
def test_where_spark_is_needed_and_java_is_missing(without_java: Project, needs: str) -> None:
    """The run says what is missing; what was committed stays, and a run with Java goes on from there."""
    more: dict[str, Any] = {
        "rows": {"spark": {"small": "100KiB"}, "commit": {"every": "1s"}},
        "view": {"views": {"many": "SELECT active, count(*) AS n FROM users GROUP BY active"}},
        "transform": {"streams": {"users": {"transform": "SELECT id, n FROM stream"}}},
    }[needs]
    settings(without_java, stream("users", records=3000), **more)
    result = run(without_java, code=2)
    assert "Java was not found" in result["error"]["message"]
    state = result["state"]
    reached = state["bookmarks"]["users"]["replication_key_value"] if state else 0
    assert without_java.ids("users") == list(range(1, reached + 1))
    del without_java.environ["JAVA_HOME"]
    assert run(without_java)["spark"]
    assert without_java.ids("users") == list(range(1, 3001))


@pytest.mark.parametrize("size", [100, 20_000, 2 * _MIB])
def test_memory_does_not_follow_the_size_of_a_record(without_java: Project, size: int) -> None:
    """With as many bytes as the limit allows, the driver has at most 250 MB."""
    sent = stream("users", records=max(7 * _MIB // (size + 300), 3), wide=size)
    settings(without_java, sent, destination={"load_method": "upsert"})
    # Without pandas, as it is installed: pyarrow loads it where it finds it, 30 MB.
    (without_java.folder / "hidden").mkdir()
    (without_java.folder / "hidden/pandas.py").write_text("raise ModuleNotFoundError('pandas')")
    environ = without_java.environ | {"PYTHONPATH": str(without_java.folder / "hidden")}
    argv = [sys.executable, "-m", "bridge", "run", "smoke", "--json"]
    process = subprocess.Popen(argv, cwd=without_java.folder, env=environ, stdout=subprocess.DEVNULL)
    most = 0
    while process.poll() is None:
        with suppress(FileNotFoundError, ProcessLookupError):
            most = max(most, _most(process.pid))
        time.sleep(0.005)
    assert process.returncode == 0
    print(f"{size} bytes a record: {most >> 10} MB")
    assert 50_000 < most < 250_000


def _most(pid: int) -> int:
    """The most memory that a process had so far, in KiB. That of `wait4` counts the program that it was a fork of."""
    facts = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return int(facts.get("VmHWM", "0").split()[0])
