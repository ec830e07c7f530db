"""`rollback`: data and STATE are those of an earlier commit again, whatever dies in between."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import duckdb
import pytest
from msgspec import structs

from bridge.errors import CommitLost, LakeError, SettingsError
from bridge.lake.commit.committer import Committer
from bridge.lake.commit.open import open_committer, recover
from bridge.lake.commit.rollback import RollbackPlan, follows_a_log, plan, roll_back
from bridge.lake.log import Log, Snapshot
from bridge.lake.ownership import Owner, claim
from bridge.lake.pipeline_state import PipelineState
from bridge.operate.verify.check import verify
from bridge.operate.verify.mend import repair
from tests.support.dying import die_at
from tests.support.lake import FIRST, Lake, closed
from tests.support.records import staged_table, table_change
from tests.support.tables import INTEGER, STRING, Shop

ID = {"id": INTEGER}
ALL = {1: {"orders": [1]}, 2: {"orders": [1, 2]}, 3: {"orders": [1, 2], "users": [7]}, 4: {"orders": [9], "users": [7]}}
"""What the tables hold after each commit of the shop; the fourth replaces one."""


def made(root: Path) -> Shop:
    """A lake of four commits and a fence, whose lease is closed and in which nothing is wrong."""
    shop = Shop(root)
    shop.load("orders", ID, [{"id": 1}])
    shop.load("orders", ID, [{"id": 2}])
    shop.load("users", ID, [{"id": 7}])
    shop.load("orders", {**ID, "name": STRING}, [{"id": 9, "name": "x"}], mode="overwrite")
    recover(shop.storage, "shop")
    repair(shop.storage, "shop")
    return shop


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return made(tmp_path)


def head(shop: Shop) -> Snapshot:
    log = Log(shop.storage, "shop")
    return log.snapshot(log.head())


def back(shop: Shop, to: int) -> int:
    """Roll back, and return the commit that did it."""
    return roll_back(shop.storage, "shop", to)[1]


def rows(shop: Shop, stream: str) -> list[int]:
    """What another engine reads of a table's folder."""
    folder = shop.root / "shop" / stream
    if not any(folder.glob("*")):
        return []
    query = f"select id from read_parquet('{folder}/*', union_by_name=true) order by id"
    return [row[0] for row in duckdb.sql(query).fetchall()]


def holds(shop: Shop, commit: int) -> None:
    """The tables, the STATE, and all that is derived are those of this commit."""
    wanted = ALL[commit]
    assert {stream: rows(shop, stream) for stream in ("orders", "users")} == {"orders": [], "users": []} | wanted
    state = {"bookmarks": {"n": commit}}
    assert json.loads((shop.root / ".bridge/shop/state.json").read_bytes()) == head(shop).state == state
    assert verify(shop.storage, "shop").findings == []


@pytest.mark.parametrize("to", [1, 2, 3])
def test_data_and_state_go_back(shop: Shop, to: int) -> None:
    """One commit of its own kind; tables that came later are empty, and the next run goes on from there."""
    n = back(shop, to)
    holds(shop, to)
    record = Log(shop.storage, "shop").record(n)
    assert record
    assert (record.kind, record.to, record.reason) == ("rollback", to, f"rollback to commit {to}")
    shop._head = n
    shop.load("orders", ID, [{"id": 50}])
    shop.load("users", ID, [{"id": 60}])
    assert rows(shop, "orders") == [*ALL[to]["orders"], 50]
    assert rows(shop, "users") == [*ALL[to].get("users", []), 60]


def test_a_rollback_can_be_rolled_back(shop: Shop) -> None:
    """To and fro, however often; names of files are never used twice, and what stays is not touched."""
    for to in (2, 4, 1, 3, 2, 4):
        before = set(head(shop).tables["users"].files)
        back(shop, to)
        holds(shop, to)
        if to in (3, 4) and before:
            assert set(head(shop).tables["users"].files) == before
    log = Log(shop.storage, "shop")
    adds = [add.name for record in log.history(log.head()) for change in record.tables for add in change.adds]
    assert len(set(adds)) == len(adds)
    assert [record.kind for record in log.history(log.head())][:6] == ["rollback"] * 6


