"""Views over random histories of commits: at each commit a view is what its SELECT gives over the stream's table.

The real dispatcher, ledger and commit protocol, and one Spark session for all of them; see `tests/crash/driver.py`.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta
from decimal import Decimal
from itertools import cycle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import bridge
import bridge.load.spark.views
from bridge.errors import BridgeError, DataError, SettingsError, TapError
from bridge.lake.commit.committer import Committer
from bridge.lake.commit.open import open_pipeline
from bridge.lake.commit.rollback import roll_back
from bridge.lake.log import Log
from bridge.lake.storage import open_storage
from bridge.load.maintain.compact import CompactOptions, compact
from bridge.load.maintain.rejects.replay import replay
from bridge.load.maintain.rejects.survey import Criteria
from bridge.load.run.tables.adopt import adopt
from bridge.load.run.tables.views import ViewTables
from bridge.load.spark.at_need import SparkAtNeed
from bridge.settings.destination import StreamKeys
from bridge.settings.options import Pipeline
from bridge.settings.values.guarding import Guard
from tests.crash.driver import PIPELINE, Run
from tests.e2e.test_views import ALL, BY_DAY, FORMATS, PROPERTIES, SESSIONS, order
from tests.support.s3server import S3Server
from tests.support.view_formats import note_catalog
from tests.support.view_oracle import check_commits, views_at

pytestmark = pytest.mark.timeout(1500)
SLIDING = (
    "SELECT window(seen_at, '3 days', '1 day').start AS w, region, count(*) AS n, sum(amount) AS total, "
    "max(amount) AS most FROM orders WHERE id > 2 GROUP BY 1, region"
)
DAYS = (
    "SELECT region, count(*) AS days, sum(total) AS total, max(total) AS most, max_by(day, total) AS best "
    "FROM by_day WHERE total > -100 GROUP BY region"
)
SCOPE = (
    "SELECT 'all' AS scope, sum(days) AS days, min(total) AS least, count(DISTINCT best) AS bests, "
    "median(days) AS middle FROM days GROUP BY 1"
)
CLOSING = (
    "SELECT window(seen_at, '1 day').start AS w, region, count(*) AS n, sum(amount) AS total, max(amount) AS most "
    "FROM orders GROUP BY 1, region\n-- singer-bridge: keep: 9d, lateness: 6h"
)
KEPT = (
    "SELECT region, window(seen_at, '1 day').start AS w, count(DISTINCT amount) AS n FROM orders GROUP BY 1, 2\n"
    "-- singer-bridge: keep: 4d"
)
CHAIN = {"by_region": ALL, "by_day": BY_DAY, "sliding": SLIDING, "days": DAYS, "a_scope": SCOPE}
CHAIN |= {"closing": CLOSING, "kept": KEPT, "sessions": SESSIONS}
FEW_VIEWS = {
    "append-only": ("sessions", "by_day", "days", "a_scope"),
    "upsert": ("by_region", "sessions", "sliding"),
    "overwrite": ("by_region", "sessions", "closing", "kept"),
}
"""Of `CHAIN`, what `make test` keeps of each method: each kind of view once. All of them cost five times as long."""
OTHER = "SELECT region AS place, max(amount) AS most, max_by(id, seen_at) AS last FROM orders GROUP BY region"


TIMES = (
    *("2025-01-02T00:10:00Z", "2025-01-02T02:10:00+02:00", "2025-01-01T18:40:00-05:30"),
    *("2025-01-02T23:50:00-08:00", "2025-01-03T13:20:00+05:30"),
)
"""Two instants, each with several offsets: rows tie for the first and the last place, and days are those of UTC."""


class Killed(Exception):
    """Stands for the death of the process."""


PARTITIONED = {"*": StreamKeys(partition_by=["region"])}
DEATHS = {"build": ViewTables, "create": Committer, "publish": Committer, "write_state": Committer}
"""Where a run dies: before its first change of a view, before its commit, and in two steps behind it."""


class Lake:
    """One lake, and what its source has."""

    hard_delete: bool | None = True
    """Of an upsert."""

    def __init__(self, uri: str, scratch: Path, spark: Any, method: str, table_format: str, seed: int) -> None:
        self.uri, self.scratch, self.method, self.format = uri, scratch, method, table_format
        self.random, self.spark, self.number, self.version = random.Random(seed), spark, 0, 1
        self.properties, self.views, self.checked = dict(PROPERTIES), dict(CHAIN), 1
        self.streams: dict[str, StreamKeys] = {}
        self.time = random.Random(seed)
        self.few = cycle([1 << 18, 0])
        """How many rows are few: by turns a run changes views in each of the two ways."""

    def rows(self, count: int) -> list[dict[str, Any]]:
        """New rows, and of an upsert changed and deleted ones."""
        messages = []
        for _ in range(count):
            if self.method == "upsert" and self.number and self.random.random() < 0.5:
                number = self.random.randrange(self.number)
                more = {"_sdc_deleted_at": "2025-01-01T00:00:00Z"} if self.random.random() < 0.2 else {}
            else:
                number, more = self.number, dict[str, str]()
                self.number += 1
            amount = self.random.choice([None, self.random.randrange(-9, 99)])
            more |= {"seen_at": self.random.choice(TIMES)} if self.random.random() < 0.5 else {}
            if "seen_at" not in more and self.time.random() < 0.4:  # later and later, so that windows close
                day, hour = divmod(self.number * 5 + self.time.randrange(48), 24)
                more["seen_at"] = (datetime(2025, 1, 2) + timedelta(days=day, hours=hour)).isoformat() + "Z"
            row = order(number, amount, version=self.version, region=self.random.choice(["a", "A", "b", None]), **more)
            messages.append(row)
        return messages

    def run(
        self, *messages: dict[str, Any] | TapError, full: bool = False, dies: str = "", guard: Guard | None = None
    ) -> None:
        """Run on these messages, or to the death at `dies`; then compare all views at all new commits."""
        schema = {"type": "SCHEMA", "stream": "orders", "schema": {"properties": self.properties}}
        said = [schema | {"key_properties": ["id"]}, *messages]
        lines = [line if isinstance(line, TapError) else json.dumps(line) for line in said]
        run = Run(lambda _: lines, self.method, full=full, views=self.views, table_format=self.format, spark=self.spark)
        run.hard_delete = self.hard_delete if self.method == "upsert" else None
        run.file_size = 3000 if self.method == "append-only" else None  # a view of several files, each a range of keys
        run.streams, run.lag, run.guard = self.streams, self.random.choice([0, 2]), guard or run.guard
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(bridge.load.spark.views, "_FEW", next(self.few))
            if dies:
                patch.setattr(DEATHS[dies], dies, _die)
            with suppress(Killed, TapError):
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

    @property
    def pipeline(self) -> Pipeline:
        """The settings, for verbs."""
        run = Run(lambda _: [], self.method, views=self.views, table_format=self.format)
        run.streams = self.streams
        return run._settings(open_storage(self.uri))

    def count(self) -> int:
        """The stream's rows."""
        return int(bridge.Lake(self.uri).table(PIPELINE, "orders").count_rows())

    def activate(self) -> dict[str, Any]:
        return {"type": "ACTIVATE_VERSION", "stream": "orders", "version": self.version}

    def state(self) -> dict[str, Any]:
        return {"type": "STATE", "value": {"bookmarks": {"orders": {"at": self.random.random()}}}}


