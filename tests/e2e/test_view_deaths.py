"""Views, killed at each change that publishes a commit: files, the logs of Delta and Iceberg tables, manifests.

Between two of them the library of the format has each table as one commit left it, and our readers have all tables of
one commit. The next run completes the commit.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest

import bridge
from bridge.lake.commit.committer import Committer
from bridge.lake.commit.open import open_pipeline
from bridge.lake.log import Log
from bridge.lake.records import CommitRecord
from bridge.lake.storage import open_storage
from bridge.operate.verify.check import verify
from tests.contract.crashing import crashing
from tests.crash.driver import PIPELINE
from tests.crash.test_format_steps import crashing_requests
from tests.e2e.test_view_commits import CHAIN, FEW_VIEWS, STEPS, Lake
from tests.support.s3server import S3Server
from tests.support.view_formats import note_catalog, own_rows, sorted_rows
from tests.support.view_oracle import rows_of, views_at

pytestmark = pytest.mark.timeout(3000)
QUICK = [("delta", "upsert", 9), ("iceberg", "overwrite", 13)]
"""The format, the method, and of how many changes one is a death. They have a part of the views."""
SLOW = [(kind, method, 1) for kind in ("delta", "iceberg") for method in ("append-only", "upsert", "overwrite")]
WORLD = int(os.environ.get("WORLD") or 100)
EXTRA = [("sliding",), ("closing",), ("kept",), ("sessions",), ("days", "a_scope")]
"""Of `CHAIN`, what a long history keeps besides two plain views."""
IN_A_BUCKET = [("delta", "upsert", 2), ("iceberg", "upsert", 2)]


class Dying(Lake):
    """A lake whose publications can be killed."""

    died = False

    def publishing(self, at: int, work: Callable[[], object]) -> bool:
        """Work, but die at change `at` of the first publication; return whether it had so many."""
        publish, folder = Committer.publish, open_storage(self.uri).folder
        with (
            pytest.MonkeyPatch.context() as patch,
            crashing_requests(None) if folder is None else crashing(folder, None) as faults,
        ):

            def dying(committer: Committer, record: CommitRecord) -> None:
                patch.undo()
                faults.at = len(faults.steps) + at
                publish(committer, record)
                faults.at = None

            patch.setattr(Committer, "publish", dying)
            work()
        self.died = faults.crashed
        return self.died

    def check(self) -> None:
        """As before; but a commit that died may not be in the tables' own logs yet."""
        if not self.died:
            super().check()
            return
        for name, query in views_at(self.uri, PIPELINE, self.head).items():
            stored, selected = rows_of(self.uri, PIPELINE, self.head, name, query)
            assert stored == selected, name

    def recover(self) -> None:
        """What the next run does first."""
        with open_pipeline(open_storage(self.uri), PIPELINE):
            pass

    def seen(self) -> dict[str, Any]:
        """By table, the rows that the library of its format reads now; of Parquet, what our own reader does."""
        log, lake = Log(open_storage(self.uri), PIPELINE), bridge.Lake(self.uri)
        tables = {
            stream: own_rows(log, stream) if table.has_own_log else lake.table(PIPELINE, stream).to_table()
            for stream, table in log.snapshot(log.latest()).tables.items()
        }
        return {stream: None if rows is None else sorted_rows(rows) for stream, rows in tables.items()}

    def survives(self, at: int) -> bool:
        """Kill the publication of one more commit at a change, and the recovery at another; return whether it died."""
        messages, before = [*self.rows(12), self.state()], self.seen()
        died = self.publishing(at, lambda: self.run(*messages))
        meanwhile = self.seen()
        if died:
            self.check()
            if self.publishing(at // 2, self.recover):
                self.check()
            self.recover()
        self.died = False
        self.check()
        after = self.seen()
        for stream, rows in meanwhile.items():
            assert rows in (before.get(stream), after[stream]), (stream, at)
        assert before != after
        assert [one for one in verify(open_storage(self.uri), PIPELINE).findings if one.status == "error"] == []
        return died


def marked(cases: list[tuple[str, str, int]]) -> list[Any]:
    return [pytest.param(*case, marks=pytest.mark.slow) for case in cases]


@pytest.mark.parametrize(("table_format", "method", "every"), [*QUICK, *marked(SLOW)])
def test_a_publication_is_killed(
    tmp_path: Path, spark: Any, table_format: str, method: str, every: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a folder."""
    monkeypatch.setattr("os.fsync", lambda fd: None)
    lake = Dying(str(tmp_path / "lake"), tmp_path / "spool", spark, method, table_format, 1)
    if every > 1:
        lake.views = {name: CHAIN[name] for name in FEW_VIEWS["overwrite"]}
    _kill_each(lake, every)


@pytest.mark.parametrize(("table_format", "method", "every"), marked(IN_A_BUCKET))
def test_a_publication_is_killed_in_a_bucket(
    s3: S3Server, tmp_path: Path, spark: Any, table_format: str, method: str, every: int
) -> None:
    """In a store."""
    uri = f"s3://{s3.bucket(f'deaths-{table_format}')}/team"
    if table_format == "iceberg":
        note_catalog(open_storage(uri), PIPELINE, tmp_path)
    _kill_each(Dying(uri, tmp_path / "spool", spark, method, table_format, 2), every)


@pytest.mark.slow
@pytest.mark.timeout(60 + 20 * WORLD)
@pytest.mark.parametrize(
    ("method", "table_format"),
    [("append-only", "parquet"), ("upsert", "parquet"), ("upsert", "delta"), ("overwrite", "iceberg")],
)
def test_a_long_history(
    tmp_path: Path, spark: Any, method: str, table_format: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """WORLD (100) steps in any order, every fifth a publication that is killed, and its recovery, too.

    SEED says which steps, and which views: two plain ones, and others of one kind.
    """
    seed = int(os.environ.get("SEED") or random.SystemRandom().randrange(10**6))
    monkeypatch.setattr("os.fsync", lambda fd: None)
    lake = Dying(str(tmp_path / "lake"), tmp_path / "spool", spark, method, table_format, seed)
    lake.views = {name: CHAIN[name] for name in ("by_region", "by_day", *EXTRA[seed % len(EXTRA)])}
    print(f"\nSEED={seed} WORLD={WORLD}", *lake.views)
    STEPS["rows"](lake)
    for number in range(WORLD):
        step = "killed" if number % 5 == 0 else lake.random.choice([*STEPS])
        print(number, step, flush=True)
        if step == "killed":
            lake.survives(lake.random.randrange(60))
        else:
            STEPS[step](lake)
    assert views_at(lake.uri, PIPELINE, lake.head) == lake.views


def _kill_each(lake: Dying, every: int) -> None:
    """From the first commit on, which makes the tables."""
    deaths = next(number for number, at in enumerate(count(0, every)) if not lake.survives(at))
    assert deaths > 3
