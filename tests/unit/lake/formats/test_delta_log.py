"""The log of a Delta table: its checkpoints, and what its entries say of a file. See test_contract.py for the rest."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from bridge.errors import LakeError
from bridge.lake.formats.delta.log import DeltaLog
from bridge.lake.formats.delta.stats import statistics
from bridge.lake.records import TableState
from bridge.lake.storage.local.storage import LocalStorage
from tests.support.delta_lake import DeltaLake
from tests.support.lake import FIRST, closed


@pytest.fixture
def lake(tmp_path: Path) -> DeltaLake:
    return DeltaLake(LocalStorage(tmp_path))


def test_checkpoints(lake: DeltaLake, tmp_path: Path) -> None:
    """The state is written down now and then, and the table is the same with nothing but that and what follows."""
    committer = lake.open(FIRST)
    for n in range(1, 13):
        lake.append(committer, [n])
    folder = tmp_path / "p/s/_delta_log"
    assert (folder / f"{10:020d}.checkpoint.parquet").exists()
    for version in range(10):
        (folder / f"{version:020d}.json").unlink()
    assert lake.ids() == list(range(1, 13))
    assert lake.table().transaction_version("p/s") == 12
    lake.append(lake.open(closed(12)), [13])
    assert lake.ids() == list(range(1, 14))


def test_statistics_let_readers_leave_out_files(lake: DeltaLake) -> None:
    """What an entry says of a file is what readers skip it by."""
    committer = lake.open(FIRST)
    lake.append(committer, [1, 2], name="a")
    lake.append(committer, [10, 11], name=None)
    table = lake.table()
    found = {row["min.id"]: row for row in pa.table(table.get_add_actions(flatten=True)).to_pylist()}
    assert {key: (row["num_records"], row["max.id"], row["null_count.name"]) for key, row in found.items()} == {
        1: (2, 2, 0),
        10: (2, 11, 2),
    }
    assert len(list(table.to_pyarrow_dataset().get_fragments(filter=pa.compute.field("id") > 5))) == 1


def test_bounds(tmp_path: Path) -> None:
    """Bounds are never too narrow: times are rounded outwards, texts cut upwards; each column with values has them."""
    at = datetime(2024, 2, 29, 23, 59, 59, 123456, tzinfo=timezone.utc)
    table = pa.table(
        {
            "n": pa.array([3, None, -1], pa.int64()),
            "d": pa.array([Decimal(10**30), None, Decimal(-1)], pa.decimal128(38, 0)),
            "t": pa.array([at, at, at], pa.timestamp("us", "UTC")),
            "s": pa.array(["x" * 100, "a", None]),
            "f": pa.array([0.5, 1.5, None]),
            "inf": pa.array([float("inf"), 1.5, None]),
            "b": pa.array([True, False, None]),
            "st": pa.array([{"x": 1, "y z": {"k": "v"}}, None, {"x": None, "y z": None}]),
            "l": pa.array([[1], None, []], pa.list_(pa.int64())),
            "none": pa.array([None] * 3, pa.string()),
            "last": pa.array([datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=timezone.utc)] * 3),
        }
    )
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=2)
    with (tmp_path / "a.parquet").open("rb") as file:
        found = json.loads(statistics(file), parse_float=Decimal)
    assert found["numRecords"] == 3
    assert found["minValues"] == {
        "n": -1,
        "d": -1,
        "t": "2024-02-29T23:59:59.123Z",
        "s": "a",
        "f": Decimal("0.5"),
        "inf": Decimal("1.5"),
        "b": False,
        "st": {"x": 1, "y z": {"k": "v"}},
        "last": "9999-12-31T23:59:59.999Z",
    }
    high = found["maxValues"]
    assert (high["n"], high["d"], high["t"]) == (3, 10**30, "2024-02-29T23:59:59.124Z")
    assert high["s"] == "x" * 64 + "\U0010ffff"
    assert high["last"] == "9999-12-31T23:59:59.999999Z"
    assert (high["inf"], high["b"]) == ("Infinity", True)
    assert "none" not in high  # it has no value: its null count says so
    assert found["nullCount"]["none"] == 3
    assert found["nullCount"]["st"] == {"x": 2, "y z": {"k": 2}}
    assert "l" not in found["nullCount"]


def test_columns_beyond_the_first_have_no_bounds(tmp_path: Path) -> None:
    """A wide table's entries stay small; what its folders are named after is never left out."""
    pq.write_table(pa.table({f"c{n}": [n] for n in range(100)}), tmp_path / "a.parquet")
    with (tmp_path / "a.parquet").open("rb") as file:
        found = json.loads(statistics(file, folders=["c77=77"]))
    assert list(found["minValues"]) == [f"c{n}" for n in [*range(32), 77]]


def test_an_unreadable_log_says_so(lake: DeltaLake, tmp_path: Path) -> None:
    """A torn entry is an error with a hint, and nothing is committed."""
    lake.append(lake.open(FIRST), [1])
    (tmp_path / f"p/s/_delta_log/{1:020d}.json").write_text('{"add": {')
    with pytest.raises(LakeError, match="cannot be read") as caught:
        lake.append(lake.open(closed(1)), [2])
    assert caught.value.hint
    assert lake.log.head() == 1


def test_the_look_is_kept_while_nobody_writes(lake: DeltaLake) -> None:
    """A run reads the table's log once, not at each commit."""
    own = DeltaLog(lake.storage, "p/s", "p", "s")
    lake.append(lake.open(FIRST), [1])
    first = own.look()
    assert own.look() is first
    lake.append(lake.open(closed(1)), [2])
    assert own.look().version == 1
    own.check(TableState("p/s", None, lake.log.snapshot(2).tables["s"].files, format="delta"))
    assert isinstance(lake.table(), DeltaTable)
