"""A plain client of Google Cloud Storage, on an emulator."""

from __future__ import annotations

from functools import cache
from typing import Any


@cache
def client_of(endpoint: str) -> Any:
    """The client, made once: to make one takes longer than its requests."""
    from google.auth.credentials import AnonymousCredentials
    from google.cloud import storage

    return storage.Client(project="test", credentials=AnonymousCredentials(), client_options={"api_endpoint": endpoint})
