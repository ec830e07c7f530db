"""`bridge.Lake`: tables exactly at a commit, whatever became of their files since."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from bridge import Lake
from bridge.errors import CommitExpired, LakeError, SettingsError
from bridge.lake.commit.open import open_committer, open_pipeline
from bridge.lake.commit.rollback import roll_back
from bridge.lake.file_records import FileAdd
from bridge.lake.paths import file_name, pipeline_key
from bridge.lake.storage import open_storage
from bridge.read.query.system import COLUMNS
from tests.golden.make import FORMATS, unpack_to
from tests.support.lake import DEAD, Faulty, fail
from tests.support.lake import Lake as Bucket
from tests.support.s3server import S3Server
from tests.support.tables import INTEGER, ODD, STRING, Shop, filled

ID = {"id": INTEGER}


def ids(lake: Lake, stream: str = "s") -> list[int]:
    return sorted(lake.table("shop", stream).to_table(columns=["id"])["id"].to_pylist())


def numbers(*values: int) -> list[dict[str, Any]]:
    return [{"id": value} for value in values]


def test_every_table_as_it_is(tmp_path: Path) -> None:
    """Odd names, nested and evolved columns, a table without rows: each is there with the columns that it has now."""
    shop, rows = filled(tmp_path)
    lake = Lake(shop.root)
    assert lake.pipelines == ["shop"]
    assert lake.tables("shop") == sorted(rows)
    for stream, expected in rows.items():
        table = lake.table("shop", stream)
        assert table.count_rows() == len(expected), stream
        assert {name for row in expected for name in row} <= set(table.schema.names), stream
    orders = lake.table("shop", "orders").to_table(filter=pc.field("id") > 1).sort_by("id")
    assert [(row["id"], row["name"], row["note"]) for row in orders.to_pylist()] == [(2, None, None), (3, None, "new")]


def test_a_table_at_each_commit(tmp_path: Path) -> None:
    """Rows that later commits replaced come from the trash: an overwrite, then an upsert."""
    shop = Shop(tmp_path)
    shop.load("s", ID, numbers(1, 2))
    shop.load("s", ID, numbers(7), mode="overwrite")
    shop.load("s", ID, numbers(8))
    expected = {1: [1, 2], 2: [7], 3: [7, 8]}
    assert {n: ids(Lake(shop.root, at=n)) for n in expected} == expected
    assert Lake(shop.root).commit("shop") == 3
    assert Lake(shop.root, at=0).tables("shop") == []


def test_what_a_lost_commit_was_to_remove_is_found(tmp_path: Path) -> None:
    """A commit that replaces a table is taken back; the files that it gave up are removed by a later one only."""
    shop = Shop(tmp_path)
    shop.load("s", ID, numbers(1, 2))
    shop.lose("s", ID, numbers(3), mode="overwrite")
    back = Lake(shop.root).commit("shop")
    shop.load("s", ID, numbers(4), mode="overwrite")
    assert [ids(Lake(shop.root, at=n)) for n in (1, back)] == [[1, 2], [1, 2]]
    assert ids(Lake(shop.root)) == [4]


def test_commits_before_a_rollback(tmp_path: Path) -> None:
    """Files that a rollback brought back under new names, and those that it removed, are found for each commit."""
    shop = Shop(tmp_path)
    shop.load("s", ID, numbers(1, 2))
    shop.load("s", ID, numbers(7), mode="overwrite")
    storage = open_storage(str(shop.root))
    for to in (1, 2, 1):
        roll_back(storage, "shop", to)
    expected = {1: [1, 2], 2: [7]}
    assert {n: ids(Lake(shop.root, at=n)) for n in expected} == expected
    last = Lake(shop.root).commit("shop")
    assert ids(Lake(shop.root)) == [1, 2]
    assert {tuple(ids(Lake(shop.root, at=n))) for n in range(3, last + 1)} == {(1, 2), (7,)}


def test_what_was_read_stays_at_its_commit(tmp_path: Path) -> None:
    """A dataset that was asked for before an overwrite still has the rows of its commit afterwards."""
    shop = Shop(tmp_path)
    shop.load("s", ID, numbers(1, 2))
    before = Lake(shop.root).table("shop", "s")
    shop.load("s", ID, numbers(3), mode="overwrite")
    assert sorted(before.to_table()["id"].to_pylist()) == [1, 2]
    assert ids(Lake(shop.root)) == [3]


def test_a_file_of_the_same_name_and_size_is_another_one(tmp_path: Path) -> None:
    """An upsert writes a file again under its name, by chance with as many bytes: each commit still has its own."""
    shop = Shop(tmp_path)
    shop.load("s", ID, numbers(1, 2))
    (second, size), (third, again) = _rewritten(shop, [3, 4]), _rewritten(shop, [5, 6])
    assert size == again
    assert [ids(Lake(shop.root, at=n)) for n in (1, second, third)] == [[1, 2], [3, 4], [5, 6]]


def test_a_rewritten_file_that_is_kept_no_more(tmp_path: Path) -> None:
    """Its bytes left the trash: an error, and never the rows that a later commit wrote under the same name and size."""
    shop = Shop(tmp_path)
    shop.load("s", ID, numbers(1, 2))
    (second, size), (third, again) = _rewritten(shop, [3, 4]), _rewritten(shop, [5, 6])
    assert size == again
    shutil.rmtree(shop.root / pipeline_key("shop", "trash"))
    with pytest.raises(CommitExpired, match="a file of this commit is gone"):
        ids(Lake(shop.root, at=second))
    assert ids(Lake(shop.root, at=third)) == [5, 6]


def test_a_file_that_is_about_to_be_rewritten(tmp_path: Path) -> None:
    """A run dies before it publishes as many bytes under the same name: readers stay at the commit before, or fail."""
    shop = Shop(tmp_path)
    shop.load("s", ID, numbers(1, 2))
    second, size = _rewritten(shop, [3, 4])
    faulty = Faulty(Bucket(shop.root), publish=fail)
    faulty.armed = True
    with pytest.raises(LakeError, match="cannot reach the bucket"):
        _rewritten(shop, [5, 6], faulty)
    assert (Lake(shop.root).commit("shop"), ids(Lake(shop.root))) == (second, [3, 4])
    assert ids(Lake(shop.root, at=second)) == [3, 4]
    with pytest.raises(LakeError, match="not visible yet") as raised:
        ids(Lake(shop.root, at=second + 1))
    assert "recover" in raised.value.hint
    repaired(shop)
    (file,) = shop.root.glob("shop/s/*.parquet")
    assert file.stat().st_size == size
    assert ids(Lake(shop.root)) == ids(Lake(shop.root, at=second + 1)) == [5, 6]
    assert ids(Lake(shop.root, at=second)) == [3, 4]


def _rewritten(shop: Shop, values: list[int], storage: Any = None) -> tuple[int, int]:
    """Commit these rows in the place of the table's only file; return the commit's number and the file's bytes."""
    storage = storage or open_storage(str(shop.root))
    with open_pipeline(storage, "shop") as committer:
        table = committer.snapshot.tables["s"]
        (name,) = table.files
        source = pipeline_key("shop", "pending", f"{file_name(committer.generation, 1)}.pending")
        with closing(storage.open_pending(source, f"{table.folder}/{name}", over=True)) as file:
            pq.write_table(pa.table({"id": values}), file)
            size = file.tell()
        add = FileAdd(name=name, source=source, size=size, rows=len(values))
        record = committer.commit(committer.snapshot.pipeline_state, [table.change("s", [add], [name])])
    return record.n, size


