"""A target's tap is started again: what the rollback of its rows does with views of them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bridge.lake.commit.committer import Committer
from bridge.lake.commit.open import open_committer
from bridge.lake.commit.rollback import roll_back
from bridge.lake.file_records import FileAdd, RejectFile
from bridge.lake.paths import file_name, pipeline_key
from bridge.lake.pipeline_state import PipelineState
from bridge.lake.records import TableChange, TableState
from bridge.lake.schemas import keep_schema
from bridge.lake.storage.local.storage import LocalStorage
from bridge.load.run.checks.replay_guard import ReplayGuard
from bridge.load.tap.stdin import Start
from bridge.protocol.schema.table_schema import TableSchema


class ViewCommits:
    """The pipeline `p`; each `commit` is of the run `run`."""

    def __init__(self, root: Path) -> None:
        self.storage, self.n, self.files = LocalStorage(root), 0, 0

    def open(self, run: str = "run", closed: int | None = None) -> Committer:
        return open_committer(self.storage, "p", run, last={"closed": closed or self.n})

    def commit(
        self,
        tables: dict[str, Sequence[int]],
        views: dict[str, str],
        uncovered: Sequence[str] = (),
        rejects: Sequence[RejectFile] = (),
    ) -> None:
        """Add these ids to the tables, and replace these views, whose file has the number of the commit."""
        committer = self.open()
        changes = [self._change(committer, stream, ids) for stream, ids in tables.items()]
        changes += [self._change(committer, view, [self.n + 1], sql) for view, sql in views.items()]
        facts: Any = ({"uncovered": uncovered} if uncovered else {}) | {"rejects": rejects, "through": 1}
        self.n = committer.commit(state(self.n + 1), changes, **facts).n

    def _change(self, committer: Committer, name: str, ids: Sequence[int], sql: str = "") -> TableChange:
        self.files += 1
        file, table = file_name(committer.generation, self.files), pa.table({"id": ids})
        source = pipeline_key("p", "pending", f"{file}.pending")
        with closing(self.storage.open_pending(source, f"p/{name}/{file}")) as out:
            pq.write_table(table, out)
            size = out.tell()
        schema = keep_schema(self.storage, "p", TableSchema(table.schema))
        old = committer.snapshot.tables.get(name) or TableState(f"p/{name}", schema)
        removes = list(old.files) if sql else []
        now = TableState(f"p/{name}", schema, view=sql)
        add = FileAdd(name=file, source=source, size=size, rows=len(ids))
        return now.change(name, [add], removes, replaces=bool(removes))


def state(n: int) -> PipelineState:
    return PipelineState({"bookmarks": {"s": {"n": n}}})


def tables(committer: Committer) -> dict[str, tuple[int, str]]:
    """Rows and SELECT of each table."""
    return {name: (table.rows, table.view) for name, table in committer.snapshot.tables.items()}


def counts(stream: str) -> str:
    return f"SELECT id, count(*) AS n FROM {stream} GROUP BY id"


def test_rows_and_their_views_stay_visible_until_they_come_again(tmp_path: Path) -> None:
    """Each commit replaces a view's files; that does not make a rollback of appended rows happen at once."""
    lake = ViewCommits(tmp_path)
    lake.commit({"s": [1, 2]}, {"v": counts("s")})
    first = lake.open().snapshot.tables["v"]
    lake.commit({"s": [3]}, {"v": counts("s")})
    committer = lake.open("next")
    guard = ReplayGuard(committer, Start(state(1).shown))
    assert (guard.pending, tables(committer)) == (True, {"s": (3, ""), "v": (1, counts("s"))})
    guard.roll_back()
    assert tables(committer) == {"s": (2, ""), "v": (1, counts("s"))}
    (file,) = committer.snapshot.tables["v"].files
    assert pq.read_table(tmp_path / "p/v" / file)["id"].to_pylist() == [1]
    assert file not in first.files  # it came back under a new name


