"""Meltano's STATEs in the commit logs of a bucket: which log, what a run changes, and who is refused."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from target_bridge.stored_states import StoredStates, held_by

from bridge.errors import CommitLost, PipelineHeld, SettingsError
from bridge.lake.commit.open import open_pipeline
from bridge.lake.log import Log
from bridge.lake.state.history import steps
from bridge.lake.storage import open_storage
from bridge.lake.storage.local.storage import LocalStorage
from tests.support.busy_lake import commit_rows
from tests.support.s3server import S3Server

LAKE = "dev:tap-x-to-target-bridge"
OTHER = "dev:tap-x-to-target-postgres:suffix é"


def state(n: int) -> dict[str, Any]:
    return {"bookmarks": {"s": {"replication_key_value": n}}}


@pytest.fixture(params=["local", "s3"])
def bucket(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    if request.param == "local":
        return LocalStorage(tmp_path / "lake")
    server: S3Server = request.getfixturevalue("s3")
    server.bucket("states")
    return open_storage(f"s3://states/{tmp_path.name}")


def loaded(bucket: LocalStorage, *numbers: int) -> None:
    """A run of the target that commits rows with each of these STATEs."""
    with open_pipeline(bucket, "dev.tap-x") as committer:
        for n in numbers:
            commit_rows(bucket, committer, state(n), 1)


def test_a_state_id_has_one_log(bucket: LocalStorage) -> None:
    """The lake's own for the target, else one that holds nothing but STATEs; names lead back to the ID."""
    states = StoredStates(bucket, ("target-bridge", "target-parquet"))
    assert states.pipeline(LAKE) == states.pipeline("dev:tap-x-to-target-parquet") == "dev.tap-x"
    assert states.pipeline(OTHER) == "meltano-state.dev_3atap-x-to-target-postgres_3asuffix_20_c3_a9"
    loaded(bucket, 1)
    for state_id in (OTHER, "any name", "dev:tap-y-to-target-bridge:more"):
        states.write(state_id, state(5))
    assert sorted(states.ids()) == sorted([LAKE, OTHER, "any name", "dev:tap-y-to-target-bridge:more"])
    assert list(states.ids("*:tap-x-to-target-b*")) == [LAKE]
    with pytest.raises(SettingsError, match="too long"):
        states.write("x" * 200, state(1))


def test_what_the_target_committed_is_what_is_read(bucket: LocalStorage) -> None:
    """Rows and STATE are one commit; what Meltano stores afterwards adds none, and never goes back."""
    loaded(bucket, 1, 2, 3)
    states, log = StoredStates(bucket), Log(bucket, "dev.tap-x")
    head = log.head()
    for printed in (1, 2, 3, 1):
        states.follow(LAKE, state(printed), state(printed))
    assert (states.read(LAKE)[0], log.head()) == (state(3), head)


def test_a_run_in_progress_may_be_followed(bucket: LocalStorage) -> None:
    """The target still holds the lake when Meltano hands over the STATE that it printed."""
    with open_pipeline(bucket, "dev.tap-x") as committer:
        commit_rows(bucket, committer, state(7), 1)
        states = StoredStates(bucket)
        states.follow(LAKE, state(7), state(7))
        assert states.read(LAKE)[0] == state(7)
        with pytest.raises(PipelineHeld) as raised:
            states.write(LAKE, state(1))
    assert re.search(r"another run holds this pipeline .*; wait for it to end, and do it again$", held_by(raised.value))
    states.write(LAKE, state(1))
    assert states.read(LAKE)[0] == state(1)


def test_a_person_may_go_back(bucket: LocalStorage) -> None:
    """An earlier STATE that somebody sets counts, and the history has both."""
    loaded(bucket, 1, 2)
    states = StoredStates(bucket)
    states.write(LAKE, state(1))
    assert states.read(LAKE)[0] == state(1)
    log = Log(bucket, "dev.tap-x")
    assert [step.kind for step in steps(log, log.head())] == ["state", "data", "data"]


def test_a_change_in_between_is_not_overwritten(bucket: LocalStorage) -> None:
    """Compare and swap: whoever read before it has to read again."""
    one, other = StoredStates(bucket), StoredStates(bucket)
    one.write(OTHER, state(1))
    version = one.read(OTHER)[1]
    other.write(OTHER, state(2))
    with pytest.raises(CommitLost):
        one.write(OTHER, state(3), version)
    assert one.read(OTHER)[0] == state(2)


def test_of_two_runs_at_once_one_is_refused(bucket: LocalStorage) -> None:
    """A loader without a log of ours: the first STATE of a run holds its ID until the run is over."""
    one, other = StoredStates(bucket), StoredStates(bucket)
    one.follow(OTHER, state(1), state(1))
    one.follow(OTHER, state(2), state(2))
    with pytest.raises(PipelineHeld):
        other.follow(OTHER, state(9), state(9))
    assert one.read(OTHER)[0] == other.read(OTHER)[0] == state(2)
    one.close()
    other.follow(OTHER, state(3), state(3))
    assert other.read(OTHER)[0] == state(3)
    other.close()


def test_a_state_that_is_forgotten_has_a_history(bucket: LocalStorage) -> None:
    """It is listed no more; a STATE that was never there is forgotten without a log."""
    states = StoredStates(bucket)
    states.write(OTHER, state(1))
    states.clear(OTHER)
    states.clear("never")
    assert (states.read(OTHER)[0], list(states.ids())) == (None, [])
    log = Log(bucket, states.pipeline(OTHER))
    assert len(list(steps(log, log.head()))) == 2


def test_a_loader_that_commits_elsewhere_is_followed_all_the_same(bucket: LocalStorage) -> None:
    """Its STATE is in no commit of rows here, so it becomes one of its own."""
    states = StoredStates(bucket)
    states.follow(LAKE, state(4), {**state(4), "more": 1})
    states.close()
    assert states.read(LAKE)[0] == {**state(4), "more": 1}
