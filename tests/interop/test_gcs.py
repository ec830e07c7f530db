"""gs:// on fake-gcs-server: it keeps the contract of a storage; publishing that dies or sleeps anywhere; kills."""

from __future__ import annotations

import os
import uuid
from pathlib import Path
from typing import cast

import pytest
from google.api_core.retry import Retry

from bridge.lake.storage import Storage
from tests.contract.test_rewrite import (  # noqa: F401 - the contract, on the store of this file
    test_a_file_is_rewritten,
    test_a_file_that_somebody_deleted,
    test_a_lost_file_of_the_same_bytes,
    test_a_readable_file_is_aborted_whole,
    test_a_readable_file_is_read_before_it_is_published,
    test_a_writer_that_slept_undoes_nothing,
    test_nobody_moves_a_change_without_rewrites,
    test_rewriting_goes_on_where_it_died_in_a_bucket,
    test_walk_and_empty_folders,
    test_what_is_not_there_is_missing,
)
from tests.contract.test_s3_publish import (  # noqa: F401
    Lakes,
    test_a_writer_that_slept_changes_nothing,
    test_publish_goes_on_where_it_died,
    test_taking_back_what_died_half_published,
)
from tests.contract.test_spool import (  # noqa: F401 - a cluster's spool, on the store of this file
    context,
    test_a_dead_runs_spool_goes_with_the_next_run,
    test_a_file_of_one_executor_is_read_by_another,
    test_an_executor_reads_what_the_driver_sealed,
    test_an_executor_that_cannot_read_the_bucket_names_its_host,
)
from tests.contract.test_storage import *  # noqa: F403
from tests.crash import test_kill
from tests.crash.test_kill import reader_session  # noqa: F401 - a fixture
from tests.interop.fakegcs import FakeGcs, GcsBucket


@pytest.fixture
def s3(gcs: FakeGcs) -> FakeGcs:
    """The store that the contract asks for."""
    return gcs


@pytest.fixture(params=["s3"])
def storage(request: pytest.FixtureRequest, gcs: FakeGcs, monkeypatch: pytest.MonkeyPatch) -> Storage:
    """A folder of a bucket; for "local" a whole bucket, for "s3 uploads" every pending file is sent in parts."""
    if request.param == "s3 uploads":
        monkeypatch.setattr("bridge.lake.storage.objects.copying._SMALL", 0)
    folder = "" if request.param == "local" else "/team"
    return cast("Storage", gcs.storage(f"gs://{uuid.uuid4().hex}{folder}"))


@pytest.fixture
def lakes(gcs: FakeGcs, monkeypatch: pytest.MonkeyPatch) -> Lakes:
    """New, empty lakes, reached by a client that tries nothing twice."""
    monkeypatch.setattr("bridge.lake.storage.gcs.store._PATIENCE", Retry(predicate=lambda _: False))
    bucket = gcs.bucket(uuid.uuid4().hex)
    return lambda: gcs.storage(f"gs://{bucket}/{uuid.uuid4().hex}")


@pytest.mark.timeout(7200)
def test_kills(
    tmp_path: Path,
    reader_session: object,  # noqa: F811
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The campaign of tests/crash on gs:// lakes: KILLS (50) kills, SEED and LAKES as in tests/crash/README.md."""
    monkeypatch.setitem(test_kill.LAKES_OF_STORES, "gs", GcsBucket)
    monkeypatch.setattr(test_kill, "KILLS", int(os.environ.get("KILLS") or 50))
    monkeypatch.setattr(test_kill, "LAKES", (os.environ.get("LAKES") or "gs-mixed,gs-upsert").split(","))
    test_kill.test_a_long_siege_changes_nothing(tmp_path, reader_session, request)
