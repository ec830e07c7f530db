"""A table that a log-based tap copies whole once more: its rows are of the new version. All of it but Spark."""

from __future__ import annotations

from typing import Any

import duckdb

from tests.support.catalogs import catalog, stream
from tests.support.tap_runs import ResumingRuns, outcome, schema, state


def copied(version: int, *numbers: int) -> list[dict[str, Any]]:
    """A whole table of one version, and the STATE after it."""
    rows = [
        {"type": "RECORD", "stream": "a", "record": {"id": n, "v": n}, "version": version, "time_extracted": None}
        for n in numbers
    ]
    return [*rows, {"type": "ACTIVATE_VERSION", "stream": "a", "version": version}, state(a={"lsn": version})]


def test_a_snapshot_that_is_taken_again(runs: ResumingRuns) -> None:
    """Its rows stay, as a change lacks no version; those that it has not are marked as deleted."""
    entry = stream("a", selected=True, table_key_properties=["id"], replication_method="LOG_BASED")
    declared = schema("a") | {"key_properties": ["id"]}
    for version, numbers in ((1, (1, 2, 3)), (2, (1, 2)), (3, (1, 4))):
        result = runs.run(declared, copied(version, *numbers), catalog=catalog(entry), streams={"a": {}})
        assert outcome(result) == ("success", 0)
        table = runs.view.tables["a"]
        files = [f"{runs.uri}/{table.folder}/{name}" for name in table.files]
        rows = duckdb.sql(f"select id from read_parquet({files}) where _sdc_deleted_at is null order by id").fetchall()
        assert [row[0] for row in rows] == list(numbers)
