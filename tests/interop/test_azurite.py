"""Azurite keeps the contract of a storage; after kills each row is there once, and no reader sees half a commit."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bridge.lake.storage import Storage
from bridge.lake.storage.objects import ObjectStorage
from tests.contract.test_rewrite import (  # noqa: F401 - what it promises of every store
    test_a_file_is_rewritten,
    test_a_file_that_somebody_deleted,
    test_a_lost_file_of_the_same_bytes,
    test_a_readable_file_is_aborted_whole,
    test_a_readable_file_is_read_before_it_is_published,
    test_nobody_moves_a_change_without_rewrites,
    test_walk_and_empty_folders,
    test_what_is_not_there_is_missing,
)
from tests.contract.test_spool import (  # noqa: F401 - a cluster's spool, on the store of this file
    context,
    test_a_dead_runs_spool_goes_with_the_next_run,
    test_a_file_of_one_executor_is_read_by_another,
    test_an_executor_reads_what_the_driver_sealed,
    test_an_executor_that_cannot_read_the_bucket_names_its_host,
)
from tests.contract.test_storage import *  # noqa: F403 - the contract, on the store of this file
from tests.crash import test_kill
from tests.crash.test_kill import reader_session  # noqa: F401 - a fixture
from tests.interop.azurite import Azurite, Container
from tests.interop.deaths import *  # noqa: F403 - publishing that dies, sleeps, or hears no answer


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


@pytest.mark.timeout(7200)
def test_kills(
    tmp_path: Path,
    reader_session: object,  # noqa: F811
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The campaign of tests/crash on containers: KILLS (50) kills, SEED and LAKES as in tests/crash/README.md."""
    monkeypatch.setitem(test_kill.LAKES_OF_STORES, "az", Container)
    monkeypatch.setattr(test_kill, "KILLS", int(os.environ.get("KILLS") or 50))
    monkeypatch.setattr(test_kill, "LAKES", (os.environ.get("LAKES") or "az-mixed,az-upsert").split(","))
    test_kill.test_a_long_siege_changes_nothing(tmp_path, reader_session, request)
