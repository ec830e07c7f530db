"""The connection to Google Cloud Storage. Google's library looks for credentials: a file, a login, the machine's."""

from __future__ import annotations

import ipaddress
import os
import warnings
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit

import google.auth
from google.auth.credentials import AnonymousCredentials
from google.cloud import storage

from bridge.settings.values.stores import GcsOptions

_SCOPES = ("https://www.googleapis.com/auth/devstorage.full_control",)
_VARIABLES = ("GOOGLE_", "CLOUDSDK_", "STORAGE_EMULATOR_HOST")


def client(options: GcsOptions) -> Any:
    """The connection of this process; cheap after the first call."""
    # A connection must not cross a fork, and the environment that Google's library reads may change.
    environment = tuple(sorted(item for item in os.environ.items() if item[0].startswith(_VARIABLES)))
    return _client(options, os.getpid(), *environment)


@lru_cache(maxsize=8)
def _client(options: GcsOptions, *process: object) -> Any:  # noqa: ARG001 - they tell one process from another
    # Google's library would ask in threads of its own where a bucket is, for traces that nobody collects.
    os.environ.setdefault("DISABLE_GCS_PYTHON_CLIENT_OTEL_BUCKET_METADATA", "true")
    server = endpoint(options)
    return storage.Client(
        project=None,  # a bucket has its own; to look for one starts `gcloud`
        credentials=_credentials(options),
        client_options={"api_endpoint": server} if server else None,
    )


def endpoint(options: GcsOptions) -> str | None:
    """The server, if it is not Google's."""
    emulator = os.environ.get("STORAGE_EMULATOR_HOST")
    if emulator and "://" not in emulator:
        emulator = f"http://{emulator}"
    return options.endpoint_url or emulator or None


def credentials_file(options: GcsOptions) -> str | None:
    """The file of credentials that the settings or the environment name."""
    return options.credentials_file or os.environ.get("GOOGLE_APPLICATION_CREDENTIALS") or None


def is_anonymous(options: GcsOptions) -> bool:
    """Whether the server is an emulator that needs no credentials: none are named, so none are sent."""
    server = endpoint(options)
    return bool(server) and not credentials_file(options) and _is_emulator(str(server))


def _is_emulator(server: str) -> bool:
    if os.environ.get("STORAGE_EMULATOR_HOST"):
        return True
    url = urlsplit(server)
    try:
        return url.scheme == "http" and ipaddress.ip_address(url.hostname or "").is_loopback
    except ValueError:
        return url.scheme == "http" and url.hostname == "localhost"


def _credentials(options: GcsOptions) -> Any:
    if is_anonymous(options):
        return AnonymousCredentials()
    if options.credentials_file:
        with warnings.catch_warnings():  # of files that strangers may have sent
            warnings.simplefilter("ignore", DeprecationWarning)
            return google.auth.load_credentials_from_file(options.credentials_file, scopes=_SCOPES)[0]
    return google.auth.default(scopes=_SCOPES)[0]
