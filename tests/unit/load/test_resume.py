"""`--resume`: exactly what a failed run completed is left out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bridge.errors import SettingsError
from bridge.lake.runs import RunFile
from bridge.load.checks.resume import completed, leave_out
from bridge.singer.catalog import selected_streams
from bridge.storage import Storage, open_storage


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


def test_nothing_is_known_after_a_success_or_a_death(storage: Storage) -> None:
    """After a success everything runs; so it does after a run that could not say how far it came."""
    assert completed(storage, "flights") == set()
    recorded(storage, "success", users=True)
    assert completed(storage, "flights") == set()
    RunFile(storage, "flights", "20260101T000002Z-aaaa")
    assert completed(storage, "flights") == set()


def test_completed_streams_are_deselected() -> None:
    """Whether the run knew a stream by its id or by its name; what was not selected stays out."""
    narrowed, out = leave_out(catalog("users", "orders", "lines", deselected=("lines",)), {"users"}, None)
    assert selected_streams(narrowed) == {"public-orders"}
    assert out == {"public-users", "users", "public-lines", "lines"}
    assert selected_streams(leave_out(catalog("users", "orders"), {"public-orders"}, None)[0]) == {"public-users"}
    assert selected_streams(leave_out(catalog("users"), set(), None)[0]) == {"public-users"}


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
    assert selected_streams(leave_out(catalog("users"), set(), {"cursor": 5})[0]) == {"public-users"}