def test_a_table_that_was_replaced_is_rolled_back_at_once(tmp_path: Path) -> None:
    """The tap knows the table that was there before; views change nothing about that."""
    lake = ViewCommits(tmp_path)
    lake.commit({"s": [1, 2]}, {"v": counts("s")})
    committer = lake.open()
    change = lake._change(committer, "s", [9])
    old = committer.snapshot.tables["s"]
    lake.n = committer.commit(state(2), [old.change("s", change.adds, list(old.files), replaces=True)]).n
    committer = lake.open("next")
    guard = ReplayGuard(committer, Start(state(1).shown))
    assert (guard.pending, tables(committer)["s"][0]) == (False, 2)


def test_a_view_that_had_moved_to_the_stream_is_filled_again(tmp_path: Path) -> None:
    """Rows that a commit's STATE does not cover go, of one stream only: no view goes back to another stream's rows."""
    lake = ViewCommits(tmp_path)
    lake.commit({"a": [1], "s": [1]}, {"v": counts("a"), "w": counts("s")})
    lake.commit({"a": [2], "s": [2]}, {"v": counts("s"), "w": counts("s")}, uncovered=["s"])
    committer = lake.open("next")
    guard = ReplayGuard(committer, Start(state(2).shown))
    assert guard.pending
    guard.roll_back()
    assert tables(committer) == {"a": (2, ""), "s": (1, ""), "v": (1, ""), "w": (1, counts("s"))}


def test_a_view_that_was_repaired_since(tmp_path: Path) -> None:
    """`views verify --repair` keeps the STATE and the rows that it does not cover: they go, from the view, too."""
    lake = ViewCommits(tmp_path)
    lake.commit({"s": [1]}, {"v": counts("s")})
    lake.commit({"s": [2]}, {"v": counts("s")}, uncovered=["s"])
    committer = lake.open()
    repaired = lake._change(committer, "v", [3], counts("s"))
    lake.n = committer.commit(state(2), [repaired]).n
    committer = lake.open("next")
    guard = ReplayGuard(committer, Start(state(2).shown))
    assert guard.pending
    guard.roll_back()
    assert tables(committer) == {"s": (1, ""), "v": (1, counts("s"))}
    (file,) = committer.snapshot.tables["v"].files
    assert pq.read_table(tmp_path / "p/v" / file)["id"].to_pylist() == [1]


def test_a_view_that_was_repaired_between_a_death_and_its_replay(tmp_path: Path) -> None:
    """The repair is no run that loaded: what the dead run committed is taken back all the same."""
    lake = ViewCommits(tmp_path)
    lake.commit({"s": [1]}, {"v": counts("s")})
    lake.commit({"s": [2]}, {"v": counts("s")})
    committer = lake.open("verify")
    repaired = lake._change(committer, "v", [3], counts("s"))
    lake.n = committer.commit(state(2), [repaired], reason="views verify --repair: filled again").n
    committer = lake.open("next")
    guard = ReplayGuard(committer, Start(state(1).shown))
    assert (guard.pending, guard.notes) == (True, [])
    guard.roll_back()
    assert tables(committer) == {"s": (1, ""), "v": (1, counts("s"))}


def test_rows_that_were_added_since_stay(tmp_path: Path) -> None:
    """Rows that somebody else added after the tap's last ones cannot be told from them: the run says so."""
    lake = ViewCommits(tmp_path)
    lake.commit({"s": [1]}, {})
    lake.commit({"s": [2]}, {}, uncovered=["s"])
    committer = lake.open()
    adopted = [lake._change(committer, "s", [9])]
    lake.n = committer.commit(state(2), adopted, reason="files were adopted").n
    committer = lake.open("next")
    guard = ReplayGuard(committer, Start(state(2).shown))
    assert not guard.pending
    assert "in append-only tables twice" in guard.notes[0]
    assert tables(committer) == {"s": (3, "")}
    guard = ReplayGuard(committer, Start(state(1).shown))  # nor does a replay from before take them
    assert (guard.pending, len(guard.notes)) == (False, 1)


