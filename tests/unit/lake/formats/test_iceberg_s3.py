"""Iceberg tables in a bucket, registered in a database elsewhere: the catalog fences, all readers find them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bridge.errors import CommitLost, LakeError
from bridge.lake.formats.iceberg.catalog import keep_catalog
from bridge.lake.storage import Storage
from bridge.operate.verify.check import verify
from bridge.settings.options import Pipeline
from tests.support.iceberg_lake import IcebergLake, polars_scan
from tests.support.lake import DEAD, FIRST, closed, overtaken
from tests.support.s3server import S3Server


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with S3Server() as server:
        yield server


def lake_of(server: S3Server, bucket: str, tmp_path: Path) -> IcebergLake:
    """A lake whose catalog is a file of this machine."""
    storage: Storage = server.storage(bucket)
    uri = f"sqlite:////{str(tmp_path / 'catalog.db').lstrip('/')}"
    catalog = {"properties": {"type": "sql", "uri": uri}}
    destination = {"bucket": bucket, "format": "iceberg", "catalog": catalog}
    said = {"name": "p", "source": {"tap": "tap"}, "destination": destination}
    keep_catalog(storage, Pipeline.model_validate(said))
    keys = {"s3.access-key-id": "testing", "s3.secret-access-key": "very-secret-key", "s3.region": "us-east-1"}
    return IcebergLake(storage, uri, **keys, **{"s3.endpoint": server.endpoint})


@pytest.mark.parametrize("prefix", ["team", "a b/ü"])
def test_a_table_in_a_bucket(server: S3Server, tmp_path: Path, prefix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Append, a new column, overwrite, time travel: as in a folder; read by pyiceberg's own way to the store."""
    lake = lake_of(server, f"s3://iceberg/{prefix}", tmp_path)
    lake.append(lake.open(FIRST), [1, 2])
    committer = lake.open(closed(1))
    lake.append(committer, [5], name="new")
    lake.replace(committer, [3], name="all")
    assert lake.ids() == lake.listed() == [3]
    assert [lake.ids(version) for version in range(3)] == [[1, 2], [1, 2, 5], [3]]
    assert [f.text for f in verify(lake.storage, "p").findings if f.status == "error" and f.check != "owner"] == []
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")
    found = polars_scan(lake.iceberg(), storage_options=lake.storage.for_libraries()).collect()
    assert found["id"].to_list() == [3]


def test_a_path_that_readers_end_too_early(server: S3Server, tmp_path: Path) -> None:
    """Refused before a row is stored, as pyiceberg could not open the files."""
    lake = lake_of(server, "s3://iceberg/a#b", tmp_path)
    with pytest.raises(LakeError, match="cannot be opened by readers of Iceberg"):
        lake.append(lake.open(FIRST), [1])
    assert not list(lake.storage.list("p/s"))


def test_the_slow_writer_in_a_bucket(server: S3Server, tmp_path: Path) -> None:
    """The catalog keeps out who was overtaken."""
    lake = lake_of(server, "s3://iceberg/slow", tmp_path)
    lake.append(lake.open(FIRST), [1])

    slow = overtaken(lake.storage, lambda: lake.append(lake.open(DEAD), [3]))
    with pytest.raises(CommitLost):
        lake.append(lake.open(closed(1), slow), [2])
    assert lake.ids() == lake.listed() == [1, 2, 3]


def test_nothing_says_where_the_catalog_is(server: S3Server) -> None:
    """In a bucket there is no default, and what to do is said."""
    lake = IcebergLake(server.storage("s3://iceberg/none"))
    with pytest.raises(LakeError, match="in which catalog") as caught:
        lake.append(lake.open(FIRST), [1])
    assert "destination.catalog" in caught.value.hint
