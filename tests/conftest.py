"""What tests in more than one folder start from, and which of them `make check` leaves out."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.s3server import S3Server

HEAVY_FIXTURES = {"s3", "s3_server", "spark"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark as `heavy` each test that has a fixture which starts Spark or an S3 server."""
    for item in items:
        asked = set(getattr(item, "fixturenames", ()))
        if HEAVY_FIXTURES & asked:
            item.add_marker(pytest.mark.heavy)


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
