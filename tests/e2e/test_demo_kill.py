"""`demo --kill` with the real tap: what it shows is true, and nothing of it stays."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest

from tests.e2e.conftest import wait_until_gone


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_after_each_kill_the_counts_are_exact(tmp_path: Path) -> None:
    """After each kill no flight is there twice, and PostgreSQL has as many up to the bookmark; at the end all are."""
    argv = [sys.executable, "-m", "bridge", "demo", "--kill", "--folder", str(tmp_path / "demo"), "--to", "lake"]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, timeout=800, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    kills = re.findall(r"^ +[\d.]+ s +([\d,]+) +(\d+) +([\d,]+) ", done.stdout, re.MULTILINE)
    assert kills
    assert all(twice == "0" and here == there for here, twice, there in kills)
    flights = tmp_path / "lake" / "flights" / "public-flights" / "*.parquet"
    assert duckdb.sql(f"select count(*), count(distinct id) from '{flights}'").fetchall() == [(336_776, 336_776)]
    wait_until_gone(tmp_path, 30)
