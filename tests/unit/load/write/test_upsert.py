"""Upserts, deletions and versions, from RECORD lines to what DuckDB reads: real decoder, ledger and committer."""

from __future__ import annotations

import random
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq
import pytest

from bridge.errors import CommitLost, DataError, EngineError, SettingsError
from bridge.lake.commit.open import open_committer
from bridge.lake.commit.rollback import roll_back
from bridge.lake.log import Log
from bridge.lake.storage import Storage
from bridge.lake.storage.protocol import Swap
from bridge.load.write.partition import Partition
from bridge.operate.verify.check import verify
from tests.support.lake import DEAD
from tests.support.pipe import Pipe, wire
from tests.support.s3server import S3Server
from tests.support.tables import INTEGER, STRING, Shop

ID = {"type": "integer"}
DELETED = {"type": ["null", "string"], "format": "date-time"}
AT = "2025-01-01T00:00:00Z"
USERS = {"id": ID, "name": STRING, "_sdc_deleted_at": DELETED}


def rows(shop: Shop, stream: str = "users") -> list[dict[str, Any]]:
    """Return what DuckDB reads of a table, the manifest's files by name."""
    storage = shop.storage
    table = Log(storage, "shop").snapshot(Log(storage, "shop").head()).tables[stream]
    files = []
    for number, name in enumerate(sorted(table.files)):
        copy = shop.spool / f"copy-{number}.parquet"
        with storage.open(f"{table.folder}/{name}") as file:
            copy.write_bytes(file.read())
        assert pq.ParquetFile(copy).metadata.num_rows == table.files[name].rows
        files.append(str(copy))
    with duckdb.connect() as connection:
        found = connection.execute("SELECT * FROM read_parquet(?, union_by_name = true)", [files])
        return [dict(zip([c[0] for c in found.description], row, strict=True)) for row in found.fetchall()]


@pytest.fixture(params=["local", "s3"])
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> Shop:
    """The pipeline `shop` over a folder and over a bucket; its table `users` has the key `id`."""
    if request.param == "local":
        return Shop(tmp_path, keys=("id",))
    server: S3Server = request.getfixturevalue("s3")
    return Shop(tmp_path, server.storage(f"s3://lake/{uuid.uuid4().hex}"), keys=("id",))


def test_each_key_is_there_once_with_its_last_values(shop: Shop) -> None:
    """Over several commits, within a batch and against the table; what is new in a SCHEMA is null in older rows."""
    first = shop.load("users", USERS, [{"id": n % 4, "name": f"a{n}"} for n in range(6)], mode="upsert")
    assert first.tables[0].merged == {"rows": 6, "inserted": 4, "updated": 0, "superseded": 2, "deleted": 0}
    later = USERS | {"age": INTEGER}
    second = shop.load("users", later, [{"id": 1, "name": "b", "age": 3}, {"id": 7}], mode="upsert")
    change = second.tables[0]
    assert change.merged == {"rows": 2, "inserted": 1, "updated": 1, "superseded": 0, "deleted": 0}
    assert change.new_rows == 2
    assert change.removes == [add.name for add in change.adds if add.name in change.removes]
    found = {row["id"]: (row["name"], row["age"]) for row in rows(shop)}
    assert len(rows(shop)) == len(found)
    assert found == {0: ("a4", None), 1: ("b", 3), 2: ("a2", None), 3: ("a3", None), 7: (None, None)}


@pytest.mark.parametrize("hard", [True, False])
def test_a_deletion_takes_the_row_or_marks_it(shop: Shop, hard: bool) -> None:
    """By `_sdc_deleted_at`; what a deletion does not say stays in the row, also of one that came in the same batch."""
    facts: dict[str, Any] = {"mode": "upsert", "hard_delete": hard}
    shop.load("users", USERS, [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}], **facts)
    shop.load(
        "users",
        USERS,
        [
            {"id": 1, "_sdc_deleted_at": AT},
            {"id": 3, "name": "c"},
            {"id": 3, "_sdc_deleted_at": AT},
            {"id": 4, "_sdc_deleted_at": AT},
        ],
        **facts,
    )
    at = datetime(2025, 1, 1, tzinfo=timezone.utc)
    gone = {} if hard else {1: ("a", at), 3: ("c", at), 4: (None, at)}
    assert {row["id"]: (row["name"], row["_sdc_deleted_at"]) for row in rows(shop)} == {2: ("b", None)} | gone
    shop.load("users", USERS, [{"id": 1, "name": "again"}], **facts)
    assert [row for row in rows(shop) if row["id"] == 1] == [{"id": 1, "name": "again", "_sdc_deleted_at": None}]


