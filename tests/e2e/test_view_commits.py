"""Views over random histories of commits: at each commit a view is what its SELECT gives over the stream's table.

The real dispatcher, ledger and commit protocol, and one Spark session for all of them; see `tests/crash/driver.py`.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import bridge
from bridge.commit.committer import Committer
from bridge.commit.open import open_pipeline
from bridge.commit.rollback import roll_back
from bridge.errors import BridgeError, TapError
from bridge.maintain.compact import Wish, compact
from bridge.spark.session import Session
from bridge.storage import open_storage
from tests.crash.driver import PIPELINE, Run
from tests.e2e.test_views import ALL, BY_DAY, FORMATS, PROPERTIES, order
from tests.support.s3server import S3Server
from tests.support.view_formats import note_catalog
from tests.support.view_oracle import check_commits, views_at

pytestmark = [pytest.mark.timeout(1500), pytest.mark.slow]
OTHER = "SELECT region AS place, max(amount) AS most, max_by(id, seen_at) AS last FROM orders GROUP BY region"


@pytest.fixture(scope="module")
def spark(s3_server: S3Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A session whose workers know the store: they have its variables."""
    assert s3_server.environ
    folder = tmp_path_factory.mktemp("spark")
    session = Session("local[2]", {"spark.sql.shuffle.partitions": "2"}, folder / "scratch", folder / "log")
    yield session.spark
    session.close(hurry=True)


class Killed(Exception):
    """Stands for the death of the process."""


class Lake:
    """One lake, and what its source has."""

    def __init__(self, uri: str, scratch: Path, spark: Any, method: str, table_format: str, seed: int) -> None:
        self.uri, self.scratch, self.method, self.format = uri, scratch, method, table_format
        self.random, self.spark, self.number, self.version = random.Random(seed), spark, 0, 1
        self.properties, self.views, self.checked = dict(PROPERTIES), {"by_region": ALL, "by_day": BY_DAY}, 1

    def rows(self, count: int) -> list[dict[str, Any]]:
        """New rows, and of an upsert changed and deleted ones."""
        messages = []
        for _ in range(count):
            if self.method == "upsert" and self.number and self.random.random() < 0.5:
                number = self.random.randrange(self.number)
                more = {"_sdc_deleted_at": "2025-01-01T00:00:00Z"} if self.random.random() < 0.2 else {}
            else:
                number, more = self.number, {}
                self.number += 1
            amount = self.random.choice([None, self.random.randrange(-9, 99)])
            row = order(number, amount, version=self.version, region=self.random.choice(["a", "b", None]), **more)
            messages.append(row)
        return messages

    def run(self, *messages: dict[str, Any], full: bool = False, dies: str = "") -> None:
        """Run on these messages, or to the death at `dies`; then compare all views at all new commits."""
        schema = {"type": "SCHEMA", "stream": "orders", "schema": {"properties": self.properties}}
        lines = [json.dumps(schema | {"key_properties": ["id"]}), *map(json.dumps, messages)]
        run = Run(lambda _: lines, self.method, full=full, views=self.views, table_format=self.format, spark=self.spark)
        run.hard_delete = True if self.method == "upsert" else None
        run.file_size = 3000 if self.method == "append-only" else None  # a view of several files, each a range of keys
        with pytest.MonkeyPatch.context() as patch:
            if dies:
                patch.setattr(Committer, dies, _die)
            with suppress(Killed):
                run.execute(self.uri, self.scratch)
        if not dies:
            self.check()

    def check(self) -> None:
        """Compare the views at each commit since the last call."""
        check_commits(self.uri, PIPELINE, self.checked)
        self.checked = max(self.head, 1)

    @property
    def head(self) -> int:
        return bridge.Lake(self.uri).commit(PIPELINE)

    def state(self) -> dict[str, Any]:
        return {"type": "STATE", "value": {"bookmarks": {"orders": {"at": self.random.random()}}}}


