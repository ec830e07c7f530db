"""The change feed: what each commit changed, so that applying it gives the table of each commit."""

from __future__ import annotations

import json
import shutil
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from bridge.errors import CommitExpired, LakeError, SettingsError
from bridge.lake.commit.rollback import roll_back
from bridge.lake.paths import pipeline_key
from bridge.load.maintain.compact import CompactOptions, compact
from bridge.load.write.partition import Partition
from bridge.protocol.schema.merging import Evolution
from bridge.read.spark_source.changes import FACTS
from tests.support.spark_source import Query, Row, frame, source
from tests.support.tables import INTEGER, STRING, Shop
from tests.support.view_tables import Views, counts
from tests.unit.load.maintain.test_compact import pipeline_of

AT = "2025-01-01T00:00:00Z"
USERS = {"id": {"type": "integer"}, "name": STRING, "_sdc_deleted_at": {**STRING, "format": "date-time"}}


def upsert(shop: Shop, records: list[Row], **facts: Any) -> None:
    """Merge records into the table `users` by its key; deletions remove rows unless told otherwise."""
    before, shop.layout = shop.layout, shop.layout | {"keys": ("id",)}
    shop.load("users", USERS, records, mode="upsert", **{"keys": ("id",), "hard_delete": True} | facts)
    shop.layout = before


def users(*ids: int, name: str = "a") -> list[Row]:
    return [{"id": n, "name": name} for n in ids]


def deletions(*ids: int) -> list[Row]:
    return [{"id": n, "_sdc_deleted_at": AT} for n in ids]


def feed(root: Path, table: str = "users", **options: Any) -> list[Row]:
    return frame(root, table=table, changes="true", **options)


def brief(rows: list[Row]) -> list[tuple[Any, ...]]:
    return [(row["_commit"], row["_change"], row["id"]) for row in rows]


def applied(rows: list[Row], commit: int, key: str = "id") -> list[Row]:
    """The table that a consumer of the feed has after a commit. Each change must fit what it has before."""
    table: dict[Any, Row] = {}
    for row in sorted(rows, key=lambda row: row["_commit"]):
        if row["_commit"] > commit:
            break
        values = {name: value for name, value in row.items() if name not in FACTS}
        if row["_change"] == "truncate":
            assert set(values.values()) == {None}
            table.clear()
        elif row["_change"] == "delete":
            del table[row[key]]
        else:
            assert (row[key] in table) == (row["_change"] == "update"), row
            table[row[key]] = values
    return sorted(table.values(), key=lambda row: row[key])


@pytest.mark.parametrize("format_", ["parquet", "delta", "iceberg"])
@pytest.mark.parametrize("parts", [(), (Partition("name"),)], ids=["flat", "partitioned"])
def test_a_merged_table(format_: str, parts: tuple[Partition, ...], tmp_path: Path) -> None:
    """Inserts, updates, deletions, moves to another partition, unchanged rows: each commit's table comes out."""
    shop = Shop(tmp_path, format=format_, partition_by=parts)
    upsert(shop, users(*range(1, 30)))
    for records in (
        [*users(3, 50, name="b"), *users(4)],
        deletions(*range(1, 12)),
        [*users(60, name="b"), *deletions(50), *users(1, 2, name="back"), *users(20, 21)],
        users(*range(12, 29), name="b"),
    ):
        upsert(shop, records)
    rows = feed(tmp_path)
    for commit in range(1, 6):
        expected = sorted(frame(tmp_path, table="users", commit=commit), key=lambda row: row["id"])
        assert applied(rows, commit) == expected
    second = [one for one in brief(rows) if one[0] == 2]
    assert sorted(second) == [(2, "insert", 50), (2, "update", 3)]
    deleted = next(row for row in rows if row["_change"] == "delete")
    assert (deleted["name"], deleted["_sdc_deleted_at"].tzinfo is not None) == (None, True)


def test_a_table_that_is_only_added_to(tmp_path: Path) -> None:
    """Each row of each commit once, as an insert; not those that a compaction or a wider type wrote again."""
    shop = Shop(tmp_path)
    for n in range(1, 4):
        shop.load("t", {"id": INTEGER}, [{"id": n}])
    shop._head = compact(shop.storage, pipeline_of(shop), CompactOptions()).head
    shop.load("t", {"id": STRING, "more": STRING}, [{"id": "x", "more": "m"}], evolution=Evolution())
    rows = feed(tmp_path, "t")
    assert brief(rows) == [(1, "insert", "1"), (2, "insert", "2"), (3, "insert", "3"), (6, "insert", "x")]
    assert [row["more"] for row in rows] == [None, None, None, "m"]
    assert all(isinstance(row["_commit_at"], datetime) for row in rows)