BODY = USERS | {"body": STRING}


@pytest.mark.parametrize("changes", [True, False])
def test_what_a_change_lacks_stays_as_it_was(shop: Shop, changes: bool) -> None:
    """A log leaves long values out that no UPDATE touched; a null that it says is one. Elsewhere both are null."""
    facts: dict[str, Any] = {"mode": "upsert", "changes": changes}
    whole = [{"id": n, "name": "a", "body": "long"} for n in range(4)]
    shop.load("users", BODY, [*whole, {"id": 0, "name": "in its batch"}], **facts)
    shop.load("users", BODY, [{"id": 1, "name": "b"}, {"id": 2, "body": None}, {"id": 9, "name": "new"}], **facts)
    shop.load("users", BODY, [{"id": 3, "name": None}, {"id": 3, "_sdc_deleted_at": AT}], **facts)
    kept = "long" if changes else None
    assert {row["id"]: (row["name"], row["body"]) for row in rows(shop)} == {
        0: ("in its batch", kept),
        1: ("b", kept),
        2: ("a" if changes else None, None),
        3: (None, kept),
        9: ("new", None),
    }


def test_a_change_that_lacks_columns_moves_no_row_to_another_folder(tmp_path: Path) -> None:
    """What it lacks would have to come along: the batch fails, the table stays, and the hint says what to type."""
    shop = Shop(tmp_path, keys=("id",), partition_by=(Partition("name"),), changes=True)
    shop.load("users", BODY, [{"id": n, "name": "a", "body": "long"} for n in range(2)], mode="upsert")
    shop.load("users", BODY, [{"id": 0, "name": "a"}], mode="upsert")
    with pytest.raises(DataError, match="another partition") as failure:
        shop.load("users", BODY, [{"id": 1, "name": "b"}], mode="upsert")
    assert "run --full -s users" in failure.value.hint
    assert sorted((row["id"], row["name"], row["body"]) for row in rows(shop)) == [(0, "a", "long"), (1, "a", "long")]


def test_a_missing_key_is_a_reject_and_a_null_one_a_key(tmp_path: Path) -> None:
    """Null where the SCHEMA allows it is a value, said once or twice; a record without the property is no row."""
    properties = {"id": INTEGER, "part": STRING, "name": STRING}
    records = [
        {"id": None, "part": "x", "name": "a"},
        {"part": "x", "name": "b"},
        {"id": None, "part": "x", "name": "c"},
    ]
    shop = Shop(tmp_path, keys=("id", "part"))
    record = shop.load("users", properties, records, mode="upsert", max_rejects=1)
    assert [(r["reason"], r["pointer"]) for r in shop.rejects] == [("a key is missing", "/id")]
    assert record.tables[0].merged["rows"] == 2
    assert rows(shop) == [{"id": None, "part": "x", "name": "c"}]


def test_an_appended_table_becomes_an_upsert_and_back(tmp_path: Path) -> None:
    """Rows that were appended twice become one when their key comes again."""
    shop = Shop(tmp_path)
    for _ in range(2):
        shop.load("users", USERS, [{"id": n, "name": "old"} for n in range(3)])
    shop.layout = {"keys": ("id",)}
    shop.load("users", USERS, [{"id": 1, "name": "new"}, {"id": 2, "name": "new"}], mode="upsert")
    assert Counter((row["id"], row["name"]) for row in rows(shop)) == {(0, "old"): 2, (1, "new"): 1, (2, "new"): 1}
    shop.layout = {}
    shop.load("users", USERS, [{"id": 1, "name": "more"}])
    assert Counter(row["id"] for row in rows(shop)) == {0: 2, 1: 2, 2: 1}


