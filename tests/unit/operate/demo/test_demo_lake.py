"""The demo's lake: it removes what it made, nothing else, and reads the files as any reader would."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bridge.errors import CorruptLake, SettingsError
from bridge.operate.demo import lake
from bridge.operate.demo.flights import Airline


def _made_by_a_demo(folder: Path) -> Path:
    """A lake as a demo leaves it."""
    lake.clear(folder)
    (folder / "flights" / "public-flights").mkdir(parents=True)
    (folder / "flights" / "public-flights" / "part-1.parquet").write_bytes(b"")
    (folder / ".bridge" / "flights" / "commits").mkdir(parents=True)
    return folder


def test_clear_makes_the_lake(tmp_path: Path) -> None:
    """A missing lake is made, an empty one is used."""
    lake.clear(tmp_path / "deep" / "lake")
    (tmp_path / "empty").mkdir()
    lake.clear(tmp_path / "empty")
    assert [path.name for path in (tmp_path / "empty").iterdir()] == [lake.MARKER]


def test_clear_empties_its_own(tmp_path: Path) -> None:
    """The lake of an earlier demo is emptied, tables and commit log together."""
    folder = _made_by_a_demo(tmp_path / "lake")
    lake.clear(folder)
    assert [path.name for path in folder.iterdir()] == [lake.MARKER]


@pytest.mark.parametrize(
    "theirs", ["notes.txt", "orders/part-1.parquet", "flights/public-orders/x.parquet", ".bridge/orders/commits/1.json"]
)
def test_clear_refuses_what_else_is_there(tmp_path: Path, theirs: str) -> None:
    """A file, table or pipeline that no demo made is named, and everything in the lake stays."""
    folder = _made_by_a_demo(tmp_path / "lake")
    (folder / theirs).parent.mkdir(parents=True, exist_ok=True)
    (folder / theirs).write_text("mine")
    before = sorted(folder.rglob("*"))
    with pytest.raises(SettingsError, match="found=") as caught:
        lake.clear(folder)
    assert theirs.startswith(str(caught.value).partition("found=")[2])
    assert caught.value.hint
    assert sorted(folder.rglob("*")) == before


def test_clear_refuses_an_unmarked_folder(tmp_path: Path) -> None:
    """Without the demo's mark even a folder that looks like its lake is somebody's."""
    folder = _made_by_a_demo(tmp_path / "lake")
    (folder / lake.MARKER).unlink()
    with pytest.raises(SettingsError):
        lake.clear(folder)
    assert (folder / "flights" / "public-flights" / "part-1.parquet").exists()


def test_clear_refuses_a_file(tmp_path: Path) -> None:
    """A file where the lake should be is left alone."""
    (tmp_path / "lake").write_text("mine")
    with pytest.raises(SettingsError):
        lake.clear(tmp_path / "lake")
    assert (tmp_path / "lake").read_text() == "mine"


def _write(folder: Path, rows: list[dict[str, object]]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows), folder / f"part-{len(list(folder.iterdir()))}.parquet")


def test_the_latest_version_counts(tmp_path: Path) -> None:
    """Of a flight in several versions the question sees the latest, whatever the order of the files."""
    pytest.importorskip("duckdb", reason="needs the extra [demo]")
    first, later = dt.datetime(2013, 1, 1, tzinfo=dt.timezone.utc), dt.datetime(2014, 1, 1, tzinfo=dt.timezone.utc)
    flights = tmp_path / "flights" / "public-flights"
    _write(flights, [{"id": 1, "updated_at": later, "carrier": "AA", "arr_delay": 30}])
    _write(flights, [{"id": n, "updated_at": first, "carrier": "AA", "arr_delay": 10} for n in (1, 2)])
    _write(tmp_path / "flights" / "public-airlines", [{"carrier": "AA", "name": "American"}])
    assert lake.punctuality(tmp_path) == [Airline("American", 2, 20.0)]
    assert lake.distinct_flights(tmp_path) == 2


def test_a_lake_without_files_is_an_error(tmp_path: Path) -> None:
    """A run that wrote nothing is an error with a hint, not a traceback."""
    pytest.importorskip("duckdb", reason="needs the extra [demo]")
    with pytest.raises(CorruptLake, match="DuckDB cannot read") as caught:
        lake.distinct_flights(tmp_path)
    assert caught.value.hint
