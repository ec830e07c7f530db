"""What must hold in a lake: at the instant a run died, and after the next successful one."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from .cases import Case
from .driver import PIPELINE
from .history import History

__all__ = ["after_death", "after_success", "files_of_last_commit", "kinds", "pending", "readable_by_duckdb"]

META = Path(".bridge") / PIPELINE


def visible(lake: Path) -> dict[str, set[str]]:
    """What a reader that lists a table's folder sees, by stream."""
    tables = [folder for folder in (lake / PIPELINE).glob("*") if folder.is_dir()]
    return {folder.name: {path.name for path in folder.iterdir()} for folder in tables}


def state_file(lake: Path) -> Any:
    """`state.json`, None if there is none."""
    path = lake / META / "state.json"
    return json.loads(path.read_bytes()) if path.exists() else None


def manifest(lake: Path, stream: str) -> set[str]:
    """The names in a table's manifest, whose lines must be files in the table's folder."""
    path = lake / ".bridge" / "tables" / PIPELINE / f"{stream}.manifest"
    lines = [Path(line) for line in path.read_text().splitlines()] if path.exists() else []
    assert all(line.parent == lake / PIPELINE / stream for line in lines)
    return {line.name for line in lines}


def pending(lake: Path) -> list[str]:
    """The names of pending files."""
    return [path.name for path in (lake / META / "pending").glob("*")]


def rows_of(lake: Path, stream: str, columns: tuple[str, ...]) -> Counter[tuple[Any, ...]]:
    """The rows that a listing reader gets, each with how often; a file without a column has nulls there."""
    found: Counter[tuple[Any, ...]] = Counter()
    for path in (lake / PIPELINE / stream).glob("*.parquet"):
        table = pq.ParquetFile(path).read()
        nulls = pa.nulls(table.num_rows)
        found.update(zip(*((table[c] if c in table.column_names else nulls).to_pylist() for c in columns), strict=True))
    return found


def after_death(lake: Path) -> None:
    """No uncommitted row is visible, and no bookmark leads its data. Nothing may be assumed beyond that."""
    history = History(lake, PIPELINE)
    head = history.head()
    seen = visible(lake)
    for stream, names in seen.items():
        rows = {name: pq.ParquetFile(lake / PIPELINE / stream / name).metadata.num_rows for name in names}
        assert (wrong := history.complaint(stream, rows, head, head)) is None, f"{stream}: {wrong}"
    for stream in history.streams:
        listed = [set(history.live(stream, n)) for n in range(head + 1)]
        assert manifest(lake, stream) in listed, f"the manifest of {stream} is no commit's table"
    _bookmark_covered(lake, history, head, seen)


def _bookmark_covered(lake: Path, history: History, head: int, seen: dict[str, set[str]]) -> None:
    """A STATE that only the last commit can have written is there only once all of that commit is visible."""
    said = state_file(lake)
    if said is None or any(record["state"] == said for record in history.records[:-1]):
        return
    assert said == history.state
    assert {s: set(history.live(s)) for s in history.streams} == {s: seen.get(s, set()) for s in history.streams}


def after_success(lake: Path, case: Case) -> None:
    """Each record exactly once, the tap's last STATE, and nothing in the bucket that the log does not know."""
    history = History(lake, PIPELINE)
    history.head()
    seen = visible(lake)
    assert history.streams == sorted(case.rows)
    for stream, rows in case.rows.items():
        assert seen[stream] == set(history.live(stream)) == manifest(lake, stream) != set()
        assert rows_of(lake, stream, case.columns_of(stream)) == Counter(rows), f"rows of {stream}"
    assert set(seen) == set(case.rows)
    assert history.state == state_file(lake) == case.state
    assert history.staged == {}
    assert [path for path in (lake / ".bridge").rglob("*.parquet") if path.is_file()] == []
    _rejects_once(lake, history, case)


def _rejects_once(lake: Path, history: History, case: Case) -> None:
    """Commits name reject files that are there, whole, and each rejected record once."""
    named = [reject for record in history.records for reject in record.get("rejects", [])]
    for reject in named:
        assert len((lake / reject["file"]).read_bytes().splitlines()) == reject["lines"]
    assert sum(reject["lines"] for reject in named if reject["stream"] is not None) == case.rejected


def readable_by_duckdb(lake: Path, case: Case) -> None:
    """Another engine opens each table's folder and counts the same rows."""
    for stream, rows in case.rows.items():
        query = f"select count(*) from read_parquet('{lake / PIPELINE / stream}/*.parquet', union_by_name=true)"
        assert duckdb.sql(query).fetchall() == [(len(rows),)]


def kinds(lake: Path) -> list[str]:
    """The kinds of the log's records, oldest first."""
    history = History(lake, PIPELINE)
    history.head()
    return [record["kind"] for record in history.records]


def files_of_last_commit(lake: Path) -> list[Path]:
    """Where the files that the last commit added are now; none if a STATE that only it can have written was seen."""
    history = History(lake, PIPELINE)
    history.head()
    last = next((record for record in reversed(history.records) if record["kind"] != "fence"), None)
    if last is None:
        return []
    before = history.records[last["n"] - 2]["state"] if last["n"] > 1 else None
    if state_file(lake) == last["state"] != before:
        return []
    names = {add["name"] for entry in last["tables"] for add in entry["adds"]}
    return [path.relative_to(lake) for path in lake.rglob("part-*") if path.name.removesuffix(".pending") in names]
