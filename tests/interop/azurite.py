"""Azurite from npm, Microsoft's emulator of Azure Blob Storage, on loopback; and its containers seen from outside."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from azure.core.exceptions import ResourceNotFoundError
from azure.storage.blob import BlobServiceClient, ContainerSasPermissions, generate_container_sas
from pyarrow.fs import AzureFileSystem

from tests.crash.lakes import Bucket
from tests.interop.loopback import free_port, started, wait_for
from tests.support.s3server import ROOT

PACKAGE, VERSION = "azurite", "3.37.0"
ACCOUNT, KEY = "testing", "dmVyeS1zZWNyZXQta2V5LW9mLWEtdGVzdC1hY2NvdW50"
_HOME = ROOT / ".interop"


def azurite() -> Path:
    """The program, installed once."""
    home = _HOME / f"{PACKAGE}-{VERSION}"
    program = home / "node_modules/.bin/azurite-blob"
    if not program.exists():
        assert shutil.which("npm"), "make interop installs Azurite: install Node.js 20 or later, with npm"
        making = home.with_name(f"{home.name}.making")
        shutil.rmtree(making, ignore_errors=True)
        making.mkdir(parents=True)
        quiet = ["--no-audit", "--no-fund", "--ignore-scripts"]
        command = ["npm", "install", *quiet, "--prefix", ".", f"{PACKAGE}@{VERSION}"]
        subprocess.run(command, cwd=making, check=True, stdout=subprocess.DEVNULL)
        shutil.rmtree(home, ignore_errors=True)
        making.replace(home)
    return program


class Azurite:
    """The store, from the side of a test. `environ` is what a program needs to reach it."""

    def __init__(self, others: Mapping[str, str] | None = None) -> None:
        """`others`: further accounts and their keys."""
        self._accounts = {ACCOUNT: KEY, **(others or {})}

    def endpoint_of(self, account: str) -> str:
        """The address of an account."""
        return f"{self.endpoint.rpartition('/')[0]}/{account}"

    def __enter__(self) -> Azurite:
        program = azurite()
        port = free_port()
        self.endpoint = f"http://127.0.0.1:{port}/{ACCOUNT}"
        facts = ("DefaultEndpointsProtocol=http", f"AccountName={ACCOUNT}", f"AccountKey={KEY}")
        self.environ = {"AZURE_STORAGE_CONNECTION_STRING": ";".join((*facts, f"BlobEndpoint={self.endpoint}"))}
        # Azure's library names the version of an interface that no Azurite has yet.
        flags = ["--blobHost", "127.0.0.1", "--blobPort", str(port), "--inMemoryPersistence", "--skipApiVersionCheck"]
        accounts = ";".join(f"{name}:{key}" for name, key in self._accounts.items())
        command = ["node", program, *flags, "--disableTelemetry", "--silent"]
        self._process = started(command, os.environ | {"AZURITE_ACCOUNTS": accounts})
        self._before = {name: value for name, value in os.environ.items() if name.startswith("AZURE_")}
        self._set(self.environ)
        wait_for(self._process, "Azurite", lambda: self._is_up(port))
        return self

    def __exit__(self, *_: object) -> None:
        self._set(self._before)
        self._process.terminate()
        self._process.wait(timeout=30)

    @staticmethod
    def _set(variables: dict[str, str]) -> None:
        for name in [name for name in os.environ if name.startswith("AZURE_")]:
            del os.environ[name]
        os.environ.update(variables)

    @staticmethod
    def _is_up(port: int) -> bool:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=5).close()
        except OSError:
            return False
        return True

    def bucket(self, name: str) -> str:
        """Create a container if there is none of this name."""
        container = service(self.environ).get_container_client(name)
        if not container.exists():
            container.create_container()
        return name

    def sas(self, container: str) -> str:
        """A token with the rights that docs/azure.md asks for, on this container alone."""
        rights = ContainerSasPermissions(read=True, add=True, create=True, write=True, delete=True, list=True)
        expiry = datetime.now(timezone.utc) + timedelta(hours=4)
        return str(generate_container_sas(ACCOUNT, container, account_key=KEY, permission=rights, expiry=expiry))

    def with_sas(self, container: str) -> str:
        """A connection string without the key."""
        facts = (f"AccountName={ACCOUNT}", f"BlobEndpoint={self.endpoint}")
        return ";".join((*facts, f"SharedAccessSignature={self.sas(container)}"))

    def storage(self, uri: str = "az://lake/team", **options: Any) -> Any:
        """Open a container that is created if it is missing."""
        from bridge.lake.storage import open_storage
        from bridge.settings.values.stores import AzureOptions

        self.bucket(uri.removeprefix("az://").partition("/")[0])
        return open_storage(uri, AzureOptions(**options))


def service(environ: Any) -> BlobServiceClient:
    """A plain client, to look at the store from outside."""
    return BlobServiceClient.from_connection_string(environ["AZURE_STORAGE_CONNECTION_STRING"])


class Container(Bucket):
    """A lake in a container."""

    def __init__(self, uri: str, environ: dict[str, str]) -> None:
        self.uri, self.environ = uri, dict(environ)
        where = urlsplit(uri)
        self.bucket, self.prefix = where.netloc, where.path.strip("/")
        self.client = service(environ).get_container_client(self.bucket)

    def read(self, key: str) -> bytes | None:
        try:
            return bytes(self.client.download_blob(self._key(key)).readall())
        except ResourceNotFoundError:
            return None

    def files(self, prefix: str) -> dict[str, int]:
        top = self._key(prefix).rstrip("/") + "/"
        return {blob.name[len(top) :]: blob.size for blob in self.client.list_blobs(name_starts_with=top)}

    def uploads(self, prefix: str) -> list[str]:
        return []  # no pending file is one

    def filesystem(self) -> Any:
        fields = dict(field.split("=", 1) for field in self.environ["AZURE_STORAGE_CONNECTION_STRING"].split(";"))
        server = urlsplit(fields["BlobEndpoint"])
        return AzureFileSystem(
            fields["AccountName"],
            account_key=fields["AccountKey"],
            blob_storage_authority=server.netloc,
            blob_storage_scheme=server.scheme,
            dfs_storage_authority=server.netloc,
            dfs_storage_scheme=server.scheme,
        )
