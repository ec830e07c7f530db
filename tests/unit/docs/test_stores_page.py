"""docs/stores.md says what ran, and nothing else."""

from __future__ import annotations

import sys

import pytest

from tests.interop.stores_page import BEGIN, END, PAGE, Outcome, rewritten, rows

MINIO, SPARK = "tests/interop/test_minio.py::", "tests/interop/readers/test_readers.py::test_spark"
NAMES = {row.product.split()[0]: row.product for products in rows().values() for row in products}


def passed(name: str, day: str, kills: int = 0) -> Outcome:
    return Outcome("passed", day, (NAMES[name],), kills)


def counts(ran: dict[str, Outcome], existing: set[str]) -> dict[str, list[str]]:
    """The last cells of each product's line, by its first word: tests passed, kills, the last day."""
    page = rewritten(f"# Page\n\n{BEGIN}\nold\n{END}\nafter\n", ran, existing)
    assert page.startswith("# Page\n")
    assert page.endswith(f"{END}\nafter\n")
    lines = [line.strip("| ").split("|") for line in page.splitlines() if line.startswith("| ")]
    return {cells[0].split()[0]: [cell.strip() for cell in [*cells, "", ""][2:5]] for cells in lines}


def test_only_what_passed_is_counted() -> None:
    """A product has its tests and kills counted; one that failed, or was not tried, says so. The page's rest stays."""
    ran = {
        f"{MINIO}a": passed("MinIO", "2026-11-01"),
        f"{MINIO}b": passed("MinIO", "2026-11-02", 50),
        SPARK: Outcome("failed", "2026-11-02", (NAMES["Spark"],)),
    }
    result = counts(ran, set(ran))
    assert result["MinIO"] == ["2", "50", "2026-11-02"]
    assert result["Spark"] == ["not all", "", ""]
    assert result["Azurite"] == ["not run yet", "", ""]


def test_another_version_and_a_test_of_before_are_not_counted() -> None:
    """The page names the versions that tests start today, so only those count; a test that was renamed does not."""
    ran = {
        f"{MINIO}a": passed("MinIO", "2026-11-01"),
        f"{MINIO}older": Outcome("passed", "2026-11-03", ("MinIO of 20250101",), 50),
        f"{MINIO}renamed": passed("MinIO", "2026-11-03", 50),
        SPARK: Outcome("failed", "2026-11-01", ("Spark 4.0.0, Iceberg 1.10.0, Delta 4.0.0",)),
    }
    result = counts(ran, set(ran) - {f"{MINIO}renamed"})
    assert result["MinIO"] == ["1", "", "2026-11-01"]
    assert result["Spark"] == ["not run yet", "", ""]


@pytest.mark.skipif(sys.version_info < (3, 11), reason="the newest products that Python 3.10 gets are older")
def test_the_page_names_each_product_that_is_tried() -> None:
    """The page has been made since the list of products last changed."""
    page = PAGE.read_text()
    assert [row.product for products in rows().values() for row in products if row.product not in page] == []