def test_a_wider_type_that_an_overwrite_took_back(tmp_path: Path) -> None:
    """Changes before it do not fit the present types: the error names the commit and what to type, and that works."""
    shop = Shop(tmp_path)
    shop.load("t", {"id": STRING}, [{"id": "x"}])
    shop.load("t", {"id": INTEGER}, [{"id": 2}], mode="overwrite")
    with pytest.raises(LakeError, match=r"(?s)does not fit.*commit=1\n.*`from` or `startingCommit`"):
        feed(tmp_path, "t")
    with pytest.raises(LakeError, match=r"(?s)does not fit.*commit=1\n.*new checkpoint"):
        Query(tmp_path, table="t", startingCommit=1).drain()
    assert brief(feed(tmp_path, "t", from_=2)) == [(2, "truncate", None), (2, "insert", 2)]


def test_from_and_to(tmp_path: Path) -> None:
    """Both are part of it, in any case; columns are chosen; a frame stays at the last commit that it was made at."""
    shop = Shop(tmp_path)
    for n in range(1, 6):
        shop.load("t", {"id": INTEGER, "x": INTEGER}, [{"id": n}])
    assert [row["id"] for row in feed(tmp_path, "t", From=2, TO=4)] == [2, 3, 4]
    assert [row["id"] for row in feed(tmp_path, "t", startingCommit=4)] == [4, 5]
    assert feed(tmp_path, "t", from_=6) == []
    assert list(feed(tmp_path, "t", from_=5, columns="id")[0]) == ["id", "_commit", "_change", "_commit_at"]
    made = source(tmp_path, table="t", changes="true")
    schema = made.schema()
    shop.load("t", {"id": INTEGER}, [{"id": 6}])
    assert len(made.reader(schema).partitions()[0].value) == 5


def test_an_overwrite(tmp_path: Path) -> None:
    """One row says that all rows before are gone; then come those of the table as it is then, even if it has none."""
    shop = Shop(tmp_path)
    shop.load("users", USERS, users(1, 2), mode="overwrite")
    shop.load("users", USERS, users(3), mode="overwrite")
    shop.load("users", USERS, users(4))
    shop.load("users", USERS, [], mode="overwrite")
    rows = feed(tmp_path)
    assert brief(rows) == [
        (1, "insert", 1),
        (1, "insert", 2),
        (2, "truncate", None),
        (2, "insert", 3),
        (3, "insert", 4),
        (4, "truncate", None),
    ]
    for commit in range(1, 5):
        assert applied(rows, commit) == frame(tmp_path, table="users", commit=commit)


def test_rows_removed_without_a_key(tmp_path: Path) -> None:
    """If nobody knows the key, the whole table comes again; `keys` says what it is."""
    shop = Shop(tmp_path)
    upsert(shop, users(1, 2, 3))
    for path in (tmp_path / "lake/.bridge/shop/commits").iterdir():
        record = json.loads(path.read_text())
        for table in record["tables"]:
            del table["key"]
        path.write_text(json.dumps(record))
    upsert(shop, [*users(2, name="b"), *deletions(3)])
    rows = feed(tmp_path)
    assert (2, "truncate", None) in brief(rows)
    assert applied(rows, 2) == frame(tmp_path, table="users")
    assert brief(feed(tmp_path, keys="id", from_=2)) == [(2, "update", 2), (2, "delete", 3)]
    with pytest.raises(SettingsError, match=r"(?s)a key column is not read.*columns"):
        feed(tmp_path, keys="id", columns="name")


def test_a_view(tmp_path: Path) -> None:
    """By its groups: new ones, changed ones, and those that went; its hidden columns are not among them."""
    views = Views(tmp_path)
    views.put(counts(a=1, b=2, c=3))
    views.put(counts(a=1, c=4, d=5))
    rows = frame(tmp_path, view="counts", changes="true", from_=2)
    assert [(row["_change"], row["id"], row["n"]) for row in rows] == [
        ("update", "c", 4),
        ("insert", "d", 5),
        ("delete", "b", None),
    ]
    assert frame(tmp_path, view="counts") == [{"id": "a", "n": 1}, {"id": "c", "n": 4}, {"id": "d", "n": 5}]
    Shop(tmp_path / "other").load("t", {"id": INTEGER}, [])
    with pytest.raises(SettingsError, match="this is a table"):
        source(tmp_path / "other", view="t").schema()


