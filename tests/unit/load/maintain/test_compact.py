"""`compact`: few files instead of many, the same rows, and whatever dies in between."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from msgspec import structs

from bridge.cli import cli
from bridge.errors import EngineError, LakeError, PipelineHeld
from bridge.lake.commit.open import recover
from bridge.lake.commit.rollback import roll_back
from bridge.lake.lease import take
from bridge.lake.log import Log, Snapshot
from bridge.lake.ownership import Owner, claim
from bridge.load.maintain.compact import Compacted, CompactOptions, compact, pieces
from bridge.load.write.partition import Partition
from bridge.operate.verify.check import verify
from bridge.settings.destination import Destination
from bridge.settings.options import Pipeline
from tests.support.dying import die_at
from tests.support.tables import INTEGER, STRING, Shop

ID = {"id": INTEGER}
ROWS = [(1, None), (2, None), (3, "c"), (4, "d"), (5, "e")]


def made(root: Path) -> Shop:
    """A table of five files, two of them from before a column came, whose lease is closed."""
    shop = Shop(root)
    for number, name in ROWS:
        named = {"name": name} if name else {}
        shop.load("orders", ID | ({"name": STRING} if name else {}), [{"id": number, **named}])
    recover(shop.storage, "shop")
    return shop


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return made(tmp_path)


def pipeline_of(shop: Shop, **streams: Any) -> Pipeline:
    return Pipeline(name="shop", source={"tap": "tap"}, destination=Destination(bucket=str(shop.root)), streams=streams)


def run(shop: Shop, options: CompactOptions = CompactOptions(), **streams: Any) -> Compacted:  # noqa: B008 - a constant
    return compact(shop.storage, pipeline_of(shop, **streams), options)


def head(shop: Shop) -> Snapshot:
    log = Log(shop.storage, "shop")
    return log.snapshot(log.head())


def rows(shop: Shop, stream: str = "orders") -> list[Any]:
    """What another engine reads of the folder."""
    query = (
        f"SELECT id, name FROM read_parquet('{shop.root}/shop/{stream}/**/*.parquet', union_by_name=true) ORDER BY id"
    )
    return duckdb.sql(query).fetchall()


def files(shop: Shop, stream: str = "orders") -> list[Path]:
    return sorted((shop.root / "shop" / stream).rglob("*.parquet"))


def test_one_file_of_many(shop: Shop) -> None:
    """Five files become one with the newest columns; STATE and rows stay, and it is one commit of its own kind."""
    before, state = head(shop), (shop.root / ".bridge/shop/state.json").read_text().strip()
    done = run(shop)
    assert [len(one.names) for one in done.pieces] == [5]
    (file,) = files(shop)
    assert rows(shop) == ROWS
    assert pq.read_schema(file).names == ["id", "name"]
    after = head(shop)
    assert (after.n, after.state, after.tables["orders"].rows) == (before.n + 1, before.state, 5)
    assert json.loads((shop.root / ".bridge/shop/state.json").read_text()) == json.loads(state)
    record = Log(shop.storage, "shop").record(after.n)
    assert record
    assert (record.kind, len(record.tables[0].removes)) == ("compact", 5)
    assert (shop.root / ".bridge/tables/shop/orders.manifest").read_text().split() == [str(file)]


def test_each_core_has_a_share(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many tiny files are shared out among the cores, as much to each: none waits for another."""
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    shop = Shop(tmp_path)
    for number in range(20):
        shop.load("orders", ID | {"name": STRING}, [{"id": number, "name": "n"}])
    recover(shop.storage, "shop")
    size = files(shop)[0].stat().st_size
    done = run(shop, CompactOptions(file_size=6 * size))
    assert [len(one.names) for one in done.pieces] == [10, 10]
    assert len(files(shop)) == 2
    assert rows(shop) == [(number, "n") for number in range(20)]


def test_nothing_to_do(shop: Shop) -> None:
    """What is compact already is left alone, without a commit."""
    run(shop)
    before = head(shop).n
    assert run(shop).pieces == []
    assert head(shop).n == before


def test_runs_go_on(shop: Shop) -> None:
    """After compacting, the next run opens without a fence and appends."""
    run(shop)
    shop._head = head(shop).n
    shop.load("orders", ID | {"name": STRING}, [{"id": 6, "name": "f"}])
    assert rows(shop) == [*ROWS, (6, "f")]


