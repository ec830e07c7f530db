"""Nasty tables of PostgreSQL, changed between runs: the lake equals them, or a run said which differs, and how."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .differences.cases import read_cases
from .differences.known import unknown
from .differences.postgres_tables import read_tables
from .differences.trial import Trial
from .postgresql import PostgreSql, postgresql
from .realtaps import Project, installed

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]
CASES = read_cases("postgres")
TAPS = ["pipelinewise-tap-postgres", "meltanolabs-tap-postgres"]

_NAMED_BY_A_QUERY = ("beforechrist", "Grö ße.x")
"""A tap that reads the log of all tables at once names another table in its error, or none: these are copied whole.

wal2json takes no name with a blank and a dot in its list of tables.
"""


_INFINITE = ("endless", "moments", "momentkeys")
"""pipelinewise' reader of the log ends at an infinite time, and names no table: these are copied whole by it."""


@pytest.fixture
def server() -> Iterator[PostgreSql]:
    with postgresql() as server:
        server.sql(CASES.steps[0])
        yield server


def configured(tap: str, method: str, server: PostgreSql) -> dict[str, Any]:
    login = {"host": "127.0.0.1", "port": server.port, "user": "postgres", "password": server.environ["PGPASSWORD"]}
    if tap.startswith("meltanolabs"):
        config: dict[str, Any] = {**login, "database": "postgres", "filter_schemas": ["public"]}
        if method == "LOG_BASED":
            config |= {"replication_slot_name": "live", "replication_idle_exit_seconds": 4}
            server.sql("select pg_create_logical_replication_slot('live', 'wal2json')")
        return config
    if method == "LOG_BASED":
        server.sql("select pg_create_logical_replication_slot('pipelinewise_postgres_live', 'wal2json')")
    waits = {"tap_id": "live", "logical_poll_total_seconds": 4, "break_at_end_lsn": True}
    return {**login, "dbname": "postgres", "filter_schemas": "public"} | waits


@pytest.mark.parametrize("method", ["FULL_TABLE", "INCREMENTAL", "LOG_BASED"])
@pytest.mark.parametrize("tap", TAPS)
def test_no_table_differs_in_silence(tap: str, method: str, server: PostgreSql, tmp_path: Path) -> None:
    """Three runs, each table changed between them in its own way; after each, all values are compared."""
    project = Project(tmp_path, installed(tap, "tap-postgres"), {})
    trial = Trial(project, "public", lambda: read_tables(server), {"newname": "renamed"})
    whole = (
        [*_NAMED_BY_A_QUERY, *(_INFINITE if tap.startswith("pipelinewise") else ())] if method == "LOG_BASED" else []
    )
    keyed = [name for name in CASES.keyed if name not in whole]
    trial.add(configured(tap, method, server), method, keyed)
    for number, step in enumerate(CASES.steps):
        if number:
            server.sql(step)
        trial.run()
        trial.look(f"run {number + 1}")
    assert unknown(f"postgres {tap} {method}", trial.silent) == []
    assert trial.unnamed == []
