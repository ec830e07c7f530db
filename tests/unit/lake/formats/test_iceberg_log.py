"""The snapshots of an Iceberg table: fenced against slow writers, refused where somebody else wrote, mended, swept."""

from __future__ import annotations

import contextlib
import json
import sys
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.schema import Schema as Columns
from pyiceberg.types import LongType, NestedField

from bridge.cli import main
from bridge.commit.retention import Sweep
from bridge.commit.rollback import roll_back
from bridge.errors import CommitLost, LakeError, SettingsError
from bridge.lake.formats.iceberg import manifests
from bridge.lake.formats.iceberg.catalog import keep_catalog, read_catalog
from bridge.load.tables.adopt import adopt
from bridge.load.tables.table_plan import TablePlanner
from bridge.maintain.compact import Wish, compact
from bridge.maintain.verify.check import verify
from bridge.maintain.verify.mend import repair
from bridge.settings.load import load
from bridge.settings.options import Pipeline, Retention
from bridge.singer.messages import Schema
from bridge.storage.local.storage import LocalStorage
from tests.support.iceberg_lake import IcebergLake, catalog_of
from tests.support.lake import DEAD, FIRST, closed


class Overtaken(LocalStorage):
    """Lets others act right before the first snapshot of a table is written."""

    def __init__(self, root: Path, others: Any) -> None:
        super().__init__(root)
        self.others = others

    def write(self, key: str, data: bytes) -> None:
        if "/metadata/snap-" in key and self.others:
            others, self.others = self.others, None
            others()
        super().write(key, data)


@pytest.fixture(autouse=True)
def _no_power_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.fsync", lambda fd: None)


@pytest.fixture
def lake(tmp_path: Path) -> IcebergLake:
    return IcebergLake(LocalStorage(tmp_path))


def problems(lake: IcebergLake) -> list[str]:
    found = verify(lake.storage, "p").findings
    return [f"{f.check}: {f.found}" for f in found if f.check not in ("owner", "streams", "lake")]


def pipeline(tmp_path: Path, **more: Any) -> Pipeline:
    destination = {"bucket": str(tmp_path), "format": "iceberg"} | more
    return Pipeline.model_validate({"name": "p", "source": {"tap": "tap"}, "destination": destination})


def test_a_slow_writer_adds_nothing(lake: IcebergLake, tmp_path: Path) -> None:
    """Who is overtaken between looking at the table and committing to it changes nothing, and ends."""
    lake.append(lake.open(FIRST), [1])

    def others() -> None:
        lake.append(lake.open(DEAD), [3])  # recovers commit 2 first

    slow = lake.open(closed(1), Overtaken(tmp_path, others))
    with pytest.raises(CommitLost):
        lake.append(slow, [2])
    assert lake.ids() == lake.listed() == [1, 2, 3]
    assert (len(lake.snapshots()), lake.done()) == (3, 4)


def test_a_slow_writer_of_the_first_snapshot(lake: IcebergLake, tmp_path: Path) -> None:
    """Two who make the table make one."""
    slow = lake.open(FIRST, Overtaken(tmp_path, lambda: lake.append(lake.open(DEAD), [2])))
    with pytest.raises(CommitLost):
        lake.append(slow, [1])
    assert lake.ids() == [1, 2]


def test_a_slow_writer_whose_commit_was_taken_back(lake: IcebergLake, tmp_path: Path) -> None:
    """Not even after its files were lost, and the commit voided, a snapshot comes late."""

    def others() -> None:
        (name,) = set(lake.log.view(2).tables["s"].files) - set(lake.log.view(1).tables["s"].files)
        (tmp_path / "p/s" / name).unlink()
        lake.open(DEAD)

    lake.append(lake.open(FIRST), [1])
    slow = lake.open(closed(1), Overtaken(tmp_path, others))
    with pytest.raises(CommitLost):
        lake.append(slow, [2])
    assert lake.ids() == lake.listed() == [1]


def test_the_void_of_a_first_commit(lake: IcebergLake, tmp_path: Path) -> None:
    """A table that was taken back before it was there has columns and no rows, and a late snapshot cannot fill it."""

    def others() -> None:
        for file in (tmp_path / "p/s").glob("*.parquet"):
            file.unlink()
        lake.open(DEAD)

    slow = lake.open(FIRST, Overtaken(tmp_path, others))
    with pytest.raises(CommitLost):
        lake.append(slow, [1])
    assert lake.ids() == []
    lake.append(lake.open(DEAD), [2])
    assert lake.ids() == [2]