def test_by_partition_and_sorted(tmp_path: Path) -> None:
    """Each partition's files become one in the same folder, sorted as the settings say."""
    shop = Shop(tmp_path)
    by = (Partition("name"),)
    for start in (0, 10, 20):
        records = [{"id": start + n, "name": "ab"[n % 2]} for n in range(4)]
        shop.load("orders", ID | {"name": STRING}, records, partition_by=by)
    recover(shop.storage, "shop")
    wanted = rows(shop)
    assert len(files(shop)) == 6
    run(shop, orders={"sort_by": ["-id"]})
    assert [file.parent.name for file in files(shop)] == ["name=a", "name=b"]
    assert rows(shop) == wanted
    for file in files(shop):
        ids = pq.read_table(file, columns=["id"], partitioning=None)["id"].to_pylist()
        assert ids == sorted(ids, reverse=True)
        assert pq.ParquetFile(file).metadata.row_group(0).sorting_columns[0].descending


def test_only_what_was_asked_for(shop: Shop) -> None:
    """Other tables stay, young files stay, and a size says what is small."""
    shop._head = head(shop).n
    for number in range(2):
        shop.load("users", ID | {"name": STRING}, [{"id": number}])
    recover(shop.storage, "shop")
    log, pipeline = Log(shop.storage, "shop"), pipeline_of(shop)
    assert [one.stream for one in pieces(log, head(shop), pipeline, CompactOptions(frozenset({"users"})))] == ["users"]
    assert pieces(log, head(shop), pipeline, CompactOptions(older_than=timedelta(hours=1))) == []
    assert len(pieces(log, head(shop), pipeline, CompactOptions(older_than=timedelta(microseconds=1)))) == 2
    assert pieces(log, head(shop), pipeline, CompactOptions(file_size=500)) == []
    run(shop, CompactOptions(frozenset({"users"})))
    assert (len(files(shop)), len(files(shop, "users"))) == (5, 1)