def replayed(lake: ViewCommits, file: str = ".bridge/p/rejects/run-1.jsonl") -> None:
    """Two commits with a row each, the last with a reject too, and its replay, which makes a row of it."""
    reject = RejectFile(stream="s", file=file, lines=1, reasons={"wrong type": (1, 10)})
    lake.storage.write(file, b"{}\n")
    lake.commit({"s": [1]}, {})
    lake.commit({"s": [2]}, {}, uncovered=["s"], rejects=[reject])
    committer = lake.open("replay")
    changes = [lake._change(committer, "s", [9])]
    lake.n = committer.commit(state(2), changes, kind="replay", consumed=[file], through=1).n
    assert not committer.snapshot.rejects


@pytest.mark.parametrize("start", [1, 2])
def test_a_replay_of_rejects_is_undone(tmp_path: Path, start: int) -> None:
    """The tap sends the rejects again, so their rows go, and a note names the replay; no reject is lost."""
    lake = ViewCommits(tmp_path)
    replayed(lake)
    committer = lake.open("next")
    guard = ReplayGuard(committer, Start(state(start).shown))
    assert guard.pending
    [note] = guard.notes
    assert note.startswith("s: the replay of rejects at commit 3 is taken back")
    guard.roll_back()
    assert tables(committer) == {"s": (1, "")}
    assert committer.snapshot.state == state(start).shown
    assert not committer.snapshot.rejects  # they came with the rows that the tap sends again


def test_rejects_of_covered_rows_are_rejects_again(tmp_path: Path) -> None:
    """The tap does not send these: what was replayed of them is undone with the table, and they are not lost."""
    lake = ViewCommits(tmp_path)
    reject = RejectFile(stream="s", file=".bridge/p/rejects/run-1.jsonl", lines=1, reasons={"wrong type": (1, 10)})
    lake.storage.write(reject.file, b"{}\n")
    lake.commit({"s": [1]}, {}, rejects=[reject])
    lake.commit({"s": [2]}, {})
    committer = lake.open("replay")
    changes = [lake._change(committer, "s", [9])]
    lake.n = committer.commit(state(2), changes, kind="replay", consumed=[reject.file], through=1).n
    for is_there in (False, True):
        if not is_there:
            lake.storage.delete(reject.file)  # then the replay's row is the only one
        else:
            lake.storage.write(reject.file, b"{}\n")
        committer = lake.open("next")
        guard = ReplayGuard(committer, Start(state(1).shown))
        assert guard.pending == is_there
    guard.roll_back()
    assert tables(committer) == {"s": (1, "")}
    assert list(committer.snapshot.rejects) == [reject.file]


@pytest.mark.parametrize("given", [1, 7])
def test_a_state_that_was_set_in_between(tmp_path: Path, given: int) -> None:
    """To that from which the tap starts, or to another one: what the dead run committed is there once."""
    lake = ViewCommits(tmp_path)
    lake.commit({"s": [1]}, {})
    lake.commit({"s": [2]}, {})
    committer = lake.open("set")
    committer.set_state(state(given).shown, "state set")
    lake.n = committer.snapshot.n
    committer = lake.open("next")
    guard = ReplayGuard(committer, Start(state(1).shown))
    assert (guard.pending, guard.notes) == (True, [])
    guard.roll_back()
    assert tables(committer) == {"s": (1, "")}
    assert committer.snapshot.state == state(1).shown


def test_a_rollback_to_rows_after_the_last_state(tmp_path: Path) -> None:
    """Somebody rolled back to a commit whose STATE does not cover its rows: the tap sends them again."""
    lake = ViewCommits(tmp_path)
    lake.commit({"s": [1]}, {})
    lake.commit({"s": [2]}, {}, uncovered=["s"])
    lake.commit({"s": [3]}, {})
    roll_back(lake.storage, "p", 2)
    committer = lake.open("next", closed=4)
    guard = ReplayGuard(committer, Start(state(2).shown))
    assert (guard.pending, guard.notes) == (True, [])
    guard.roll_back()
    assert tables(committer) == {"s": (1, "")}
