"""Two storage accounts in one bridge.yaml, each with its own key or SAS token; and what a wrong or old one says."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from azure.storage.blob import BlobServiceClient, ContainerSasPermissions, generate_container_sas

from bridge import Lake
from bridge.settings.values.stores import AzureOptions
from tests.interop.azurite import ACCOUNT, KEY, Azurite
from tests.support.project import SMOKE, Project, stream, with_programs
from tests.support.shell import Done

OTHER, OTHER_KEY = "people", "YW5vdGhlci1rZXktb2YtYW5vdGhlci1hY2NvdW50"
SECRETS = (KEY, OTHER_KEY)


@pytest.fixture(scope="module")
def azurite() -> Iterator[Azurite]:
    with Azurite({OTHER: OTHER_KEY}) as server:
        for account, key in ((ACCOUNT, KEY), (OTHER, OTHER_KEY)):
            _service(server, account, key).create_container("lake")
        yield server


def _service(server: Azurite, account: str, key: str) -> BlobServiceClient:
    return BlobServiceClient(server.endpoint_of(account), credential={"account_name": account, "account_key": key})


def _objects(server: Azurite, account: str, key: str) -> dict[str, bytes]:
    container = _service(server, account, key).get_container_client("lake")
    return {name: container.download_blob(name).readall() for name in container.list_blob_names()}


def _sas(key: str, account: str, expiry: datetime) -> str:
    rights = ContainerSasPermissions(read=True, add=True, create=True, write=True, delete=True, list=True)
    start = expiry - timedelta(hours=8)
    return str(generate_container_sas(account, "lake", account_key=key, permission=rights, start=start, expiry=expiry))


def _in(hours: int) -> datetime:
    return datetime.now(timezone.utc) + timedelta(hours=hours)


class Accounts(Project):
    """A pipeline in each account, of the same container and prefix; command lines are looked at while they run."""

    def __init__(self, folder: Path, server: Azurite, first: dict[str, str], second: dict[str, str]) -> None:
        environ = {name: value for name, value in with_programs().items() if not name.startswith("AZURE_")}
        super().__init__(folder, environ | {"SINGER_BRIDGE_HOME": str(folder / "home")})
        self.command_lines = set[bytes]()
        self.sends(stream(records=30), every=10)
        accounts = {"sales": (ACCOUNT, first), "hr": (OTHER, second)}
        self.write(**{name: self._pipeline(server.endpoint_of(to), secret) for name, (to, secret) in accounts.items()})

    @staticmethod
    def _pipeline(endpoint: str, secret: dict[str, str]) -> dict[str, Any]:
        azure = {"endpoint_url": endpoint, **secret}
        return {"source": SMOKE, "destination": {"bucket": "az://lake/team", "format": "delta", "azure": azure}}

    def command(self, *words: str, timeout: float = 600) -> Done:
        ended = threading.Event()
        looking = threading.Thread(target=self._look, args=(ended,))
        looking.start()
        try:
            return super().command(*words, timeout=timeout)
        finally:
            ended.set()
            looking.join()

    def _look(self, ended: threading.Event) -> None:
        """Read the list of processes again and again, as anybody on the machine may."""
        while not ended.is_set():
            for line in Path("/proc").glob("[0-9]*/cmdline"):
                with suppress(OSError):
                    self.command_lines.add(line.read_bytes())


@pytest.mark.timeout(900)
def test_two_accounts_in_one_file(azurite: Azurite, tmp_path: Path) -> None:
    """Each pipeline loads into its own account, by key and SAS token; no output, object or command line has one."""
    token = _sas(OTHER_KEY, OTHER, _in(4))
    project = Accounts(tmp_path, azurite, {"account_key": "${cmd:cat sales.key}"}, {"sas_token": "${file:hr.sas}"})
    (tmp_path / "hr.sas").write_text(f"{token}\n")
    (tmp_path / "sales.key").write_text(f"{KEY}\n")
    for name in ("sales", "hr"):
        project.run(name)
        report = json.loads(project.output("doctor", name, "--no-spark", "--json"))
        assert [check for check in report["checks"] if check["status"] == "error"] == []
        project.output("verify", name)
    for arguments in (("status",), ("config", "show", "--all"), ("config", "check"), ("runs", "show", "sales")):
        project.output(*arguments)
    first, second = _objects(azurite, ACCOUNT, KEY), _objects(azurite, OTHER, OTHER_KEY)
    assert {name.split("/")[2] for name in first if name.startswith("team/.bridge/")} >= {"sales"}
    assert not any("hr" in name.split("/") for name in first)
    assert not any("sales" in name.split("/") for name in second)
    options = [AzureOptions(None, azurite.endpoint, account_key=KEY)]
    options += [AzureOptions(None, azurite.endpoint_of(OTHER), token)]
    for name, how in zip(("sales", "hr"), options, strict=True):
        assert sorted(Lake("az://lake/team", azure=how).table(name, "users").to_table()["id"].to_pylist()) == list(
            range(1, 31)
        )
    signature = token.partition("sig=")[2].partition("&")[0]
    texts = [project.printed.encode(), *project.command_lines, *first.values(), *second.values()]
    texts += [file.read_bytes() for file in (tmp_path / "home").rglob("*") if file.is_file()]
    assert [text[:200] for text in texts for one in (*SECRETS, signature) if one.encode() in text] == []


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("secret", "message", "hint"),
    [
        ({"account_key": OTHER_KEY}, "access denied", "destination.azure.account_key is not a key"),
        ({"sas_token": "expired"}, "the SAS token has expired", "make a new one for destination.azure.sas_token"),
        ({"sas_token": "other"}, "", "destination.azure.sas_token is not a SAS token of the account testing"),
    ],
    ids=["a wrong key", "an expired token", "a token of another account"],
)
def test_a_wrong_secret(secret: dict[str, str], message: str, hint: str, azurite: Azurite, tmp_path: Path) -> None:
    """The run ends with exit code 3 before the tap starts; the error names the setting and shows no secret."""
    tokens = {"expired": _sas(KEY, ACCOUNT, _in(-1)), "other": _sas(OTHER_KEY, OTHER, _in(4))}
    given = {name: tokens.get(value, value) for name, value in secret.items()}
    project = Accounts(tmp_path, azurite, given, {})
    for arguments in (("run", "sales"), ("status", "sales")):
        project.output(*arguments, code=3)
    plain = " ".join(project.printed.split())
    assert message in plain and hint in plain
    assert not any(part in plain for value in given.values() for part in (value, value.partition("sig=")[2] or value))