def test_somebody_elses_table_is_refused(lake: IcebergLake, tmp_path: Path) -> None:
    """A name that a table in the catalog has already is not taken: when its stream begins, and at a commit."""
    (tmp_path / ".bridge").mkdir()
    with catalog_of(lake.storage) as catalog:
        catalog.create_namespace("p")
        columns = Columns(NestedField(1, "id", LongType()))
        catalog.create_table("p.s", columns, location=f"file://{tmp_path}/p/s")
    message = Schema("s", {"properties": {"id": {"type": "integer"}}}, None, None)
    place = TablePlanner(lake.storage, pipeline(tmp_path), lake.log.view(0), None, full=False, append=False)
    for act in (lambda: place.open(message), lambda: lake.append(lake.open(FIRST), [1])):
        with pytest.raises(LakeError, match="of that name is in the catalog already"):
            act()
    assert lake.log.head() == 0


def test_what_somebody_else_wrote_is_refused_and_mended(lake: IcebergLake) -> None:
    """Rows that a stranger writes, or deletes, stop the next commit; the repair makes the table what it was."""
    lake.append(lake.open(FIRST), [1, 2])
    lake.iceberg().append(pa.table({"id": [9]}))
    with pytest.raises(LakeError, match="changed by somebody else"):
        lake.append(lake.open(closed(1)), [3])
    assert lake.log.head() == 1
    assert "table log: names 1 file(s) too many: its readers get other rows" in problems(lake)
    done, report = repair(lake.storage, "p")
    assert any("agree with the commit log" in sentence for sentence in done)
    assert report.errors == 0
    assert lake.ids() == [1, 2]
    lake.append(lake.open(closed(lake.log.head())), [3])
    lake.iceberg().delete("id = 1")
    assert lake.ids() == [2, 3]
    assert any("1 file(s) too many and 1 file(s) too few" in problem for problem in problems(lake))
    repair(lake.storage, "p")
    assert lake.ids() == [1, 2, 3]


def test_a_lost_catalog_is_filled_again(lake: IcebergLake, tmp_path: Path) -> None:
    """Without the catalog nobody finds the table; the repair registers it again, with all rows."""
    lake.append(lake.open(FIRST), [1])
    lake.append(lake.open(closed(1)), [2])
    (tmp_path / ".bridge/catalog.db").unlink()
    assert any("is missing" in problem for problem in problems(lake))
    with pytest.raises(LakeError, match="not in the catalog"):
        lake.append(lake.open(closed(2)), [3])
    repair(lake.storage, "p")
    assert lake.ids() == [1, 2]


def test_a_rollback_brings_files_back_where_they_are(lake: IcebergLake) -> None:
    """A rollback is one more snapshot; it names the same files, so that older snapshots can still be read."""
    lake.append(lake.open(FIRST), [1, 2])
    lake.replace(lake.open(closed(1)), [7], name="new")
    before = lake.log.view(1).tables["s"].files
    roll_back(lake.storage, "p", 1)
    head = lake.log.head()
    assert lake.ids() == lake.listed() == [1, 2]
    assert lake.log.view(head).tables["s"].files == before
    assert [field.name for field in lake.iceberg().schema().fields] == ["id"]
    assert [lake.ids(version) for version in range(3)] == [[1, 2], [7], [1, 2]]
    assert problems(lake) == []
    roll_back(lake.storage, "p", 2)
    assert lake.rows() == [{"id": 7, "name": "new"}]


def test_retention_deletes_by_age(lake: IcebergLake, tmp_path: Path) -> None:
    """Files that the table gave up are there for `retention.trash`, and those that a rollback has again stay."""
    lake.append(lake.open(FIRST), [1])
    lake.replace(lake.open(closed(1)), [2])
    roll_back(lake.storage, "p", 1)
    lake.append(lake.open(closed(lake.log.head())), [4])
    head, now = lake.log.head(), datetime.now(timezone.utc)
    keep = Retention(trash=timedelta(days=7))
    Sweep(lake.storage, "p", keep, now=now + timedelta(days=6)).all(head)
    assert len(list((tmp_path / "p/s").glob("*.parquet"))) == 3
    assert problems(lake) == []
    sweep = Sweep(lake.storage, "p", keep, now=now + timedelta(days=8))
    sweep.all(head)
    assert sweep.warnings == []
    assert sweep.deleted["trash"] == 1
    assert lake.ids() == lake.listed() == [1, 4]
    assert problems(lake) == []


