"""`--resume`: exactly what a failed run completed is left out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bridge.errors import SettingsError
from bridge.lake.runs import RunFile
from bridge.lake.storage import Storage, open_storage
from bridge.load.run.planning.resume import completed, leave_out
from bridge.protocol.singer.catalog import selected_streams


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    """A local bucket."""
    return open_storage(str(tmp_path / "lake"))


def recorded(storage: Storage, status: str, second: int = 1, skipped: tuple[str, ...] = (), **complete: bool) -> None:
    """Put the record of a run into the bucket."""
    record = RunFile(storage, "flights", f"20260101T00000{second}Z-aaaa")
    streams = {name: {"complete": done} for name, done in complete.items()}
    record.finish(status=status, streams=streams, skipped=list(skipped))


def catalog(*names: str, deselected: tuple[str, ...] = ()) -> dict[str, Any]:
    """A catalog of streams; ids differ from names, as they may."""
    chosen = {name: {"selected": name not in deselected} for name in names}
    return {
        "streams": [
            {"tap_stream_id": f"public-{name}", "stream": name, "metadata": [{"breadcrumb": [], "metadata": root}]}
            for name, root in chosen.items()
        ]
    }


@pytest.mark.parametrize("status", ["failed", "interrupted"])
def test_completed_streams_of_a_failed_run(storage: Storage, status: str) -> None:
    """Of the last run only what it completed counts, however it failed."""
    recorded(storage, "failed", 1, old=True)
    recorded(storage, status, 2, users=True, orders=False)
    assert completed(storage, "flights") == {"users"}


@pytest.mark.parametrize(
    ("bookmark", "method", "expected"),
    [
        (None, "append-only", set()),
        ({"progress_markers": {"id": 3}}, "append-only", set()),
        ({"replication_key_value": 3}, "append-only", {"repos"}),
        (None, "overwrite", {"repos"}),
    ],
)
def test_a_stream_that_may_be_a_child(storage: Storage, bookmark: Any, method: str, expected: set[str]) -> None:
    """Without a bookmark of its own a stream's rows hang on another's, which then is not left out."""
    record = RunFile(storage, "flights", "20260101T000001Z-aaaa")
    streams = {"repos": {"complete": True, "load_method": "append-only"}, "issues": {"load_method": method}}
    record.finish(status="failed", streams=streams, state={"bookmarks": {"repos": {"id": 1}, "issues": bookmark}})
    assert completed(storage, "flights") == expected


def test_what_was_left_out_stays_left_out(storage: Storage) -> None:
    """A pipeline that is resumed several times in a row comes nearer to its end each time."""
    recorded(storage, "failed", skipped=("users",), orders=True, lines=False)
    assert completed(storage, "flights") == {"users", "orders"}


def test_a_run_that_died(storage: Storage) -> None:
    """What its record said last counts, whatever became of the run; attempts that loaded nothing do not."""
    recorded(storage, "success", 1, users=True)
    assert completed(storage, "flights") == set()
    streams = {"users": {"complete": True}, "orders": {"records": 3}}
    RunFile(storage, "flights", "20260101T000002Z-aaaa", commit=0, streams=streams)
    assert completed(storage, "flights") == {"users"}
    RunFile(storage, "flights", "20260101T000003Z-aaaa", opened=False).finish(status="failed")
    RunFile(storage, "flights", "20260101T000004Z-aaaa", opened=False).finish(status="held")
    assert completed(storage, "flights") == {"users"}


def test_nothing_is_left_out_after_an_unreadable_run(storage: Storage) -> None:
    """Nobody knows what it completed, nor what the run before it says of the streams now."""
    recorded(storage, "failed", 1, users=True, orders=False)
    assert completed(storage, "flights") == {"users"}
    storage.write(".bridge/flights/runs/20260101T000009Z-aaaa.json", b"{")
    assert completed(storage, "flights") == set()


def test_nothing_is_left_out_after_a_success(storage: Storage) -> None:
    """Then everything runs, as it does the first time."""
    assert completed(storage, "flights") == set()
    recorded(storage, "success", users=True)
    assert completed(storage, "flights") == set()


def test_completed_streams_are_deselected() -> None:
    """Whether the run knew a stream by its id or by its name; what was not selected stays out."""
    narrowed, out = leave_out(catalog("users", "orders", "lines", deselected=("lines",)), {"users"}, None)
    assert narrowed
    assert selected_streams(narrowed) == {"public-orders"}
    assert out == {"public-users", "users", "public-lines", "lines"}
    narrowed, _ = leave_out(catalog("users", "orders"), {"public-orders"}, None)
    assert narrowed
    assert selected_streams(narrowed) == {"public-users"}


def test_without_a_stream_to_leave_out_no_catalog_is_needed() -> None:
    """The tap's own choice of streams stays as it is."""
    assert leave_out(None, set(), None) == (None, set())
    assert leave_out(catalog("users", "orders"), set(), None) == (catalog("users", "orders"), set())
    assert leave_out(catalog("users", deselected=("users",)), set(), None)[1] == {"public-users", "users"}


def test_resuming_is_refused_where_it_cannot_be() -> None:
    """Without a catalog a stream cannot be left out; with nothing left there is nothing to run. Both say what to do."""
    with pytest.raises(SettingsError, match="needs a catalog") as raised:
        leave_out(None, {"users"}, None)
    assert "discover" in raised.value.hint
    with pytest.raises(SettingsError, match="nothing is left") as raised:
        leave_out(catalog("users"), {"users"}, None)
    assert "without --resume" in raised.value.hint


def test_a_flat_state_is_not_resumed_in_part() -> None:
    """One position of the whole tap would move on without the streams left out: their rows up to it were lost."""
    with pytest.raises(SettingsError, match="cannot be kept per stream") as raised:
        leave_out(catalog("users", "orders"), {"users"}, {"cursor": 5})
    assert "--resume" in raised.value.hint
    assert leave_out(catalog("users"), set(), {"cursor": 5}) == (catalog("users"), set())
