"""Iceberg tables in a REST catalog: its answers decide who was first, and one that is lost changes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bridge.errors import CommitLost, LakeError
from bridge.lake.commit.rollback import roll_back
from bridge.lake.formats.iceberg.catalog import CatalogFacts, keep_catalog, unreachable
from bridge.lake.storage.local.storage import LocalStorage
from bridge.operate.doctor.lake import lake_checks
from bridge.settings.options import Pipeline
from tests.support.iceberg_lake import IcebergLake
from tests.support.lake import DEAD, FIRST, closed, overtaken
from tests.support.restcatalog import CLOSED, LATE, PASS, RestCatalog


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RestCatalog]:
    with RestCatalog(tmp_path) as server:
        yield server


def settings(server: RestCatalog, bucket: Path) -> Pipeline:
    catalog = {"properties": {"type": "rest", "uri": server.uri}}
    destination = {"bucket": str(bucket), "format": "iceberg", "catalog": catalog}
    return Pipeline.model_validate({"name": "p", "source": {"tap": "tap"}, "destination": destination})


@pytest.fixture
def lake(server: RestCatalog, tmp_path: Path) -> IcebergLake:
    storage = LocalStorage(tmp_path / "lake")
    storage.prepare()
    keep_catalog(storage, settings(server, tmp_path / "lake"))
    return IcebergLake(storage, server.uri)


def test_a_table_in_a_rest_catalog(lake: IcebergLake, server: RestCatalog, tmp_path: Path) -> None:
    """Append, a new column, a merge, overwrite, time travel, rollback: as in a database. The doctor hears it answer."""
    committer = lake.open(FIRST)
    lake.append(committer, [1, 2])
    lake.append(committer, [5], name="new")
    lake.replace(committer, [3], name="all")
    assert [lake.ids(version) for version in range(3)] == [[1, 2], [1, 2, 5], [3]]
    roll_back(lake.storage, "p", 1)
    assert lake.ids() == lake.listed() == [1, 2]
    check = dict(lake_checks(settings(server, tmp_path / "lake"), lake.storage))["catalog"]
    assert [finding.text for finding in check()] == ["lake answers; the tables are in p"]
    assert not (tmp_path / "lake/.bridge/catalog.db").exists()


def test_the_slow_writer(lake: IcebergLake) -> None:
    """The catalog keeps out who was overtaken."""
    lake.append(lake.open(FIRST), [1])

    slow = overtaken(lake.storage, lambda: lake.append(lake.open(DEAD), [3]))
    with pytest.raises(CommitLost):
        lake.append(lake.open(closed(1), slow), [2])
    assert lake.ids() == lake.listed() == [1, 2, 3]


def test_an_answer_that_is_lost(lake: IcebergLake, server: RestCatalog) -> None:
    """A snapshot that was committed, and whose answer was not heard, is there once."""
    committer = lake.open(FIRST)
    for n in (1, 2):
        server.lose = 1
        lake.append(committer, [n])
    assert lake.ids() == [1, 2]
    assert len(lake.snapshots()) == 2


@pytest.mark.parametrize("fault", [503, 429, 502, CLOSED, LATE])
def test_a_fault_that_passes(
    fault: int, lake: IcebergLake, server: RestCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A catalog that is busy, restarts or is late for once ends no run; a commit whose answer is lost is there once.

    Commits are looked at twice: when they are checked, and when they are published.
    """
    monkeypatch.setattr("bridge.lake.formats.iceberg.rest._PATIENCE", (10.0, 2.0))
    committer = lake.open(FIRST)
    lake.append(committer, [1])
    for n, faults in {2: [fault], 3: [PASS, fault], 4: [PASS, PASS, fault]}.items():
        server.faults = faults
        lake.append(committer, [n])
        assert server.faults == []
    server.lose, server.loss = 1, fault
    lake.append(committer, [5])
    assert server.lose == 0
    assert lake.ids() == lake.listed() == [1, 2, 3, 4, 5]
    assert len(lake.snapshots()) == 5


def test_a_server_with_a_fault(lake: IcebergLake, server: RestCatalog, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own words are in the error, and no other writer is blamed. The next run shows the rows."""
    monkeypatch.setattr("bridge.lake.storage.conditional._PATIENCE", 0.5)
    lake.append(lake.open(FIRST), [1])
    server.broken = True
    with pytest.raises(LakeError, match=r"cannot be used.*the disk is full"):
        lake.append(lake.open(closed(1)), [2])
    server.broken = False
    lake.open(DEAD)
    assert lake.ids() == lake.listed() == [1, 2]


def test_the_requests_of_commits(lake: IcebergLake, server: RestCatalog) -> None:
    """What Iceberg's own catalogs and Nessie ask for: columns before what names them, one update of properties.

    New columns come with the highest number that the table has used.
    """
    committer = lake.open(FIRST)
    lake.append(committer, [1], name="a")
    lake.append(committer, [2], name="b", more="c")
    first, second = ([update["action"] for update in asked["updates"]] for asked in server.asked)
    assert first.index("set-current-schema") < first.index("add-spec") < first.index("add-sort-order")
    assert [actions.count("set-properties") for actions in (first, second)] == [1, 1]
    schemas = [update for asked in server.asked for update in asked["updates"] if update["action"] == "add-schema"]
    assert [update["last-column-id"] for update in schemas] == [2, 3]


def test_an_old_metastore_is_told_apart() -> None:
    """Hive 2's metastore knows no times with a zone; the hint has the property that helps."""
    text = "Error: type expected at the position 0 of 'timestamp with local time zone' but it is found."
    assert "hive.hive2-compatible" in unreachable(CatalogFacts("lake", "p", {}), RuntimeError(text)).hint
