"""The witnesses themselves: what a look must not show is noticed, what it may show is not complained about."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from .history import History
from .lakes import Folder
from .readers import Look, Reader, Watch, duckdb_look, listing_look, manifest_look, pyarrow_look

ROWS = 3


@pytest.fixture(params=[duckdb_look, pyarrow_look, listing_look], ids=["duckdb", "pyarrow", "listing"])
def look(request: pytest.FixtureRequest, tmp_path: Path) -> Look:
    """A reader of the lake."""
    made: Look = request.param(Folder(tmp_path))
    return made


def _commit(bucket: Path, adds: list[str], removes: list[str], *, mode: str = "append", kind: str = "data") -> None:
    """Write the next record by hand."""
    folder = bucket / ".bridge" / "crash" / "commits"
    folder.mkdir(parents=True, exist_ok=True)
    n = len(list(folder.iterdir())) + 1
    table = {"stream": "t", "mode": mode, "adds": [{"name": name, "rows": ROWS} for name in adds], "removes": removes}
    record = {"n": n, "kind": kind, "state": None, "tables": [table] if kind == "data" else []}
    (folder / f"{n:020d}.json").write_text(json.dumps(record))


def _show(bucket: Path, *names: str, rows: int = ROWS) -> None:
    """Make the folder hold exactly these files."""
    folder = bucket / "crash" / "t"
    folder.mkdir(parents=True, exist_ok=True)
    for path in folder.iterdir():
        path.unlink()
    for name in names:
        pq.write_table(pa.table({"id": list(range(rows))}), folder / name)


def _complaint(bucket: Path, look: Look) -> str | None:
    history = History(bucket, "crash")
    head = history.head()
    return history.complaint("t", look("crash/t"), head, head)


OLD, NEW = ["a1.parquet", "a2.parquet"], ["b1.parquet", "b2.parquet"]


@pytest.mark.parametrize("shown", [OLD, NEW])
def test_during_a_swap_a_look_is_the_old_table_or_the_new_one(tmp_path: Path, look: Look, shown: list[str]) -> None:
    """The last commit may still be on its way."""
    _commit(tmp_path, OLD, [])
    _commit(tmp_path, NEW, OLD, mode="replace")
    _show(tmp_path, *shown)
    assert _complaint(tmp_path, look) is None


@pytest.mark.parametrize("shown", [["a1.parquet", "b2.parquet"], ["b1.parquet"], [*OLD, *NEW]])
def test_a_mix_of_two_generations_is_noticed(tmp_path: Path, look: Look, shown: list[str]) -> None:
    """Parts of both, both, and half of one are neither table."""
    _commit(tmp_path, OLD, [])
    _commit(tmp_path, NEW, OLD, mode="replace")
    _show(tmp_path, *shown)
    assert "neither an old table nor a new one" in str(_complaint(tmp_path, look))


def test_some_files_of_an_append_may_be_seen_before_the_others(tmp_path: Path, look: Look) -> None:
    """But only of the last commit: one with a successor is published."""
    _commit(tmp_path, OLD, [])
    _commit(tmp_path, NEW, [])
    _show(tmp_path, *OLD, "b2.parquet")
    assert _complaint(tmp_path, look) is None
    _show(tmp_path, "a2.parquet", *NEW)
    assert "missing=['a1.parquet']" in str(_complaint(tmp_path, look))


def test_a_fence_does_not_settle_the_commit_before_it(tmp_path: Path, look: Look) -> None:
    """A run that died between its commit and its publication is followed by a fence first."""
    _commit(tmp_path, OLD, [])
    _commit(tmp_path, [], [], kind="fence")
    _show(tmp_path, "a1.parquet")
    assert _complaint(tmp_path, look) is None


def test_an_uncommitted_file_is_noticed(tmp_path: Path, look: Look) -> None:
    """A row is visible only if a commit names its file."""
    _commit(tmp_path, OLD, [])
    _show(tmp_path, *OLD, "x.parquet")
    assert _complaint(tmp_path, look) == "uncommitted files: ['x.parquet']"


def test_a_file_with_other_rows_than_committed_is_noticed(tmp_path: Path, look: Look) -> None:
    """A file is seen whole."""
    _commit(tmp_path, OLD, [])
    _show(tmp_path, *OLD, rows=ROWS - 1)
    assert "files in part" in str(_complaint(tmp_path, look))


class _Slowly(Folder):
    """A lake whose tables are replaced file by file, as a bucket's are."""

    exchanges = False


@pytest.mark.parametrize(
    ("shown", "fine"),
    [
        (OLD, True),
        ([*OLD, "b1.parquet"], True),
        ([*OLD, *NEW], True),
        (["a2.parquet", *NEW], True),
        (NEW, True),
        (["a1.parquet", "b1.parquet"], False),
        (["a1.parquet"], False),
        (["b1.parquet"], False),
        ([], False),
    ],
)
def test_where_a_table_cannot_be_exchanged_the_new_one_is_whole_before_the_old_one_goes(
    tmp_path: Path, shown: list[str], fine: bool
) -> None:
    """So a listing never lacks a row that is in both; anything less is noticed."""
    _commit(tmp_path, OLD, [])
    _commit(tmp_path, NEW, OLD, mode="replace")
    history = History(_Slowly(tmp_path), "crash")
    head = history.head()
    assert (history.complaint("t", dict.fromkeys(shown, ROWS), head, head) is None) == fine


@pytest.mark.parametrize(("named", "fine"), [(OLD, True), ([*OLD, *NEW], True), ([*OLD, "b1.parquet"], False)])
def test_a_manifest_is_one_committed_table_exactly(tmp_path: Path, named: list[str], fine: bool) -> None:
    """What a listing may show in part, a manifest never does."""
    _commit(tmp_path, OLD, [])
    _commit(tmp_path, NEW, [])
    _show(tmp_path, *named)
    manifest = tmp_path / ".bridge" / "tables" / "crash" / "t.manifest"
    manifest.parent.mkdir(parents=True)
    manifest.write_text("".join(f"{tmp_path}/crash/t/{name}\n" for name in named))
    watch = Watch(History(tmp_path, "crash"), [], {})
    watch.look_once("manifest", Reader(manifest_look(Folder(tmp_path)), of_manifest=True), "t", "crash/t")
    assert (watch.wrong == []) == fine


@pytest.mark.parametrize("engine", [duckdb_look, pyarrow_look])
def test_a_watch_counts_files_that_went_away_and_keeps_every_other_failure(
    tmp_path: Path, engine: Callable[[Folder], Look]
) -> None:
    """A missing folder is said aloud and counted; a file that is no Parquet is a finding."""
    _commit(tmp_path, OLD, [])
    folder = tmp_path / "crash" / "t"
    watch, reader = Watch(History(tmp_path, "crash"), [], {}), Reader(engine(Folder(tmp_path)))
    watch.look_once("reader", reader, "t", "crash/t")
    assert (sum(watch.errors.values()), watch.wrong) == (1, [])
    _show(tmp_path, "a2.parquet")
    (folder / "a1.parquet").write_bytes(b"torn")
    watch.look_once("reader", reader, "t", "crash/t")
    assert len(watch.wrong) == 1