def _die(*_: Any, **__: Any) -> None:
    raise Killed


def _rows(lake: Lake) -> None:
    lake.run(*lake.rows(40), lake.state(), *lake.rows(20), lake.state())


def _full(lake: Lake) -> None:
    lake.version += 1
    lake.number = 0
    lake.run(*lake.rows(30), lake.state(), full=True)


def _empty(lake: Lake) -> None:
    """The source has no rows any more."""
    lake.version += 1
    lake.number = 0
    lake.run(lake.activate(), lake.state(), full=True)
    assert lake.count() == 0
    assert all(bridge.Lake(lake.uri).table(PIPELINE, view).count_rows() == 0 for view in lake.views)
    _rows(lake)


def _version(lake: Lake) -> None:
    """Rows of older versions go."""
    lake.version += 1
    lake.run(*lake.rows(30), lake.activate(), lake.state())


def _held(lake: Lake) -> None:
    """Rows behind which the bookmark has not moved; then the tap fails."""
    state = lake.state()
    lake.run(*lake.rows(10), state, *lake.rows(10), state, TapError("the tap failed", hint=""))
    _rows(lake)


def _staged(lake: Lake) -> None:
    """The tap fails within a new version of the table; the next run goes on there."""
    lake.version += 1
    lake.run(*lake.rows(20), lake.state(), *lake.rows(10), lake.state(), TapError("the tap failed", hint=""))
    lake.run(*lake.rows(20), lake.activate(), lake.state())


