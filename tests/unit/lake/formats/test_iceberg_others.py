"""An Iceberg lake into which others may write: nothing that they put there runs code, or writes to another catalog."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyiceberg.catalog
import pytest

from bridge.errors import CorruptLake, LakeError, SettingsError
from bridge.lake.formats.iceberg.catalog import keep_catalog, open_catalog, read_catalog
from bridge.storage.local.storage import LocalStorage
from tests.support.iceberg_lake import IcebergLake
from tests.support.lake import FIRST, closed
from tests.support.restcatalog import RestCatalog
from tests.unit.conftest import Load

KEY = ".bridge/p/catalog.json"


@pytest.fixture
def lake(tmp_path: Path) -> IcebergLake:
    return IcebergLake(LocalStorage(tmp_path / "lake"))


@pytest.fixture
def trap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A module that can be imported, and leaves this file when it is."""
    mark = tmp_path / "was-run"
    code = f"from pathlib import Path\nPath({str(mark)!r}).touch()\nclass Trap:\n    def __init__(*_, **__): pass\n"
    (tmp_path / "trap_of_others.py").write_text(code)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield mark


def put(lake: IcebergLake, **properties: Any) -> None:
    facts = {"format": 1, "name": "lake", "namespace": "p", "properties": properties}
    lake.storage.write(KEY, json.dumps(facts).encode())


CLASS = "trap_of_others.Trap"
REFUSED: dict[str, Any] = {
    "py-catalog-impl": CLASS,
    "py-io-impl": CLASS,
    "auth": {"type": "custom", "impl": CLASS, "custom": {}},
    "auth.manager": CLASS,
    "s3.retry-strategy-impl": CLASS,
    "ssl": {"client": "/etc/hostname"},
    "uri": "trap_of_others://h",
    "type": "in-memory",
    "warehouse": ["a"],
    "botocore_session": "x",
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_property_that_no_run_writes(lake: IcebergLake, trap: Path, name: str) -> None:
    """Whatever could have pyiceberg import a class is a corrupt lake that names property and file; nothing is run."""
    put(lake, **{"type": "rest", "uri": "http://127.0.0.1:9"} | {name: REFUSED[name]})
    with pytest.raises(CorruptLake, match=f"property={name} file={KEY}") as caught:
        lake.append(lake.open(FIRST), [1])
    assert (caught.value.exit_code, "run the pipeline" in caught.value.hint) == (3, True)
    assert not trap.exists()


@pytest.mark.parametrize("properties", ["{py-catalog-impl: a.B}", "{auth.manager: a.B}", '{uri: "odd://h"}'])
def test_settings_that_a_bucket_would_refuse(settings: Load, properties: str) -> None:
    """Settings cannot say what the bucket may not hold: the error names the variable to set instead."""
    text = "pipelines: {p: {source: {tap: x}, destination: {bucket: lake, format: iceberg, catalog: {properties: %s}}}}"
    with pytest.raises(SettingsError, match="not to be kept in a bucket") as caught:
        settings(text % properties)
    assert "PYICEBERG_CATALOG__<NAME>__" in caught.value.hint


def test_the_answer_of_a_server(lake: IcebergLake, trap: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A REST catalog that names a class to authenticate with is refused, and nothing of that name is called."""
    with RestCatalog(tmp_path) as server:
        auth = {"type": "custom", "impl": CLASS, "custom": {}}
        monkeypatch.setattr(server, "_done", lambda *_: (200, {"defaults": {}, "overrides": {"auth": auth}}))
        put(lake, type="rest", uri=server.uri)
        with pytest.raises(LakeError, match=f"a class of its own to authenticate: {CLASS}"):
            open_catalog(lake.storage, read_catalog(lake.storage, "p"))
    assert not trap.exists()


def test_the_environment_names_the_server(lake: IcebergLake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server in the environment wins over the one in the bucket, so a token goes nowhere else."""
    configured = SimpleNamespace(get_catalog_config=lambda name: {"uri": server.uri} if name == "lake" else None)
    put(lake, type="rest", uri="http://127.0.0.1:9")
    with RestCatalog(tmp_path) as server:
        monkeypatch.setattr(pyiceberg.catalog, "_ENV_CONFIG", configured)
        with open_catalog(lake.storage, read_catalog(lake.storage, "p")) as catalog:
            assert catalog.list_namespaces() == []
            assert catalog.properties["uri"] == server.uri


@pytest.mark.parametrize("name", ["py-io-impl", "write.py-location-provider.impl"])
def test_the_metadata_of_a_table(lake: IcebergLake, trap: Path, name: str) -> None:
    """A class that a table's own metadata names is neither imported nor called; the table stays as it was."""
    lake.append(lake.open(FIRST), [1])
    place = Path(lake.iceberg().metadata_location.removeprefix("file://"))
    metadata = json.loads(place.read_text())
    metadata["properties"][name] = CLASS
    place.write_text(json.dumps(metadata))
    with pytest.raises(CorruptLake, match=f"names a Python class to run property={name}"):
        lake.append(lake.open(closed(1)), [2])
    assert not trap.exists()


def test_metadata_elsewhere_is_not_deleted(lake: IcebergLake) -> None:
    """What a table's metadata calls its older versions is deleted in its own folder only."""
    committer = lake.open(FIRST)
    lake.append(committer, [1])
    kept = lake.storage.root / ".bridge/p/commits/00000000000000000001.json"
    place = Path(lake.iceberg().metadata_location.removeprefix("file://"))
    metadata = json.loads(place.read_text())
    metadata["metadata-log"] = [{"metadata-file": f"file://{kept}", "timestamp-ms": 1}]
    metadata["properties"]["write.metadata.previous-versions-max"] = "1"
    place.write_text(json.dumps(metadata))
    for n in (2, 3, 4):
        lake.append(committer, [n])
    assert kept.exists()
    assert lake.ids() == [1, 2, 3, 4]


def foreign(path: Path) -> Path:
    """A database of ours that is no catalog."""
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE mine (x)")
    connection.close()
    return path


@pytest.mark.parametrize("uri", ["sqlite:///{}", "sqlite:///file:{}?uri=true", "sqlite:///{}.new", "sqlite://{}"])
def test_a_file_that_is_no_catalog(lake: IcebergLake, tmp_path: Path, uri: str) -> None:
    """A SQLite file outside of the bucket is neither made nor written to because the bucket names it."""
    victim = foreign(tmp_path / "mine.db")
    before = victim.read_bytes()
    put(lake, type="sql", uri=uri.format(victim))
    with pytest.raises(LakeError, match=r"outside of the bucket and no catalog|cannot be used"):
        lake.append(lake.open(FIRST), [1])
    assert victim.read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["lake", "mine.db"]


def test_a_link_to_another_database(lake: IcebergLake, tmp_path: Path) -> None:
    """The bucket's own catalog may be no link to a file elsewhere."""
    victim = foreign(tmp_path / "mine.db")
    before = victim.read_bytes()
    (lake.storage.root / ".bridge").mkdir(parents=True)
    (lake.storage.root / ".bridge/catalog.db").symlink_to(victim)
    for keep in (True, False):
        with pytest.raises(CorruptLake, match="outside of the bucket and no catalog"):
            keep_catalog(lake.storage, lake.pipeline()) if keep else lake.append(lake.open(FIRST), [1])
    assert victim.read_bytes() == before