def test_a_rollback_to_one(shop: Shop) -> None:
    """The commit of a rollback is one to go back to, like any other."""
    first = back(shop, 2)
    back(shop, 4)
    back(shop, first)
    holds(shop, 2)


def test_the_schema_of_then(shop: Shop) -> None:
    """The columns are those of then, too: what came later is no column of the table any more."""
    now = head(shop).tables["orders"].schema
    back(shop, 2)
    then = head(shop).tables["orders"].schema
    assert then == Log(shop.storage, "shop").snapshot(2).tables["orders"].schema != now


def test_nothing_to_do(shop: Shop) -> None:
    """Of the last commit, or of one that only a fence came after, nothing is made anew."""
    before = head(shop).n
    for to in (4, before):
        done, n, _ = roll_back(shop.storage, "shop", to)
        assert done.nothing_to_do
        assert n == before


# what is refused


def test_past_the_trash(shop: Shop) -> None:
    """A commit that needs a file that the retention deleted is refused, and the earliest that can be had is named."""
    back(shop, 1)
    lost = next((shop.root / ".bridge/shop/trash").glob("*/shop/users/*"))
    lost.unlink()
    everything = Lake(shop.root).everything()
    with pytest.raises(LakeError, match="a file of that commit is gone") as caught:
        back(shop, 3)
    assert lost.name.removesuffix(".removed") in str(caught.value)
    assert "only the last commit can be restored" in caught.value.hint
    assert {**Lake(shop.root).everything(), ".bridge/shop/lease.json": b""} == {
        **everything,
        ".bridge/shop/lease.json": b"",
    }


def test_the_earliest_that_can_be_had(shop: Shop) -> None:
    """Commits in between that need nothing of what is gone can still be had."""
    for file in (shop.root / ".bridge/shop/trash").glob("*/shop/orders/*"):
        file.unlink()
    back_at = {}
    shop._head = head(shop).n
    for number in (10, 11):
        shop.load("orders", ID, [{"id": number}])
        back_at[number] = head(shop).n
    with pytest.raises(LakeError, match="and_others=1") as caught:
        back(shop, 2)
    assert "the earliest commit that can be restored is 4" in caught.value.hint
    back(shop, back_at[10])
    assert rows(shop, "orders") == [9, 10]


def test_a_commit_that_never_was(shop: Shop) -> None:
    """A number that the log does not have yet is no commit."""
    with pytest.raises(SettingsError, match="there is no such commit") as caught:
        back(shop, 77)
    assert "commits list" in caught.value.hint


def test_a_commit_that_was_taken_back(shop: Shop) -> None:
    """What a void took back was never visible: it cannot be gone back to."""
    shop._head = head(shop).n
    taken = shop._head + 1
    shop.lose("orders", ID, [{"id": 5}])
    shop.load("orders", ID, [{"id": 6}])
    with pytest.raises(SettingsError, match="this commit was taken back") as caught:
        back(shop, taken)
    assert f"roll back to {taken - 1}" in caught.value.hint
    back(shop, taken - 1)
    assert rows(shop, "orders") == [9]


def test_a_commit_before_the_log(shop: Shop) -> None:
    """What the retention cut off the log cannot be known any more."""
    shop.storage.write(".bridge/shop/begins.json", b'{"format": 1, "first": 3, "swept": 3}')
    with pytest.raises(LakeError, match="not in the log any more"):
        plan(Log(shop.storage, "shop"), head(shop), 2)


def test_what_was_confirmed_is_what_is_done(shop: Shop) -> None:
    """If somebody committed since the plan was shown, nothing is done."""
    log = Log(shop.storage, "shop")
    seen = plan(log, head(shop), 2)
    shop._head = head(shop).n
    shop.load("users", ID, [{"id": 8}])
    with pytest.raises(CommitLost, match="has changed since it was shown"):
        roll_back(shop.storage, "shop", 2, seen)
    assert rows(shop, "users") == [7, 8]
    roll_back(shop.storage, "shop", 2, plan(log, head(shop), 2))
    holds(shop, 2)