def test_rows_of_versions_stay_apart(shop: Shop) -> None:
    """Files of which the log knows other things are never joined."""
    view = head(shop)
    files = view.tables["orders"].files
    for number, name in enumerate(sorted(files)):
        files[name] = structs.replace(files[name], version=number // 3)
    found = pieces(Log(shop.storage, "shop"), view, pipeline_of(shop), CompactOptions())
    assert [(len(one.names), one.version) for one in found] == [(3, 0), (2, 1)]


def test_rolled_back_and_again(shop: Shop) -> None:
    """A rollback brings the small files' rows back, and one past it is possible as well."""
    at = head(shop).n
    run(shop)
    roll_back(shop.storage, "shop", at)
    assert (len(files(shop)), rows(shop)) == (5, ROWS)
    roll_back(shop.storage, "shop", at + 1)
    assert (len(files(shop)), rows(shop)) == (1, ROWS)


def test_shared_with_others(shop: Shop) -> None:
    """A file of another pipeline in the same folder is not touched."""
    claim(shop.storage, "shop/orders", Owner("shop", "orders"), shared=True)
    claim(shop.storage, "shop/orders", Owner("other", "orders"), shared=True)
    foreign = shop.root / "shop/orders/part-0000000001-000001-00000000000000000000000000000000.parquet"
    foreign.write_bytes(files(shop)[0].read_bytes())
    run(shop)
    assert foreign in files(shop)
    assert len(files(shop)) == 2
    record = Log(shop.storage, "shop").record(head(shop).n)
    assert record
    assert record.tables[0].shared is True


def test_a_file_that_is_not_whole(shop: Shop) -> None:
    """What cannot be read, or has other rows than the log says, ends it, and nothing is changed."""
    before, file = head(shop).n, files(shop)[2]
    whole = file.read_bytes()
    file.write_bytes(whole[:100])
    with pytest.raises(LakeError, match="cannot be read"):
        run(shop)
    file.write_bytes(files(shop)[0].read_bytes())
    two = pq.read_table(file)
    pq.write_table(two.take([0, 0]), file)
    with pytest.raises(EngineError, match="do not have the rows on record"):
        run(shop)
    assert len(files(shop)) == 5
    file.write_bytes(whole)
    run(shop)
    assert rows(shop) == ROWS
    assert head(shop).n > before


@pytest.mark.parametrize("first", range(0, 30, 3))
def test_every_step(first: int, tmp_path: Path) -> None:
    """Wherever it dies, the rows are the same after recovery, and the next one finishes what is left."""
    shop = made(tmp_path)
    state = head(shop).state
    for step in range(first, first + 3):
        ended = die_at(shop.root, step, lambda: run(shop))
        recover(shop.storage, "shop")
        assert rows(shop) == ROWS, step
        assert head(shop).state == state
        assert not list((shop.root / ".bridge/shop/pending").glob("*"))
        if not ended.killed:
            break
    run(shop)
    assert len(files(shop)) == 1
    problems = [one.text for one in verify(shop.storage, "shop").findings if one.status == "error"]
    assert problems == ["is missing: another pipeline could take the table for its own"]  # no run has claimed it


def test_pending_files_that_are_lost(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """A compact commit whose new files are gone is taken back: the old files are the table again."""
    publish = type(shop.storage).publish

    def lose(self: Any, changes: Any) -> None:
        for file in (shop.root / ".bridge/shop/pending").iterdir():
            file.unlink()
        publish(self, changes)

    monkeypatch.setattr(type(shop.storage), "publish", lose)
    with pytest.raises(LakeError, match="a pending file is gone"):
        run(shop)
    monkeypatch.undo()
    assert recover(shop.storage, "shop").notes
    assert rows(shop) == ROWS
    assert next(Log(shop.storage, "shop").history(head(shop).n)).kind == "void"


def test_held(shop: Shop) -> None:
    """While a run is alive nothing is compacted."""
    lease = take(shop.storage, "shop", "run")
    try:
        with pytest.raises(PipelineHeld):
            run(shop)
    finally:
        lease.close(head=head(shop).n, clean=True)
    assert len(files(shop)) == 5


def test_each_file_is_joined_once(tmp_path: Path) -> None:
    """Whatever the size, no file is in two pieces: its rows would be there twice. Most sizes have files for some."""
    shop, ids = Shop(tmp_path), iter(range(10_000))
    for count in [1, 40, 3, 90, 7, 60, 2, 30, 80, 5, 50, 9, 70, 4, 20]:
        shop.load("orders", ID | {"name": STRING}, [{"id": next(ids), "name": "x" * 50} for _ in range(count)])
    recover(shop.storage, "shop")
    least = min(path.stat().st_size for path in files(shop))
    log, pipeline, joined = Log(shop.storage, "shop"), pipeline_of(shop), set[int]()
    for size in range(least, 10 * least, least // 16):
        every = [
            name for one in pieces(log, head(shop), pipeline, CompactOptions(file_size=size)) for name in one.names
        ]
        assert len(every) == len(set(every)), size
        joined.add(len(every))
    assert len(joined) > 5


def test_settings_of_the_file(shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files become as large as `destination.file_size` says; a variable that only the tap needs is not asked for."""
    monkeypatch.chdir(tmp_path)
    source = "{tap: tap-x, config: {password: '${NOWHERE}'}}"
    destination = f"{{bucket: {shop.root}, file_size: 1MiB}}"
    Path("bridge.yaml").write_text(f"pipelines: {{shop: {{source: {source}, destination: {destination}}}}}\n")
    ids = [{"id": number, "name": random.Random(number).randbytes(1000).hex()} for number in range(1500)]
    for rows_ in (ids[:600], ids[600:900], ids[900:]):
        shop.load("orders", ID | {"name": STRING}, rows_)
    recover(shop.storage, "shop")
    done = CliRunner().invoke(cli, ["compact", "--yes"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    sizes = sorted(path.stat().st_size for path in files(shop))
    assert len(sizes) == 2, sizes


@pytest.fixture
def bridge(shop: Shop) -> Callable[..., Any]:
    def call(*args: str) -> Any:
        command = ["compact", "--to", str(shop.root), "--name", "shop", *args]
        return CliRunner().invoke(cli, command, standalone_mode=True)

    return call


def test_command(shop: Shop, bridge: Callable[..., Any]) -> None:
    """It shows what it would do, wants a yes, says what it did, and has nothing to do twice."""
    shown = bridge("--dry-run", "--json")
    assert shown.exit_code == 0, shown.output
    facts = json.loads(shown.stdout)
    assert facts["dry_run"] is True
    assert (facts["tables"][0]["files_before"], facts["tables"][0]["files_after"]) == (5, None)
    assert len(files(shop)) == 5
    refused = bridge()
    assert "there is no terminal to ask on" in str(refused.exception)
    assert "no such table" in str(bridge("-s", "order", "--yes").exception)
    assert bridge("--to-size", "10MB", "--yes").exit_code == 2
    done = bridge("--yes", "--json")
    facts = json.loads(done.stdout)
    assert (facts["tables"][0]["files_before"], facts["tables"][0]["files_after"]) == (5, 1)
    assert facts["tables"][0]["rows"] == 5
    assert facts["commit"] == head(shop).n
    assert "nothing to do" in bridge("--yes").stdout
    assert rows(shop) == ROWS
