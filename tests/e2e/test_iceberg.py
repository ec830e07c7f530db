"""Iceberg tables as a user has them: runs that append, overwrite and merge, and what reads them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pyiceberg.catalog import load_catalog

from tests.e2e.conftest import TAP, Project, stream

_SETTINGS = """\
pipelines:
  shop:
    source: {{tap: {tap}, config: tap.json}}
    destination: {{bucket: lake, format: iceberg}}
    streams: {{orders: {{load_method: upsert}}, full: {{load_method: overwrite}}}}
"""


@pytest.mark.timeout(900)
@pytest.mark.slow  # what a run does of itself is shown by docs/table-formats.md, and the commits in process
def test_iceberg_tables(project: Project) -> None:
    """Each run is one snapshot of each table; those before can be read; all is whole."""
    (project.folder / "bridge.yaml").write_text(_SETTINGS.format(tap=TAP))

    def run(count: int) -> Any:
        full = stream("full", count, replication_method="FULL_TABLE")
        streams = [stream(records=count), stream("orders", count), full]
        (project.folder / "tap.json").write_text(json.dumps({"seed": 1, "state": {"every": 10}, "streams": streams}))
        return project.command("run", "shop", "--json", "--no-progress", timeout=400)

    for count in (20, 30):
        done = run(count)
        assert done.code == 0, done.err
        with load_catalog("lake", uri=f"sqlite:///{project.lake}/.bridge/catalog.db") as catalog:
            tables = {name: catalog.load_table(("shop", name)) for name in ("users", "orders", "full")}
        for table in tables.values():
            assert sorted(table.scan().to_arrow()["id"].to_pylist()) == list(range(1, count + 1))
    head = json.loads(next(iter(sorted((project.lake / ".bridge/shop/commits").iterdir(), reverse=True))).read_bytes())
    for table in tables.values():
        assert table.metadata.properties["singer-bridge.commit"] == str(head["n"])
    before = tables["full"].history()[-2].snapshot_id
    assert tables["full"].scan(snapshot_id=before).to_arrow().num_rows == 20
    verified = project.command("verify", "shop", "--json")
    assert verified.json["status"] == "ok", verified.out
