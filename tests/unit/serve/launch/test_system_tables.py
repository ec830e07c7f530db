"""`system_tables`: what a BI tool reads is what `sql` answers, whole at every moment, and no run fails for it."""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import bridge
from bridge.lake.log import Beginning, Log
from bridge.lake.runs import RunFile
from bridge.lake.storage import open_storage
from bridge.lake.storage.local.storage import LocalStorage
from bridge.read.query import system
from bridge.serve.launch.system_tables import TABLES, update_system_tables
from tests.support.s3server import S3Server
from tests.support.shell import Typed
from tests.support.tables import INTEGER, STRING, Shop

ID = {"id": INTEGER}
SETTINGS = """
system_tables: {path: meta/bridge}
defaults: {destination: {bucket: lake}}
pipelines:
  good: {source: {tap: [sh, -c, exit 0]}}
  bad: {source: {tap: [sh, -c, exit 1]}}
"""


def update(shop: Shop) -> None:
    assert update_system_tables(shop.storage, "shop", "_bridge") == []


def kept_rows(root: Path, table: str, path: str = "_bridge") -> list[dict[str, Any]]:
    """The rows as DuckDB reads them."""
    files = f"{root}/{path}/{table}/*.parquet"
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        return list(connection.sql(f"FROM read_parquet('{files}')").to_arrow_table().to_pylist())


def asked_rows(root: Path, table: str) -> list[dict[str, Any]]:
    return list(bridge.Lake(root).sql(f"FROM bridge.{table}").to_pylist())


def assert_current(root: Path) -> None:
    for table in TABLES:
        assert in_order(kept_rows(root, table)) == in_order(asked_rows(root, table)), table


def in_order(rows: list[dict[str, Any]]) -> list[str]:
    return sorted(str(row) for row in rows)


def run_record(shop: Shop, second: int, status: str = "success", **facts: Any) -> RunFile:
    began = datetime(2026, 1, 1, tzinfo=timezone.utc) + timedelta(seconds=second)
    file = RunFile(shop.storage, "shop", f"{began:%Y%m%dT%H%M%SZ}-aaaa", **facts)
    if status != "running":
        file.finish(status=status)
    return file


def bookmarks(value: int) -> dict[str, Any]:
    return {"bookmarks": {"s": {"id": value}}}


def test_they_are_the_tables_of_sql(tmp_path: Path) -> None:
    """After each commit, rows that are already in the files are taken over, and the answer is the same as `sql`'s."""
    shop = Shop(tmp_path)
    for number in range(4):
        shop.load("s", ID, [{"id": number}])
        shop.load("t", {**ID, "name": STRING}, [{"id": number}], mode="overwrite")
        facts = {"streams": {"s": {"records": number, "complete": number > 1}}, "state_before": bookmarks(number - 1)}
        facts |= {"state": bookmarks(number), "tap": "tap-x"}
        run_record(shop, number, "failed" if number == 2 else "success", **(facts if number else {}))
        update(shop)
        assert_current(shop.root)
    assert len(kept_rows(shop.root, "commits")) == 8
    assert [row["status"] for row in kept_rows(shop.root, "runs")] == ["success", "failed", "success", "success"]
    columns = ("stream", "records", "complete", "bookmark_before", "bookmark_after")
    assert [tuple(row[name] for name in columns) for row in kept_rows(shop.root, "stream_runs")] == [
        ("s", number, number > 1, f'{{"id": {number - 1}}}', f'{{"id": {number}}}') for number in (3, 2, 1)
    ] + [(None,) * 5]


def test_files_with_an_earlier_name_of_a_column_are_taken_over(tmp_path: Path) -> None:
    """A run's id was `run`: rows that only the file still has stay, under the name of now."""
    shop = Shop(tmp_path)
    shop.load("s", ID, [{"id": 1}])
    for second in (1, 2):
        run_record(shop, second)
    update(shop)
    for table in ("runs", "commits"):
        file = shop.root / f"_bridge/{table}/shop.parquet"
        rows = pq.read_table(file)
        pq.write_table(rows.rename_columns([{"run_id": "run"}.get(name, name) for name in rows.column_names]), file)
    before = kept_rows(shop.root, "runs")
    assert "run" in before[0]
    run_record(shop, 3)
    update(shop)
    assert_current(shop.root)
    assert [row["run_id"] for row in kept_rows(shop.root, "runs")][1:] == [row["run"] for row in before]


