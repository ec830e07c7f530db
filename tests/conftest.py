"""What tests in more than one folder start from."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.s3server import S3Server


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    with S3Server() as server:
        yield server


@pytest.fixture
def s3(s3_server: S3Server) -> Iterator[S3Server]:
    """A store over HTTP, started once for all tests, that behaves when a test begins."""
    s3_server.clear()
    yield s3_server
    s3_server.clear()
