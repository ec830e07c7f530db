"""What each real store must pass: the contract of a storage, a cluster's spool, and random kills of runs.

A module imports all of it, and has the fixtures `s3` (the server) and `lake_kind`.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.contract.conftest import storage  # noqa: F401 - a fixture of the contract's tests
from tests.contract.test_spool import (  # noqa: F401 - a cluster's spool, on the store of the importing file
    context,
    test_a_dead_runs_spool_goes_with_the_next_run,
    test_a_file_of_one_executor_is_read_by_another,
    test_an_executor_reads_what_the_driver_sealed,
    test_an_executor_that_cannot_read_the_bucket_names_its_host,
)
from tests.contract.test_storage import *  # noqa: F403 - the contract, on the store of the importing file
from tests.crash import test_kill
from tests.crash.lakes import Bucket
from tests.crash.test_kill import reader_session  # noqa: F401 - a fixture

LakeKind = tuple[str, type[Bucket]]
"""The scheme of a store's URIs, and how its lakes are looked at."""


@pytest.mark.timeout(7200)
def test_kills(
    tmp_path: Path,
    reader_session: object,  # noqa: F811
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    lake_kind: LakeKind,
) -> None:
    """The campaign of tests/crash on this store: KILLS (50) kills, SEED and LAKES as in tests/crash/README.md."""
    scheme, kind = lake_kind
    monkeypatch.setitem(test_kill.LAKES_OF_STORES, scheme, kind)
    monkeypatch.setattr(test_kill, "KILLS", int(os.environ.get("KILLS") or 50))
    monkeypatch.setattr(test_kill, "LAKES", (os.environ.get("LAKES") or f"{scheme}-mixed,{scheme}-upsert").split(","))
    test_kill.test_a_long_siege_changes_nothing(tmp_path, reader_session, request)
