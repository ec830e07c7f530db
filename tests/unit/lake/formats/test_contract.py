"""What every table format keeps: fenced against slow writers, refused where somebody else wrote, mended, and swept."""

from __future__ import annotations

import contextlib
import sys
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bridge.errors import CommitLost, LakeError, SettingsError
from bridge.lake.commit.retention import Sweep
from bridge.lake.commit.rollback import roll_back
from bridge.lake.storage.local.storage import LocalStorage
from bridge.load.maintain.compact import CompactOptions, compact
from bridge.load.run.tables.adopt import adopt
from bridge.load.run.tables.table_plan import TablePlanner
from bridge.operate.verify.mend import repair
from bridge.protocol.singer.messages import Schema
from bridge.settings.options import Retention
from tests.support.delta_lake import DeltaLake
from tests.support.iceberg_lake import IcebergLake
from tests.support.lake import DEAD, FIRST, closed, overtaken
from tests.support.shell import Typed

FORMATS = {"delta": DeltaLake, "iceberg": IcebergLake}
PACKAGES = {"delta": "deltalake", "iceberg": "pyiceberg"}
MESSAGE = Schema("s", {"properties": {"id": {"type": "integer"}}}, None, None)


@pytest.fixture(params=FORMATS)
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    return FORMATS[request.param](LocalStorage(tmp_path))


def placed(lake: DeltaLake, **more: str) -> TablePlanner:
    """Where a run would place streams."""
    snapshot = lake.log.snapshot(lake.log.head())
    return TablePlanner(lake.storage, lake.pipeline(**more), snapshot, None, full=False, append=False)


# who was overtaken


def test_a_slow_writer_adds_nothing(lake: DeltaLake) -> None:
    """Who is overtaken between looking at the table and committing to it changes nothing, and ends."""
    lake.append(lake.open(FIRST), [1])
    slow = overtaken(lake.storage, lambda: lake.append(lake.open(DEAD), [3]))  # recovers commit 2 first
    with pytest.raises(CommitLost):
        lake.append(lake.open(closed(1), slow), [2])
    assert lake.ids() == lake.listed() == [1, 2, 3]
    assert (lake.versions(), lake.done()) == (3, 4)


def test_a_slow_writer_of_the_first_version(lake: DeltaLake) -> None:
    """Two who make the table make one."""
    slow = overtaken(lake.storage, lambda: lake.append(lake.open(DEAD), [2]))
    with pytest.raises(CommitLost):
        lake.append(lake.open(FIRST, slow), [1])
    assert lake.ids() == [1, 2]


def test_a_slow_writer_whose_commit_was_taken_back(lake: DeltaLake, tmp_path: Path) -> None:
    """Not even after its files were lost, and the commit voided, a version comes late."""

    def others() -> None:
        (name,) = set(lake.log.snapshot(2).tables["s"].files) - set(lake.log.snapshot(1).tables["s"].files)
        (tmp_path / "p/s" / name).unlink()
        lake.open(DEAD)

    lake.append(lake.open(FIRST), [1])
    with pytest.raises(CommitLost):
        lake.append(lake.open(closed(1), overtaken(lake.storage, others)), [2])
    assert lake.ids() == lake.listed() == [1]


def test_the_void_of_a_first_commit(lake: DeltaLake, tmp_path: Path) -> None:
    """A table that was taken back before it was there has columns and no rows, and a late version cannot fill it."""

    def others() -> None:
        for file in (tmp_path / "p/s").glob("*.parquet"):
            file.unlink()
        lake.open(DEAD)

    with pytest.raises(CommitLost):
        lake.append(lake.open(FIRST, overtaken(lake.storage, others)), [1])
    assert lake.ids() == []
    lake.append(lake.open(DEAD), [2])
    assert lake.ids() == [2]


# what somebody else did


def test_somebody_elses_table_is_refused(lake: DeltaLake) -> None:
    """When its stream begins, before a row is read, and at a commit."""
    lake.make_another()
    before, said = lake.ids(), {"delta": "is a Delta table already", "iceberg": "is in the catalog already"}
    for act in (lambda: placed(lake).open(MESSAGE), lambda: lake.append(lake.open(FIRST), [1])):
        with pytest.raises(LakeError, match=said[lake.format]):
            act()
    assert lake.ids() == before
    assert lake.log.head() == 0