def test_a_run_costs_what_it_added(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither old commits nor old runs are read again; a long history is taken in from its newest part on."""
    monkeypatch.setattr(system, "_FIRST_COMMITS", 30)
    monkeypatch.setattr(system, "_FIRST_RUNS", 30)
    shop = Shop(tmp_path)
    for number in range(40):
        shop.load("s", ID, [{"id": number}])
        run_record(shop, number)
    update(shop)
    assert {row["commit"] for row in kept_rows(shop.root, "commits")} == set(range(11, 41))
    shop.load("s", ID, [{"id": 1}])
    run_record(shop, 99)
    counting = Counting(shop.root)
    assert update_system_tables(counting, "shop", "_bridge") == []
    assert {row["commit"] for row in kept_rows(shop.root, "commits")} == set(range(11, 42))
    assert len(kept_rows(shop.root, "runs")) == 31
    assert len([key for key in counting.read_keys if "/runs/" in key]) <= 15


class Counting(LocalStorage):
    """A bucket that notes what is read."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.read_keys: list[str] = []

    def read(self, key: str) -> bytes | None:
        self.read_keys.append(key)
        return super().read(key)


def test_they_have_what_retention_keeps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of deleted run records and commits go; the number of rows is limited."""
    shop = Shop(tmp_path)
    for number in range(20):
        shop.load("s", ID, [{"id": number}])
        run_record(shop, number)
    update(shop)
    for file in sorted((shop.root / ".bridge/shop/runs").iterdir())[:5]:
        file.unlink()
    Log(shop.storage, "shop").begin_at(Beginning(11, 11))  # as retention does; it has a snapshot there in real life
    update(shop)
    assert len(kept_rows(shop.root, "runs")) == 15
    assert {row["commit"] for row in kept_rows(shop.root, "commits")} == set(range(11, 21))
    monkeypatch.setattr(system, "MOST_ROWS", 4)
    update(shop)
    assert [row["commit"] for row in kept_rows(shop.root, "commits")] == [20, 19, 18, 17]
    assert len(kept_rows(shop.root, "runs")) == 4


def test_an_outcome_replaces_running(tmp_path: Path) -> None:
    """A row of a run that had not ended is read again until it has, however many runs came since."""
    shop = Shop(tmp_path)
    file = run_record(shop, 0, "running", process={"host": "another"}, started=datetime.now(timezone.utc).isoformat())
    for number in range(1, 15):
        run_record(shop, number)
    update(shop)
    assert kept_rows(shop.root, "runs")[-1]["status"] in ("running", "died")
    file.finish(status="failed")
    update(shop)
    assert kept_rows(shop.root, "runs")[-1]["status"] == "failed"


def test_a_lake_that_began_anew(tmp_path: Path) -> None:
    """Commit numbers begin at 1 again: rows of the earlier lake are not mixed with the new one's."""
    shop = Shop(tmp_path)
    for number in range(3):
        shop.load("s", ID, [{"id": number}])
        update(shop)
    for name in (".bridge", "shop"):
        shutil.rmtree(shop.root / name)
    again = Shop(tmp_path)
    again.load("s", ID, [{"id": 1}])
    update(again)
    assert_current(shop.root)
    assert [row["commit"] for row in kept_rows(shop.root, "commits")] == [1]


@pytest.mark.parametrize("damage", ["empty", "garbage", "columns"])
def test_a_damaged_file_is_made_anew(damage: str, tmp_path: Path) -> None:
    """A file that is no Parquet, or has the columns of another version, costs nothing but its reading."""
    shop = Shop(tmp_path)
    shop.load("s", ID, [{"id": 1}])
    update(shop)
    for table in TABLES:
        file = shop.root / f"_bridge/{table}/shop.parquet"
        if damage == "columns":
            pq.write_table(pa.table({"pipeline": ["shop"]}), file)
        else:
            file.write_bytes(b"" if damage == "empty" else b"PAR1 and no more")
    update(shop)
    assert_current(shop.root)


def test_the_slower_of_two_reads_again(tmp_path: Path) -> None:
    """A run that ends while another one's files are under way: what stands in the end is the newer."""
    shop = Shop(tmp_path)
    shop.load("s", ID, [{"id": 1}])
    update(shop)
    shop.load("s", ID, [{"id": 2}])
    slow, overtaken = copy(shop.storage), []
    swap = slow.compare_and_swap

    def swapped(key: str, data: bytes, etag: str | None) -> str | None:
        if not overtaken:
            overtaken.append(key)
            shop.load("s", ID, [{"id": 3}])
            update(shop)
        return swap(key, data, etag)

    slow.compare_and_swap = swapped  # type: ignore[method-assign]
    assert update_system_tables(slow, "shop", "_bridge") == []
    assert overtaken
    assert_current(shop.root)
    assert len(kept_rows(shop.root, "commits")) == 3


def test_many_at_once(tmp_path: Path) -> None:
    """Two pipelines never touch the same file; several updates of one pipeline leave the newest rows."""
    shop = Shop(tmp_path)
    shop.load("s", ID, [{"id": 1}])
    RunFile(shop.storage, "other", "20260101T000000Z-aaaa").finish(status="failed")
    with ThreadPoolExecutor(8) as pool:
        names = ["shop", "other"] * 8
        assert list(pool.map(lambda name: update_system_tables(shop.storage, name, "_bridge"), names)) == [[]] * 16
    assert_current(shop.root)
    assert {row["pipeline"] for row in kept_rows(shop.root, "runs")} == {"other"}
    assert sorted(path.name for path in (shop.root / "_bridge/streams").iterdir()) == ["other.parquet", "shop.parquet"]


KILLED = """
import os, signal, sys
from bridge.serve.launch.system_tables import update_system_tables
from bridge.lake.storage import open_storage

place, number = sys.argv[2], int(sys.argv[3])
whole = getattr(os, place)

def counted(*arguments, **named):
    global number
    number -= 1
    if number == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return whole(*arguments, **named)

setattr(os, place, counted)
update_system_tables(open_storage(sys.argv[1]), "shop", "_bridge")
"""


@pytest.mark.parametrize("place", ["fsync", "replace"])
@pytest.mark.parametrize("number", [1, 2, 4])
def test_killed_in_between(place: str, number: int, tmp_path: Path) -> None:
    """Each file is the old one or the new one; the next run brings all up to date, and clears what lay around."""
    shop = Shop(tmp_path)
    shop.load("s", ID, [{"id": 1}])
    update(shop)
    shop.load("s", ID, [{"id": 2}])
    run_record(shop, 1)
    program = [sys.executable, "-c", KILLED, str(shop.root), place, str(number)]
    assert subprocess.run(program, check=False, timeout=60).returncode == -signal.SIGKILL
    for table in TABLES:
        assert {row["pipeline"] for row in kept_rows(shop.root, table)} <= {"shop"}
    assert {row["commit"] for row in kept_rows(shop.root, "streams")} <= {1, 2}
    for leftover in (shop.root / "_bridge").rglob(".*"):
        os.utime(leftover, (0, 0))
    update(shop)
    assert_current(shop.root)
    assert not list((shop.root / "_bridge").rglob(".*"))


def test_in_a_bucket(s3: S3Server, tmp_path: Path) -> None:
    """Over S3 the same; an object is replaced whole, and only by compare and swap."""
    s3.bucket("system")
    shop = Shop(tmp_path, open_storage("s3://system/lake"))
    for number in range(3):
        shop.load("s", ID, [{"id": number}])
        run_record(shop, number)
        update(shop)
    client = s3.client()
    for table in TABLES:
        data = client.get_object(Bucket="system", Key=f"lake/_bridge/{table}/shop.parquet")["Body"].read()
        rows = pq.read_table(io.BytesIO(data)).to_pylist()
        assert in_order(rows) == in_order(bridge.Lake("s3://system/lake").sql(f"FROM bridge.{table}").to_pylist())
        assert rows


def test_run_all_keeps_those_of_every_pipeline(folder: Path, typed: Typed) -> None:
    """Failed runs have a row, too. Without the setting nothing is written, and what was written stays."""
    (folder / "bridge.yaml").write_text(SETTINGS)
    assert typed("run --all --keep-going --no-progress").code == 1
    rows = kept_rows(folder / "lake", "runs", "meta/bridge")
    assert sorted((row["pipeline"], row["status"]) for row in rows) == [("bad", "failed"), ("good", "success")]
    files = {path: path.read_bytes() for path in (folder / "lake/meta").rglob("*.parquet")}
    assert len(files) == 10
    (folder / "bridge.yaml").write_text(SETTINGS.replace("system_tables: {path: meta/bridge}", ""))
    assert typed("run good --no-progress").code == 0
    assert {path: path.read_bytes() for path in (folder / "lake/meta").rglob("*.parquet")} == files


def test_what_fails_there_is_a_warning(folder: Path, typed: Typed) -> None:
    """The run is a success: a file lies where the folder should be, so the tables cannot be written."""
    (folder / "bridge.yaml").write_text(SETTINGS)
    (folder / "lake").mkdir()
    (folder / "lake/meta").write_text("mine")
    done = typed("run good --json")
    result = json.loads(done.out)
    assert (done.code, result["status"]) == (0, "success")
    assert [text for text in result["warnings"] if "the system tables in meta/bridge are not up to date" in text]
    assert (folder / "lake/meta").read_text() == "mine"


def test_a_bucket_that_fails_is_not_asked_again(folder: Path, typed: Typed) -> None:
    """A run that failed for its bucket leaves the tables as they are; the next run has its row."""
    (folder / "bridge.yaml").write_text(SETTINGS)
    assert typed("run good --no-progress").code == 0
    begins = folder / "lake/.bridge/good/commits/00000000000000000001.json"
    begins.parent.mkdir(parents=True, exist_ok=True)
    begins.write_text("no record")
    assert typed("run good --no-progress").code == 3
    assert len(kept_rows(folder / "lake", "runs", "meta/bridge")) == 1
    begins.unlink()
    assert typed("run good --no-progress").code == 0
    statuses = [row["status"] for row in kept_rows(folder / "lake", "runs", "meta/bridge")]
    assert sorted(statuses) == ["failed", "success", "success"]


def test_a_refused_run_makes_no_bucket(folder: Path, typed: Typed) -> None:
    """A run that leaves no record leaves no system tables either."""
    (folder / "bridge.yaml").write_text(SETTINGS)
    assert typed("run good --full --resume").code == 2
    assert not (folder / "lake").exists()


def test_they_follow_a_run(folder: Path, typed: Typed, monkeypatch: pytest.MonkeyPatch) -> None:
    """While it goes on: here the tap waits for a commit of its own to be in the files."""
    monkeypatch.setattr("bridge.serve.launch.system_tables._EVERY", 0.1)
    (folder / "tap.py").write_text(
        "import json, pathlib, time\n"
        "say = lambda **message: print(json.dumps(message), flush=True)\n"
        "say(type='SCHEMA', stream='s', schema={'properties': {'id': {'type': 'integer'}}}, key_properties=[])\n"
        "say(type='RECORD', stream='s', record={'id': 1})\n"
        "time.sleep(1.2)\n"
        "say(type='STATE', value={'bookmarks': {'s': {'id': 1}}})\n"
        "while not pathlib.Path('lake/_bridge/bookmarks/shop.parquet').exists(): time.sleep(0.05)\n"
        "say(type='RECORD', stream='s', record={'id': 2})\n"
        "say(type='STATE', value={'bookmarks': {'s': {'id': 2}}})\n"
    )
    tap = f"source: {{tap: ['{sys.executable}', tap.py], discover: never}}"
    more = "commit: {every: 1s}, spark: {small: 1TiB}"
    text = f"system_tables: {{path: _bridge}}\npipelines:\n  shop: {{{tap}, destination: {{bucket: lake}}, {more}}}\n"
    (folder / "bridge.yaml").write_text(text)
    done = typed("run shop --json")
    assert (done.code, done.json["commits"]) == (0, 2)
    (row,) = pq.read_table(folder / "lake/_bridge/stream_runs/shop.parquet").to_pylist()
    assert (row["records"], row["bookmark_before"], row["bookmark_after"]) == (2, None, '{"id": 2}')