def _die(*_: Any, **__: Any) -> None:
    raise Killed


def _step(lake: Lake, step: str) -> None:
    if step == "rows":
        lake.run(*lake.rows(40), lake.state(), *lake.rows(20), lake.state())
    elif step == "full":
        lake.version += 1
        lake.number = 0
        lake.run(*lake.rows(30), lake.state(), full=True)
    elif step == "version":
        lake.version += 1
        activate = {"type": "ACTIVATE_VERSION", "stream": "orders", "version": lake.version}
        lake.run(*lake.rows(30), activate, lake.state())
    elif step == "type":
        lake.properties["amount"] = {"type": ["null", "number"], "multipleOf": 0.01}
        lake.run(*lake.rows(20), lake.state())
    elif step == "view":
        lake.views["by_region"] = OTHER if lake.views["by_region"] == ALL else ALL
        lake.run(*lake.rows(20), lake.state())
    elif step == "drop":
        kept = lake.views.pop("by_day")
        lake.run(*lake.rows(20), lake.state())
        assert "by_day" not in views_at(lake.uri, PIPELINE, lake.head)
        lake.views["by_day"] = kept
        lake.run(*lake.rows(20), lake.state())
    elif step == "nothing":
        lake.run()
    else:
        _verb(lake, step)


def _verb(lake: Lake, step: str) -> None:
    storage = open_storage(lake.uri)
    if step == "compact":
        pipeline = Run(lambda _: [], lake.method, views=lake.views, table_format=lake.format)._settings(storage)
        compact(storage, pipeline, Wish(file_size=1 << 20))
        lake.check()
    elif step == "rollback":
        with suppress(BridgeError):  # to a commit that was taken back
            roll_back(storage, PIPELINE, max(1, lake.head - lake.random.randrange(1, 4)))
        lake.check()
    elif step in ("publish", "write_state"):
        lake.run(*lake.rows(20), lake.state(), dies=step)
        lake.run(*lake.rows(20), lake.state())
    elif step == "lost":
        lake.run(*lake.rows(20), lake.state(), dies="publish")
        for pending in list(storage.pending(f".bridge/{PIPELINE}/pending"))[-1:]:
            storage.abort(pending)
        with open_pipeline(storage, PIPELINE):
            pass
        lake.run(*lake.rows(20), lake.state())
    else:
        raise TapError(step, hint="")


STEPS = ["rows", "rows", "full", "type", "view", "drop", "nothing", "compact", "rollback", "publish", "write_state"]
STEPS += ["lost", "version"]


@pytest.mark.parametrize("method", ["append-only", "upsert", "overwrite"])
@pytest.mark.parametrize("table_format", FORMATS)
@pytest.mark.parametrize("seed", [1])
def test_views_follow_their_streams(tmp_path: Path, spark: Any, method: str, table_format: str, seed: int) -> None:
    """In a folder."""
    lake = Lake(str(tmp_path / "lake"), tmp_path / "spool", spark, method, table_format, seed)
    _history(lake)


@pytest.mark.parametrize("method", ["append-only", "upsert", "overwrite"])
@pytest.mark.parametrize("table_format", FORMATS)
def test_views_follow_their_streams_in_a_bucket(
    s3: S3Server, tmp_path: Path, spark: Any, method: str, table_format: str
) -> None:
    """In a store, where files that are replaced are uploads."""
    uri = f"s3://{s3.bucket(f'views-{table_format}-{method}')}/team"
    if table_format == "iceberg":
        note_catalog(open_storage(uri), PIPELINE, tmp_path)
    _history(Lake(uri, tmp_path / "spool", spark, method, table_format, 2))


def _history(lake: Lake) -> None:
    steps = ["rows", *lake.random.sample(STEPS, len(STEPS)), "rows"]
    for step in steps:
        print(lake.uri, lake.method, lake.format, step, flush=True)
        _step(lake, step)
    assert views_at(lake.uri, PIPELINE, lake.head) == lake.views