@pytest.mark.parametrize("mode", ["append-only", "overwrite"])
def test_a_commit_is_seen_when_all_of_it_is_visible(mode: Any, tmp_path: Path) -> None:
    """A run that dies between record and publication: readers stay at the commit before until it is repaired."""
    shop = Shop(tmp_path)
    shop.load("s", ID, numbers(1))
    faulty = Faulty(Bucket(shop.root), publish=fail)
    faulty.armed = True
    with pytest.raises(LakeError, match="cannot reach the bucket"):
        shop.load("s", ID, numbers(2), storage=faulty, mode=mode)
    assert Lake(shop.root).commit("shop") == 1
    assert ids(Lake(shop.root)) == [1]
    repaired(shop)
    assert ids(Lake(shop.root)) == ([1, 2] if mode == "append-only" else [2])


def repaired(shop: Shop) -> None:
    open_committer(shop.storage, "shop", "next", last=DEAD)


def test_a_deleted_file_is_an_error(tmp_path: Path) -> None:
    """Nobody is shown an older commit, or fewer rows, because a file is gone."""
    shop = Shop(tmp_path)
    shop.load("s", ID, numbers(1))
    shop.load("s", ID, numbers(2))
    for file in shop.root.glob("shop/s/*.parquet"):
        file.unlink()
    with pytest.raises(LakeError, match="a file of this commit is gone"):
        ids(Lake(shop.root))


