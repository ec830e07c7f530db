"""A catalog that accepts connections and never answers ends a run; by themselves, its clients would wait forever."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import event

from bridge.errors import LakeError
from bridge.findings import run_checks
from bridge.lake.formats.iceberg import hive, sql
from bridge.lake.formats.iceberg.catalog import keep_catalog
from bridge.lake.storage.local.storage import LocalStorage
from bridge.operate.doctor.lake import lake_checks
from bridge.settings.options import Pipeline

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """A port where the kernel accepts connections that nobody reads; clients are less patient than in a run."""
    monkeypatch.setattr(hive, "_PATIENCE", 0.2)
    monkeypatch.setattr(sql, "_PATIENCE", 2)  # the least that PostgreSQL's library waits
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.mark.parametrize("uri", ["thrift://127.0.0.1:{}", "postgresql+psycopg://u@127.0.0.1:{}/catalog"])
def test_a_silent_catalog(uri: str, port: int, tmp_path: Path) -> None:
    """A run ends before its tap starts, and the doctor says why."""
    destination = {
        "bucket": str(tmp_path),
        "format": "iceberg",
        "catalog": {"properties": {"uri": uri.format(port)}},
    }
    pipeline = Pipeline.model_validate({"name": "p", "source": {"tap": "tap"}, "destination": destination})
    storage = LocalStorage(tmp_path)
    storage.prepare()
    with pytest.raises(LakeError, match=r"the Iceberg catalog cannot be used: .*time"):
        keep_catalog(storage, pipeline)
    (finding,) = (one for one in run_checks(lake_checks(pipeline, storage)) if one.check == "catalog")
    assert (finding.status, finding.exit_code) == ("error", 3)


def test_a_uri_says_how_long_to_wait_for_postgresql(port: int) -> None:
    """It wins over our limit; other databases are given none."""
    for uri, limit in {
        "postgresql+psycopg://h/d": "2",
        "postgresql+psycopg://h/d?connect_timeout=7": "7",
        "sqlite:////tmp/d": "None",
    }.items():
        engine = sql._engine(uri)
        seen: list[str] = []

        def listen(_: object, __: object, ___: object, options: dict[str, object], seen: list[str] = seen) -> object:
            seen.append(str(options.get("connect_timeout")))
            raise ConnectionError

        event.listen(engine, "do_connect", listen)
        with pytest.raises(ConnectionError):
            engine.connect()
        assert seen == [limit]
