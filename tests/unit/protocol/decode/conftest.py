"""What is promised of decoding holds with the compiled reader and without it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bridge.protocol.decode import native

BOTH = {"test_decoder", "test_exact", "test_fuzz", "test_reference", "test_validate"}
WITHOUT_DECODING = {"test_the_reader_takes_any_bytes", "test_a_run_ends_in_good_order_whatever_the_tap_writes"}
COMPILED = native.AVAILABLE


@pytest.fixture(scope="module", autouse=True)
def reader(request: pytest.FixtureRequest) -> Iterator[None]:
    """Which reader `decode` uses."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native, "AVAILABLE", getattr(request, "param", "compiled") == "compiled" and COMPILED)
        yield


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if (
        metafunc.module.__name__.rpartition(".")[2] in BOTH
        and COMPILED
        and metafunc.function.__name__ not in WITHOUT_DECODING
    ):
        metafunc.parametrize("reader", ["compiled", "exact"], indirect=True, scope="module")