def _refused(lake: Lake) -> None:
    """The guard keeps the table, and so its views."""
    _rows(lake)
    before = lake.count()
    lake.version += 1
    with pytest.raises(DataError, match="the table keeps its"):
        lake.run(*lake.rows(1), lake.state(), full=True, guard=Guard(shrink=0.1))
    lake.version -= 1
    lake.check()
    assert lake.count() == before


def _column(lake: Lake) -> None:
    """One more column, which no view reads."""
    lake.properties[f"more_{len(lake.properties)}"] = {"type": ["null", "string"]}
    _rows(lake)


def _type(lake: Lake) -> None:
    """A column that views read is wider from now on."""
    lake.properties["amount"] = {"type": ["null", "number"], "multipleOf": 0.01}
    lake.run(*lake.rows(20), lake.state())


def _view(lake: Lake) -> None:
    """Another SELECT."""
    lake.views["by_region"] = OTHER if lake.views["by_region"] == ALL else ALL
    lake.run(*lake.rows(20), lake.state())


def _drop(lake: Lake) -> None:
    """Two views leave the settings, and come back."""
    kept = {name: lake.views.pop(name) for name in ("by_day", "closing") if name in lake.views}
    lake.run(*lake.rows(20), lake.state())
    assert not kept.keys() & views_at(lake.uri, PIPELINE, lake.head).keys()
    lake.views |= kept
    lake.run(*lake.rows(20), lake.state())


def _rename(lake: Lake) -> None:
    """A view has another name, and then its old one again."""
    for old, new in (("by_day", "daily"), ("daily", "by_day")):
        lake.views[new] = lake.views.pop(old)
        lake.run(*lake.rows(10), lake.state())
        assert views_at(lake.uri, PIPELINE, lake.head) == lake.views


def _nothing(lake: Lake) -> None:
    lake.run()


def _death(at: str) -> Callable[[Lake], None]:
    def step(lake: Lake) -> None:
        lake.run(*lake.rows(20), lake.state(), dies=at)
        lake.run(*lake.rows(20), lake.state())

    return step


def _lost(lake: Lake) -> None:
    """A commit is taken back."""
    lake.run(*lake.rows(20), lake.state(), dies="publish")
    storage = open_storage(lake.uri)
    for pending in list(storage.pending(f".bridge/{PIPELINE}/pending"))[-1:]:
        storage.abort(pending)
    with open_pipeline(storage, PIPELINE):
        pass
    lake.run(*lake.rows(20), lake.state())


def _rollback(lake: Lake) -> None:
    with suppress(BridgeError):  # to a commit that was taken back
        roll_back(open_storage(lake.uri), PIPELINE, max(1, lake.head - lake.random.randrange(1, 4)))
    lake.check()


def _compact(lake: Lake) -> None:
    compact(open_storage(lake.uri), lake.pipeline, CompactOptions(file_size=1 << 20))
    lake.check()


def _replay(lake: Lake) -> None:
    """Records that did not fit a column do so when it is wider."""
    name = f"note_{len(lake.properties)}"
    lake.properties[name] = {"type": ["null", "integer"]}
    rows = lake.rows(20)
    for row in rows[::2]:
        row["record"][name] = "x"
    lake.run(*rows, lake.state())
    lake.properties[name] = {"type": ["null", "string"]}
    lake.run(*lake.rows(10), lake.state())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SparkAtNeed, "in_spark", lambda self, work: work(lake.spark, self._context, None))  # our session
        replayed = replay(open_storage(lake.uri), lake.pipeline, Criteria())
    assert lake.method != "append-only" or replayed.fit
    lake.check()


def _adopt(lake: Lake) -> None:
    """A file that somebody else wrote becomes part of the table, where that is possible."""
    if lake.method == "upsert" or lake.format != "parquet" or lake.streams:
        return
    storage, rows = open_storage(lake.uri), pa.BufferOutputStream()
    with open_pipeline(storage, PIPELINE) as committer:
        table = committer.snapshot.tables["orders"]
        pq.write_table(bridge.Lake(lake.uri).table(PIPELINE, "orders").head(5), rows)
        storage.write(f"{table.folder}/others-{lake.head}.parquet", rows.getvalue().to_pybytes())
        before = lake.count()
        adopt(committer, lake.pipeline)
    assert lake.count() > before or not before
    assert not views_at(lake.uri, PIPELINE, lake.head)
    lake.run(*lake.rows(10), lake.state())
    assert views_at(lake.uri, PIPELINE, lake.head) == lake.views


