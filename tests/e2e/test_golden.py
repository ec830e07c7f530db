"""Lakes that earlier versions wrote: a run goes on from each, which its last run left when it was killed.

`tests/golden/make.py` says how they were made; `git log` of their archives, by which version.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from typing import Any

import duckdb
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

from tests.e2e.conftest import Project
from tests.golden.make import FORMATS, ROOT, head, unpack
from tests.golden.scripts import AFTER_SECOND, AT_THE_END, END_STATE, LAST, text
from tests.support.alone import alone

pytestmark = pytest.mark.usefixtures("in_process")

COLUMNS = {"orders": ["id", "note"], "people": ["id", "name"]}


@pytest.fixture(params=FORMATS)
def golden(request: pytest.FixtureRequest) -> Iterator[str]:
    """The project of a golden lake, and its table format."""
    with alone(ROOT):
        unpack(request.param)
        yield request.param
        shutil.rmtree(ROOT)


def command(*arguments: str) -> str:
    """Type a command there, and return what it printed on stdout."""
    done = Project(ROOT).command(*arguments)
    assert done.code == 0, (arguments, done)
    return done.out


def rows(format_: str, stream: str, pipeline: str = "p") -> list[tuple[Any, ...]]:
    """Return a table's rows as a reader that is not ours finds them."""
    table, columns = ROOT / "lake" / pipeline / stream, COLUMNS.get(stream, ["id"])
    if format_ == "parquet":
        files = f"read_parquet('{table}/*.parquet', union_by_name=true)"
        return sorted(duckdb.sql(f"select {', '.join(columns)} from {files}").fetchall())
    if format_ == "delta":
        result = DeltaTable(table).to_pyarrow_table()
    else:
        with load_catalog("lake", uri=f"sqlite:///{ROOT}/lake/.bridge/catalog.db") as catalog:
            result = catalog.load_table((pipeline, stream)).scan().to_arrow()
    return sorted(tuple(row[column] for column in columns) for row in result.to_pylist())


def test_an_old_lake_goes_on(golden: str) -> None:
    """The next run repairs what the killed one left and loads the other half of a half loaded table. Each row is there
    once, verify finds nothing, and the lake can be rolled back to a commit of the old version.
    """
    kinds = [json.loads(line)["kind"] for line in _log()]
    assert {"data", "fence", "void"} <= set(kinds)
    before = json.loads(command("status", "--json"))
    assert {one["pipeline"] for one in before} == {"p", "par"}
    (ROOT / "script").write_text(text(LAST))
    result = json.loads(command("run", "p", "--json"))
    assert result["state"] == END_STATE
    assert {stream: rows(golden, stream) for stream in AT_THE_END} == AT_THE_END
    command("verify", "p", "--repair")  # statistics of Delta that the old version wrote misled readers
    assert json.loads(command("verify", "p", "--json"))["status"] == "ok"
    rejects = [json.loads(line) for line in command("rejects", "show", "p", "--json").splitlines()]
    assert [one["stream"] for one in rejects] == ["orders"]
    command("rollback", "4", "p", "--yes")
    assert {stream: rows(golden, stream) for stream in AFTER_SECOND} == AFTER_SECOND
    assert json.loads(command("verify", "p", "--json"))["status"] == "ok"


def test_an_old_lake_of_parallel_taps_goes_on(golden: str) -> None:
    """Each process of the tap starts from the STATE that its own one said in the old version."""
    (ROOT / "source").write_text(json.dumps({"streams": {"a": {"last": 6}, "b": {"last": 8}}}))
    command("run", "par")
    for stream, last in {"a": 6, "b": 8}.items():
        given = json.loads((ROOT / f"{stream}.json").read_text())["bookmarks"]
        assert list(given) == [stream]
        assert rows(golden, stream, "par") == [(number,) for number in range(1, last + 1)]


def _log() -> list[str]:
    files = sorted((ROOT / "lake/.bridge/p/commits").iterdir())
    assert head()["n"] == len(files)
    return [file.read_text() for file in files]
