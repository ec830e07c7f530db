"""`reconcile --apply` and `run --backfill`, killed at each change that they make to the lake."""

from __future__ import annotations

import shutil
from pathlib import Path

import duckdb
import pytest

from tests.support.dying import die_at
from tests.support.shell import Typed
from tests.unit.operate.reconcile.test_apply import rows
from tests.unit.operate.reconcile.test_reconcile import Source

OLD = [(1, "a"), (2, "b"), (3, "c"), (5, "e")]
NEW = [(1, "a"), (3, "x"), (4, "d"), (5, "e")]
WINDOW = "run shop -q -s orders --backfill 2026-01-02..2026-01-05 --no-guard"
WORK = {
    "apply": ("reconcile shop --apply", "upsert", NEW),
    "backfill-upsert": (WINDOW, "upsert", [(1, "a"), (2, "b"), (3, "x"), (4, "d"), (5, "e")]),
    "backfill-append-only": (WINDOW, "append-only", NEW),
}


@pytest.fixture
def source(folder: Path, typed: Typed, without_spark: None) -> Source:
    return Source(folder, typed)


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("every", [9, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("table_format", ["parquet", "iceberg"])
@pytest.mark.parametrize("work", WORK)
def test_a_death_at_each_step(source: Source, work: str, table_format: str, every: int) -> None:
    """A reader sees the table before or after it, the STATE stays, and typed again it does all that is left.

    Not Delta: its library does not work in a fork. `make crash` kills commits to it (test_format_steps).
    """
    command, load_method, wanted = WORK[work]
    source.settings(destination={"load_method": load_method, "hard_delete": True, "format": table_format})
    source.has(*source.rows(_1="a", _2="b", _3="c", _5="e"))
    assert source.typed("run shop -q").code == 0
    source.has(*source.rows(_1="a", _3="x", _4="d", _5="e"))
    lake, kept = source.folder / "lake", source.folder / "kept"
    shutil.copytree(lake, kept)
    state, step, seen = source.typed("state get shop").out, list(WORK).index(work), set[int]()
    while die_at(lake, step, lambda: source.typed(command)).killed:
        if table_format == "parquet" and load_method == "upsert":  # else rows come before others go
            files = lake / "shop/orders/*.parquet"
            ids = duckdb.sql(f"SELECT id FROM read_parquet('{files}', union_by_name=true)").fetchall()
            assert len(set(ids)) == len(ids), step
        assert source.typed("recover shop").code == 0, step
        found = rows(source)
        assert found in (OLD, wanted), step
        seen.add(found == wanted)
        assert source.typed("state get shop").out == state, step
        assert source.typed(command).code == 0, step
        assert rows(source) == wanted, step
        assert source.typed("verify shop").code == 0, step
        shutil.rmtree(lake)
        shutil.copytree(kept, lake)
        step += every
    assert seen == {True, False}
