"""Views through the command, on Spark: at each commit a view is what its SELECT gives over the stream's table."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import bridge
from tests.e2e.conftest import Project
from tests.support.s3server import S3Server
from tests.support.shell import Done
from tests.support.view_formats import catalog_in
from tests.support.view_oracle import check_commits, views_at

pytestmark = [pytest.mark.timeout(1500), pytest.mark.usefixtures("in_process")]
TAP = str(Path(sys.executable).with_name("tap-replay"))
FORMATS = ["parquet", *(pytest.param(form, marks=pytest.mark.slow) for form in ("delta", "iceberg"))]
"""Each test takes two minutes a format: `make test` does one of the others where the formats differ most."""

ALL = (
    "SELECT region, count(*) AS n, count(amount) AS amounts, sum(amount) AS total, avg(amount) AS mean, "
    "min(amount) AS least, max(amount) AS most, max(seen_at) AS latest, min_by(id, seen_at) AS first_id, "
    "count_if(amount > 50) AS large, bool_and(amount > 10) AS all_above, bool_or(amount > 90) AS any_above "
    "FROM orders GROUP BY region"
)
BY_DAY = (
    "SELECT date_trunc('day', seen_at) AS day, region, sum(amount) AS total FROM orders WHERE amount > 5 GROUP BY 1, 2"
)
SESSIONS = (
    "SELECT region, session_window(seen_at, '6 hours').start AS since, count(*) AS n, "
    "count(DISTINCT amount) AS amounts, median(id) AS middle, max_by(id, seen_at) AS last "
    "FROM orders WHERE id <> 5 GROUP BY region, since"
)
PROPERTIES: dict[str, Any] = {
    "id": {"type": "integer"},
    "region": {"type": ["null", "string"]},
    "amount": {"type": ["null", "integer"]},
    "seen_at": {"type": ["null", "string"], "format": "date-time"},
}


@dataclass
class Shop:
    """A project of one pipeline, `shop`, with the stream `orders`; its tap says what `play` was given last."""

    project: Project
    views: dict[str, str]
    destination: dict[str, Any] = field(default_factory=dict)
    properties: dict[str, Any] = field(default_factory=lambda: dict(PROPERTIES))
    settings: dict[str, Any] = field(default_factory=dict)
    at: int = 0

    @property
    def uri(self) -> str:
        return str(self.destination.get("bucket", self.project.lake))

    def write(self) -> None:
        pipeline = {
            "source": {"tap": TAP, "config": "config.json"},
            "destination": {"bucket": "lake", **self.destination},
            "commit": {"every": "1h", "rows": 100},
            "views": self.views,
            **self.settings,
        }
        (self.project.folder / "bridge.yaml").write_text(json.dumps({"pipelines": {"shop": pipeline}}))

    def say(self, *messages: dict[str, Any], **config: Any) -> None:
        """Have the tap say these messages next."""
        schema = {"type": "SCHEMA", "stream": "orders", "schema": {"properties": self.properties}}
        lines = [schema | {"key_properties": ["id"]}, *messages]
        (self.project.folder / "tap.singer").write_text("".join(json.dumps(line) + "\n" for line in lines))
        config = {"path": "tap.singer", "honour_state": False} | config
        (self.project.folder / "config.json").write_text(json.dumps(config))
        self.write()

    def play(self, *messages: dict[str, Any], code: int = 0, arguments: tuple[str, ...] = ()) -> dict[str, Any]:
        """Run the pipeline on these messages, and compare the views at all commits that this makes."""
        self.say(*messages)
        done = self.command("run", "shop", "--json", *arguments)
        assert done.code == code, done.err + done.out
        self.check()
        assert not set(self.views) & set(done.json["streams"])
        return dict(done.json)

    def command(self, *arguments: str) -> Done:
        return self.project.command(*arguments, timeout=300)

    def check(self) -> None:
        """Compare the views at all commits since the last call; once more at the one before."""
        check_commits(self.uri, "shop", max(self.at, 1))
        self.at = self.head

    @property
    def head(self) -> int:
        return bridge.Lake(self.uri).commit("shop")


def order(number: int, amount: int | None, *, version: int | None = None, **more: Any) -> dict[str, Any]:
    row = {
        "id": number,
        "region": [None, "north", "south", "östlich"][number % 4],
        "amount": amount,
        # no two are equal: of several first ones DuckDB's `min_by` takes any
        "seen_at": f"2025-01-{number % 27 + 1:02d}T00:{number // 60 % 60:02d}:{number % 60:02d}Z",
    }
    message = {"type": "RECORD", "stream": "orders", "record": row | more}
    return message if version is None else message | {"version": version}


def state(number: int) -> dict[str, Any]:
    return {"type": "STATE", "value": {"bookmarks": {"orders": {"at": number}}}}


@pytest.mark.parametrize("table_format", FORMATS)
def test_rows_are_appended(project: Project, table_format: str) -> None:
    """Several commits in one run, and a second run; views are no streams."""
    shop = Shop(project, {"by_region": ALL, "by_day": BY_DAY}, {"load_method": "append-only", "format": table_format})
    rows = [order(n, n % 100 if n % 7 else None) for n in range(500)]
    shop.play(*(each for n in range(0, 500, 100) for each in (*rows[n : n + 100], state(n))))
    assert views_at(shop.uri, "shop", shop.head) == shop.views
    shop.play(*(order(n, n) for n in range(500, 540)), state(600))
    assert [row["stream"] for row in json.loads(shop.command("state", "list", "shop", "--json").out)] == ["orders"]
    assert not shop.command("verify", "shop").code


@pytest.mark.parametrize("table_format", ["parquet", "delta", FORMATS[2]])
def test_rows_are_updated_and_deleted(project: Project, table_format: str) -> None:
    """Retracted extremes, groups that go, keys that move, a version that removes rows, other columns, `--full`."""
    destination = {"load_method": "upsert", "hard_delete": True, "format": table_format, "file_size": "1MiB"}
    shop = Shop(project, {"by_region": ALL, "sessions": SESSIONS.replace("6 hours", "25 hours")}, destination)
    rows = [order(n, n % 100 if n % 7 else None, version=1) for n in range(300)]
    shop.play(*(each for n in range(0, 300, 100) for each in (*rows[n : n + 100], state(n))))
    best = [order(n, 1, region="south", version=1) for n in range(90, 100)]
    moved = [order(n, 40, region="west", version=1) for n in range(0, 60, 3)]
    deleted = [order(n, None, _sdc_deleted_at="2025-01-01T00:00:00Z", version=1) for n in range(200, 240)]
    shop.play(*best, *moved, *deleted, state(400))
    shop.play(*(order(n, 60, region="north", version=1) for n in range(0, 60, 3)), state(500))  # west is empty again
    shop.properties |= {"amount": {"type": ["null", "number"], "multipleOf": 0.01}, "note": {"type": "string"}}
    shop.play(*(order(n, 7, note="new", version=1) for n in range(280, 320)), state(600))
    rows = [order(n, n % 90, version=2) for n in range(50, 150)]
    shop.play(*rows, {"type": "ACTIVATE_VERSION", "stream": "orders", "version": 2}, state(700))
    shop.play(*rows[:50], state(800), arguments=("--full",))
    assert not shop.command("verify", "shop").code


@pytest.mark.parametrize("table_format", FORMATS)
def test_tables_are_overwritten_and_views_change(project: Project, table_format: str) -> None:
    """Overwrites, an empty one, another SELECT, one more view, one that goes and comes back."""
    shop = Shop(project, {"by_region": ALL}, {"load_method": "overwrite", "format": table_format})
    shop.settings["guard"] = None
    shop.play(*(order(n, n) for n in range(50)), state(1))
    shop.play(*(order(n, n) for n in range(20, 40)), state(2))
    shop.views = {"by_region": ALL.replace("avg(amount)", "max(id)"), "by_day": BY_DAY}
    shop.play(*(order(n, n) for n in range(30, 60)), state(3))
    assert views_at(shop.uri, "shop", shop.head) == shop.views
    shop.views = {"by_day": BY_DAY}
    done = shop.play(*(order(n, n) for n in range(30, 70)), state(4))
    assert any("by_region" in warning for warning in done["warnings"])
    assert views_at(shop.uri, "shop", shop.head) == shop.views
    shop.views = {"by_day": BY_DAY, "by_region": ALL}
    shop.play(state(4))
    assert views_at(shop.uri, "shop", shop.head) == shop.views
    shop.play(state(5))
    assert not shop.command("verify", "shop").code


def test_one_thread_imports_pyspark(project: Project) -> None:
    """Where a view is filled before Spark is up, too: two threads that import it at once may both find half of it."""
    shop = Shop(project, {})
    shop.play(*(order(n, n) for n in range(50)), state(1))
    shop.views = {"by_region": ALL}
    shop.say(state(2))
    program = (
        "import sys, threading\n"
        "class Watch:\n"
        "    names = set()\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name in ('pyspark', 'pyspark.errors', 'pyspark.sql'):\n"
        "            self.names.add(threading.current_thread().name)\n"
        "sys.meta_path.insert(0, Watch())\n"
        "from bridge.cli import main\n"
        "try: main(['run', 'shop', '--no-progress'])\n"
        "except SystemExit as end: code = end.code\n"
        "print(code or 0, *Watch.names)\n"
    )
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=project.folder, capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.splitlines()[-1] == "0 spark-start", done.stdout + done.stderr
    shop.check()


@pytest.mark.parametrize("table_format", FORMATS)
def test_verbs_that_commit(project: Project, table_format: str) -> None:
    """A replay of rejects, rollback, compaction, and runs after each of them."""
    shop = Shop(project, {"by_region": ALL, "by_day": BY_DAY}, {"load_method": "append-only", "format": table_format})
    shop.properties["note"] = {"type": ["null", "integer"]}
    shop.play(*(order(n, n, note="x" if n > 40 else n) for n in range(50)), state(1))
    first = shop.head
    shop.properties["note"] = {"type": ["null", "string"]}
    shop.play(*(order(n, n, note="y") for n in range(50, 80)), state(2))
    before = bridge.Lake(shop.uri).table("shop", "orders").count_rows()
    replayed = shop.command("rejects", "replay", "shop", "--yes")
    assert not replayed.code, replayed.err
    shop.check()
    assert bridge.Lake(shop.uri).table("shop", "orders").count_rows() == before + 9
    shop.play(*(order(n, n) for n in range(80, 100)), state(3))
    compacted = shop.command("compact", "shop", "--yes")
    assert not compacted.code, compacted.err
    shop.check()
    shop.play(*(order(n, n) for n in range(100, 120)), state(4))
    rolled = shop.command("rollback", str(first), "shop", "--yes")
    assert not rolled.code, rolled.err
    shop.check()
    assert bridge.Lake(shop.uri).table("shop", "orders").count_rows() == 41
    shop.play(*(order(n, n) for n in range(200, 220)), state(5))
    assert not shop.command("verify", "shop").code


@pytest.mark.parametrize("table_format", [*FORMATS[:2], "iceberg"])
def test_views_in_a_bucket(s3: S3Server, tmp_path: Path, table_format: str) -> None:
    """Rows of an upsert replace objects by uploads, which a view reads before they are published; nothing is left."""
    bucket = s3.bucket(f"views-{table_format}")
    destination: dict[str, Any] = {"bucket": f"s3://{bucket}/team", "load_method": "upsert", "hard_delete": True}
    destination["format"] = table_format
    if table_format == "iceberg":
        destination["catalog"] = {"properties": catalog_in(tmp_path)}
    shop = Shop(Project(tmp_path, dict(os.environ)), {"by_region": ALL, "sessions": SESSIONS}, destination)
    shop.play(*(order(n, n % 100) for n in range(120)), state(1), *(order(n, n) for n in range(100, 300)), state(2))
    best = [order(n, 1, region="south") for n in range(80, 100)]
    shop.play(*best, *(order(n, None, _sdc_deleted_at="2025-01-01T00:00:00Z") for n in range(10)), state(3))
    shop.properties |= {"amount": {"type": ["null", "number"], "multipleOf": 0.01}}
    shop.play(*(order(n, 7) for n in range(280, 320)), state(4))
    assert not shop.command("verify", "shop").code
    pages = s3.client().list_objects_v2(Bucket=bucket, Prefix="team/.bridge/shop/pending")
    assert not pages.get("Contents")
    assert not s3.client().list_multipart_uploads(Bucket=bucket).get("Uploads")


@pytest.mark.parametrize("table_format", FORMATS)
def test_runs_are_killed(project: Project, table_format: str) -> None:
    """Whatever instant a run is killed at, the views of each commit are right, and the next run goes on from there."""
    shop = Shop(project, {"by_region": ALL}, {"load_method": "upsert", "format": table_format})
    rows = [order(n % 700, n % 97) for n in range(2000)]
    messages = [each for n in range(0, 2000, 100) for each in (*rows[n : n + 100], state(n))]
    for kill in range(3):
        shop.say(*messages, lines_per_second=300)
        command = [sys.executable, "-m", "bridge", "run", "shop"]
        with open(project.folder / "log", "a") as log:
            run = subprocess.Popen(command, cwd=project.folder, env=project.environ, stdout=log, stderr=log)
        commits, end = len(_commits(project)), time.monotonic() + 120
        while run.poll() is None and len(_commits(project)) <= commits and time.monotonic() < end:
            time.sleep(0.02)
        time.sleep(random.Random(kill).random() * 6)
        run.send_signal(signal.SIGKILL)
        run.wait()
    shop.play(*messages)
    assert not shop.command("verify", "shop").code


def _commits(project: Project) -> list[Path]:
    return list((project.lake / ".bridge/shop/commits").glob("*.json"))


def test_a_view_that_does_not_fit_holds_its_stream_back(project: Project) -> None:
    """Another stream is loaded; without `on_error: hold` the run fails, and nothing is committed."""
    views = {"sums": "SELECT region, sum(share) AS shares FROM orders GROUP BY region"}
    shop = Shop(project, views, {"load_method": "append-only"}, dict(PROPERTIES) | {"share": {"type": "number"}})
    other = [
        {"type": "SCHEMA", "stream": "users", "schema": {"properties": {"id": {"type": "integer"}}}},
        {"type": "RECORD", "stream": "users", "record": {"id": 1}},
    ]
    last = {"type": "STATE", "value": {"bookmarks": {"orders": {"at": 1}, "users": {"at": 1}}}}
    shop.say(*other, order(1, 2, share=0.5), last)
    failed = shop.command("run", "shop", "--json")
    text = failed.err + failed.out
    assert (failed.code, "DECIMAL" in text, "bridge.yaml:1: not in a view: sum of a float" in text) == (
        2,
        True,
        True,
    ), text
    assert bridge.Lake(shop.uri).tables("shop") == []
    shop.settings["streams"] = {"orders": {"on_error": "hold"}}
    shop.write()
    held = shop.command("run", "shop", "--json")
    assert held.code, held.out
    assert bridge.Lake(shop.uri).tables("shop") == ["users"]
    shop.views = {"sums": "SELECT region, sum(amount) AS amounts FROM orders GROUP BY region"}
    shop.play(*other, order(1, 2, share=0.5), last)
    assert bridge.Lake(shop.uri).tables("shop") == ["orders", "sums", "users"]
    shop.views["bad"] = views["sums"].replace("sums", "bad")
    shop.say(*other, {"type": "STATE", "value": {"bookmarks": {"orders": {"at": 1}, "users": {"at": 2}}}})
    held = shop.command("run", "shop", "--json")
    assert (held.code, "bridge.yaml:1: not in a view" in held.err + held.out) == (5, True), held
    assert bridge.Lake(shop.uri).table("shop", "users").count_rows() == 3
    assert bridge.Lake(shop.uri).tables("shop") == ["orders", "sums", "users"]
    shop.settings = {}
    shop.write()
    refused = shop.command("run", "shop", "--json")
    assert (refused.code, refused.json["streams"]) == (2, {}), refused  # the tap was not started
    assert bridge.Lake(shop.uri).table("shop", "users").count_rows() == 3


def test_files_that_are_adopted_count(project: Project) -> None:
    """`run --adopt` takes a strange file into a table, and fills its views with those rows before its tap starts."""
    shop = Shop(project, {"by_region": ALL}, {"load_method": "append-only"})
    shop.play(order(1, 10), order(2, 20), state(1))
    (file,) = (project.lake / "shop/orders").glob("*.parquet")
    shutil.copy(file, file.with_name("others.parquet"))
    assert shop.command("run", "shop").code == 3
    shop.play(order(5, 30), state(2), arguments=("--adopt",))
    assert views_at(shop.uri, "shop", shop.head) == shop.views
    counts = {
        row["region"]: row["n"] for row in bridge.Lake(shop.uri).table("shop", "by_region").to_table().to_pylist()
    }
    assert counts == {"north": 3, "south": 2}
