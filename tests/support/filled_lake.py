"""A project whose every page has something on it: long names and messages, rejects, drift, a view, failures."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from pathlib import Path

import pyarrow as pa

from bridge.lake.commit.open import open_pipeline
from bridge.lake.log import Log
from bridge.lake.runs import log_key, new_run_id
from bridge.lake.storage.local.storage import LocalStorage
from tests.support.busy_lake import commit_rows, record_run, write_settings
from tests.support.tables import INTEGER, STRING, WIDE, WIDER, Shop
from tests.support.view_tables import Views

LONG = "customer_addresses_with_history_and_every_change_since_the_beginning"
READ_BY_FAILED = 5000, 3000
"""Records that the last run of `failing` read and committed."""
MARK = "2026-11-01T12:34:56.789012+00:00"
"""The bookmark of the stream `events` of `regions`."""
_SERVICE = "service: {port: 0%s}\n"
_ERROR = {
    "type": "TapError",
    "message": "the tap ended with exit code 1: psycopg2.OperationalError: could not connect to server: Connection "
    "timed out. Is the server running on host 'warehouse-replica-7.internal.example.com' (10.20.30.40)?",
    "hint": "look at the log: singer-bridge runs log 20260501T060000Z-abcd --pipeline failing",
}


def filled_project(root: Path, more: str = "") -> dict[str, str]:
    """Write bridge.yaml and a lake; return its pages by name. `more`: further keys of the section `service`."""
    names = ["shop", "quiet", "failing", "regions", "a_pipeline_with_a_name_that_is_much_longer_than_most"]
    write_settings(root, names, shop=', schedule: {cron: "0 5 1 1 *"}')
    with (root / "bridge.yaml").open("a") as file:
        file.write(_SERVICE % more)
    lake, now = LocalStorage(root / "lake"), datetime.now(timezone.utc).replace(microsecond=0)
    shop = Shop(root)
    shop.run = run = new_run_id()
    for step in range(4):
        rows = [{"id": step * 50 + n, "name": f"Name {n}", "note": "text " * (n % 30)} for n in range(50)]
        shop.load("orders", {"id": {"type": "integer"}, "name": STRING, "note": STRING}, rows, keys=("id",))
    record = {"n": 1, "at": "2024-01-01T00:00:00Z", "place": {"x": 1, "y z": "q"}, "lines": [{"sku": "s"}] * 9}
    shop.load(LONG, WIDE, [record | {"n": n} for n in range(30)])
    shop.load(LONG, WIDER, [{"n": 10**25, "place": {"x": 2, "y z": "r", "new": "N"}}])
    wider = {"id": {"type": "integer"}, "name": STRING, "note": STRING, "discount": INTEGER}
    bad = [{"id": f"no number, but a text that is rather long: {n}" + "x" * 80} for n in range(30)]
    shop.load("orders", wider, [{"id": 999, "discount": 5}, *bad], keys=("id",), max_rejects=50)
    views = Views(root)
    views.n = Log(lake, "shop").latest()
    views.put(pa.table({"id": pa.array([1, 2], pa.int64()), "n": pa.array([10, 20], pa.int64())}))
    streams = {
        "orders": {
            "read": 231,
            "records": 201,
            "rejected": 30,
            "files": 5,
            "bytes": 123456,
            "load_method": "append-only",
        },
        LONG: {"read": 31, "records": 31, "files": 2, "bytes": 99, "load_method": "append-only"},
    }
    record_run(
        lake, "shop", now - timedelta(minutes=3), "success", run=run, commits=7, commit=7, streams=streams, took=95.0,
        warnings=["orders: 30 records were rejected; `singer-bridge rejects shop` shows them"], tap="tap-postgres",
    )  # fmt: skip
    for hour in range(40):
        began = now - timedelta(hours=41 - hour)
        status = "failed" if hour in (7, 23) else "success"
        record_run(
            lake, "failing", began, status, rows=0 if status == "failed" else 100 + hour * hour, took=20.0 + hour
        )
    failed = record_run(
        lake, "failing", now - timedelta(minutes=30), "failed", rows=READ_BY_FAILED[1], read=READ_BY_FAILED[0],
        error=_ERROR, tap="tap-postgres",
    )  # fmt: skip
    lines = [f"INFO 2026-05-01 06:00:{n % 60:02} sync of orders: page {n}, {'row ' * (n % 40)}\n" for n in range(400)]
    lake.write(log_key("failing", failed), "".join(lines).encode())
    _partitions(lake)
    record_run(lake, "meltano-load", now - timedelta(days=2), "success", rows=77)
    shop_path = "pipelines/shop"
    return {
        "overview": "",
        "runs": "runs",
        "pipeline": shop_path,
        "failing": "pipelines/failing",
        "run": f"{shop_path}/runs/{run}",
        "failed run": f"pipelines/failing/runs/{failed}",
        "plan": "pipelines/failing/run",
        "refused plan": f"{shop_path}/run?stream=orders",
        "commits": f"{shop_path}/commits",
        "commit": f"{shop_path}/commits/6",
        "table": f"{shop_path}/table?stream={LONG}",
        "orders": f"{shop_path}/table?stream=orders",
        "view": f"{shop_path}/table?stream=counts",
        "bookmarks": "pipelines/failing/bookmarks",
        "rejects": f"{shop_path}/rejects",
        "replay": f"{shop_path}/rejects/replay",
        "reset": "pipelines/failing/reset",
        "rollback": f"{shop_path}/rollback?to=2",
        "settings": f"{shop_path}/settings?all=1",
        "partitions": "pipelines/regions",
        "bookmarks of partitions": "pipelines/regions/bookmarks",
        "empty": "pipelines/quiet",
        "search": "?q=ord",
        "nothing": "nothing",
    }


def _partitions(lake: LocalStorage) -> None:
    """A pipeline whose bookmarks are long: by region, and with what a tap notes beside the position."""
    regions = [
        {
            "context": {"region": f"region {n}"},
            "replication_key": "updated_at",
            "replication_key_value": f"2026-10-{n % 28 + 1:02}T00:00:00Z",
        }
        for n in range(40)
    ]
    by_key = {"last_replication_method": "INCREMENTAL", "replication_key": "updated_at", "version": 1730000000000}
    marks = {"orders_by_region": {"partitions": regions}, "events": by_key | {"replication_key_value": MARK}}
    with open_pipeline(lake, "regions", new_run_id()) as committer:
        for stream in marks:
            commit_rows(lake, committer, {"bookmarks": marks}, 1000, stream)
