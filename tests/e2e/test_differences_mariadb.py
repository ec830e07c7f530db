"""Nasty tables of MariaDB, changed between runs: the lake equals them, or a run said which differs, and how."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from .differences.cases import read_cases
from .differences.known import unknown
from .differences.mariadb_tables import BEFORE, read_tables
from .differences.trial import Trial
from .realtaps import BINLOG, MariaDb, Project, installed, mariadb

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]
CASES = read_cases("mariadb")
TAP = "pipelinewise-tap-mysql"


@pytest.fixture
def server() -> Iterator[MariaDb]:
    with mariadb(*BINLOG) as server:
        server.sql(
            f"{BEFORE}; create user 'reader'@'127.0.0.1' identified by 'secret';"
            "grant select, replication client, replication slave on *.* to 'reader'@'127.0.0.1'"
        )
        server.sql("use shop;" + CASES.steps[0])
        yield server


@pytest.mark.parametrize("method", ["FULL_TABLE", "INCREMENTAL", "LOG_BASED"])
def test_no_table_differs_in_silence(method: str, server: MariaDb, tmp_path: Path) -> None:
    """Three runs, each table changed between them in its own way; after each, all values are compared."""
    project = Project(tmp_path, installed(TAP, "tap-mysql"), {})
    trial = Trial(project, "shop", lambda: read_tables(server), {"newname": "renamed"})
    login = {"host": "127.0.0.1", "port": str(server.port), "user": "reader", "password": "secret"}
    trial.add({**login, "engine": "mariadb", "filter_dbs": "shop"}, method, CASES.keyed)
    for number, step in enumerate(CASES.steps):
        if number:
            server.sql("use shop;" + step)
        trial.run()
        trial.look(f"run {number + 1}")
    assert unknown(f"mariadb {TAP} {method}", trial.silent) == []
    assert trial.unnamed == []
