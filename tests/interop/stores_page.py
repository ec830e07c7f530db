"""The table of docs/stores.md, from what really ran: `python -m tests.interop.stores_page` after `make interop`."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from datetime import datetime, timezone
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/stores.md"
BEGIN, END = "<!-- made from: what ran -->", "<!-- end -->"
_RAN = ROOT / ".interop/ran.json"


@dataclass(frozen=True)
class Row:
    """A product, what is tried with it, and the tests: all whose ids have one of these texts in them."""

    product: str
    tried: str
    tests: tuple[str, ...]


def note_outcomes(outcomes: dict[str, str]) -> None:
    """Keep what tests of this folder have come to, beside what earlier calls ran."""
    if outcomes:
        today = datetime.now(timezone.utc).date().isoformat()
        ran = _ran() | {test: [outcome, today] for test, outcome in outcomes.items()}
        _RAN.parent.mkdir(exist_ok=True)
        _RAN.write_text(json.dumps(ran, indent=1, sort_keys=True))


def _ran() -> dict[str, list[str]]:
    return dict(json.loads(_RAN.read_text())) if _RAN.exists() else {}


def rows() -> dict[str, list[Row]]:
    """The products, by the kind of thing that they are. Their versions are those that the tests start."""
    from tests.interop import azurite, fakegcs, minio
    from tests.interop.catalogs.metastore import Metastore
    from tests.interop.catalogs.nessie import Nessie
    from tests.interop.catalogs.reference import Reference
    from tests.interop.readers import trino, venvs

    # The product of a metastore is told by a jar, not by a server.
    metastore = Metastore.product.fget(None)  # type: ignore[attr-defined]
    commits = "append, merge, overwrite, new columns, rollback, other writers, catalog down, kill -9"
    return {
        "Stores": [
            Row(
                f"MinIO of {minio.VERSION.split('-')[1][:8]}",
                "contract of a storage",
                ("test_minio.py",),
            ),
            Row(f"fake-gcs-server {fakegcs.VERSION}", "contract of a storage", ("test_gcs.py",)),
            Row(f"Azurite {azurite.VERSION}", "contract of a storage", ("test_azurite.py",)),
        ],
        "Iceberg catalogs": [
            Row(f"{Nessie.product}, on MinIO", commits, ("[nessie]",)),
            Row(f"{Reference.product}, on a folder", commits, ("[reference]",)),
            Row(f"{metastore}, on a folder", commits, ("[metastore]",)),
        ],
        "Readers": [
            Row(
                f"Spark {venvs.SPARK}, Iceberg {venvs.ICEBERG}, Delta {venvs.DELTA}",
                "Parquet, Delta, Iceberg by a REST catalog",
                ("test_readers.py::test_spark",),
            ),
            Row(
                f"DuckDB {venvs.DUCKDB} with its extensions",
                "Parquet, Delta, Iceberg by a REST catalog, manifests",
                ("test_readers.py::test_duckdb",),
            ),
            Row(
                f"Trino {trino.VERSION}",
                "Parquet by Hive's connector, Delta, Iceberg by a REST catalog",
                ("test_readers.py::test_trino",),
            ),
            Row(
                f"Polars {version('polars')}, pyarrow {version('pyarrow')}, pyiceberg {version('pyiceberg')}, "
                f"deltalake {version('deltalake')}",
                "Parquet, Delta, Iceberg by a REST catalog, manifests",
                ("test_readers.py::test_python",),
            ),
            Row(
                f"ClickHouse, as chdb {venvs.CLICKHOUSE}",
                "Parquet, Delta, Iceberg, each in a folder",
                ("test_readers.py::test_clickhouse",),
            ),
        ],
    }


def table(ran: dict[str, list[str]]) -> str:
    """The section's text. A product of which a test failed says so, and so does one that was not tried."""
    lines: list[str] = []
    for kind, products in rows().items():
        lines += [f"### {kind}", "", "| product | tried | tests passed | last |", "|---|---|---|---|"]
        for row in products:
            mine = [end for test, end in ran.items() if any(text in test for text in row.tests)]
            failed = any(outcome == "failed" for outcome, _ in mine)
            passed = [day for outcome, day in mine if outcome == "passed"]
            count = "not all" if failed else len(passed) or "not run yet"
            lines.append(f"| {row.product} | {row.tried} | {count} | {max(passed, default='')} |")
        lines.append("")
    return "\n".join(lines)


def rewritten(page: str, ran: dict[str, list[str]]) -> str:
    """The page with its section made anew."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{table(ran)}\n{END}{after}"


if __name__ == "__main__":
    if not _ran():
        sys.exit("nothing ran yet: make interop")
    PAGE.write_text(rewritten(PAGE.read_text(), _ran()))