def test_a_rollback(tmp_path: Path) -> None:
    """Commits that were taken back are passed over; from one of them on nothing is right but an error."""
    shop = Shop(tmp_path)
    for n in (1, 2, 3):
        shop.load("t", {"id": INTEGER}, [{"id": n}])
    shop._head = roll_back(shop.storage, "shop", 1)[1]
    shop.load("t", {"id": INTEGER}, [{"id": 5}])
    assert brief(feed(tmp_path, "t")) == [(1, "insert", 1), (6, "insert", 5)]
    with pytest.raises(LakeError, match=r"(?s)it was rolled back commit=5.*begin at commit 6"):
        feed(tmp_path, "t", from_=3)
    assert brief(feed(tmp_path, "t", from_=6)) == [(6, "insert", 5)]


def test_what_is_not_kept(tmp_path: Path) -> None:
    """A record that retention deleted, before a task starts; a file that it deleted, in the task."""
    shop = Shop(tmp_path)
    upsert(shop, users(1, 2))
    upsert(shop, users(1, name="b"))
    made = source(tmp_path, table="users", changes="true", from_=2)
    reader = made.reader(made.schema())
    parts = reader.partitions()
    shutil.rmtree(shop.root / pipeline_key("shop", "trash"))
    with pytest.raises(CommitExpired, match=r"(?s)gone.*retention\.trash"):
        list(reader.read(parts[0]))
    (shop.root / pipeline_key("shop", "commits", f"{1:020d}.json")).unlink()
    with pytest.raises(LakeError, match="commit"):
        made.reader(made.schema()).partitions()


def test_a_column_of_that_name(tmp_path: Path) -> None:
    """A table with a column `_change` of its own is refused until the others are named."""
    shop = Shop(tmp_path)
    shop.load("t", {"id": INTEGER, "_change": STRING}, [{"id": 1}])
    with pytest.raises(SettingsError, match=r"(?s)a column of this name.*columns"):
        feed(tmp_path, "t")
    assert brief(feed(tmp_path, "t", columns="id")) == [(1, "insert", 1)]


def test_a_stream_reads_the_table_first(tmp_path: Path) -> None:
    """The whole table, as inserts, and then what commits change; nothing when there is nothing new."""
    shop = Shop(tmp_path)
    upsert(shop, users(1, 2))
    upsert(shop, users(2, name="b"))
    query = Query(tmp_path, table="users")
    assert sorted(brief(query.drain())) == [(2, "insert", 1), (2, "insert", 2)]
    assert query.trigger() == 0
    upsert(shop, [*users(2, name="c"), *deletions(1)])
    assert brief(query.drain()) == [(3, "update", 2), (3, "delete", 1)]
    assert applied(query.rows, 3) == frame(tmp_path, table="users")


@pytest.mark.parametrize("old", [False, True], ids=["Spark 4.2", "Spark 4.0"])
def test_a_stream_that_dies_at_each_batch(old: bool, tmp_path: Path) -> None:
    """Planned, killed, planned again from the checkpoint: the same rows; each of them once, few commits at a time."""
    shop = Shop(tmp_path)
    for n in range(1, 8):
        shop.load("t", {"id": INTEGER}, [{"id": n * 10}, {"id": n * 10 + 1}])
    query = Query(tmp_path, old=old, table="t", startingCommit=2, maxCommitsPerTrigger=2)
    sizes = [query.trigger(dies=True)]
    shop.load("t", {"id": INTEGER}, [{"id": 80}])
    while size := query.trigger(dies=True):
        query.restart()
        sizes.append(size)
    assert sizes == [4, 4, 4, 1]
    assert [row["id"] for row in query.rows] == [*(n * 10 + k for n in range(2, 8) for k in (0, 1)), 80]