def test_a_full_reload_of_an_upsert_replaces_the_table(shop: Shop) -> None:
    """What `--full` does: nothing of the old table stays, and each key is there once."""
    shop.load("users", USERS, [{"id": n, "name": "old"} for n in range(5)], mode="upsert")
    shop.load(
        "users", USERS, [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}, {"id": 1, "name": "c"}], mode="overwrite"
    )
    assert sorted((row["id"], row["name"]) for row in rows(shop)) == [(1, "c"), (2, "b")]


@pytest.mark.parametrize("merged", [True, False])
@pytest.mark.parametrize("hard", [True, False])
def test_rows_of_older_versions_go_when_a_version_is_complete(shop: Shop, hard: bool, merged: bool) -> None:
    """Of an append-only table whole files do; of an upsert the rows that the new version has not touched."""
    shop.layout = {"keys": ("id",) if merged else (), "hard_delete": hard}
    mode: Any = "upsert" if merged else "append-only"
    shop.load("users", {"id": ID}, [{"id": n} for n in range(4)], mode=mode, version=1700000000)
    shop.load("users", {"id": ID}, [{"id": n} for n in (1, 2)], mode=mode, version=1700000001000)
    before = Counter(row["id"] for row in rows(shop))
    assert before == ({0: 1, 1: 1, 2: 1, 3: 1} if merged else {0: 1, 1: 2, 2: 2, 3: 1})
    record = shop.load("users", {"id": ID}, [{"id": 5}], mode=mode, version=1700000001000, activate=1700000001000)
    now = rows(shop)
    alive = sorted(row["id"] for row in now if row.get("_sdc_deleted_at") is None)
    assert alive == [1, 2, 5]
    dead = sorted(row["id"] for row in now if row.get("_sdc_deleted_at") is not None)
    assert dead == ([] if hard else [0, 3] if merged else [0, 1, 2, 3])
    change = record.tables[0]
    assert change.version == 1700000001000
    assert change.new_rows == 1
    assert change.merged["swept"] == (2 if merged else 4)


def test_older_rows_of_the_same_epoch_go_too(tmp_path: Path) -> None:
    """A tap that began its table anew between two barriers: hard at once, soft at the next commit."""
    for hard in (True, False):
        shop = Shop(tmp_path / str(hard), hard_delete=hard)
        old = ({"id": ID}, [{"id": 1}, {"id": 2}])
        shop.load("users", {"id": ID}, [{"id": 0}], version=1)
        shop.load("users", *old, version=2, before=None, activate=3)
        assert [row["id"] for row in rows(shop) if not row.get("_sdc_deleted_at")] == ([] if hard else [1, 2])
        shop.load("users", {"id": ID}, [{"id": 1}], version=3)
        assert [row["id"] for row in rows(shop) if not row.get("_sdc_deleted_at")] == [1]


