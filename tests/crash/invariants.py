"""What must hold in a lake: at the instant a run died, and after the next successful one.

Read with no code of ours, and with `bridge.Lake`.
"""

from __future__ import annotations

import io
import json
import os
from collections import Counter
from contextlib import suppress
from typing import Any
from unittest.mock import patch

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

import bridge
from bridge.errors import LakeError
from tests.support.view_oracle import check_commits, views_at
from tests.support.view_oracle import rows_of as rows_of_view

from .cases import Case
from .driver import PIPELINE
from .history import History
from .lakes import Folder, Lake

META = f".bridge/{PIPELINE}"


def visible(lake: Lake) -> dict[str, set[str]]:
    """What a reader that lists a table's folder sees, by stream."""
    found: dict[str, set[str]] = {}
    for path in lake.files(PIPELINE):
        stream, _, name = path.partition("/")
        found.setdefault(stream, set()).add(name)
    return found


def state_file(lake: Lake) -> Any:
    """`state.json`, None if there is none."""
    return json.loads(lake.read(f"{META}/state.json") or b"null")


def manifest(lake: Lake, stream: str) -> set[str]:
    """The names in a table's manifest, whose lines must be files in the table's folder."""
    folder = f"{lake.uri}/{PIPELINE}/{stream}/"
    lines = (lake.read(f".bridge/tables/{PIPELINE}/{stream}.manifest") or b"").decode().splitlines()
    assert all(line.startswith(folder) for line in lines)
    return {line.removeprefix(folder) for line in lines}


def shown(lake: Lake) -> dict[str, Any]:
    """All that readers see: the tables' folders, their manifests, the STATE."""
    seen = visible(lake)
    notes = [f".bridge/tables/{path}" for path in lake.files(".bridge/tables") if not path.endswith(".tmp")]
    return {"files": seen, "state": lake.read(f"{META}/state.json"), **{key: lake.read(key) for key in notes}}


def pending(lake: Lake) -> list[str]:
    """What is pending: files by name, uploads by key."""
    return [*lake.files(f"{META}/pending"), *lake.uploads("")]


def _parquet(lake: Lake, stream: str, name: str) -> pq.ParquetFile:
    data = lake.read(f"{PIPELINE}/{stream}/{name}")
    assert data is not None
    return pq.ParquetFile(io.BytesIO(data))


def rows_of(lake: Lake, stream: str, columns: tuple[str, ...]) -> Counter[tuple[Any, ...]]:
    """The rows that a listing reader gets, each with how often; a file without a column has nulls there."""
    found: Counter[tuple[Any, ...]] = Counter()
    for name in visible(lake)[stream]:
        table = _parquet(lake, stream, name).read()
        nulls = pa.nulls(table.num_rows)
        found.update(zip(*((table[c] if c in table.column_names else nulls).to_pylist() for c in columns), strict=True))
    return found


def after_death(lake: Lake) -> None:
    """No uncommitted row is visible, and no bookmark leads its data. Nothing may be assumed beyond that."""
    history = History(lake, PIPELINE)
    head = history.head()
    seen = visible(lake)
    for stream, names in seen.items():
        rows = {name: _parquet(lake, stream, name).metadata.num_rows for name in names}
        assert (wrong := history.complaint(stream, rows, head, head)) is None, f"{stream}: {wrong}"
    for stream in history.streams:
        listed = [set(history.live(stream, n)) for n in range(head + 1)]
        assert manifest(lake, stream) in listed, f"the manifest of {stream} is no commit's table"
    _bookmark_covered(lake, history, seen)
    _readable(lake, history)


def _readable(lake: Lake, history: History) -> None:
    """Our own reader sees the last commit that changed a table, or the one before it, and all of its rows."""
    with patch.dict(os.environ, getattr(lake, "environ", {})):
        reader = bridge.Lake(lake.uri)
        if PIPELINE not in reader.pipelines:
            return
        n = reader.commit(PIPELINE)
        later = [record for record in history.records[n + 1 :] if record.get("tables") and record["kind"] != "void"]
        assert later == [], "an older commit than need be"
        for stream in reader.tables(PIPELINE):
            assert reader.table(PIPELINE, stream).count_rows() == sum(history.live(stream, n).values()), (stream, n)
        _views_follow(reader, lake.uri, history)


def _views_follow(reader: bridge.Lake, uri: str, history: History) -> None:
    """At each commit a view is its SELECT over the tables, and none is ahead of them.

    A commit that no reader is shown yet can be asked for by its number: then it is right, or the error is loud.
    """
    n = reader.commit(PIPELINE)
    check_commits(uri, PIPELINE)
    for name in reader.views(PIPELINE):
        view = reader.view(PIPELINE, name)
        assert view.commit == n
        for row in reader.table(PIPELINE, name).to_table().slice(0, 1).to_pylist():
            answer = view.get({column.name: row[column.name] for column in view.key_columns})
            assert answer and (answer.row, answer.commit) == (row, n)
    for ahead in range(n + 1, len(history.records) + 1):
        for name, query in views_at(uri, PIPELINE, ahead).items():
            with suppress(LakeError):
                stored, selected = rows_of_view(uri, PIPELINE, ahead, name, query)
                assert stored == selected, f"{name} at commit {ahead}: {stored} != {selected}"


