"""The table of docs/stores.md, from what really ran: `make interop` ends with `python -m tests.interop.stores_page`."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Container, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from importlib.metadata import version
from pathlib import Path

import pytest

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

    def is_of(self, test: str) -> bool:
        return any(text in test for text in self.tests)


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a test ended last, on which day, with which products in their versions of that day, after how many kills."""

    outcome: str
    day: str
    products: tuple[str, ...]
    kills: int = 0


def note_outcomes(reports: Mapping[str, pytest.TestReport]) -> None:
    """Keep what tests of this folder have come to, beside what earlier calls ran."""
    if reports:
        today = datetime.now(timezone.utc).date().isoformat()
        ran = _ran() | {
            test: Outcome(report.outcome, today, _products(test), int(dict(report.user_properties).get("kills", 0)))
            for test, report in reports.items()
        }
        _RAN.parent.mkdir(exist_ok=True)
        _RAN.write_text(json.dumps({test: asdict(end) for test, end in ran.items()}, indent=1, sort_keys=True))


def _ran() -> dict[str, Outcome]:
    """What ran; not what an older form of the file has, which names no versions."""
    ran = json.loads(_RAN.read_text()) if _RAN.exists() else {}
    return {test: Outcome(**end | {"products": (*end["products"],)}) for test, end in ran.items() if "products" in end}


def _products(test: str) -> tuple[str, ...]:
    return tuple(row.product for products in rows().values() for row in products if row.is_of(test))


def existing_tests() -> frozenset[str]:
    """The ids of the tests that this folder has now."""
    collect = [sys.executable, "-m", "pytest", "tests/interop", "--collect-only", "-q", "-m", "slow or not slow"]
    lines = subprocess.run(collect, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()
    return frozenset(line for line in lines if "::" in line)


def rows() -> dict[str, list[Row]]:
    """The products, by the kind of thing that they are. Their versions are those that the tests start."""
    from tests.interop import azurite, fakegcs, minio
    from tests.interop.catalogs.metastore import Metastore
    from tests.interop.catalogs.nessie import Nessie
    from tests.interop.catalogs.reference import Reference
    from tests.interop.readers import trino, venvs
    from tests.interop.taps import broker, documents

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
        "Sources": [
            Row(
                f"Kafka {broker.VERSION}, pipelinewise-tap-kafka {broker.TAP}",
                "messages of all kinds, tombstones, removed messages, a new topic, kill -9",
                ("test_kafka.py",),
            ),
            Row(
                f"mongo-java-server {documents.VERSION}, {documents.TAPS}",
                "all types of BSON, incremental, the oplog, ids of several types, kill -9",
                ("test_mongodb.py",),
            ),
        ],
    }


def table(ran: Mapping[str, Outcome], existing: Container[str]) -> str:
    """The section's text. A product of which a test failed says so, and so does one that was not tried.

    Counted are tests that exist, if they last ran with the version that they start today.
    """
    lines: list[str] = []
    for kind, products in rows().items():
        lines += [f"### {kind}", "", "| product | tried | tests passed | kills | last |", "|---|---|---|---|---|"]
        for row in products:
            ends = [
                end for test, end in ran.items() if row.is_of(test) and test in existing and row.product in end.products
            ]
            passed = [end for end in ends if end.outcome == "passed"]
            failed = any(end.outcome == "failed" for end in ends)
            count = "not all" if failed else len(passed) or "not run yet"
            kills = sum(end.kills for end in passed) or ""
            last = max((end.day for end in passed), default="")
            lines.append(f"| {row.product} | {row.tried} | {count} | {kills} | {last} |")
        lines.append("")
    return "\n".join(lines)


def rewritten(page: str, ran: Mapping[str, Outcome], existing: Container[str]) -> str:
    """The page with its section made anew."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{table(ran, existing)}\n{END}{after}"


if __name__ == "__main__":
    if not _ran():
        sys.exit("nothing ran yet: make interop")
    PAGE.write_text(rewritten(PAGE.read_text(), _ran(), existing_tests()))