STEPS = {step.__name__[1:]: step for step in (_rows, _full, _empty, _version, _held, _staged, _refused, _column, _type)}
STEPS |= {step.__name__[1:]: step for step in (_view, _drop, _rename, _nothing, _lost, _rollback, _compact, _replay)}
STEPS |= {"adopt": _adopt} | {at: _death(at) for at in DEATHS}


@pytest.mark.parametrize(
    ("method", "seed", "steps"), [("append-only", 5063, 10), ("upsert", 830, 9), ("overwrite", 40, 10)]
)
def test_a_history_of_each_method(tmp_path: Path, spark: Any, method: str, seed: int, steps: int) -> None:
    """Each step with one of the methods, each kind of view with one. The upsert's rows move between partitions, too."""
    lake = Lake(str(tmp_path / "lake"), tmp_path / "spool", spark, method, "parquet", seed)
    lake.streams = PARTITIONED if method == "upsert" else {}
    lake.views = {name: CHAIN[name] for name in FEW_VIEWS[method]}
    _history(lake, steps)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["append-only", "upsert", "overwrite"])
@pytest.mark.parametrize("table_format", FORMATS)
@pytest.mark.parametrize("seed", [2, 3])
def test_views_follow_their_streams(tmp_path: Path, spark: Any, method: str, table_format: str, seed: int) -> None:
    """In a folder, with partitions and without."""
    lake = Lake(str(tmp_path / "lake"), tmp_path / "spool", spark, method, table_format, seed)
    lake.streams = PARTITIONED if seed == 3 else {}
    _history(lake)


@pytest.mark.slow
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


def _history(lake: Lake, steps: int = len(STEPS)) -> None:
    for step in ("rows", *lake.random.sample([*STEPS], steps), "rows"):
        print(lake.uri, lake.method, lake.format, step, flush=True)
        STEPS[step](lake)
    assert views_at(lake.uri, PIPELINE, lake.head) == lake.views


def _lake(tmp_path: Path, spark: Any, method: str, **views: str) -> Lake:
    lake = Lake(str(tmp_path / "lake"), tmp_path / "spool", spark, method, "parquet", 1)
    lake.views = views
    return lake


def test_a_base_that_loses_a_column(tmp_path: Path, spark: Any) -> None:
    """The view of it is refused, and nothing is committed, whether rows come or none."""
    base = "SELECT region, count(*) AS n, max(amount) AS most FROM orders GROUP BY region"
    lake = _lake(tmp_path, spark, "upsert", base=base, a_top="SELECT n, max(most) AS most FROM base GROUP BY n")
    _rows(lake)
    head = lake.head
    lake.views["base"] = base.replace(", max(amount) AS most", "")
    for rows in ([], [*lake.rows(3), lake.state()]):
        with pytest.raises(SettingsError, match="needs a column that the stream does not have"):
            lake.run(*rows)
        lake.check()
        assert lake.head <= head + 2  # fences
    lake.streams = {"*": StreamKeys(on_error="hold")}
    lake.views["base"] = base.replace("max(amount) AS most", "avg(amount) AS most")
    lake.views["a_top"] = "SELECT n, sum(most) AS most FROM base GROUP BY n"
    for _ in range(2):
        with suppress(BridgeError):
            lake.run()
        lake.check()
        assert views_at(lake.uri, PIPELINE, lake.head)["base"] == base
    lake.views["a_top"] = "SELECT n, max(most) AS most FROM base GROUP BY n"
    lake.run(*lake.rows(3), lake.state())
    assert views_at(lake.uri, PIPELINE, lake.head) == lake.views


@pytest.mark.parametrize("change", ["rewrite", "variant"])
def test_a_column_widens(tmp_path: Path, spark: Any, change: Any) -> None:
    """An integer becomes a decimal, then text, as a key and as a value; or other values go to a column of their own."""
    key = "SELECT amount, count(*) AS n, max(region) AS last FROM orders GROUP BY amount"
    value = "SELECT region, count(amount) AS n, min(amount) AS least, max(amount) AS most FROM orders GROUP BY region"
    lake = _lake(tmp_path, spark, "upsert", key=key, value=value)
    lake.streams = {"*": StreamKeys(on_type_change=change)}
    _rows(lake)
    for type_, text in (
        ({"type": ["null", "number"], "multipleOf": 0.01}, False),
        ({"type": ["null", "string"]}, True),
    ):
        lake.properties["amount"] = type_
        rows = lake.rows(30)
        for number, row in enumerate(rows):
            row["record"]["amount"] = f"n{number}" if text else number + 0.25
        lake.run(*rows, lake.state())
    types = {str(bridge.Lake(lake.uri).table(PIPELINE, "key").schema.field("amount").type)}
    assert types == ({"string"} if change == "rewrite" else {"int64"})


