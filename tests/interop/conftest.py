"""Real stores on loopback: `make interop` alone runs these tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop.azurite import Azurite
from tests.interop.fakegcs import FakeGcs
from tests.interop.stores_page import note_outcomes

_REPORTS: dict[str, pytest.TestReport] = {}
_HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(_HERE):
            item.add_marker(pytest.mark.slow)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if "tests/interop/" in report.nodeid and (report.failed or report.when == "call"):
        _REPORTS[report.nodeid] = report


def pytest_sessionfinish() -> None:
    """Note what ran, for docs/stores.md."""
    note_outcomes(_REPORTS)


@pytest.fixture(scope="module")
def gcs_server() -> Iterator[FakeGcs]:
    with FakeGcs() as server:
        yield server


@pytest.fixture
def gcs(gcs_server: FakeGcs) -> Iterator[FakeGcs]:
    """Google Cloud Storage's emulator behind our proxy, which behaves when a test begins."""
    gcs_server.clear()
    yield gcs_server
    gcs_server.clear()


@pytest.fixture(scope="module")
def azurite() -> Iterator[Azurite]:
    """Azurite with a container `lake`."""
    with Azurite() as server:
        server.bucket("lake")
        yield server
