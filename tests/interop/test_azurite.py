"""Azurite keeps the contract of a storage; after kills each row is there once, and no reader sees half a commit."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator

import pytest

from bridge.lake.storage import Storage
from bridge.lake.storage.objects import ObjectStorage
from tests.interop.azurite import Azurite, Container
from tests.interop.deaths import *  # noqa: F403 - publishing that dies, sleeps, or hears no answer
from tests.interop.object_suite import *  # noqa: F403 - the contract and kills, on the store of this file
from tests.interop.store_suite import LakeKind


@pytest.fixture(scope="module")
def azurite_server() -> Iterator[Azurite]:
    with Azurite() as server:
        yield server


@pytest.fixture
def s3(azurite_server: Azurite) -> Azurite:
    """The store that the contract and the campaign ask for."""
    return azurite_server


@pytest.fixture(params=["local", "s3"])
def storage(request: pytest.FixtureRequest, s3: Azurite, monkeypatch: pytest.MonkeyPatch) -> Storage:
    """A container, whatever the contract's own kinds are: by key, by a SAS token ("s3"), with files sent in blocks."""
    container = uuid.uuid4().hex
    s3.bucket(container)
    if request.param == "s3":
        monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", s3.with_sas(container))
    if request.param == "s3 uploads":
        monkeypatch.setattr("bridge.lake.storage.objects.copying._SMALL", 0)
    return s3.storage(f"az://{container}/team")


@pytest.fixture
def lakes(s3: Azurite) -> Callable[[], ObjectStorage]:
    """New, empty lakes."""
    container = s3.bucket(uuid.uuid4().hex)
    return lambda: s3.storage(f"az://{container}/{uuid.uuid4().hex}")


@pytest.fixture
def lake_kind() -> LakeKind:
    return "az", Container
