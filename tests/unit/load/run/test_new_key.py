"""A key that changes within a run, as it does between two: rows are merged by the key that they came under."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from bridge.lake.runs import read_opened
from bridge.lake.storage import open_storage
from tests.support import targets
from tests.support.pipe import wire
from tests.support.targets import Typed, lake_of, rows_of

COLUMNS = {name: {"type": ["null", "integer"]} for name in ("a", "b", "n")}


def target(folder: Path, text: bytes, **config: Any) -> Typed:
    return targets.target(folder, text, **({"load_method": "auto"} | config))


def schema(*keys: str, **more: Any) -> dict[str, Any]:
    return {"type": "SCHEMA", "stream": "t", "schema": {"properties": COLUMNS}, "key_properties": list(keys)} | more


def record(a: int, b: int, n: int) -> dict[str, Any]:
    return {"type": "RECORD", "stream": "t", "record": {"a": a, "b": b, "n": n}}


def state(n: int) -> dict[str, Any]:
    return {"type": "STATE", "value": {"bookmarks": {"t": {"at": n}}}}


def rows(folder: Path) -> list[tuple[int, int, int]]:
    table = lake_of(folder).tables["t"]
    files = (pq.ParquetFile(folder / "lake" / table.folder / name).read() for name in table.files)
    return sorted((row["a"], row["b"], row["n"]) for file in files for row in file.to_pylist())


@pytest.mark.parametrize("between", [True, False], ids=["state-between", "no-state"])
@pytest.mark.parametrize("format_", ["parquet", "delta", "iceberg"])
@pytest.mark.parametrize("keys", [("a", "b"), ("b",), ()], ids=["wider", "other", "none"])
def test_each_row_is_merged_by_the_key_that_it_came_under(
    tmp_path: Path, keys: tuple[str, ...], between: bool, format_: str
) -> None:
    """Two runs, of which each has one key, give the same table."""
    first = [schema("a"), record(1, 1, 0), record(2, 5, 0), record(1, 1, 1)]
    later = [schema(*keys), record(1, 2, 2), record(1, 3, 3), record(3, 5, 4)]
    twice, once = tmp_path / "twice", tmp_path / "once"
    for folder in (twice, once):
        folder.mkdir()
    for part in (first, later):
        assert target(twice, wire(*part, state(part[-1]["record"]["n"])), format=format_).code == 0
    done = target(once, wire(*first, *([state(1)] if between else []), *later, state(4)), format=format_)
    assert (done.code, rows(once)) == (0, rows(twice))
    assert rows(once) == sorted([(1, 1, 1), (1, 2, 2), (1, 3, 3), *([] if keys == ("b",) else [(2, 5, 0)]), (3, 5, 4)])
    assert done.states[-1] == state(4)["value"]


def test_the_state_of_a_commit_before_a_new_key_is_the_one_before(tmp_path: Path) -> None:
    """Its rows are ahead of the STATE: a tap that sends them again has them merged again."""
    lines = [schema("a"), record(1, 1, 1), schema("a", "b"), record(1, 2, 2), state(2)]
    assert target(tmp_path, wire(*lines)).states == [state(2)["value"]]
    view = lake_of(tmp_path)
    assert (view.n, view.state) == (2, state(2)["value"])
    assert target(tmp_path, wire(*lines)).code == 0
    assert rows(tmp_path) == [(1, 1, 1), (1, 2, 2)]


def test_keys_that_alternate(tmp_path: Path) -> None:
    """Each time the rows so far are merged first; the same key in another order is the same."""
    lines = [schema("a", "b"), record(1, 1, 1), schema("b", "a"), record(1, 1, 2), schema("a"), record(1, 2, 3)]
    assert target(tmp_path, wire(*lines, schema("a", "b"), record(1, 3, 4), state(4))).code == 0
    assert rows(tmp_path) == [(1, 2, 3), (1, 3, 4)]


def test_other_streams_rows_wait_for_their_state(tmp_path: Path) -> None:
    """Those of a stream without a key are added with the STATE that covers them, however the tap ends."""
    other = {"type": "RECORD", "stream": "o", "record": {"a": 1, "b": 1, "n": 1}}
    both = {"type": "STATE", "value": {"bookmarks": {"t": {"at": 1}, "o": {"at": 1}}}}
    lines = [schema(stream="o"), schema("a"), other, record(1, 1, 1), both, other, record(1, 2, 2)]
    lines += [schema("a", "b"), record(1, 3, 3)]
    assert target(tmp_path, wire(*lines) + b'{"type": "SCHEMA", "stream": "x", "schema": {"type": 5}}\n').code != 0
    assert len(rows_of(tmp_path, "o")) == 1
    assert rows(tmp_path) == [(1, 2, 2)]


def test_a_key_that_comes_after_rows_without_one(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """They must be covered by a STATE: else nobody could send them again without adding them twice."""
    first, later = [schema(), record(1, 1, 1), record(2, 1, 1)], [schema("a"), record(1, 2, 2), state(2)]
    assert target(tmp_path, wire(*first, *later)).code == 1
    assert "a key comes within a run" in caplog.text
    folder = tmp_path / "covered"
    folder.mkdir()
    assert target(folder, wire(*first, state(1), *later)).code == 0
    assert rows(folder) == [(1, 2, 2), (2, 1, 1)]


def test_an_overwrite_has_one_key(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Nothing of it is committed before its end, so there is nothing to merge into."""
    lines = wire(schema("a"), record(1, 1, 1), schema("a", "b"), record(1, 2, 2), state(2))
    assert target(tmp_path, lines, load_method="overwrite").code == 0
    assert rows(tmp_path) == [(1, 1, 1), (1, 2, 2)]