def test_what_somebody_else_wrote_is_refused_and_mended(lake: DeltaLake) -> None:
    """Rows that a stranger writes, or deletes, stop the next commit; the repair makes the table what it was."""
    lake.append(lake.open(FIRST), [1, 2])
    lake.append_otherwise([9])
    with pytest.raises(LakeError, match="changed by somebody else"):
        lake.append(lake.open(closed(1)), [3])
    assert lake.log.head() == 1
    assert "table log: names 1 file(s) too many: its readers get other rows" in lake.problems()
    done, report = repair(lake.storage, "p")
    assert any("agree with the commit log" in sentence for sentence in done)
    assert report.errors == 0
    assert lake.ids() == [1, 2]
    lake.append(lake.open(closed(lake.log.head())), [3])
    assert lake.ids() == [1, 2, 3]
    lake.delete_otherwise("id = 1")
    assert lake.ids() == [2, 3]
    assert any("1 file(s) too many and 1 file(s) too few" in problem for problem in lake.problems())
    repair(lake.storage, "p")
    assert lake.ids() == [1, 2, 3]


def test_a_lost_log_is_written_anew(lake: DeltaLake) -> None:
    """Without its own log, or its place in the catalog, nobody finds the table; the repair brings back all rows."""
    lake.append(lake.open(FIRST), [1])
    lake.append(lake.open(closed(1)), [2])
    lake.lose_log()
    assert any("is missing" in problem for problem in lake.problems())
    with pytest.raises(LakeError, match=r"changed by somebody else|not in the catalog"):
        lake.append(lake.open(closed(2)), [3])
    repair(lake.storage, "p")
    assert lake.ids() == [1, 2]


def test_a_table_with_features_is_not_written(lake: DeltaLake) -> None:
    """Where the format asks more of writers than we know, we do not write."""
    lake.append(lake.open(FIRST), [1])
    if isinstance(lake, IcebergLake):
        with lake.iceberg().update_spec() as spec:
            spec.add_identity("id")
    else:
        lake.table().alter.add_constraint({"positive": "id > 0"})
    with pytest.raises(LakeError, match="features that are not ours"):
        lake.append(lake.open(closed(1)), [2])


# the past


def test_a_rollback_brings_files_back_where_they_are(lake: DeltaLake) -> None:
    """A rollback is one more version; it names the same files, so that older versions can still be read."""
    lake.append(lake.open(FIRST), [1, 2])
    lake.replace(lake.open(closed(1)), [7], name="new")
    before = lake.log.snapshot(1).tables["s"].files
    roll_back(lake.storage, "p", 1)
    assert lake.ids() == lake.listed() == [1, 2]
    assert lake.log.snapshot(lake.log.head()).tables["s"].files == before
    assert lake.columns() == ["id"]
    assert [lake.ids(version) for version in range(3)] == [[1, 2], [7], [1, 2]]
    assert lake.problems() == []
    roll_back(lake.storage, "p", 2)
    assert (lake.ids(), lake.columns()) == ([7], ["id", "name"])


def test_retention_deletes_by_age(lake: DeltaLake, tmp_path: Path) -> None:
    """Files that the table gave up are there for `retention.trash`, and those that a rollback has again stay."""
    lake.append(lake.open(FIRST), [1])
    lake.replace(lake.open(closed(1)), [2])
    lake.replace(lake.open(closed(2)), [3])
    roll_back(lake.storage, "p", 1)
    lake.append(lake.open(closed(lake.log.head())), [4])
    head, now = lake.log.head(), datetime.now(timezone.utc)
    keep = Retention(trash=timedelta(days=7))
    Sweep(lake.storage, "p", keep, now=now + timedelta(days=6)).all(head)
    assert len(list((tmp_path / "p/s").glob("*.parquet"))) == 4
    assert lake.problems() == []
    sweep = Sweep(lake.storage, "p", keep, now=now + timedelta(days=8))
    sweep.all(head)
    assert sweep.warnings == []
    assert sweep.deleted["trash"] == 2
    assert len(list((tmp_path / "p/s").glob("*.parquet"))) == 2
    assert lake.ids() == lake.listed() == [1, 4]
    assert lake.problems() == []
    assert list((tmp_path / ".bridge/p/trash").rglob("*.kept")) == []


