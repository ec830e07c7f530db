"""Whole runs into an Iceberg table of a real catalog, as a user has them: the command line, a tap, Spark."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyiceberg.catalog import load_catalog

from tests.interop.catalogs.conftest import Place
from tests.support.project import SMOKE, Project, stream, with_programs

pytestmark = pytest.mark.timeout(1800)


class CatalogProject(Project):
    """A pipeline `shop`, whose tables are in the catalog."""

    def __init__(self, folder: Path, place: Place) -> None:
        super().__init__(folder, with_programs() | {"SINGER_BRIDGE_HOME": str(folder / "home")})
        self.place, self.namespace = place, f"shop_{folder.name}"
        catalog = {"namespace": self.namespace, "properties": place.server.properties}
        to = {"bucket": place.bucket, "format": "iceberg", "load_method": "upsert", "catalog": catalog}
        streams = {"full": {"load_method": "overwrite"}, "log": {"load_method": "append-only"}}
        self.write(shop={"source": SMOKE, "destination": to, "streams": streams})

    def grow(self, records: int) -> None:
        full = stream("full", 20, replication_method="FULL_TABLE")
        self.sends(stream(records=records), stream("log", records), full)

    def ids(self, table: str) -> list[int]:
        catalog = load_catalog("lake", **self.place.server.properties)
        found = catalog.load_table(f"{self.namespace}.{table}").scan(selected_fields=("id",)).to_arrow()
        return sorted(found["id"].to_pylist())


@pytest.fixture
def project(place: Place, tmp_path: Path) -> CatalogProject:
    return CatalogProject(tmp_path, place)


def test_runs(project: CatalogProject) -> None:
    """Two runs: an upsert, an append and an overwrite have each row once, for pyiceberg and for `sql`; `verify` agrees.

    With the catalog down, the next run ends before its tap starts and says which catalog; then one goes on.
    """
    for records in (50, 80):
        project.grow(records)
        project.run()
    for table, count in {"users": 80, "log": 80, "full": 20}.items():
        assert project.ids(table) == list(range(1, count + 1))
    row = json.loads(project.output("sql", "SELECT count(*) AS n, count(DISTINCT id) AS ids FROM users", "--json"))
    assert row == {"n": 80, "ids": 80}
    project.output("verify")
    project.grow(100)
    project.place.server.stop()
    try:
        assert "the Iceberg catalog cannot be used" in project.output("run", code=3)
    finally:
        project.place.server.start()
    assert project.ids("users") == list(range(1, 81))
    project.run()
    assert project.ids("users") == list(range(1, 101))
