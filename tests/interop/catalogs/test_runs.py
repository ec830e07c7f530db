"""Whole runs into an Iceberg table of a real catalog, as a user has them: the command line, a tap, Spark."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from pyiceberg.catalog import load_catalog

from tests.e2e.conftest import stream
from tests.interop.catalogs.conftest import Place

pytestmark = pytest.mark.timeout(1800)


class Project:
    """A pipeline `shop`, whose tables are in the catalog."""

    def __init__(self, folder: Path, place: Place) -> None:
        self.folder, self.place = folder, place
        self.namespace = f"shop_{folder.name}"
        destination = {
            "bucket": place.bucket,
            "format": "iceberg",
            "load_method": "upsert",
            "catalog": {"namespace": self.namespace, "properties": place.server.properties},
        }
        source = {"tap": "tap-smoke", "config": "tap.json"}
        streams = {"full": {"load_method": "overwrite"}, "log": {"load_method": "append-only"}}
        pipeline = {"source": source, "destination": destination, "streams": streams}
        (folder / "bridge.yaml").write_text(json.dumps({"pipelines": {"shop": pipeline}}))
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        self.environ = os.environ | {"PATH": path, "SINGER_BRIDGE_HOME": str(folder / "home")}

    def command(self, *arguments: str, code: int = 0) -> str:
        argv = [sys.executable, "-m", "bridge", *arguments]
        done = subprocess.run(argv, cwd=self.folder, env=self.environ, capture_output=True, text=True, check=False)
        assert done.returncode == code, done.stderr + done.stdout
        return done.stderr if code else done.stdout

    def grow(self, records: int) -> None:
        streams = [
            stream(records=records),
            stream("log", records),
            stream("full", 20, replication_method="FULL_TABLE"),
        ]
        config = {"seed": 1, "state": {"every": 100}, "streams": streams}
        (self.folder / "tap.json").write_text(json.dumps(config))

    def ids(self, table: str) -> list[int]:
        catalog = load_catalog("lake", **self.place.server.properties)
        found = catalog.load_table(f"{self.namespace}.{table}").scan(selected_fields=("id",)).to_arrow()
        return sorted(found["id"].to_pylist())


@pytest.fixture
def project(place: Place, tmp_path: Path) -> Project:
    return Project(tmp_path, place)


def test_runs(project: Project) -> None:
    """Two runs: an upsert, an append and an overwrite have each row once, for pyiceberg and for `sql`; `verify` agrees.

    With the catalog down, the next run ends before its tap starts and says which catalog; then one goes on.
    """
    for records in (50, 80):
        project.grow(records)
        assert json.loads(project.command("run", "--json"))["status"] == "success"
    for table, count in {"users": 80, "log": 80, "full": 20}.items():
        assert project.ids(table) == list(range(1, count + 1))
    row = json.loads(project.command("sql", "SELECT count(*) AS n, count(DISTINCT id) AS ids FROM users", "--json"))
    assert row == {"n": 80, "ids": 80}
    project.command("verify")
    project.grow(100)
    project.place.server.stop()
    try:
        assert "the Iceberg catalog cannot be used" in project.command("run", code=3)
    finally:
        project.place.server.start()
    assert project.ids("users") == list(range(1, 81))
    assert json.loads(project.command("run", "--json"))["status"] == "success"
    assert project.ids("users") == list(range(1, 101))
