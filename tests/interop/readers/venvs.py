"""A reader's own Python: a venv in `.interop/`, made once from PyPI, apart from the product's."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.support.s3server import ROOT

DUCKDB = "1.5.5"
"""The newest DuckDB whose extensions PyPI has."""
SPARK, ICEBERG, DELTA = "4.1.0", "1.12.0", "4.1.0"
"""The newest Spark for which Iceberg and Delta have a runtime, and these."""
CLICKHOUSE = "4.4.0"

_EXTENSIONS = ("iceberg", "delta", "avro", "httpfs", "azure")
PACKAGES = {
    "duckdb": (
        f"duckdb=={DUCKDB}",
        f"duckdb-extensions=={DUCKDB}",
        "pytz",
        *(f"duckdb-extension-{one}=={DUCKDB}" for one in _EXTENSIONS),
    ),
    "spark": (f"pyspark=={SPARK}",),
    "clickhouse": (f"chdb=={CLICKHOUSE}",),
}
_WORKER = Path(__file__).with_name("worker.py")


def python_of(engine: str) -> Path:
    """The Python that has the engine."""
    return venv_with(*PACKAGES[engine])


def venv_with(*packages: str) -> Path:
    """The Python of a venv that has the packages; it is named by the first."""
    home = ROOT / ".interop" / f"venv-{packages[0].replace('==', '-')}"
    python = home / "bin/python"
    if not python.exists():
        making = home.with_name(f"{home.name}.making")
        shutil.rmtree(making, ignore_errors=True)
        uv = str(Path(sys.executable).with_name("uv"))
        subprocess.run([uv, "venv", "--quiet", "--relocatable", "--python", sys.executable, making], check=True)
        subprocess.run([uv, "pip", "install", "--quiet", "--python", making / "bin/python", *packages], check=True)
        making.replace(home)
    return python


def answers(engine: str, questions: list[dict[str, str]], settings: dict[str, Any], folder: Path) -> list[Any]:
    """The rows that an engine reads, one list a question; a text in its place is the engine's error.

    A question has a `statement` and the `name` of the table that it makes; one that selects has no name.
    """
    asked = json.dumps({"questions": questions, "settings": settings})
    command = [python_of(engine), _WORKER, engine]
    done = subprocess.run(command, input=asked, capture_output=True, text=True, check=False, cwd=folder)
    assert done.returncode == 0, done.stderr[-3000:]
    result: list[Any] = json.loads(done.stdout.splitlines()[-1])
    return result
