"""MinIO keeps the contract of a storage; on it each row is there once after kills, and no reader sees half a commit."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.crash.lakes import Bucket
from tests.interop.minio import MinIO
from tests.interop.store_suite import *  # noqa: F403 - the contract and kills, on the store of this file
from tests.interop.store_suite import LakeKind


@pytest.fixture(scope="module")
def s3_server() -> Iterator[MinIO]:
    with MinIO() as server:
        yield server


@pytest.fixture
def s3(s3_server: MinIO) -> MinIO:
    """The store that the contract and the campaign ask for."""
    return s3_server


@pytest.fixture
def lake_kind() -> LakeKind:
    return "s3", Bucket


_BY_WHOLE_KEY = ("test_pending_file_is_invisible_until_published", "test_lost_and_aborted_files")


@pytest.fixture(autouse=True)
def _listed_by_whole_key(request: pytest.FixtureRequest) -> None:
    """MinIO names an unfinished upload only to who asks for its whole key, so `Storage.pending` cannot see any.

    Nothing depends on that: the log names the uploads of a commit, and MinIO ends forgotten ones after a day.
    """
    if request.node.name in [f"{test}[s3 uploads]" for test in _BY_WHOLE_KEY]:
        request.applymarker(pytest.mark.xfail(strict=True, reason="MinIO lists no unfinished uploads below a prefix"))