def _bookmark_covered(lake: Lake, history: History, seen: dict[str, set[str]]) -> None:
    """A STATE that only the last commit can have written is there only once all of that commit is visible."""
    said = state_file(lake)
    if said is None or not history.records or any(record["state"] == said for record in history.records[:-1]):
        return
    if said == history.state:
        assert {s: set(history.live(s)) for s in history.streams} == {s: seen.get(s, set()) for s in history.streams}
        for stream in history.streams:
            rows = {name: _parquet(lake, stream, name).metadata.num_rows for name in seen.get(stream, ())}
            assert rows == history.live(stream), f"{stream} is not rewritten"
    else:
        assert EDITED in said["bookmarks"], "nobody said this STATE"


EDITED = "by hand"
"""A bookmark in a STATE that an operator has written."""


def after_success(lake: Lake, case: Case) -> None:
    """Each record exactly once, the tap's last STATE, and nothing in the bucket that the log does not know."""
    history = History(lake, PIPELINE)
    history.head()
    seen = visible(lake)
    assert [record["n"] for record in history.records] == list(range(1, len(history.records) + 1))
    files = [name for name in lake.files(f"{META}/commits") if not name.startswith(".")]
    assert len(files) == len(history.records), "a gap in the log"
    assert history.streams == sorted([*case.rows, *case.views])
    for stream in history.streams:
        assert seen[stream] == set(history.live(stream)) == manifest(lake, stream) != set()
    for stream, rows in case.rows.items():
        assert rows_of(lake, stream, case.columns_of(stream)) == Counter(rows), f"rows of {stream}"
    assert set(seen) == set(history.streams)
    assert not case.files or {len(names) for names in seen.values()} == {case.files}
    assert history.state == state_file(lake) == case.state
    assert history.staged == {}
    assert [path for path in lake.files(".bridge") if path.endswith(".parquet")] == []
    _readable(lake, history)
    _rejects_once(lake, history, case)
    _each_process_covered(lake, history, case)


def _each_process_covered(lake: Lake, history: History, case: Case) -> None:
    """At every commit the rows of each process are those that the STATE kept for it covers, no more and no less."""
    taken_back = {record.get("voids") for record in history.records}
    for record in history.records:
        if record["n"] in taken_back or record["kind"] == "fence":
            continue
        for group in record.get("groups", ()):
            stream = group["streams"][0]
            if stream not in case.covered:
                continue  # an overwrite's rows are the last table's until the new one is whole
            names = history.live(stream, record["n"])
            ids = [i for name in names for i in _parquet(lake, stream, name).read()["id"].to_pylist()]
            assert sorted(ids) == [row[0] for row in case.covered[stream](group["state"])], (record["n"], group)


def _rejects_once(lake: Lake, history: History, case: Case) -> None:
    """Commits name reject files that are there, whole, and each rejected record once."""
    named = [reject for record in history.records for reject in record.get("rejects", [])]
    for reject in named:
        assert len((lake.read(reject["file"]) or b"").splitlines()) == reject["lines"]
    assert sum(reject["lines"] for reject in named if reject["stream"] is not None) == case.rejected


def readable_by_duckdb(lake: Folder, case: Case) -> None:
    """Another engine opens each table's folder and counts the same rows."""
    for stream, rows in case.rows.items():
        query = f"select count(*) from read_parquet('{lake.root / PIPELINE / stream}/**/*.parquet', union_by_name=true)"
        assert duckdb.sql(query).fetchall() == [(len(rows),)]


def kinds(lake: Lake) -> list[str]:
    """The kinds of the log's records, oldest first."""
    history = History(lake, PIPELINE)
    history.head()
    return [record["kind"] for record in history.records]


def files_of_last_commit(lake: Lake) -> list[tuple[str, bool]]:
    """Where the files that the last commit added are now, and whether as an upload to there.

    None if a STATE that only it can have written was seen: it is not taken back any more.
    """
    history = History(lake, PIPELINE)
    history.head()
    last = next((record for record in reversed(history.records) if record["kind"] != "fence"), None)
    if last is None:
        return []
    before = history.records[last["n"] - 2]["state"] if last["n"] > 1 else None
    if state_file(lake) == last["state"] != before:
        return []
    entries = last.get("tables", [])
    adds = [(add, add["name"] in entry["removes"]) for entry in entries for add in entry["adds"]]
    names = {_name(add["name"]) for add, _ in adds} | {_name(add["source"]) for add, over in adds if over}
    # At the name of a file that is rewritten there are its old bytes or its new ones: nobody takes these away here.
    same = [f"/{entry['stream']}/{name}" for entry in entries for name in entry["removes"]]
    same = [path for path in same if any(path.endswith(f"/{add['name']}") for add, over in adds if over)]
    files = [path for path in lake.files("") if _name(path) in names]
    files = [path for path in files if not path.removesuffix(".removed").endswith(tuple(same))] if same else files
    uploads = [key.removeprefix(_below(lake)) for key in lake.uploads("") if _name(key) in names]
    # A copy leaves a file twice for an instant: pending, and visible, which is the one that counts.
    seen = {_name(path) for path in files if not path.endswith(".pending")}
    once = [path for path in files if not (path.endswith(".pending") and _name(path) in seen)]
    return [*((path, False) for path in once), *((key, True) for key in uploads)]


def _below(lake: Lake) -> str:
    """Return what keys of uploads have before the key in the lake."""
    return f"{getattr(lake, 'prefix', '')}/".lstrip("/")


def _name(path: str) -> str:
    return path.rpartition("/")[2].removesuffix(".pending")
