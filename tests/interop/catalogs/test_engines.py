"""Engines read a table of ours through the catalog where it is registered, on the store where it lies."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.interop.catalogs.conftest import Place
from tests.interop.catalogs.metastore import Metastore
from tests.interop.catalogs.nessie import Nessie
from tests.interop.catalogs.writer import ids_after, step
from tests.interop.readers.trino import Trino
from tests.interop.readers.venvs import answers
from tests.support.lake import FIRST

pytestmark = pytest.mark.timeout(600)
COMMITS = 9
"""The last of them is a merge by key, after an overwrite and a new column."""


def test_an_engine_reads_the_table(place: Place, tmp_path: Path) -> None:
    """DuckDB by the REST catalogs, from MinIO and from a folder; Trino by Hive's metastore: each row once."""
    lake = place.lake()
    run = lake.open(FIRST)
    for i in range(1, COMMITS + 1):
        step(lake, run, i)
    uri = place.server.properties["uri"]
    if isinstance(place.server, Metastore):
        with Trino(uri) as trino:
            rows = trino.query('SELECT id FROM "lake"."p"."s"', "lake")
    else:
        (rows,) = answers("duckdb", [{"statement": 'SELECT id FROM "lake"."p"."s"'}], _duckdb(place, uri), tmp_path)
    assert not isinstance(rows, str), rows
    assert sorted(row["id"] for row in rows) == ids_after(COMMITS)


def _duckdb(place: Place, uri: str) -> dict[str, list[str]]:
    warehouse = place.server.properties.get("warehouse", "")
    first = [f"ATTACH '{warehouse}' AS lake (TYPE iceberg, ENDPOINT '{uri}', AUTHORIZATION_TYPE 'none')"]
    if isinstance(place.server, Nessie):
        keys, (scheme, _, host) = place.server.keys, place.server.store.partition("://")
        first.insert(
            0,
            f"CREATE SECRET (TYPE s3, KEY_ID '{keys[0]}', SECRET '{keys[1]}', REGION 'us-east-1', "
            f"ENDPOINT '{host}', URL_STYLE 'path', USE_SSL {str(scheme == 'https').lower()})",
        )
    return {"extensions": ["avro", "httpfs", "iceberg"], "first": first}
