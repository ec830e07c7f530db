"""Iceberg tables in catalogs that are products: every load method, other writers, a catalog that is down, kill -9."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable

import pytest

from bridge.errors import CommitLost, LakeError
from bridge.findings import run_checks
from bridge.lake.commit.rollback import roll_back
from bridge.operate.doctor.lake import lake_checks
from bridge.operate.verify.mend import repair
from tests.interop.catalogs.conftest import Place
from tests.interop.catalogs.nessie import Nessie
from tests.interop.catalogs.writer import ids_after, settings, step
from tests.support.iceberg_lake import IcebergLake, PartitionedLake
from tests.support.lake import DEAD, FIRST, closed, overtaken

pytestmark = pytest.mark.timeout(600)
KILLS = int(os.environ.get("KILLS") or 20)


def test_a_table(place: Place) -> None:
    """Append, a new column, a merge by key, an overwrite, rollback: all engines of Iceberg see each as one snapshot.

    No snapshot has a delete file. The doctor hears the catalog answer.
    """
    lake = place.lake()
    run = lake.open(FIRST)
    for i in range(1, 11):
        step(lake, run, i)
        assert lake.ids() == lake.listed() == ids_after(i)
    versions = 1 if isinstance(place.server, Nessie) else 10  # Nessie has its own history, and shows one snapshot
    assert [lake.ids(version - versions) for version in range(versions)] == [
        ids_after(i) for i in range(11 - versions, 11)
    ]
    table = lake.iceberg()
    kinds = {file["content"] for one in table.snapshots() for file in table.inspect.files(one.snapshot_id).to_pylist()}
    assert kinds == {0}  # data, and no deletions by position or by value
    assert all(one.summary.get("total-delete-files", "0") == "0" for one in table.snapshots())
    roll_back(lake.storage, "p", 9)
    assert lake.ids() == lake.listed() == ids_after(9)
    findings = run_checks(lake_checks(settings(place.bucket, place.server.properties), lake.storage))
    assert [one.status for one in findings if one.check == "catalog"] == ["ok"]
    assert lake.problems() == []


def test_partitions_and_order(place: Place) -> None:
    """They come to a table that had none, are others after an overwrite, and the first ones again after that."""
    flat = place.lake()
    flat.append(flat.open(FIRST), [1], part="b")
    lake = PartitionedLake(flat.storage, **place.server.properties)
    run = lake.open(closed(1))

    def names() -> list[str]:
        table = lake.iceberg()
        return [table.schema().find_column_name(one.source_id) or "" for one in table.spec().fields]

    def files(filter_: str) -> list[tuple[str, int | None]]:
        plan = lake.iceberg().scan(filter_).plan_files()
        return sorted((str(task.file.partition), task.file.sort_order_id) for task in plan)

    lake.append(run, [2])
    order = lake.iceberg().sort_order()
    assert (names(), len(order.fields)) == (["part"], 1)
    assert files("part = 'a'") == [("Record[a]", order.order_id)]
    assert files("id > 0") == [("Record[]", None), ("Record[a]", order.order_id)]
    lake.replace(run, [3], name="x")
    assert names() == ["name"]
    assert files("name = 'x'") == [("Record[x]", order.order_id)]
    lake.append(run, [4], name="y")
    assert names() == ["part"]
    assert lake.ids() == lake.listed() == [3, 4]
    if not isinstance(place.server, Nessie):  # which shows no snapshot of before
        roll_back(lake.storage, "p", 2)
        assert lake.ids() == lake.listed() == [1, 2]
        assert files("part = 'a'") == [("Record[a]", order.order_id)]
    assert lake.problems() == []


def test_the_slow_writer(place: Place) -> None:
    """A run that slept in its commit while another took over adds nothing."""
    lake = place.lake()
    lake.append(lake.open(FIRST), [1])
    slow = overtaken(lake.storage, lambda: lake.append(lake.open(DEAD), [3]))
    with pytest.raises(CommitLost):
        lake.append(lake.open(closed(1), slow), [2])
    assert lake.ids() == lake.listed() == [1, 2, 3]


def test_another_program_writes(place: Place) -> None:
    """Rows that somebody else appends or deletes refuse the next commit; `verify --repair` takes them out, or back."""
    lake = place.lake()
    lake.append(lake.open(FIRST), [1, 2])
    lake.append_otherwise([9])
    with pytest.raises(LakeError, match="changed by somebody else") as caught:
        lake.append(lake.open(closed(1)), [3])
    assert "verify NAME --repair" in caught.value.hint
    assert "table log: names 1 file(s) too many: its readers get other rows" in lake.problems()
    _, report = repair(lake.storage, "p")
    assert report.errors == 0
    assert lake.ids() == lake.listed() == [1, 2]
    lake.delete_otherwise("id = 1")
    assert lake.ids() == [2]
    repair(lake.storage, "p")
    lake.append(lake.open(closed(lake.log.head())), [3])
    assert lake.ids() == lake.listed() == [1, 2, 3]


def test_a_catalog_that_is_down(place: Place) -> None:
    """It is named before anything is committed. If it ends within a commit, that is shown when it is back: once."""
    lake = place.lake()
    run = lake.open(FIRST)
    step(lake, run, 1)
    place.server.stop()
    try:
        for attempt in (lambda: step(lake, run, 2), place.prepared):
            with pytest.raises(LakeError, match="the Iceberg catalog cannot be used") as caught:
                attempt()
            assert "destination.catalog" in caught.value.hint
        assert lake.log.head() == 1
    finally:
        place.server.start()
    dying = lake.open(DEAD, overtaken(place.prepared(), place.server.stop))
    try:
        with pytest.raises(LakeError, match="the Iceberg catalog cannot be used"):
            step(lake, dying, 2)
        assert _state(lake) == 2
    finally:
        place.server.start()
    assert lake.ids() == [1]
    run = place.lake().open(DEAD)
    assert lake.ids() == lake.listed() == [1, 2]
    step(lake, run, 3)
    assert lake.ids() == [1, 2, 3]
    assert lake.problems() == []


@pytest.mark.timeout(1800)
def test_kills(place: Place, record_property: Callable[[str, object], None]) -> None:
    """KILLS (20) times kill -9 of a process that commits: readers see whole commits, and no row is lost or doubled."""
    lake, chance, died = place.lake(), random.Random(int(os.environ.get("SEED") or 7)), list[int]()
    while len(died) < KILLS:
        last = _killed(place, chance.uniform(0, 3))
        if last is None:
            continue
        state = _state(lake)
        shown = lake.ids() if lake.is_there else []
        assert state >= last
        assert shown in (ids_after(state - 1), ids_after(state)), (state, shown)
        died.append(state - (shown != ids_after(state)))
    run = lake.open(DEAD)
    step(lake, run, _state(lake) + 1)
    assert lake.ids() == lake.listed() == ids_after(_state(lake))
    assert lake.problems() == []
    record_property("kills", len(died))
    print(f"\n{place.server.product}: {len(died)} kills, {_state(lake)} commits")


def _state(lake: IcebergLake) -> int:
    head = lake.log.head()
    return int((lake.log.snapshot(head).state or {}).get("last", 0)) if head else 0


def _killed(place: Place, after: float) -> int | None:
    """Start a writer, kill it so many seconds after it opened the lake, and return the last commit that it announced.

    None if it was refused, because the writer that was killed before it still has its lock in Hive's metastore.
    """
    command = [sys.executable, "-m", "tests.interop.catalogs.writer"]
    command += [place.bucket, json.dumps(place.server.properties), "1000"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None and writer.stderr is not None
        if writer.stdout.readline() != "open\n":
            assert "the metastore has the table locked" in writer.stderr.read()
            return None
        try:
            writer.wait(after)
        except subprocess.TimeoutExpired:
            writer.send_signal(signal.SIGKILL)
        lines = writer.stdout.read().split()
        assert writer.wait() == -signal.SIGKILL, writer.stderr.read()
    return int(lines[-1]) if lines else 0
