"""A source that writes its names in another case has the same columns and keys; a key that no row has is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.support import targets
from tests.support.pipe import wire
from tests.support.targets import Typed, lake_of

INTEGER = {"type": ["null", "integer"]}


def target(folder: Path, *lines: dict[str, Any], **config: Any) -> Typed:
    return targets.target(folder, wire(*lines), **({"load_method": "auto"} | config))


def schema(keys: list[str], *columns: str) -> dict[str, Any]:
    return {
        "type": "SCHEMA",
        "stream": "t",
        "schema": {"properties": dict.fromkeys(columns, INTEGER)},
        "key_properties": keys,
    }


def record(**values: int) -> dict[str, Any]:
    return {"type": "RECORD", "stream": "t", "record": values}


def state(n: int) -> dict[str, Any]:
    return {"type": "STATE", "value": {"bookmarks": {"t": {"at": n}}}}


def rows(folder: Path) -> list[dict[str, Any]]:
    table = lake_of(folder).tables["t"]
    files = (pq.ParquetFile(folder / "lake" / table.folder / name).read() for name in table.files)
    own = [{key: row[key] for key in row if not key.startswith("_sdc")} for file in files for row in file.to_pylist()]
    return sorted(own, key=str)


@pytest.mark.parametrize("format_", ["parquet", "delta", "iceberg"])
@pytest.mark.parametrize("once", [False, True], ids=["two-runs", "one-run"])
def test_another_case_is_the_same_column_and_key(tmp_path: Path, once: bool, format_: str) -> None:
    """Each key is there once, whichever case its last record has, and back again."""
    parts = [
        [schema(["Id"], "Id", "Name"), record(Id=1, Name=1), record(Id=2, Name=1), state(1)],
        [schema(["id"], "id", "name"), record(id=1, name=2), record(id=3, name=2), state(2)],
        [schema(["Id"], "Id", "Name"), record(Id=3, Name=3), state(3)],
    ]
    for lines in [[line for part in parts for line in part]] if once else parts:
        assert target(tmp_path, *lines, format=format_).code == 0
    assert rows(tmp_path) == [{"Id": 1, "Name": 2}, {"Id": 2, "Name": 1}, {"Id": 3, "Name": 3}]


def test_a_key_that_no_row_has_is_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Its rows would never be merged again; the settings may say it all the same."""
    assert target(tmp_path, schema(["id"], "id", "n"), record(id=1, n=1), state(1)).code == 0
    later = [schema(["uid"], "uid", "n"), record(uid=1, n=2), state(2)]
    assert target(tmp_path, *later).code != 0
    assert "the key is a new column" in caplog.text
    assert rows(tmp_path) == [{"id": 1, "n": 1}]
    assert target(tmp_path, *later, streams={"t": {"key_properties": ["uid"]}}).code == 0
    assert rows(tmp_path) == [{"id": 1, "n": 1}, {"id": None, "n": 2, "uid": 1}]


def test_a_wider_key_of_columns_that_the_table_has_goes_on(tmp_path: Path) -> None:
    """Its older rows have values there."""
    assert target(tmp_path, schema(["id"], "id", "n"), record(id=1, n=1), state(1)).code == 0
    assert target(tmp_path, schema(["id", "n"], "id", "n"), record(id=1, n=2), state(2)).code == 0
    assert rows(tmp_path) == [{"id": 1, "n": 1}, {"id": 1, "n": 2}]
