"""A stream that had a key and has none any more, or the other way round: a complete version still ends older rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.support.pipe import wire
from tests.support.targets import lake_of, target

COLUMNS = {"id": {"type": "integer"}, "name": {"type": ["null", "string"]}}


def full(keys: list[str], version: int, *numbers: int) -> bytes:
    schema = {"type": "SCHEMA", "stream": "t", "schema": {"properties": COLUMNS}, "key_properties": keys}
    rows = [record(number) | {"version": version} for number in numbers]
    return wire(schema, *rows, {"type": "ACTIVATE_VERSION", "stream": "t", "version": version}, state(version))


def record(number: int) -> dict[str, Any]:
    return {"type": "RECORD", "stream": "t", "record": {"id": number, "name": f"n{number}"}}


def state(n: int) -> dict[str, Any]:
    return {"type": "STATE", "value": {"bookmarks": {"t": {"at": n}}}}


def live(folder: Path) -> list[int]:
    """The ids of the rows that are not marked as deleted."""
    table = lake_of(folder).tables["t"]
    files = (pq.ParquetFile(folder / "lake" / table.folder / name).read() for name in table.files)
    rows = [row for file in files for row in file.to_pylist()]
    return sorted(row["id"] for row in rows if row.get("_sdc_deleted_at") is None)


LOST, NEW = (["id"], []), ([], ["id"])


@pytest.mark.parametrize("format_", ["parquet", "delta", "iceberg"])
@pytest.mark.parametrize(("keys", "hard"), [(LOST, True), (LOST, False), (LOST, None), (NEW, True), (NEW, False)])
def test_rows_of_older_versions_end_whatever_key_they_came_under(
    tmp_path: Path, keys: tuple[list[str], list[str]], format_: str, hard: bool | None
) -> None:
    """Files that an upsert wrote say the version row by row, all others as a whole."""
    config: dict[str, Any] = {"load_method": "auto", "format": format_} | (
        {} if hard is None else {"hard_delete": hard}
    )
    for n, key in enumerate((*keys, *keys)):
        assert target(tmp_path, full(key, n + 1, 10 * n, 10 * n + 1), **config).code == 0
        assert live(tmp_path) == [10 * n, 10 * n + 1]


def test_a_key_that_is_lost_within_a_run(tmp_path: Path) -> None:
    """The rows that came under it are swept, too."""
    lines = full(["id"], 1, 1, 2) + full([], 2, 3)
    assert target(tmp_path, lines, load_method="auto").code == 0
    assert live(tmp_path) == [3]
