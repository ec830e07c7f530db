"""gs:// on fake-gcs-server: it keeps the contract of a storage; publishing that dies or sleeps anywhere; kills."""

from __future__ import annotations

import uuid
from typing import cast

import pytest
from google.api_core.retry import Retry

from bridge.lake.storage import Storage
from tests.contract.test_rewrite import (  # noqa: F401 - deaths and sleepers, on the store of this file
    test_a_writer_that_slept_undoes_nothing,
    test_rewriting_goes_on_where_it_died_in_a_bucket,
)
from tests.contract.test_s3_publish import (  # noqa: F401
    Lakes,
    test_a_writer_that_slept_changes_nothing,
    test_publish_goes_on_where_it_died,
    test_taking_back_what_died_half_published,
)
from tests.interop.fakegcs import FakeGcs, GcsBucket
from tests.interop.object_suite import *  # noqa: F403 - the contract and kills, on the store of this file
from tests.interop.store_suite import LakeKind


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


@pytest.fixture
def lake_kind() -> LakeKind:
    return "gs", GcsBucket
