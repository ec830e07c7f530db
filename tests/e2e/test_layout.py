"""Partitions, order and `compact` as a user has them: `bridge.yaml`, real Spark, rows read back by DuckDB."""

from __future__ import annotations

import json

import duckdb
import pyarrow.parquet as pq
import pytest

from tests.e2e.conftest import TAP, Project, stream

pytestmark = pytest.mark.usefixtures("in_process")

SETTINGS = """\
pipelines:
  smoke:
    source: {{tap: {tap}, config: {{seed: 1, state: {{every: 100}}, streams: [{streams}]}}}}
    destination: {{bucket: lake, partition_by: [{by}], compression_level: 3}}
    commit: {{bytes: 1MiB}}
    streams: {{"users": {{sort_by: ["-id"]}}}}
"""


def settings(project: Project, by: str, records: int) -> None:
    streams = json.dumps(stream(records=records))
    (project.folder / "bridge.yaml").write_text(SETTINGS.format(tap=TAP, by=by, streams=streams))


def test_partitions_from_run_to_compact(project: Project) -> None:
    """Runs write into folders by month, another partition_by is refused before a row is stored, compact joins files."""
    by_month = "{column: at, granularity: month}"
    for records in (2000, 3000):
        settings(project, by_month, records)
        done = project.command("run", "--json")
        assert done.code == 0, done.err
    files = sorted((project.lake / "smoke/users").rglob("*.parquet"))
    assert {file.parent.name for file in files} == {f"at_month=2024-{month:02}" for month in range(1, 13)}
    read = f"read_parquet('{project.lake}/smoke/users/**/*.parquet', hive_partitioning = true)"
    months = """strftime(timezone('UTC', "at"), '%Y-%m')"""
    rows = duckdb.sql(f"SELECT count(*), count(DISTINCT id), bool_and({months} = at_month) FROM {read}")
    assert rows.fetchall() == [(3000, 3000, True)]
    for file in files:
        ids = pq.ParquetFile(file).read(["id"])["id"].to_pylist()
        assert ids == sorted(ids, reverse=True)

    settings(project, "id", 4000)
    refused = project.command("run", "--json")
    assert refused.code == 2, refused.err
    assert "keeps its partitions" in refused.err
    assert "run smoke --full -s users" in refused.err
    settings(project, "nothing", 4000)
    refused = project.command("run", "--json", "--full")
    assert refused.code == 2, refused.err
    assert "partition_by names no column" in refused.err

    settings(project, by_month, 3000)
    joined = project.command("compact", "--yes", "--json")
    assert joined.code == 0, joined.err
    (table,) = joined.json["tables"]
    assert table["files_after"] < table["files_before"]
    assert duckdb.sql(f"SELECT count(*), count(DISTINCT id) FROM {read}").fetchall() == [(3000, 3000)]
    assert project.command("verify").code == 0