def test_rows_that_a_null_key_removes_are_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """In the summary, and in the run's record, with what to type."""
    nulls = [{"type": "RECORD", "stream": "t", "record": {"a": None, "b": n, "n": n}} for n in range(5)]
    assert target(tmp_path, wire(schema(), *nulls, record(7, 7, 7), state(1))).code == 0
    assert target(tmp_path, wire(schema("a"), nulls[4], record(7, 8, 8), state(2))).code == 0
    assert "4 rows whose key is null were removed" in caplog.text
    (run, *_) = read_opened(open_storage(str(tmp_path / "lake")), "target-bridge", 2)
    assert [(one.stream, one.kind, one.rows) for one in run.differences] == [("t", "null_key", 4)]
    assert run.streams["t"].merged["dropped"] == 4


@pytest.mark.parametrize(("keys", "lost"), [(("b",), 2), (("a", "b"), 0), (("b", "a"), 0)])
def test_rows_that_another_key_removes_are_said(tmp_path: Path, keys: tuple[str, ...], lost: int) -> None:
    """By the key of before they were apart. A wider key, and the same in another order, removes none."""
    assert (
        target(tmp_path, wire(schema("a"), *(record(n, 5, n) for n in range(3)), record(9, 9, 9), state(1))).code == 0
    )
    assert target(tmp_path, wire(schema(*keys), record(0, 5, 7), state(2))).code == 0
    assert len(rows(tmp_path)) == 4 - lost
    (run, *_) = read_opened(open_storage(str(tmp_path / "lake")), "target-bridge", 2)
    assert [(one.stream, one.kind, one.rows) for one in run.differences] == ([("t", "other_key", lost)] if lost else [])


def test_rows_that_were_there_twice_go_in_silence(tmp_path: Path) -> None:
    """They came while the stream had no key."""
    assert target(tmp_path, wire(schema(), record(1, 1, 1), record(1, 1, 1), state(1))).code == 0
    assert target(tmp_path, wire(schema("a"), record(1, 2, 2), state(2))).code == 0
    assert rows(tmp_path) == [(1, 2, 2)]
    (run, *_) = read_opened(open_storage(str(tmp_path / "lake")), "target-bridge", 2)
    assert not run.differences


def test_a_merge_that_drops_nearly_all_rows_is_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """As an overwrite would be."""
    nulls = [{"type": "RECORD", "stream": "t", "record": {"a": None, "b": n, "n": n}} for n in range(20)]
    assert target(tmp_path, wire(schema(), *nulls, state(1))).code == 0
    assert target(tmp_path, wire(schema("a"), nulls[0], state(2))).code == 1
    assert "the merge would leave 1 of 20 rows" in caplog.text
    assert len(rows_of(tmp_path, "t")) == 20


def test_a_hint_of_full_says_what_to_type_here(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A target has no such flag; what it says instead works."""
    columns = {"properties": COLUMNS | {"c": {"type": "integer"}}}
    later = [schema("c", schema=columns), {"type": "RECORD", "stream": "t", "record": {"a": 1, "b": 1, "n": 2, "c": 7}}]
    assert target(tmp_path, wire(schema("a"), record(1, 1, 1), state(1))).code == 0
    assert target(tmp_path, wire(*later, state(2))).code == 2
    assert "load it anew with --full" in caplog.text
    assert "Here, instead of --full: load_method: overwrite for the stream" in caplog.text
    assert target(tmp_path, wire(*later, state(2)), load_method="overwrite").code == 0
    assert target(tmp_path, wire(*later, state(2))).code == 0
    assert rows(tmp_path) == [(1, 1, 2)]