def test_a_column_of_another_type_that_a_view_does_not_take(tmp_path: Path, spark: Any) -> None:
    """Nothing is committed until the view's SELECT fits; then it is filled from all rows."""
    total = "SELECT region, sum(amount) AS total FROM orders GROUP BY region"
    lake = _lake(tmp_path, spark, "append-only", total=total)
    _rows(lake)
    lake.properties["amount"] = {"type": ["null", "string"]}
    rows, before = [order(1, None) | {"record": order(1, None)["record"] | {"amount": "7"}}, lake.state()], lake.count()
    with pytest.raises(SettingsError, match="sum takes numbers"):
        lake.run(*rows)
    lake.check()
    assert lake.count() == before
    lake.views["total"] = total.replace("amount)", "CAST(amount AS DECIMAL(20, 2)))")
    lake.run(*rows)
    assert lake.count() == before + 1


def test_a_sum_of_more_than_38_digits(tmp_path: Path, spark: Any) -> None:
    """Nothing is committed. A value that goes makes room for another one, in the same commit."""
    amount = "CAST(amount || repeat('9', 37) AS DECIMAL(38, 0))"
    lake = _lake(tmp_path, spark, "upsert", total=f"SELECT region, sum({amount}) AS total FROM orders GROUP BY region")
    lake.run(order(1, 9, region="a"), lake.state())
    with pytest.raises(DataError) as raised:
        lake.run(order(2, 9, region="a"), lake.state())
    assert "the sum in total has more than 38 digits" in raised.value.hint
    lake.check()
    assert lake.count() == 1
    lake.run(order(1, None, region="a", _sdc_deleted_at="2025-01-01T00:00:00Z"), order(2, 9, region="a"), lake.state())
    row = bridge.Lake(lake.uri).view(PIPELINE, "total").get(region="a")
    assert row and row.row == {"region": "a", "total": Decimal("9" * 38)}


def test_keys_that_are_nearly_the_same(tmp_path: Path, spark: Any) -> None:
    """They differ in case, in a blank, in how an accent is written; -0.0 is 0.0; NULL is a key."""
    text = "SELECT region, CAST(score AS DECIMAL(9, 1)) AS step, count(*) AS n, min(score) AS least, max(score) AS most"
    lake = _lake(tmp_path, spark, "upsert", odd=f"{text} FROM orders GROUP BY region, 2")
    lake.properties["score"] = {"type": ["null", "number"]}
    regions, scores = [None, "", "a", "A", "a ", "\u00e9", "e\u0301"], [None, 0.0, -0.0, -1.5]
    pairs = [(region, score) for region in regions for score in scores]
    lake.run(*(order(n, n, region=r, score=s) for n, (r, s) in enumerate(pairs)), lake.state())
    view = bridge.Lake(lake.uri).view(PIPELINE, "odd")
    for region in regions:
        counts = [
            answer.row["n"] for step in (None, 0, Decimal("-1.5")) if (answer := view.get(region=region, step=step))
        ]
        assert counts == [1, 2, 1]
    moved = [order(n, n, region=regions[-1 - n % 7], score=-0.0) for n in range(0, len(pairs), 3)]
    lake.run(*moved, *(order(n, n, _sdc_deleted_at="2025-01-01T00:00:00Z") for n in (1, 2, 4, 5)), lake.state())


def test_another_time_zone(tmp_path: Path, spark: Any) -> None:
    """A day of a view is one of UTC, also where the settings have another time zone from some run on."""
    lake = _lake(tmp_path, spark, "append-only", by_day=BY_DAY)
    _rows(lake)
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        _rows(lake)
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")


def test_a_new_view_is_filled_before_the_tap_starts(tmp_path: Path, spark: Any) -> None:
    """By a commit of its own, with the STATE as it was: if the tap then fails, the view is there all the same."""
    lake = _lake(tmp_path, spark, "append-only")
    _rows(lake)
    rows, bookmarks, head = lake.count(), bridge.Lake(lake.uri).bookmarks(PIPELINE), lake.head
    lake.views = {"by_region": ALL}
    lake.run(*lake.rows(5), TapError("the tap failed", hint=""))
    assert (views_at(lake.uri, PIPELINE, head + 1), lake.count()) == (lake.views, rows)
    assert bridge.Lake(lake.uri).bookmarks(PIPELINE) == bookmarks
    lake.views["by_region"] = "SELECT region, sum(seen_at) AS total FROM orders GROUP BY region"
    with pytest.raises(SettingsError, match="sum takes numbers"):
        lake.run(TapError("the tap was started", hint=""))