def test_small_files_are_joined(lake: DeltaLake, tmp_path: Path) -> None:
    """Compaction is one version that changes no data: who follows the changes sees none."""
    committer = lake.open(FIRST)
    for n in range(1, 7):
        lake.append(committer, [n])
    with contextlib.suppress(FileNotFoundError):
        (tmp_path / ".bridge/p/lease.json").unlink()
    compact(lake.storage, lake.pipeline(), CompactOptions())
    assert lake.ids() == lake.listed() == list(range(1, 7))
    assert (lake.versions(), lake.read_files(0)) == (7, 1)
    if isinstance(lake, IcebergLake):
        now = lake.iceberg().current_snapshot()
        assert now and now.summary and now.summary.operation.value == "replace"
    else:
        assert '"dataChange": true' not in (tmp_path / f"p/s/_delta_log/{6:020d}.json").read_text()
    assert lake.problems() == []


def test_adopted_files(lake: DeltaLake, tmp_path: Path) -> None:
    """Files that were there become a table; what one has given up is never taken for a stranger's."""
    (tmp_path / "p/s").mkdir(parents=True)
    pq.write_table(pa.table({"id": [1, 2]}), tmp_path / "p/s/old.parquet")
    committer = lake.open(FIRST)
    adopt(committer, lake.pipeline())
    assert lake.ids() == [1, 2]
    lake.replace(committer, [3])
    with pytest.raises(SettingsError, match="nothing to adopt"):
        adopt(committer, lake.pipeline())
    assert lake.ids() == [3]


# its readers and its settings


def test_a_table_keeps_its_format(lake: DeltaLake) -> None:
    """A format that was changed is refused when the stream begins, and what can be done is said."""
    lake.append(lake.open(FIRST), [1])
    placed(lake).open(MESSAGE)
    with pytest.raises(SettingsError, match="a table keeps its format") as caught:
        placed(lake, format="parquet").open(MESSAGE)
    assert f"keep format: {lake.format}" in caught.value.hint


SETTINGS = 'pipelines: {{shop: {{source: {{tap: ["touch", "started"]}}, destination: {{bucket: lake, format: {}}}}}}}\n'


@pytest.mark.parametrize("name", FORMATS)
def test_the_extra_is_asked_for_before_the_tap(
    name: str, folder: Path, typed: Typed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the package nothing is started, and what to install is said; the doctor says so, too."""
    monkeypatch.setitem(sys.modules, PACKAGES[name], None)
    (folder / "bridge.yaml").write_text(SETTINGS.format(name))
    for words in ("run shop", "doctor shop --no-spark"):
        done = typed(words)
        said = " ".join((done.out + done.err).split())
        assert done.code == 2, said
        assert f"format: {name} needs the package {PACKAGES[name]}" in said
        assert f'pip install "singer-bridge[{name}]"' in said
    assert not (folder / "started").exists()


@pytest.mark.parametrize(
    ("name", "found"), [("delta", "delta, by deltalake 1"), ("iceberg", "iceberg, by pyiceberg 0.")]
)
def test_the_doctor_says_what_writes(name: str, found: str, folder: Path, typed: Typed) -> None:
    """With the package its version is named, and where tables are registered; nothing is made."""
    (folder / "bridge.yaml").write_text(SETTINGS.format(name))
    checks = {check["check"]: check for check in typed("doctor shop --no-spark --json").json["checks"]}
    assert checks["format"]["status"] == "ok"
    assert checks["format"]["found"].startswith(found)
    assert name == "delta" or ".bridge/catalog.db" in checks["catalog"]["found"]
    assert not (folder / "lake").exists()