# half loaded, shared


def staged(lake: Lake, committer: Committer, version: int, mark: int) -> dict[str, Any]:
    file = lake.pending(committer.generation)
    stage = {"s": staged_table(version, file)}
    committer.commit(PipelineState({"bookmarks": {"s": {"version": version, "pk": mark}, "o": mark}}), [], staged=stage)
    return file


def test_half_loaded_then(tmp_path: Path) -> None:
    """Rows that were staged then are gone: their stream starts again, and the others go on from their bookmarks."""
    lake = Lake(tmp_path)
    committer = lake.open(FIRST)
    staged(lake, committer, 1, 5)
    lake.load(committer, {"bookmarks": {"s": {"done": True}, "o": 9}}, staged={})
    recover(lake.storage, "p")
    done, _, _ = roll_back(lake.storage, "p", 1)
    assert done.restarted == ("s",)
    assert lake.state == {"bookmarks": {"o": 5}}
    assert lake.visible() == set()


def test_half_loaded_now(tmp_path: Path) -> None:
    """What is staged now is dropped with the STATE that speaks of it; what was staged then already stays."""
    lake = Lake(tmp_path)
    committer = lake.open(FIRST)
    lake.load(committer, {"bookmarks": {"o": 1}})
    staged(lake, committer, 1, 5)
    file = lake.load(committer, committer.snapshot.state, staged=committer.snapshot.staged)
    recover(lake.storage, "p")
    assert roll_back(lake.storage, "p", 2)[0].restarted == ()
    assert lake.open(closed(5)).snapshot.staged.keys() == {"s"}
    assert (lake.state, file["name"] in lake.visible()) == (
        {"bookmarks": {"s": {"version": 1, "pk": 5}, "o": 5}},
        False,
    )
    assert roll_back(lake.storage, "p", 1)[0].dropped == ("s",)
    assert lake.state == {"bookmarks": {"o": 1}}
    assert lake.open(closed(6)).snapshot.staged == {}
    assert lake.waiting == set()


def test_a_shared_table(tmp_path: Path) -> None:
    """Only what is in our own log goes; the other's files stay, and the manifest has them."""
    lake = Lake(tmp_path)
    claim(lake.storage, "p/s", Owner("p", "s"), shared=True)
    claim(lake.storage, "p/s", Owner("q", "s"), shared=True)
    ours = lake.open(FIRST)
    files = []
    for number, committer in enumerate((ours, open_committer(lake.storage, "q", "other", last=FIRST), ours)):
        files.append(lake.pending(0, committer.log.pipeline))
        committer.commit(PipelineState({"n": number}), [structs.replace(lake.entry(files[-1]), shared=True)])
    recover(lake.storage, "p")
    roll_back(lake.storage, "p", 1)
    assert lake.visible() == lake.manifest() == {files[0]["name"], files[1]["name"]}


# crashes


@pytest.mark.heavy
def test_death_at_every_step(tmp_path: Path) -> None:
    """Wherever a rollback is killed, recovery leaves the lake before it or after it, and it can be done again."""
    shop = made(tmp_path)
    fresh, step, ends = tmp_path / "fresh", 0, []
    shop.root.rename(fresh)
    while True:
        shutil.copytree(fresh, shop.root)
        if not die_at(shop.root, step, lambda: back(shop, 2)).killed:
            break
        recover(shop.storage, "shop")
        ends.append(head(shop).state["bookmarks"]["n"])
        repair(shop.storage, "shop")  # what people read of a stream is only written at the end
        holds(shop, ends[-1])
        back(shop, 2)
        holds(shop, 2)
        shutil.rmtree(shop.root)
        step += 1
    holds(shop, 2)
    assert ends == sorted(ends, reverse=True), "once it is on record it is done"
    assert set(ends) == {2, 4}


