"""What a project remembers of its lakes tells an empty lake from one that is not there."""

from __future__ import annotations

from pathlib import Path

import pytest

from bridge.errors import LakeError
from bridge.lake.storage.local.storage import LocalStorage
from bridge.load.run.last_commit import LastCommits
from tests.support.lake import FIRST, Lake
from tests.unit.conftest import Load

TEXT = "pipelines: {p: {source: {tap: tap-x}, destination: {bucket: lake}}}"


@pytest.fixture
def commits(tmp_path: Path, settings: Load) -> LastCommits:
    return LastCommits(tmp_path / "home", settings(TEXT).pipelines["p"])


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path / "lake")


def test_a_lake_that_is_empty_now(commits: LastCommits, lake: Lake) -> None:
    """It is refused, and nothing is written into what may be the folder below a mount; a full run starts over."""
    assert commits.check(lake.storage, full=False) == []
    commits.note(lake.storage, 17)
    with pytest.raises(LakeError, match=r"the lake is empty, and this project has written commit 17, on 20") as caught:
        commits.check(lake.storage, full=False)
    assert "start over: singer-bridge run p --full" in caught.value.hint
    assert caught.value.exit_code == 3
    assert not lake.root.exists()
    assert commits.check(lake.storage, full=True) == []


def test_a_run_that_committed_nothing(commits: LastCommits, lake: Lake, tmp_path: Path) -> None:
    """It leaves no note: the lake is as empty as it was. A note of commit 0, of an earlier version, counts as none."""
    commits.note(lake.storage, 0)
    assert not (tmp_path / "home").exists()
    commits.note(lake.storage, 17)
    file = tmp_path / "home/lakes/p.json"
    file.write_text(file.read_text().replace("17", "0"))
    assert commits.of(lake.storage) is None
    assert commits.check(lake.storage, full=False) == []


def test_append_only_pipelines_start_over_with_append(tmp_path: Path, settings: Load) -> None:
    """`--full` alone is refused for them: what is to be typed has to work."""
    text = "pipelines: {p: {source: {tap: tap-x}, destination: {bucket: lake, load_method: append-only}}}"
    assert LastCommits(tmp_path, settings(text).pipelines["p"]).hint.endswith("singer-bridge run p --full --append")


def test_a_tap_that_somebody_else_starts(tmp_path: Path, settings: Load) -> None:
    """A target has no `--full`: the note is what has to go."""
    hint = LastCommits(tmp_path, settings(TEXT).pipelines["p"], piped=True).hint
    assert f"rm {tmp_path}/lakes/p.json" in hint


def test_a_lake_that_is_behind(commits: LastCommits, lake: Lake) -> None:
    """A backup is consistent in itself: a warning. A lake that is ahead was written to from elsewhere: nothing."""
    committer = lake.open(FIRST)
    lake.load(committer, {"n": 1})
    lake.load(committer, {"n": 2})
    commits.note(lake.storage, 3)
    (warning,) = commits.check(lake.storage, full=False)
    assert "the lake is at commit 2, and this project has written commit 3" in warning
    commits.note(lake.storage, 1)
    assert commits.check(lake.storage, full=False) == []


def test_notes_are_by_lake(commits: LastCommits, lake: Lake, tmp_path: Path) -> None:
    """Another bucket, as another environment has, is another lake."""
    commits.note(lake.storage, 5)
    other = LocalStorage(tmp_path / "other")
    assert commits.check(other, full=False) == []
    commits.note(other, 2)
    assert [found.number for found in map(commits.of, (lake.storage, other)) if found] == [5, 2]


def test_notes_are_forgotten(commits: LastCommits, lake: Lake, tmp_path: Path) -> None:
    """Who deletes a lake on purpose says so; it may be said twice."""
    commits.note(lake.storage, 5)
    for _ in range(2):
        LastCommits.forget(tmp_path / "home", "p")
    assert commits.check(lake.storage, full=False) == []


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": 2}', '{"format": 1, "lakes": []}'])
def test_a_note_that_makes_no_sense_is_none(commits: LastCommits, lake: Lake, tmp_path: Path, text: str) -> None:
    """A torn or foreign file never stops a run, and is replaced by the next note."""
    commits.note(lake.storage, 5)
    (tmp_path / "home/lakes/p.json").write_text(text)
    assert commits.check(lake.storage, full=False) == []
    commits.note(lake.storage, 6)
    assert getattr(commits.of(lake.storage), "number", None) == 6


def test_a_home_that_cannot_be_written(lake: Lake, tmp_path: Path, settings: Load) -> None:
    """The note is lost, the run is not."""
    (tmp_path / "file").write_text("")
    commits = LastCommits(tmp_path / "file", settings(TEXT).pipelines["p"])
    commits.note(lake.storage, 5)
    assert commits.of(lake.storage) is None
