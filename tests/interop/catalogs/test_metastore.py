"""What Hive's metastore does that no other catalog does: locks that end by themselves, one connection by thrift."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hive_metastore.ttypes import EnvironmentContext, UnlockRequest
from msgspec.structs import replace
from pyiceberg.exceptions import CommitFailedException

from bridge.errors import CommitLost
from bridge.lake.formats.iceberg.catalog import CatalogFacts, open_catalog
from bridge.lake.pipeline_state import PipelineState
from bridge.lake.storage.local.storage import LocalStorage
from tests.interop.catalogs.conftest import Place
from tests.interop.catalogs.metastore import Metastore
from tests.interop.catalogs.writer import prepared
from tests.support.iceberg_lake import IcebergLake
from tests.support.lake import DEAD, FIRST, closed, overtaken

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module", params=["metastore"])
def server() -> Iterator[Metastore]:
    with Metastore() as made:
        yield made  # type: ignore[misc]


def test_a_run_that_sleeps_longer_than_its_lock(place: Place) -> None:
    """It takes nothing away: another run got the lock and committed, and the metastore refuses the older metadata."""
    lake = place.lake()
    lake.append(lake.open(FIRST), [1])
    storage = overtaken(lake.storage, lambda: lake.append(lake.open(DEAD), [3]), at=(".metadata.json",))
    with pytest.raises(CommitLost):
        lake.append(lake.open(closed(1), storage), [2])
    assert lake.ids() == lake.listed() == [1, 2, 3]
    assert lake.problems() == []


def test_a_change_needs_the_newest_metadata_and_the_lock(place: Place) -> None:
    """Each keeps a late change out by itself: of those, a metastore before Hive 2.3.10 knows only the lock."""
    lake = place.lake()
    run = lake.open(FIRST)
    lake.append(run, [1])
    catalog: Any = open_catalog(lake.storage, CatalogFacts("lake", "p", place.server.properties))
    with catalog._client as client:
        read = client.get_table("p", "s")
        lake.append(run, [2])
        read.parameters["previous_metadata_location"] = read.parameters["metadata_location"]
        context = EnvironmentContext(properties={})
        with pytest.raises(CommitFailedException, match="has been modified"):
            client.alter_table_with_environment_context("p", "s", read, context)
        newest = client.get_table("p", "s")
        newest.parameters["previous_metadata_location"] = newest.parameters["metadata_location"]
        lock = client.lock(catalog._create_lock_request("p", "s"))
        client.unlock(UnlockRequest(lockid=lock.lockid))
        with pytest.raises(CommitFailedException, match="the lock of the table ended"):
            client.alter_table_with_environment_context("p", "s", newest, context)
    assert lake.ids() == [1, 2]


def test_a_lock_that_hive_has_ended(place: Place) -> None:
    """As it does with one that waits for long: the commit is tried again, and nothing is said of it at the end."""
    place.lake()
    catalog: Any = open_catalog(LocalStorage(Path(place.bucket)), CatalogFacts("lake", "p", place.server.properties))
    with catalog._client as client:
        lock = client.lock(catalog._create_lock_request("p", "s"))
        client.unlock(UnlockRequest(lockid=lock.lockid))
        with pytest.raises(CommitFailedException, match="the lock of the table ended"):
            catalog._wait_for_lock("p", "s", lock.lockid, client)
        client.unlock(UnlockRequest(lockid=lock.lockid))


class Parallel(LocalStorage):
    """A folder in which as much is done at once as in a bucket."""

    parallel = 16


def test_tables_are_committed_at_once(place: Place) -> None:
    """Commits of several tables, each of which is checked and published in a thread of its own."""
    prepared(place.bucket, place.server.properties)
    lakes = {name: IcebergLake(Parallel(Path(place.bucket)), **place.server.properties) for name in "stuv"}
    run = lakes["s"].open(FIRST)
    for n in range(1, 4):
        changes = []
        for name, lake in lakes.items():
            lake.folder = f"p/{name}"
            changes.append(replace(lake.entry(lake.pending(run, [n])), stream=name))
        run.commit(PipelineState({"last": n}), changes)
    with place.catalog() as catalog:
        tables = [catalog.load_table(("p", name)) for name in lakes]
        assert [table.scan().to_arrow().num_rows for table in tables] == [3] * 4
        for name in "tuv":
            catalog.drop_table(("p", name))