def test_a_merge_that_does_not_add_up_is_no_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A spill that lost a row between its task and the merge stops the run; the table is as it was."""
    import bridge.load.write.merge.match as room

    shop = Shop(tmp_path, keys=("id",))
    shop.load("users", USERS, [{"id": 1, "name": "a"}], mode="upsert")
    whole = room.spilled
    monkeypatch.setattr(room, "spilled", lambda *a: (table.slice(1) for table in whole(*a)))
    with pytest.raises(EngineError, match="does not add up"):
        shop.load("users", USERS, [{"id": 1, "name": "b"}, {"id": 2, "name": "b"}], mode="upsert")
    assert [row["name"] for row in rows(shop)] == ["a"]


def test_a_reader_who_lists_the_folder_sees_each_key_once(tmp_path: Path) -> None:
    """While 30 commits rewrite files and add new ones, every look has each old key exactly once."""
    shop = Shop(tmp_path, keys=("id",), file_size=1 << 20)
    count = 2000
    shop.load("users", USERS, [{"id": n, "name": "0" * 50} for n in range(count)], mode="upsert")
    folder, stop, looks = shop.root / "shop/users", threading.Event(), list[Counter[int]]()

    def look() -> None:
        while not stop.is_set():
            seen: Counter[int] = Counter()
            for path in sorted(folder.glob("*.parquet")):
                seen.update(pq.ParquetFile(path).read(["id"]).column("id").to_pylist())
            looks.append(seen)

    reader = threading.Thread(target=look)
    reader.start()
    try:
        for n in range(30):
            news = [{"id": key, "name": f"{n}"} for key in (*range(n, count, 97), count + n)]
            shop.load("users", USERS, news, mode="upsert")
    finally:
        stop.set()
        reader.join()
    assert len(looks) > 10
    assert all(seen[key] == 1 for seen in looks for key in range(count))
    assert all(times == 1 for seen in looks for times in seen.values())


class Sleeper:
    """The bucket of a writer that sleeps just before it swaps a manifest, until `meanwhile` is done."""

    def __init__(self, storage: Storage, place: str, meanwhile: Callable[[], object]) -> None:
        self._storage, self._place, self._meanwhile = storage, place, [meanwhile]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._storage, name)

    def compare_and_swap(self, key: str, data: bytes, etag: str | None) -> str | None:
        if key.endswith(self._place) and self._meanwhile:
            self._meanwhile.pop()()
        return self._storage.compare_and_swap(key, data, etag)

    def swap_all(self, swaps: Sequence[Swap]) -> list[str | None]:
        return [self.compare_and_swap(swap.key, swap.data, swap.etag) for swap in swaps]


@pytest.mark.parametrize("place", ["users.manifest", "symlinks/manifest"])
@pytest.mark.parametrize("taken", ["deleted", "rolled back"])
def test_a_manifest_that_comes_back(shop: Shop, taken: str, place: str) -> None:
    """A writer that sleeps before it swaps the manifest finds the bytes that it saw, and yet takes nothing back.

    Meanwhile another run has finished its commit, and a later one has taken away the one file that was new in it.
    """
    facts: dict[str, Any] = {"mode": "upsert", "hard_delete": True}
    shop.load("users", USERS, [{"id": 1, "name": "a"}], **facts)
    seen = {name: shop.storage.read(f".bridge/tables/shop/users.{name}") for name in ("manifest", "symlinks/manifest")}

    def take_over() -> None:
        shop._head = open_committer(shop.storage, "shop", "other", last=DEAD).snapshot.n
        if taken == "deleted":
            shop.load("users", USERS, [{"id": 2, "_sdc_deleted_at": AT}], **facts)
        else:
            roll_back(shop.storage, "shop", 1)

    with pytest.raises(CommitLost):
        shop.load("users", USERS, [{"id": 2, "name": "b"}], storage=Sleeper(shop.storage, place, take_over), **facts)
    for name, lines in seen.items():
        assert shop.storage.read(f".bridge/tables/shop/users.{name}") == lines
    assert [row["id"] for row in rows(shop)] == [1]
    assert [one for one in verify(shop.storage, "shop").findings if one.check == "manifest"] == []


@pytest.mark.parametrize("every", [0, 5])
def test_rows_that_wait_to_be_merged_fill_the_spool(tmp_path: Path, every: int) -> None:
    """They count towards `spool.max_bytes`, and yet nothing stands still where no STATE lets them go: that is told."""
    schema = {"properties": {"id": ID, "name": STRING}}
    rng = random.Random(1)

    def said() -> Iterator[bytes]:
        yield wire({"type": "SCHEMA", "stream": "users", "schema": schema, "key_properties": ["id"]})
        for number in range(40):
            noise = rng.randbytes(100_000).hex()
            yield wire({"type": "RECORD", "stream": "users", "record": {"id": number % 30, "name": noise}})
            if every and number % every == 0:
                bookmark = {"replication_key": "id", "replication_key_value": number}
                yield wire({"type": "STATE", "value": {"bookmarks": {"users": bookmark}}})

    limits = {"commit": {"bytes": "1MiB", "every": "1h"}, "spool": {"max_bytes": "3MiB"}}
    found = Pipe(tmp_path).load(said(), load_method="upsert", **limits)
    assert found.error is None
    assert sorted(row["id"] for row in found.rows("users")) == list(range(30))
    warned = [text for text in found.warnings if "spool.max_bytes" in text]
    assert (len(warned), found.commits > 1) == ((0, True) if every else (1, False)), found.warnings


@pytest.mark.parametrize("method", ["overwrite", "upsert", "append-only"])
@pytest.mark.parametrize(("version", "left"), [(3, []), (1, [1, 2])], ids=["new", "known"])
def test_an_emptied_table_after_a_run_that_died_at_another_stream(
    tmp_path: Path, method: str, version: int, left: list[int]
) -> None:
    """A new ACTIVATE_VERSION proves that the tap has read the table, whatever `currently_syncing` said."""
    how: dict[str, Any] = {"load_method": method, "hard_delete": True, "guard": {"shrink": None}, "commit": {"rows": 1}}
    how["streams"] = {"other": {"load_method": "append-only"}}
    schemas = [
        {"type": "SCHEMA", "stream": name, "schema": {"properties": {"id": ID}}, "key_properties": ["id"]}
        for name in ("users", "other")
    ]
    users = [{"type": "RECORD", "stream": "users", "record": {"id": n}, "version": 1} for n in (1, 2)]

    def active(number: int) -> dict[str, Any]:
        return {"type": "ACTIVATE_VERSION", "stream": "users", "version": number}

    def syncing(name: str | None, number: int) -> dict[str, Any]:
        bookmarks = {"users": {}, "other": {"id": number}}
        return {"type": "STATE", "value": {"bookmarks": bookmarks, "currently_syncing": name}}

    pipe, other = Pipe(tmp_path), {"type": "RECORD", "stream": "other", "record": {"id": 1}}
    pipe.load(wire(schemas[0], *users, active(1), syncing(None, 0)), **how)
    dies = pipe.load(wire(schemas[1], syncing("other", 0), other, syncing("other", 1)), fails=True, **how)
    assert dies.state["currently_syncing"] == "other"
    found = pipe.load(wire(schemas[0], active(version), schemas[1], syncing(None, 1)), **how)
    assert found.error is None
    assert sorted(row["id"] for row in found.rows("users")) == left


def test_a_key_in_two_columns(tmp_path: Path) -> None:
    """An append-only table is not merged by a column that has become two: nothing is lost, and `--full` mends it."""
    how: dict[str, Any] = {"streams": {"s": {"on_type_change": "variant"}}}

    def said(kind: dict[str, Any], *values: Any) -> bytes:
        schema = {"type": "SCHEMA", "stream": "s", "schema": {"properties": {"k": kind}}, "key_properties": []}
        rows = [{"type": "RECORD", "stream": "s", "record": {"k": value}} for value in values]
        return wire(schema, *rows, {"type": "STATE", "value": {"bookmarks": {"s": {"at": str(values)}}}})

    pipe = Pipe(tmp_path)
    for kind, values in ((INTEGER, (0, 1, 2)), (STRING, ("x",))):
        before = pipe.load(said(kind, *values), load_method="append-only", **how)
    how["streams"]["s"]["key_properties"] = ["k"]
    refused = pipe.load(said(INTEGER, 9, 1), load_method="upsert", **how)
    assert isinstance(refused.error, SettingsError)
    assert "a key is in two columns, as its type has changed key=k" in refused.error.message
    assert "--full" in refused.error.hint
    assert refused.state == before.state
    assert sorted(refused.rows("s"), key=str) == sorted(before.rows("s"), key=str)
    assert len(before.rows("s")) == 4
    done = pipe.load(said(STRING, "9", "1", "9"), load_method="upsert", full=True, **how)
    assert (done.error, sorted(done.rows("s"), key=str)) == (None, [{"k": "1"}, {"k": "9"}])
