"""Delta and Iceberg tables as a user has them: runs that append, overwrite and merge, and what reads them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

from tests.e2e.conftest import TAP, Project, stream

pytestmark = pytest.mark.usefixtures("in_process")

_SETTINGS = """\
pipelines:
  shop:
    source: {{tap: {tap}, config: tap.json}}
    destination: {{bucket: lake, format: {format}}}
    streams: {{orders: {{load_method: upsert}}, full: {{load_method: overwrite}}}}
"""
NAMES = ("users", "orders", "full")

Found = tuple[list[int], int]
"""The ids in a table, and the commit that it says it has come to."""


def in_delta(lake: Path, name: str, before: bool = False) -> Found:
    table = DeltaTable(lake / "shop" / name, version=0 if before else None)
    ids = sorted(table.to_pyarrow_table(columns=["id"])["id"].to_pylist())
    assert sorted(pl.scan_delta(table).select("id").collect()["id"].to_list()) == ids
    return ids, table.transaction_version(f"shop/{name}") or 0


def in_iceberg(lake: Path, name: str, before: bool = False) -> Found:
    with load_catalog("lake", uri=f"sqlite:///{lake}/.bridge/catalog.db") as catalog:
        table = catalog.load_table(("shop", name))
        at = table.history()[0].snapshot_id if before else None
        ids = sorted(table.scan(snapshot_id=at).to_arrow()["id"].to_pylist())
    return ids, int(table.metadata.properties["singer-bridge.commit"])


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("form", "read"),
    # What a run does of itself with Iceberg is shown by docs/table-formats.md, and the commits in process.
    [("delta", in_delta), pytest.param("iceberg", in_iceberg, marks=pytest.mark.slow)],
)
def test_tables(project: Project, form: str, read: Callable[..., Found]) -> None:
    """Each run is one version of each table; the versions before can be read; a table keeps its format."""

    def run(count: int, form: str = form) -> Any:
        full = stream("full", count, replication_method="FULL_TABLE")
        streams = [stream(records=count), stream("orders", count), full]
        (project.folder / "tap.json").write_text(json.dumps({"seed": 1, "state": {"every": 10}, "streams": streams}))
        (project.folder / "bridge.yaml").write_text(_SETTINGS.format(tap=TAP, format=form))
        return project.command("run", "shop", "--json", "--no-progress", timeout=280)

    for count in (20, 30):
        done = run(count)
        assert done.code == 0, done.err
        head = max(int(path.stem) for path in (project.lake / ".bridge/shop/commits").glob("[0-9]*.json"))
        assert [read(project.lake, name) for name in NAMES] == [(list(range(1, count + 1)), head)] * 3
    assert len(read(project.lake, "full", before=True)[0]) == 20
    verified = project.command("verify", "shop", "--json")
    assert verified.json["status"] == "ok", verified.out
    other = run(40, form="parquet")
    assert other.code == 2
    assert other.json["error"]["message"].startswith("a table keeps its format")
    assert len(read(project.lake, "users")[0]) == 30
    doctor = project.command("doctor", "shop", "--no-spark", "--json")
    assert f"{form}, by " not in doctor.out  # the settings say parquet by now
