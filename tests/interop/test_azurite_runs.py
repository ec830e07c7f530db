"""Whole runs into Azurite, as a user has them: each format, every way to look at the tables; and no key anywhere."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bridge import Lake
from bridge.settings.values.stores import AzureOptions
from tests.interop.azurite import ACCOUNT, KEY, Azurite, Container
from tests.interop.readers.venvs import answers
from tests.support.project import SMOKE, Project, stream, with_programs
from tests.support.tap_bridge import messages, read

ABFSS = f"abfss://lake@{ACCOUNT}.dfs.core.windows.net"


KINDS: dict[str, dict[str, Any]] = {
    "parquet": {"bucket": "az://lake/plain", "load_method": "append-only"},
    "parquet, upsert": {"bucket": f"{ABFSS}/upsert", "load_method": "upsert"},
    "delta": {"bucket": "az://lake/delta", "format": "delta", "load_method": "upsert"},
    "delta, by SAS": {"bucket": "az://lake/sas", "format": "delta", "load_method": "append-only"},
    "iceberg": {"bucket": f"{ABFSS}/ice", "format": "iceberg", "load_method": "upsert"},
}


@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", KINDS)
def test_a_lake(kind: str, azurite: Azurite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two runs, then `doctor`, `verify`, `sql`, `tables head`, Polars, pyarrow, DuckDB, `tap-bridge`: each row once."""
    destination, environ, sas = dict(KINDS[kind]), dict(azurite.environ), azurite.sas("lake")
    if "SAS" in kind:
        destination["azure"] = {"account": ACCOUNT, "endpoint_url": azurite.endpoint, "sas_token": "${LAKE_SAS}"}
        environ = {"AZURE_STORAGE_CONNECTION_STRING": "", "LAKE_SAS": sas}
    elif destination["bucket"].startswith("abfss"):
        destination["azure"] = {"endpoint_url": azurite.endpoint}
    if kind == "iceberg":
        destination["catalog"] = {"properties": {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db"}}
    project = Project(tmp_path, with_programs() | {"SINGER_BRIDGE_HOME": str(tmp_path / "home")} | environ)
    project.write(shop={"source": SMOKE, "destination": destination})
    for records in (50, 80):
        project.sends(stream(records=records), stream("full", 20, replication_method="FULL_TABLE"))
        project.run()
    report = json.loads(project.output("doctor", "--no-spark", "--json"))
    assert [check for check in report["checks"] if check["status"] == "error"] == []
    assert {"rights", "swap", "uploads", "copies"} <= {check["check"] for check in report["checks"]}
    project.output("verify")
    row = json.loads(project.output("sql", "SELECT count(*) AS n, count(DISTINCT id) AS ids FROM users", "--json"))
    assert row == {"n": 80, "ids": 80}
    assert len(project.output("tables", "head", "-s", "users", "--json").splitlines()) > 1
    options = AzureOptions(ACCOUNT, azurite.endpoint, sas)
    assert Lake(destination["bucket"], azure=options).table("shop", "users").count_rows() == 80
    azure = {"account": ACCOUNT, "endpoint_url": azurite.endpoint, "sas_token": sas}
    sent = messages(read(tmp_path, bucket=destination["bucket"], azure=azure), "RECORD")
    assert sorted(one["record"]["id"] for one in sent if one["stream"] == "users") == list(range(1, 81))
    _read(project, kind, monkeypatch)
    _no_keys(project, azurite, sas)


def _read(project: Project, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if kind == "iceberg":  # pyiceberg and adlfs have no way to say where an emulator's blob endpoint is
        return
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", KEY)
    polars = _statement(project, "polars").collect()
    assert sorted(polars["id"].to_list()) == list(range(1, 81))
    if project.environ.get("LAKE_SAS") is None and "delta" not in kind:
        assert _statement(project, "pyarrow").count_rows() == 80
        assert _duckdb(project) == list(range(1, 81))  # its extension for Delta asks Azure, whatever the secret says


def _statement(project: Project, dialect: str) -> Any:
    """What the printed code makes of the table, with the key that its reader has."""
    code = project.output("tables", "ddl", "-s", "users", "--dialect", dialect)
    code = code.replace("AzureFileSystem(", f'AzureFileSystem(account_key="{KEY}", ')
    names: dict[str, Any] = {}
    exec(compile(code, dialect, "exec"), names)
    return names["users"]


def _duckdb(project: Project) -> list[int]:
    """The ids that DuckDB reads by the printed statement, after the secret that is printed above it, with the key."""
    statement = project.output("tables", "ddl", "-s", "users", "--dialect", "duckdb")
    secret = next(line for line in statement.splitlines() if "CREATE SECRET" in line).partition("first: ")[2]
    if "CONNECTION_STRING" in secret:
        secret = secret.replace("AccountKey=...", f"AccountKey={KEY}")
    else:  # the settings do not name the server, which is in the connection string of the environment
        secret = f"CREATE SECRET (TYPE azure, CONNECTION_STRING '{project.environ['AZURE_STORAGE_CONNECTION_STRING']}')"
    settings = {"extensions": ["azure"], "first": [secret]}
    (rows,) = answers("duckdb", [{"statement": statement}], settings, project.folder)
    assert isinstance(rows, list), rows
    return sorted(row["id"] for row in rows)


def _no_keys(project: Project, azurite: Azurite, sas: str) -> None:
    """Neither an output nor an object of the lake has a key or a signature."""
    signature = sas.partition("sig=")[2].partition("&")[0]
    lake = Container("az://lake", azurite.environ)
    texts = [project.printed.encode(), *(lake.read(key) or b"" for key in lake.files(""))]
    assert [text[:200] for text in texts if KEY.encode() in text or signature.encode() in text] == []