def test_a_view_of_a_column_that_the_tap_brings(tmp_path: Path, spark: Any) -> None:
    """It is filled by the commit that brings the column."""
    lake = _lake(tmp_path, spark, "append-only")
    _rows(lake)
    lake.views = {"by_note": "SELECT note, count(*) AS n FROM orders GROUP BY note"}
    lake.properties["note"] = {"type": ["null", "string"]}
    lake.run(order(900, 1, note="new"), lake.state())
    assert views_at(lake.uri, PIPELINE, lake.head) == lake.views
    assert bridge.Lake(lake.uri).view(PIPELINE, "by_note").get(note="new")


def test_a_new_view_of_a_table_that_is_replaced(tmp_path: Path, spark: Any) -> None:
    """What does not fit the old table may fit the new one."""
    lake = _lake(tmp_path, spark, "overwrite")
    lake.properties["amount"] = {"type": ["null", "number"]}
    lake.run(order(1, 5), lake.state())
    lake.views = {"total": "SELECT region, sum(amount) AS total FROM orders GROUP BY region"}
    lake.properties["amount"] = {"type": ["null", "integer"]}
    lake.run(order(1, 7), lake.state())
    row = bridge.Lake(lake.uri).view(PIPELINE, "total").get(region="north")
    assert row and row.row["total"] == 7


def test_a_new_view_of_a_table_that_is_half_loaded(
    s3: S3Server, tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a bucket nobody can read uploads that an earlier run began: the view is filled once they are published."""
    lake = Lake(f"s3://{s3.bucket('half-loaded')}/team", tmp_path / "spool", spark, "overwrite", "parquet", 1)
    lake.views = {}
    lake.run(*lake.rows(10), lake.activate(), lake.state())
    lake.version += 1
    monkeypatch.setattr("bridge.lake.storage.s3.pending._SMALL", 0)  # as if the files were larger
    state = {"type": "STATE", "value": {"bookmarks": {"orders": {"version": lake.version, "id": 5}}}}
    lake.run(*lake.rows(20), state, TapError("the tap failed", hint=""))
    staged = Log(open_storage(lake.uri), PIPELINE).snapshot(lake.head).staged["orders"]
    assert staged.files and all(file.upload for file in staged.files)
    lake.views = {"by_region": ALL}
    lake.run(*lake.rows(5), lake.activate(), lake.state())
    assert lake.count() == 25
    assert views_at(lake.uri, PIPELINE, lake.head) == lake.views


def test_rows_that_are_only_marked_as_deleted(tmp_path: Path, spark: Any) -> None:
    """They count, unless the view leaves them out; a row that comes back counts again."""
    text = "SELECT region, count(*) AS n, sum(amount) AS total FROM orders {}GROUP BY region"
    live = text.format("WHERE _sdc_deleted_at IS NULL ")
    lake = _lake(tmp_path, spark, "upsert", every=text.format(""), live=live)
    lake.hard_delete = None
    lake.properties["_sdc_deleted_at"] = {"type": ["null", "string"], "format": "date-time"}
    lake.run(order(1, 10, region="a"), order(2, 20, region="a"), lake.state())
    deleted = order(2, 20, region="a", _sdc_deleted_at="2025-01-01T00:00:00Z")
    for message, expected in ((deleted, (2, 1)), (order(2, 5, region="a"), (2, 2))):
        lake.run(message, lake.state())
        views = (bridge.Lake(lake.uri).view(PIPELINE, name) for name in ("every", "live"))
        assert tuple(answer.row["n"] for view in views if (answer := view.get(region="a"))) == expected


def test_a_table_in_which_no_row_is_ever_marked(tmp_path: Path, spark: Any) -> None:
    """It has no such column: a view of it is refused before a row is stored, with what to do."""
    live = "SELECT region, count(*) AS n FROM orders WHERE _sdc_deleted_at IS NULL GROUP BY region"
    lake = _lake(tmp_path, spark, "append-only", live=live)
    with pytest.raises(SettingsError, match="needs a column that the stream does not have") as raised:
        lake.run(order(1, 1), lake.state())
    assert "leave the condition out" in raised.value.hint
    assert lake.head == 0