def test_a_commit_whose_files_are_no_longer_kept(tmp_path: Path) -> None:
    """The trash is emptied by retention: the message names the setting. A commit that was taken back says so."""
    shop = Shop(tmp_path)
    shop.load("s", ID, numbers(1))
    shop.load("s", ID, numbers(2), mode="overwrite")
    shutil.rmtree(shop.root / pipeline_key("shop", "trash"))
    with pytest.raises(LakeError, match="a file of this commit is gone") as raised:
        ids(Lake(shop.root, at=1))
    assert "retention.trash" in raised.value.hint
    shop.lose("s", ID, numbers(3))
    for lost in (3, 4):  # the commit, and the next run's fence behind it
        with pytest.raises(LakeError, match=f"this commit was taken back commit={lost}"):
            ids(Lake(shop.root, at=lost))
    assert ids(Lake(shop.root)) == [2]


def test_wrong_names_and_numbers(tmp_path: Path) -> None:
    """Each error names what there is."""
    shop = Shop(tmp_path)
    shop.load("orders", ID, numbers(1))
    lake = Lake(shop.root)
    cases: dict[str, Callable[[], Any]] = {
        'did you mean "shop"': lambda: lake.table("shp", "orders"),
        'did you mean "orders"': lambda: lake.table("shop", "order"),
        "the last one is 1": lambda: Lake(shop.root, at=2).tables("shop"),
    }
    for hint, call in cases.items():
        with pytest.raises(SettingsError) as raised:
            call()
        assert hint in raised.value.hint


def test_numbers_belong_to_one_pipeline(tmp_path: Path) -> None:
    """In a bucket with two pipelines `at` says of which."""
    root = unpack_to("parquet", tmp_path)
    with pytest.raises(SettingsError, match="which pipeline's commit"):
        Lake(root, at=1).tables("p")
    lake = Lake(root, at={"p": 3})
    assert (lake.commit("p"), lake.commit("par")) == (3, 2)


@pytest.mark.parametrize("format_", FORMATS)
def test_lakes_of_earlier_versions(format_: str, tmp_path: Path) -> None:
    """Every table format, by the commit log: the same rows."""
    lake = Lake(unpack_to(format_, tmp_path))
    counts = {
        (name, stream): lake.table(name, stream).count_rows() for name in lake.pipelines for stream in lake.tables(name)
    }
    assert counts == {("p", "full"): 2, ("p", "orders"): 10, ("p", "people"): 4, ("par", "a"): 4, ("par", "b"): 6}
    assert lake.bookmarks("p")["people"] == {"replication_key": "id", "replication_key_value": 4}
    latest = next(lake.runs("p"))
    assert (latest.pipeline, latest.status) == ("p", "died")


def test_in_a_bucket(s3: S3Server, tmp_path: Path) -> None:
    """Over S3 the same, trash included."""
    s3.bucket("query")
    uri = "s3://query/lake"
    shop = Shop(tmp_path, open_storage(uri))
    shop.load("s", ID, numbers(1, 2))
    shop.load("s", {**ID, "name": STRING}, [{"id": 3, "name": "x"}])
    shop.load("s", ID, numbers(9), mode="overwrite")
    assert {n: ids(Lake(uri, at=n)) for n in (1, 2, 3)} == {1: [1, 2], 2: [1, 2, 3], 3: [9]}
    assert Lake(uri).sql("SELECT max(id) AS id FROM s").to_pylist() == [{"id": 9}]


def test_sql_of_an_odd_name(tmp_path: Path) -> None:
    """A name with everything in it is quoted as SQL has it; names that differ by case only are told apart."""
    shop, _ = filled(tmp_path)
    lake = Lake(shop.root)
    quoted = '"{}"'.format(ODD.replace('"', '""'))
    assert lake.sql(f"SELECT id_2 FROM shop.{quoted}").to_pylist() == [{"id_2": 2}]
    names = {row["name"] for row in lake.sql("SHOW TABLES").to_pylist()}
    assert names == {"orders", "Orders_2", "wide", "none", ODD} | {f"bridge.{name}" for name in COLUMNS}
    one, other = (lake.sql(f"SELECT id FROM {name}")["id"].to_pylist() for name in ("orders", "Orders_2"))
    assert (sorted(one), other) == ([1, 2, 3], [9])