def test_a_stream_with_all_that_is_available(tmp_path: Path) -> None:
    """`availableNow` ends at the commit that was the last one when it began, in batches of the limit."""
    limits = pytest.importorskip("pyspark.sql.streaming.datasource", reason="before Spark 4.2 there is no limit")
    shop = Shop(tmp_path)
    for n in range(1, 5):
        shop.load("t", {"id": INTEGER}, [{"id": n}])
    query = Query(tmp_path, table="t", startingCommit=1, maxCommitsPerTrigger=3)
    query.reader.prepareForTriggerAvailableNow()
    shop.load("t", {"id": INTEGER}, [{"id": 5}])
    assert [query.trigger(), query.trigger(), query.trigger()] == [3, 1, 0]
    fresh = Query(tmp_path, table="t", startingCommit=1, maxCommitsPerTrigger=3)
    assert fresh.reader.latestOffset(fresh.reader.initialOffset(), limits.ReadAllAvailable())["commit"] == 5


def test_a_rollback_while_a_stream_reads(tmp_path: Path) -> None:
    """Rows that it gave never were: an error that says how to start again, on each try; one before them is none."""
    shop = Shop(tmp_path)
    for n in (1, 2, 3):
        shop.load("t", {"id": INTEGER}, [{"id": n}])
    query, early = Query(tmp_path, table="t"), Query(tmp_path, table="t", startingCommit=1, maxCommitsPerTrigger=1)
    query.drain()
    early.trigger()
    shop._head = roll_back(shop.storage, "shop", 1)[1]
    for _ in range(2):
        with pytest.raises(LakeError, match=r"(?s)rolled back commit=5.*new checkpoint"):
            query.trigger()
        query.restart()
    shop.load("t", {"id": INTEGER}, [{"id": 5}])
    assert brief(early.drain()) == [(6, "insert", 5)]
    with pytest.raises(LakeError, match="rolled back"):
        query.trigger()


def test_another_lake_in_the_same_place(tmp_path: Path) -> None:
    """A lake that was made anew has the same numbers, and is not taken for the old one, longer or shorter."""
    shop = Shop(tmp_path)
    for n in (1, 2):
        shop.load("t", {"id": INTEGER}, [{"id": n}])
    query = Query(tmp_path, table="t")
    query.drain()
    for commits in (1, 2, 3):
        shutil.rmtree(shop.root)
        shop = Shop(tmp_path)
        for _ in range(commits):
            shop.load("t", {"id": INTEGER}, [{"id": 9}])
        if commits == 2:
            continue  # nothing is new, so nothing is read
        with pytest.raises(LakeError, match="made anew"):
            query.trigger()


def test_columns_that_change_while_a_stream_reads(tmp_path: Path) -> None:
    """A new column waits for a restart; another type is an error that asks for one, and loses nothing."""
    shop = Shop(tmp_path)
    shop.load("t", {"id": INTEGER}, [{"id": 1}])
    query = Query(tmp_path, table="t")
    query.drain()
    shop.load("t", {"id": INTEGER, "name": STRING}, [{"id": 2, "name": "b"}])
    (row,) = query.drain()
    assert "name" not in row
    shop.load("t", {"id": STRING}, [{"id": "x"}], evolution=Evolution())
    with pytest.raises(LakeError, match=r"(?s)another type now.*the same checkpoint"):
        query.trigger()
    query.restart()
    (row,) = query.drain()
    assert (row["id"], row["name"]) == ("x", None)


def test_a_stream_of_overwrites(tmp_path: Path) -> None:
    """Each batch has `truncate` and the new rows; after a restart too."""
    shop = Shop(tmp_path)
    shop.load("users", USERS, users(1, 2), mode="overwrite")
    query = Query(tmp_path, table="users")
    query.drain()
    for n in (3, 4):
        shop.load("users", USERS, users(n), mode="overwrite")
        query.trigger(dies=True)
        assert applied(query.rows, 99) == frame(tmp_path, table="users")


def test_what_a_stream_refuses(tmp_path: Path) -> None:
    """A stream without `changes`, one with an end, one that starts where nothing is yet."""
    Shop(tmp_path).load("t", {"id": INTEGER}, [{"id": 1}])
    made = source(tmp_path, table="t")
    with pytest.raises(SettingsError, match=r"(?s)a stream reads changes.*changes"):
        made.streamReader(made.schema())
    made = source(tmp_path, table="t", changes="true", to=1)
    with pytest.raises(SettingsError, match="a stream has no end"):
        made.streamReader(made.schema())
    with pytest.raises(SettingsError, match=r"(?s)no such commit yet.*the last commit is 1"):
        Query(tmp_path, table="t", startingCommit=3).reader.initialOffset()
    assert Query(tmp_path, table="t", startingCommit=2).drain() == []