def test_old_snapshots_are_given_up(lake: IcebergLake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Now and then those that are too old go, with the metadata that only they needed, and the table is the same."""
    monkeypatch.setattr(manifests, "_MOST_MANIFESTS", 3)
    committer = lake.open(FIRST)
    for n in range(1, 11):
        lake.append(committer, [n])
    assert len(lake.iceberg().inspect.manifests()) <= 4
    assert lake.ids(version=4) == [1, 2, 3, 4, 5]
    old = lake.iceberg()
    with old.transaction() as change:
        change.set_properties({"history.expire.max-snapshot-age-ms": "0"})
    tag = lake.snapshots()[2]
    old.refresh().manage_snapshots().create_tag(tag, "kept").commit()
    lake.append(committer, [11])
    assert sorted(one.snapshot_id for one in lake.iceberg().snapshots()) == sorted([tag, lake.snapshots()[-1]])
    assert len(list((tmp_path / "p/s/metadata").glob("snap-*.avro"))) == 2
    assert lake.ids() == list(range(1, 12))
    assert lake.iceberg().scan(snapshot_id=tag).to_arrow()["id"].to_pylist() in ([3, 1, 2], [3, 2, 1], [1, 2, 3])
    lake.replace(committer, [0])
    assert lake.ids() == [0]
    assert problems(lake) == []


def test_statistics_let_readers_leave_out_files(lake: IcebergLake) -> None:
    """What a manifest says of a file is what readers skip it by."""
    committer = lake.open(FIRST)
    lake.append(committer, [1, 2], name="a")
    lake.append(committer, [10, 11], name=None)
    table = lake.iceberg()
    files = {row["record_count"]: row for row in table.inspect.files().to_pylist()}
    assert files.keys() == {2}
    assert len(list(table.scan("id > 5").plan_files())) == 1
    assert len(list(table.scan("name = 'a'").plan_files())) == 1


def test_partitions_of_others_are_refused(lake: IcebergLake) -> None:
    """Where somebody has the table partitioned we do not write."""
    lake.append(lake.open(FIRST), [1])
    with lake.iceberg().update_spec() as spec:
        spec.add_identity("id")
    with pytest.raises(LakeError, match="features that are not ours"):
        lake.append(lake.open(closed(1)), [2])


def test_small_files_are_joined(lake: IcebergLake, tmp_path: Path) -> None:
    """Compaction is one snapshot that changes no data: who follows the changes sees none."""
    committer = lake.open(FIRST)
    for n in range(1, 7):
        lake.append(committer, [n])
    with contextlib.suppress(FileNotFoundError):
        (tmp_path / ".bridge/p/lease.json").unlink()
    compact(lake.storage, pipeline(tmp_path), Wish())
    table = lake.iceberg()
    assert lake.ids() == lake.listed() == list(range(1, 7))
    assert len(list(table.scan().plan_files())) == 1
    now = table.current_snapshot()
    assert now and now.summary and now.summary.operation.value == "replace"
    assert problems(lake) == []


def test_adopted_files(lake: IcebergLake, tmp_path: Path) -> None:
    """Files that were there become an Iceberg table."""
    (tmp_path / "p/s").mkdir(parents=True)
    pq.write_table(pa.table({"id": [1, 2]}), tmp_path / "p/s/old.parquet")
    committer = lake.open(FIRST)
    adopt(committer, pipeline(tmp_path))
    assert lake.ids() == [1, 2]
    lake.replace(committer, [3])
    assert lake.ids() == [3]


def test_the_bucket_says_where_the_catalog_is(lake: IcebergLake, tmp_path: Path) -> None:
    """Who has no settings finds the tables in another catalog than the bucket's own, under another name."""
    (tmp_path / "elsewhere").mkdir()
    uri = f"sqlite:////{str(tmp_path / 'elsewhere/catalog.db').lstrip('/')}"
    said = {"name": "main", "namespace": "raw.{pipeline}", "properties": {"type": "sql", "uri": uri}}
    keep_catalog(lake.storage, pipeline(tmp_path, catalog=said))
    assert read_catalog(lake.storage, "p").namespace == "raw.p"
    lake.append(lake.open(FIRST), [1])
    lake.replace(lake.open(closed(1)), [2])
    roll_back(lake.storage, "p", 1)
    assert problems(lake) == []
    assert not (tmp_path / ".bridge/catalog.db").exists()
    from pyiceberg.catalog import load_catalog

    with load_catalog("main", uri=uri) as catalog:
        assert catalog.load_table("raw.p.s").scan().to_arrow()["id"].to_pylist() == [1]
    keep_catalog(lake.storage, pipeline(tmp_path))  # the setting is gone: the table is not where one looks now
    assert any("is missing" in problem for problem in problems(lake))


SETTINGS = 'pipelines: {{shop: {{source: {{tap: ["touch", "started"]}}, destination: {{{0}}}}}}}\n'


def settings(folder: Path, destination: str = "bucket: lake, format: iceberg") -> Path:
    (folder / "bridge.yaml").write_text(SETTINGS.format(destination))
    return folder / "bridge.yaml"


@pytest.mark.parametrize(
    ("destination", "said"),
    [
        ("bucket: s3://lake, format: iceberg", "Iceberg tables in s3:// need a catalog"),
        ("bucket: lake, catalog: {}", "only Iceberg tables have one"),
        ("bucket: lake, format: iceberg, shared: true", "only plain Parquet tables can be shared"),
        ("bucket: lake, format: iceberg, catalog: {properties: {token: abc}}", "no secrets here"),
        ("bucket: lake, format: iceberg, catalog: {properties: {s3.secret-access-key: abc}}", "no secrets here"),
        ('bucket: lake, format: iceberg, catalog: {properties: {uri: "postgresql://me:abc@h/d"}}', "no secrets here"),
        ('bucket: lake, format: iceberg, catalog: {properties: {uri: "sqlite:///a.db"}}', "needs an absolute path"),
        ("bucket: lake, format: iceberg, catalog: {properties: {py-io-impl: x.Y}}", "not to be set here"),
        ('bucket: lake, format: iceberg, catalog: {namespace: "{tap}"}', "names with dots between them"),
    ],
)
def test_settings_that_are_refused(tmp_path: Path, destination: str, said: str) -> None:
    """Before anything is started, with what to write instead; and what is secret is not repeated."""
    with pytest.raises(SettingsError, match=said) as caught:
        load(settings(tmp_path, destination), {}).pipeline("shop")
    assert caught.value.hint
    assert "abc" not in str(caught.value) + caught.value.hint


def run(folder: Path, *words: str, capsys: pytest.CaptureFixture[str]) -> tuple[Any, str]:
    with pytest.raises(SystemExit) as exit_:
        main([*words, "--file", str(folder / "bridge.yaml")])
    printed = capsys.readouterr()
    return exit_.value.code, " ".join((printed.out + printed.err).split())


def test_the_extra_is_asked_for_before_the_tap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without the package nothing is started, and what to install is said; the doctor says so, too."""
    monkeypatch.setitem(sys.modules, "pyiceberg", None)
    monkeypatch.chdir(tmp_path)
    settings(tmp_path)
    for words in (["run", "shop"], ["doctor", "shop", "--no-spark"]):
        code, said = run(tmp_path, *words, capsys=capsys)
        assert code == 2, said
        assert "format: iceberg needs the package pyiceberg" in said
        assert 'pip install "singer-bridge[iceberg]"' in said
    assert not (tmp_path / "started").exists()


def test_a_catalog_that_does_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It ends a run before its tap is started, and the doctor names it."""
    monkeypatch.chdir(tmp_path)
    uri = f"sqlite:////{str(tmp_path / 'nowhere/catalog.db').lstrip('/')}"
    settings(tmp_path, f'bucket: lake, format: iceberg, catalog: {{properties: {{type: sql, uri: "{uri}"}}}}')
    for words in (["run", "shop"], ["doctor", "shop", "--no-spark"]):
        code, said = run(tmp_path, *words, capsys=capsys)
        assert code == 3, said
        assert "the Iceberg catalog cannot be used" in said
    assert not (tmp_path / "started").exists()


def test_the_doctor_says_what_writes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With the package its version is named, and where tables are registered; nothing is made."""
    settings(tmp_path)
    _, said = run(tmp_path, "doctor", "shop", "--no-spark", "--json", capsys=capsys)
    checks = {check["check"]: check for check in json.loads(said)["checks"]}
    assert checks["format"]["found"].startswith("iceberg, by pyiceberg 0.")
    assert ".bridge/catalog.db" in checks["catalog"]["found"]
    assert not (tmp_path / "lake").exists()
