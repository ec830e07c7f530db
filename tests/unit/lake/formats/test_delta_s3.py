"""Delta tables in a bucket: the same protocol by conditional puts; readers reach it by the keys that boto3 finds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import polars as pl
import pytest
from deltalake import DeltaTable

from bridge.errors import CommitLost
from bridge.lake.log import Log
from bridge.load.write.partition import Partition
from tests.support.delta_lake import DeltaLake
from tests.support.lake import DEAD, FIRST, closed, overtaken
from tests.support.s3server import S3Server
from tests.support.tables import STRING, Shop


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with S3Server() as server:
        yield server


@pytest.mark.parametrize("prefix", ["team", "a b/ü"])
def test_a_table_in_a_bucket(server: S3Server, prefix: str) -> None:
    """Append, overwrite, time travel, a checkpoint: as in a folder."""
    lake = DeltaLake(server.storage(f"s3://delta/{prefix}"))
    lake.append(lake.open(FIRST), [1, 2])
    committer = lake.open(closed(1))
    lake.replace(committer, [3], name="new")
    assert lake.ids() == lake.listed() == [3]
    assert lake.ids(version=0) == [1, 2]
    for n in range(4, 13):
        lake.append(committer, [n], name="new")
    options = lake.storage.for_libraries()
    if prefix != "team":
        assert lake.ids() == list(range(3, 13))
        return  # Polars does not find what a URI has to encode
    found = pl.scan_delta(f"{lake.storage.uri}/{lake.folder}", storage_options=options).collect()
    assert sorted(found["id"].to_list()) == list(range(3, 13))
    names = list(lake.storage.list(f"{lake.folder}/_delta_log"))
    assert f"{10:020d}.checkpoint.parquet" in names


@pytest.mark.parametrize("name", ["a b", "é😀", "a#b", "a`b;c+d&e^f[g]'"])
def test_odd_names_in_a_bucket(server: S3Server, tmp_path: Path, name: str) -> None:
    """Of the bucket's prefix, of a stream and of the value that a folder is named after: run after run goes on."""
    storage = server.storage(f"s3://delta/odd/{name}")
    shop = Shop(tmp_path, storage, format="delta")
    properties = {"id": {"type": "integer"}, "city": STRING}
    for number in range(3):
        shop.load(name, properties, [{"id": number, "city": name}], partition_by=(Partition("city"),))
    log = Log(storage, "shop")
    key = f"delta/odd/{name}/{log.snapshot(log.head()).tables[name].folder}"
    table = DeltaTable(f"s3://{quote(key)}", storage_options=storage.for_libraries())
    assert sorted(table.to_pyarrow_table()["id"].to_pylist()) == [0, 1, 2]
    old = DeltaLake(storage)
    old.folder = f"p/{name}"
    old.append(old.open(FIRST), [1])
    old.append(old.open(closed(1)), [2])


def test_the_slow_writer_in_a_bucket(server: S3Server) -> None:
    """A conditional put keeps out who was overtaken, as a link does in a folder."""
    lake = DeltaLake(server.storage("s3://delta/slow"))
    lake.append(lake.open(FIRST), [1])

    slow = overtaken(lake.storage, lambda: lake.append(lake.open(DEAD), [3]))
    with pytest.raises(CommitLost):
        lake.append(lake.open(closed(1), slow), [2])
    assert lake.ids() == lake.listed() == [1, 2, 3]


def test_an_answer_that_is_lost(server: S3Server) -> None:
    """An entry that was put, and whose answer was not heard, is there once."""
    lake = DeltaLake(server.storage("s3://delta/lost"))
    server.fault("reset", match="PUT .*_delta_log", when="after")
    lake.append(lake.open(FIRST), [1])
    server.clear()
    lake.append(lake.open(closed(1)), [2])
    assert lake.ids() == [1, 2]
    assert lake.table().version() == 1
