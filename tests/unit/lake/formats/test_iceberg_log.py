"""The snapshots of an Iceberg table, and its catalog. See test_contract.py for what both formats keep."""

from __future__ import annotations

from pathlib import Path

import pytest

from bridge.errors import SettingsError
from bridge.lake.commit.rollback import roll_back
from bridge.lake.formats.iceberg import manifests
from bridge.lake.formats.iceberg.catalog import keep_catalog, read_catalog
from bridge.lake.storage.local.storage import LocalStorage
from tests.support.iceberg_lake import IcebergLake
from tests.support.lake import FIRST, closed
from tests.support.shell import Typed
from tests.unit.conftest import Load


@pytest.fixture
def lake(tmp_path: Path) -> IcebergLake:
    return IcebergLake(LocalStorage(tmp_path))


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
    assert lake.problems() == []


def test_metadata_stays_where_a_catalog_keeps_its_own_history(lake: IcebergLake, tmp_path: Path) -> None:
    """A table with `gc.enabled: false`, as Nessie makes them, gives up snapshots, but no file is deleted."""
    committer = lake.open(FIRST)
    for n in range(1, 11):
        lake.append(committer, [n])
    with lake.iceberg().transaction() as change:
        change.set_properties({"history.expire.max-snapshot-age-ms": "0", "gc.enabled": "false"})
    lake.append(committer, [11])
    assert len(lake.iceberg().snapshots()) == 1
    assert len(list((tmp_path / "p/s/metadata").glob("snap-*.avro"))) == 11
    assert lake.ids() == list(range(1, 12))


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


def test_the_bucket_says_where_the_catalog_is(lake: IcebergLake, tmp_path: Path) -> None:
    """Who has no settings finds the tables in another catalog than the bucket's own, under another name."""
    (tmp_path / "elsewhere").mkdir()
    uri = f"sqlite:////{str(tmp_path / 'elsewhere/catalog.db').lstrip('/')}"
    said = {"name": "main", "namespace": "raw.{pipeline}", "properties": {"type": "sql", "uri": uri}}
    keep_catalog(lake.storage, lake.pipeline(catalog=said))
    assert read_catalog(lake.storage, "p").namespace == "raw.p"
    lake.append(lake.open(FIRST), [1])
    lake.replace(lake.open(closed(1)), [2])
    roll_back(lake.storage, "p", 1)
    assert lake.problems() == []
    assert not (tmp_path / ".bridge/catalog.db").exists()
    from pyiceberg.catalog import load_catalog

    with load_catalog("main", uri=uri) as catalog:
        assert catalog.load_table("raw.p.s").scan().to_arrow()["id"].to_pylist() == [1]
    keep_catalog(lake.storage, lake.pipeline())  # the setting is gone: the table is not where one looks now
    assert any("is missing" in problem for problem in lake.problems())


SETTINGS = 'pipelines: {{shop: {{source: {{tap: ["touch", "started"]}}, destination: {{{0}}}}}}}\n'


@pytest.mark.parametrize(
    ("destination", "said"),
    [
        ("bucket: s3://lake, format: iceberg", "Iceberg tables in a bucket of a store need a catalog"),
        ("bucket: lake, catalog: {}", "only Iceberg tables have one"),
        ("bucket: lake, format: delta, shared: true", "only plain Parquet tables can be shared"),
        ("bucket: lake, format: iceberg, shared: true", "only plain Parquet tables can be shared"),
        ("bucket: lake, format: iceberg, catalog: {properties: {token: abc}}", "no secrets here"),
        ("bucket: lake, format: iceberg, catalog: {properties: {s3.secret-access-key: abc}}", "no secrets here"),
        ('bucket: lake, format: iceberg, catalog: {properties: {uri: "postgresql://me:abc@h/d"}}', "no secrets here"),
        ('bucket: lake, format: iceberg, catalog: {properties: {uri: "sqlite:///a.db"}}', "needs an absolute path"),
        ("bucket: lake, format: iceberg, catalog: {properties: {py-io-impl: x.Y}}", "not to be set here"),
        ('bucket: lake, format: iceberg, catalog: {namespace: "{tap}"}', "names with dots between them"),
    ],
)
def test_settings_that_are_refused(settings: Load, destination: str, said: str) -> None:
    """Before anything is started, with what to write instead; and what is secret is not repeated."""
    with pytest.raises(SettingsError, match=said) as caught:
        settings(SETTINGS.format(destination))
    assert caught.value.hint
    assert "abc" not in str(caught.value) + caught.value.hint


def test_a_catalog_that_does_not_answer(folder: Path, typed: Typed) -> None:
    """It ends a run before its tap is started, and the doctor names it."""
    uri = f"sqlite:////{str(folder / 'nowhere/catalog.db').lstrip('/')}"
    destination = f'bucket: lake, format: iceberg, catalog: {{properties: {{type: sql, uri: "{uri}"}}}}'
    (folder / "bridge.yaml").write_text(SETTINGS.format(destination))
    for words in ("run shop", "doctor shop --no-spark"):
        done = typed(words)
        assert done.code == 3, done
        assert "the Iceberg catalog cannot be used" in " ".join((done.out + done.err).split())
    assert not (folder / "started").exists()
