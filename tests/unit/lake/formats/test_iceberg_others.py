"""An Iceberg lake into which others may write: nothing that they put there runs code, or writes to another catalog."""

from __future__ import annotations

import json
import socket
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyiceberg.catalog
import pytest

from bridge.errors import CorruptLake, LakeError, SettingsError
from bridge.lake.formats.iceberg.catalog import keep_catalog, open_catalog, read_catalog
from bridge.lake.storage.local.storage import LocalStorage
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


class Catcher:
    """A server that keeps the first bytes of all that comes, and answers nothing."""

    def __enter__(self) -> Catcher:
        self.requests: list[bytes] = []
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        self.uri = f"http://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()
        return self

    def _listen(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._socket.accept()
                with connection:
                    connection.settimeout(5)
                    self.requests.append(connection.recv(4096))

    def __exit__(self, *_: object) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join(10)


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


@pytest.fixture
def secrets(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """What this machine's configuration of pyiceberg has for the catalog `lake`: secrets, and at first no address."""
    own = {"token": "s3cret-token", "credential": "id:s3cret-client"}
    configured = SimpleNamespace(get_catalog_config=lambda name: own if name == "lake" else None)
    monkeypatch.setattr(pyiceberg.catalog, "_ENV_CONFIG", configured)
    monkeypatch.setenv("PGPASSWORD", "s3cret-password")
    return own


def test_the_answer_of_a_server(
    lake: IcebergLake, trap: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, secrets: dict[str, str]
) -> None:
    """Of a catalog's answer nothing is taken but what its tables are: no class to call, no file to read and to send.

    Neither another host for the secrets, nor another for the requests.
    """
    file = tmp_path / "google.json"
    file.write_text("{}")
    with RestCatalog(tmp_path) as server, Catcher() as thief:
        del secrets["credential"]
        secrets["uri"] = server.uri
        for auth in (
            {"type": "custom", "impl": CLASS, "custom": {}},
            {"type": "google", "google": {"credentials_path": str(file)}},
            {"type": "oauth2", "oauth2": {"client_id": "a", "client_secret": "b", "token_url": thief.uri}},
        ):
            extra = {"auth": auth, "uri": thief.uri, "oauth2-server-uri": thief.uri, "ssl": {"cabundle": str(file)}}
            extra["rest.sigv4-enabled"] = "true"
            for part in ("defaults", "overrides"):
                answer = {"defaults": {}, "overrides": {}} | {part: extra | {"prefix": "tables"}}
                monkeypatch.setattr(server, "_done", lambda *_, answer=answer: (200, answer))
                put(lake, type="rest", uri=thief.uri)
                catalog = open_catalog(lake.storage, read_catalog(lake.storage, "p"))
                assert catalog.properties["prefix"] == "tables"
                assert not extra.keys() & (catalog.properties.keys() - {"uri"})
                assert catalog.uri == server.uri  # type: ignore[attr-defined]
        assert thief.requests == []
    assert not trap.exists()


@pytest.mark.parametrize(
    "properties",
    [{"type": "rest"}, {"type": "rest", "rest.sigv4-enabled": "true"}, {"type": "hive"}, {}],
    ids=["rest", "signed", "hive", "inferred"],
)
def test_a_host_that_only_the_bucket_names(
    lake: IcebergLake, properties: dict[str, str], secrets: dict[str, str]
) -> None:
    """It is not asked, so it gets no token, no client secret and no signature; the error says host and way out."""
    with Catcher() as thief:
        uri = thief.uri.replace("http", "thrift") if properties.get("type") == "hive" else thief.uri
        put(lake, **properties, uri=uri)
        with pytest.raises(CorruptLake, match=f"only the bucket names this catalog.*uri={uri}") as caught:
            lake.append(lake.open(FIRST), [1])
        assert f"type PYICEBERG_CATALOG__LAKE__URI={uri} before the command" in caught.value.hint
        assert thief.requests == []


@pytest.mark.parametrize("scheme", ["postgresql+psycopg", "mysql+pymysql"])
def test_a_database_that_only_the_bucket_names(lake: IcebergLake, scheme: str, secrets: dict[str, str]) -> None:
    """It is not connected to, so it gets no password of `PGPASSWORD` or `~/.pgpass`."""
    with Catcher() as thief:
        put(lake, type="sql", uri=f"{scheme}://operator@127.0.0.1:{thief.port}/catalog")
        with pytest.raises(CorruptLake, match="only the bucket names this catalog"):
            lake.append(lake.open(FIRST), [1])
        assert thief.requests == []


@pytest.mark.parametrize("kind", ["glue", "dynamodb", "bigquery"])
def test_a_cloud_catalog_that_only_the_bucket_names(lake: IcebergLake, kind: str) -> None:
    """Neither is asked with this machine's identity, at an endpoint that the bucket chose."""
    put(lake, type=kind, **{"glue.endpoint": "http://127.0.0.1:9"})
    with pytest.raises(CorruptLake, match=f"only the bucket names this catalog.*type={kind}"):
        lake.append(lake.open(FIRST), [1])


def test_settings_are_believed_not_the_copy_in_the_bucket(
    lake: IcebergLake, tmp_path: Path, secrets: dict[str, str]
) -> None:
    """A writer of the bucket who adds a host for the client secret to the catalog of our settings gets nothing."""
    with RestCatalog(tmp_path) as server, Catcher() as thief:
        del secrets["credential"]
        properties = {"type": "rest", "uri": server.uri}
        keep_catalog(lake.storage, lake.pipeline(catalog={"properties": properties}))
        secrets["credential"] = "id:s3cret-client"
        put(lake, **properties, **{"oauth2-server-uri": thief.uri, "header.user-agent": "x"})
        with pytest.raises(LakeError):  # our server gives no tokens
            open_catalog(lake.storage, read_catalog(lake.storage, "p"))
        assert thief.requests == []


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


@pytest.mark.parametrize("kind", ["rest", "glue", "REST"])
@pytest.mark.parametrize("configured", [{}, {"type": "rest", "uri": "http://127.0.0.1:9"}], ids=["bare", "named"])
def test_a_catalog_that_looks_like_a_file(
    lake: IcebergLake, secrets: dict[str, str], kind: str, configured: dict[str, str]
) -> None:
    """The URI of a SQLite file makes no other property believed: neither a type, nor a host for the client secret."""
    del secrets["token"]
    secrets |= configured
    with Catcher() as thief:
        uri = f"sqlite:///{lake.storage.root}/.bridge/catalog.db"
        hosts = dict.fromkeys(("oauth2-server-uri", "glue.endpoint"), thief.uri)
        put(lake, type=kind, uri=uri, **hosts)
        with pytest.raises(LakeError):
            lake.append(lake.open(FIRST), [1])
        assert thief.requests == []


def test_a_file_of_the_bucket_is_opened_as_it_is_named(lake: IcebergLake) -> None:
    """What stands behind `?` could name a library of SQLAlchemy's to load: it is left out."""
    uri = f"sqlite:///{lake.storage.root}/.bridge/catalog.db"
    put(lake, type="sql", uri=f"{uri}?plugin=others&module=others", echo="true")
    lake.append(lake.open(FIRST), [1])
    assert lake.ids() == [1]


def test_a_file_that_is_named_from_the_current_folder(
    lake: IcebergLake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`file:/elsewhere` is no file below the current folder, even if that is in the bucket."""
    victim = foreign(tmp_path / "mine.db")
    before = victim.read_bytes()
    lake.storage.root.mkdir(exist_ok=True)
    monkeypatch.chdir(lake.storage.root)
    put(lake, type="sql", uri=f"sqlite:///file:{victim}?uri=true")
    with pytest.raises(CorruptLake, match="outside of the bucket and no catalog"):
        lake.append(lake.open(FIRST), [1])
    assert victim.read_bytes() == before


@pytest.mark.parametrize("status", [301, 307, 308])
def test_an_answer_that_leads_to_another_host(lake: IcebergLake, secrets: dict[str, str], status: int) -> None:
    """The client secret, which is in the body of a POST, is not sent after it."""

    class Elsewhere(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(status)
            self.send_header("Location", thief.uri)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    del secrets["token"]
    with Catcher() as thief, HTTPServer(("127.0.0.1", 0), Elsewhere) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        secrets["uri"] = secrets["oauth2-server-uri"] = f"http://127.0.0.1:{server.server_port}"
        put(lake, type="rest", uri=thief.uri)
        with pytest.raises(LakeError, match="leads to another host"):
            open_catalog(lake.storage, read_catalog(lake.storage, "p"))
        server.shutdown()
        assert thief.requests == []