def test_death_and_a_lost_file(shop: Shop) -> None:
    """If the trash is emptied between the commit and its publishing, the rollback is taken back as a whole."""
    record = f"{head(shop).n + 1:020d}.json"
    steps = die_at(shop.root, None, lambda: back(shop, 1)).steps
    created = next(place for place, step in enumerate(steps) if step.startswith("os.link") and step.endswith(record))
    back(shop, 4)
    assert die_at(shop.root, created + 2, lambda: back(shop, 1)).killed
    lost = next(Log(shop.storage, "shop").history(head(shop).n)).tables[0].adds[0].source
    (shop.root / lost).unlink()
    done = recover(shop.storage, "shop")
    assert "taken back" in done.notes[0]
    assert done.finished is None
    repair(shop.storage, "shop")
    holds(shop, 4)


def test_on_s3(s3: Any, tmp_path: Path) -> None:
    """The same in a bucket: files come back from the trash and go there, and the other way round."""
    storage = s3.storage("s3://rollback/lake")
    names: list[str] = []
    for number, removes in ((1, False), (2, False), (3, True)):
        committer = open_committer(storage, "p", "run", last={} if number == 1 else closed(number - 1))
        name = f"part-{committer.generation:010d}-000001-{number:032x}.parquet"
        source = f".bridge/p/pending/{name}.pending"
        file = storage.open_pending(source, f"p/s/{name}")
        file.write(b"rows" * number)
        file.close()
        add = {"name": name, "source": source, "size": 4 * number, "rows": 1, "upload": file.upload}
        change = table_change([add], names if removes else (), mode="replace" if removes else "append")
        committer.commit(PipelineState({"n": number}), [change])
        names = [*names, name]
    recover(storage, "p")

    def sizes() -> list[int | None]:
        return sorted(storage.size(f"p/s/{name}") or 0 for name in storage.list("p/s"))

    assert sizes() == [12]
    for to, wanted in ((2, [4, 8]), (3, [12]), (1, [4])):
        roll_back(storage, "p", to)
        assert sizes() == wanted
        assert json.loads(storage.read(".bridge/p/state.json") or b"") == {"n": to}


# what cannot be read again


@pytest.mark.parametrize(
    ("before", "after", "known", "found"),
    [
        ({"bookmarks": {"a": {"lsn": 2}}}, {"bookmarks": {"a": {"lsn": 1}}}, set(), ["a"]),
        ({"bookmarks": {"a": {"lsn": 2}}}, {"bookmarks": {"a": {"lsn": 2}}}, set(), []),
        ({"bookmarks": {"a": {"log_file": "x"}}}, None, set(), ["a"]),
        ({"bookmarks": {"a": {"replication_key": "_sdc_lsn", "replication_key_value": 2}}}, {}, set(), ["a"]),
        ({"bookmarks": {"a": {"replication_key": "id"}}}, {"bookmarks": {}}, set(), []),
        ({"bookmarks": {"a": {"position": 5}}}, {"bookmarks": {}}, {"a"}, ["a"]),
        ({"lsn": 5}, {"lsn": 4}, set(), ["lsn"]),
        ({"users": 5}, {"users": 4}, set(), []),
    ],
)
def test_positions_in_a_log_are_known(before: Any, after: Any, known: set[str], found: list[str]) -> None:
    """What a tap read of a database's log may be gone there: such streams are told by catalog, or by bookmark."""
    assert follows_a_log(before, after, known) == found


def test_a_plan_writes_nothing(shop: Shop) -> None:
    """Looking at what would be done leaves every file as it is."""
    everything = Lake(shop.root).everything()
    shown = plan(Log(shop.storage, "shop"), head(shop), 1)
    assert isinstance(shown, RollbackPlan)
    changes = {c.stream: (c.now.rows, c.then.rows, len(c.back), len(c.removed)) for c in shown.tables}
    assert changes == {"orders": (1, 1, 1, 1), "users": (1, 0, 0, 1)}
    assert Lake(shop.root).everything() == everything
