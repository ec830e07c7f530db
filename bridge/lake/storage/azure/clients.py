"""The connections to an account, and with which credentials. No repr shows a key."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from functools import lru_cache
from typing import Any
from urllib.parse import parse_qs, urlsplit

import requests
from azure.core.credentials import TokenCredential
from azure.core.pipeline.transport import RequestsTransport
from azure.storage.blob import BlobServiceClient
from requests.adapters import HTTPAdapter

from bridge.errors import SettingsError
from bridge.settings.values.stores import AzureOptions

_CONNECTIONS = 32
_LARGEST_PUT = 256 * 1024**2
"""Bytes up to which an object is one request, and so under one condition."""
_ATTEMPTS = 6
"""How often a request that may be repeated is sent: for about half a minute."""
_PREFIX = "AZURE_STORAGE_"
_SCOPE = "https://storage.azure.com/.default"


@dataclass(frozen=True, slots=True)
class Access:
    """An account, and one credential for it."""

    endpoint: str
    account: str
    key: str = field(default="", repr=False)
    sas: str = field(default="", repr=False)
    """A shared access signature, without a question mark."""
    login: TokenCredential | None = field(default=None, repr=False)
    origin: str = ""
    """The setting or the variable that the key or the signature is from."""

    @property
    def expired(self) -> str:
        """When the signature expired, as it says itself; empty if it has not, or there is none."""
        until = parse_qs(self.sas).get("se", [""])[0]
        try:
            moment = datetime.fromisoformat(until.replace("Z", "+00:00"))
        except ValueError:
            return ""
        moment = moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)  # a date alone is UTC
        return until if moment < datetime.now(timezone.utc) else ""

    def token(self) -> str:
        """A token of the login for other libraries; it expires."""
        return self.login.get_token(_SCOPE).token if self.login else ""


@dataclass(frozen=True, slots=True)
class Clients:
    """The clients with which one process talks to an account."""

    once: BlobServiceClient
    """Sends each request once: for conditional puts, which must know the outcome of each."""
    patient: BlobServiceClient
    """Tries up to `_ATTEMPTS` times."""
    access: Access


def clients(host: str, options: AzureOptions) -> Clients:
    """The connections of this process; cheap after the first call. `host`: that of an `abfss://` URI, or empty."""
    # A connection must not cross a fork, and the environment with its keys may change.
    environment = tuple(sorted((name, value) for name, value in os.environ.items() if name.startswith("AZURE_")))
    return _clients(host, options, os.getpid(), *environment)


@lru_cache(maxsize=8)
def _clients(host: str, options: AzureOptions, *process: object) -> Clients:  # noqa: ARG001 - they tell processes apart
    access = access_to(host, options)
    session = requests.Session()
    for scheme in ("http://", "https://"):
        session.mount(scheme, HTTPAdapter(_CONNECTIONS, _CONNECTIONS))
    shared = RequestsTransport(session=session, session_owner=False)
    return Clients(
        once=_client(access, shared, attempts=1, connect=5, read=10),
        patient=_client(access, shared, attempts=_ATTEMPTS, connect=10, read=60),
        access=access,
    )


def _client(
    access: Access, transport: RequestsTransport, *, attempts: int, connect: int, read: int
) -> BlobServiceClient:
    key = {"account_name": access.account, "account_key": access.key} if access.key else None
    how: dict[str, Any] = dict.fromkeys(("retry_total", "retry_connect", "retry_read", "retry_status"), attempts - 1)
    return BlobServiceClient(
        access.endpoint,
        credential=key or access.sas or access.login,
        transport=transport,
        max_single_put_size=_LARGEST_PUT,
        initial_backoff=1,
        increment_base=2,
        random_jitter_range=1,
        connection_timeout=connect,
        read_timeout=read,
        user_agent="singer-bridge",
        **how,
    )


def access_to(host: str, options: AzureOptions) -> Access:
    """The account and its credential: from the URI, the settings, else the environment.

    Raises `SettingsError` if no account is named, or two are.
    """
    own, endpoint = host.partition(".")[0], (options.endpoint_url or "").rstrip("/")
    if own and options.account and own != options.account:
        hint = "remove destination.azure.account: the address of the bucket names the account"
        raise SettingsError("two storage accounts are named", hint=hint, bucket=own, account=options.account)
    facts = _connection(_value("CONNECTION_STRING"))
    connected = facts.get("AccountName") or _account_of(facts.get("BlobEndpoint", ""))
    account = own or options.account or _account_of(endpoint) or _value("ACCOUNT", "ACCOUNT_NAME") or connected
    if not account:
        hint = "set destination.azure.account, or AZURE_STORAGE_ACCOUNT"
        raise SettingsError("no storage account is named", hint=hint)
    if account != connected:
        facts = {}  # it is of another account
    endpoint = endpoint or _blob_host(host) or facts.get("BlobEndpoint", "").rstrip("/") or _endpoint(account, facts)
    return _with_credential(Access(endpoint, account), options, facts)


def _with_credential(to: Access, options: AzureOptions, facts: dict[str, str]) -> Access:
    if options.account_key:
        return replace(to, key=options.account_key, origin="destination.azure.account_key")
    if options.sas_token:
        return replace(to, sas=options.sas_token.lstrip("?"), origin="destination.azure.sas_token")
    if options.credential != "default":
        connection = f"{_PREFIX}CONNECTION_STRING"
        if key := facts.get("AccountKey"):
            return replace(to, key=key, origin=connection)
        if sas := facts.get("SharedAccessSignature"):
            return replace(to, sas=sas.lstrip("?"), origin=connection)
        if _value("ACCOUNT", "ACCOUNT_NAME") in ("", to.account):  # else they are of another account
            if origin := _first("KEY", "ACCOUNT_KEY"):
                return replace(to, key=os.environ[origin], origin=origin)
            if origin := _first("SAS_TOKEN"):
                return replace(to, sas=os.environ[origin].lstrip("?"), origin=origin)
    from azure.identity import DefaultAzureCredential

    return replace(to, login=DefaultAzureCredential())


def _first(*names: str) -> str:
    """The name of the first of these `AZURE_STORAGE_*` variables that is set; empty if none is."""
    return next((variable for name in names if os.environ.get(variable := f"{_PREFIX}{name}")), "")


def _value(*names: str) -> str:
    """The value of the first of these `AZURE_STORAGE_*` variables that is set."""
    return os.environ.get(_first(*names), "")


def _connection(text: str) -> dict[str, str]:
    """The fields of a connection string."""
    return dict(part.split("=", 1) for part in text.strip().split(";") if "=" in part)


def _account_of(endpoint: str) -> str:
    """The account that an endpoint names: as its path on an emulator, else as its host's first part."""
    url = urlsplit(endpoint)
    host = url.hostname or ""
    if path := url.path.strip("/"):
        return path
    return host.partition(".")[0] if re.search(r"\.blob\.", host) else ""


def _blob_host(host: str) -> str:
    return f"https://{host.replace('.dfs.', '.blob.', 1)}" if host else ""


def _endpoint(account: str, facts: dict[str, str]) -> str:
    suffix = facts.get("EndpointSuffix", "core.windows.net")
    return f"{facts.get('DefaultEndpointsProtocol', 'https')}://{account}.blob.{suffix}"
