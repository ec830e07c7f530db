"""docs/stores.md says what ran, and nothing else."""

from __future__ import annotations

from tests.interop.stores_page import BEGIN, END, PAGE, rewritten, rows

MINIO, SPARK = "tests/interop/test_minio.py::", "tests/interop/readers/test_readers.py::test_spark"


def test_only_what_passed_is_counted() -> None:
    """A product has its tests counted; one that failed, or was not tried, says so. The rest of the page stays."""
    ran = {
        f"{MINIO}a": ["passed", "2026-11-01"],
        f"{MINIO}b": ["passed", "2026-11-02"],
        SPARK: ["failed", "2026-11-02"],
    }
    page = rewritten(f"# Page\n\n{BEGIN}\nold\n{END}\nafter\n", ran)
    assert page.startswith("# Page\n")
    assert page.endswith(f"{END}\nafter\n")
    products = [line.split(" | ") for line in page.splitlines() if line.startswith("| ") and "product" not in line]
    counts = {cells[0].split()[1]: cells[2:] for cells in products}
    assert counts["MinIO"] == ["2", "2026-11-02 |"]
    assert counts["Spark"] == ["not all", " |"]
    assert counts["Azurite"] == ["not run yet", " |"]


def test_the_page_names_each_product_that_is_tried() -> None:
    """The page has been made since the list of products last changed."""
    page = PAGE.read_text()
    assert [row.product for products in rows().values() for row in products if row.product not in page] == []
