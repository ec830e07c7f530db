"""Delta tables as a user has them: runs that append, overwrite and merge, and what reads them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
from deltalake import DeltaTable

from tests.e2e.conftest import TAP, Project, stream

_SETTINGS = """\
pipelines:
  shop:
    source: {{tap: {tap}, config: tap.json}}
    destination: {{bucket: lake, format: {format}}}
    streams: {{orders: {{load_method: upsert}}, full: {{load_method: overwrite}}}}
"""


def ids(table: Path) -> list[int]:
    by_polars = sorted(pl.scan_delta(str(table)).select("id").collect()["id"].to_list())
    assert sorted(DeltaTable(table).to_pyarrow_table(columns=["id"])["id"].to_pylist()) == by_polars
    return by_polars


def test_delta_tables(project: Project) -> None:
    """Each run is one version of each table; the versions before can be read; a table keeps its format."""

    def run(count: int, form: str = "delta") -> Any:
        full = stream("full", count, replication_method="FULL_TABLE")
        streams = [stream(records=count), stream("orders", count), full]
        (project.folder / "tap.json").write_text(json.dumps({"seed": 1, "state": {"every": 10}, "streams": streams}))
        (project.folder / "bridge.yaml").write_text(_SETTINGS.format(tap=TAP, format=form))
        return project.command("run", "shop", "--json", "--no-progress", timeout=280)

    first = run(20)
    assert first.code == 0, first.err
    tables = {name: project.lake / "shop" / name for name in ("users", "orders", "full")}
    assert all(ids(table) == list(range(1, 21)) for table in tables.values())
    second = run(30)
    assert second.code == 0, second.err
    assert all(ids(table) == list(range(1, 31)) for table in tables.values())
    assert DeltaTable(tables["full"], version=0).to_pyarrow_table().num_rows == 20
    head = json.loads(next(iter(sorted((project.lake / ".bridge/shop/commits").iterdir(), reverse=True))).read_bytes())
    for name, table in tables.items():
        assert DeltaTable(table).transaction_version(f"shop/{name}") == head["n"]
    verified = project.command("verify", "shop", "--json")
    assert verified.json["status"] == "ok", verified.out
    other = run(40, form="parquet")
    assert other.code == 2
    assert other.json["error"]["message"].startswith("a table keeps its format")
    assert ids(tables["users"]) == list(range(1, 31))
    doctor = project.command("doctor", "shop", "--no-spark", "--json")
    assert "delta, by deltalake" not in doctor.out  # the settings say parquet by now
