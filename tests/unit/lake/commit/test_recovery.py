"""What a run finds when it opens the lake of a run that died, and what it does about it: step 1 of the protocol."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bridge.errors import CorruptLake, LakeError
from bridge.lake.pipeline_state import PipelineState
from tests.support.lake import DEAD, FIRST, Faulty, Lake, closed, fail, unpublished
from tests.support.records import staged_table


@pytest.mark.parametrize("fences", [1, 3])
def test_roll_forward(lake: Lake, fences: int) -> None:
    """A commit that was not published is published by the next run, however many runs only fenced since."""
    storage = Faulty(lake, publish=fail)
    committer = lake.open(FIRST, storage)
    storage.armed = True
    with pytest.raises(LakeError):
        lake.load(committer, {"n": 1})
    assert (lake.visible(), lake.state) == (set(), None)
    for _ in range(fences):  # runs that died right after their fence
        with pytest.raises(LakeError):
            lake.open(DEAD, storage)
    opened = lake.open(DEAD)
    assert lake.visible() == lake.manifest() == set(opened.snapshot.tables["s"].files) != set()
    assert (lake.state, lake.waiting) == ({"n": 1}, set())
    assert lake.kinds == ["data"] + ["fence"] * (fences + 1)


def test_void(lake: Lake) -> None:
    """A commit that lost a file before it was visible is taken back whole: old files, old STATE, and a note of it."""
    old = lake.load(lake.open(FIRST), {"n": 1})
    one, two = lake.pending(1), lake.pending(1)
    unpublished(lake, {"n": 2}, [lake.entry(one, two, removes=(old["name"],))], closed(1))
    (lake.root / one["source"]).unlink()
    opened = lake.open(DEAD)
    assert lake.kinds == ["data", "data", "fence", "void"]
    assert lake.visible() == lake.manifest() == set(opened.snapshot.tables["s"].files) == {old["name"]}
    assert opened.snapshot.state == lake.state == {"n": 1}
    assert "commit 2 had lost 1 file(s)" in opened.notes[0]
    assert lake.waiting == set()


def test_void_only_while_the_state_is_unseen(lake: Lake) -> None:
    """Once `state.json` said STATE n a lost file of n is damage: nothing is guessed, nothing is taken back."""
    file = lake.load(lake.open(FIRST), {"n": 1})
    (lake.root / "p/s" / file["name"]).unlink()
    with pytest.raises(CorruptLake, match="a committed file is gone") as caught:
        lake.open(DEAD)
    assert file["name"] in str(caught.value)
    assert (lake.kinds, lake.state) == (["data", "fence"], {"n": 1})
    (state,) = [word for word in caught.value.hint.split() if word.endswith("state.json,")]
    Path(state.strip(",")).unlink()  # as the hint says
    opened = lake.open(DEAD)
    assert (opened.snapshot.state, opened.snapshot.tables["s"].rows) == (None, 0)
    assert "taken back" in opened.notes[0]


def test_void_never_reaches_behind_a_later_commit(lake: Lake) -> None:
    """A commit that was followed by a STATE had been published: its damage later does not undo that STATE."""
    committer = lake.open(FIRST)
    file = lake.load(committer, {"n": 1})
    committer.set_state({"n": "set"}, "by hand")
    (lake.root / "p/s" / file["name"]).unlink()
    assert lake.open(DEAD).snapshot.state == {"n": "set"}
    assert lake.kinds == ["data", "state", "fence"]


def test_void_that_cannot_be_done(lake: Lake) -> None:
    """If the files that a void would bring back are gone as well, the lake is damaged, and says so."""
    old = lake.load(lake.open(FIRST), {"n": 1})
    new = lake.pending(1)
    unpublished(lake, {"n": 2}, [lake.entry(new, removes=(old["name"],))], closed(1))
    (lake.root / new["source"]).unlink()
    (lake.root / "p/s" / old["name"]).unlink()
    for _ in range(2):
        with pytest.raises(CorruptLake, match="a file of the lake is gone") as caught:
            lake.open(DEAD)
        assert "backup" in caught.value.hint


@pytest.mark.parametrize("flat", [True, False])
def test_void_of_an_adopted_table(lake: Lake, flat: bool) -> None:
    """Staged files that went into a lost commit are lost with it: their stream, and only it, starts again."""

    def state(**bookmarks: Any) -> Any:
        return bookmarks if flat else {"bookmarks": bookmarks}

    staged = lake.pending(0)
    committer = lake.open(FIRST)
    committer.commit(
        PipelineState(state(t={"version": 3, "pk": 5}, a=1)), [], staged={"t": staged_table(3, staged, stream="t")}
    )
    unpublished(lake, state(t={}, a=2), [lake.entry(staged, stream="t")], closed(1), staged={})
    (lake.root / staged["source"]).unlink()
    opened = lake.open(DEAD)
    assert opened.snapshot.state == lake.state == state(a=1)
    assert (opened.snapshot.staged, lake.visible("t")) == ({}, set())


def test_lost_staged_file(lake: Lake) -> None:
    """A half loaded table that lost a file is dropped when a run opens, with its bookmark; others stay staged."""
    kept, lost = lake.pending(0), lake.pending(0)
    stages = {s: staged_table(1, file, stream=s) for s, file in (("kept", kept), ("lost", lost))}
    lake.open(FIRST).commit(PipelineState({"bookmarks": {"kept": 1, "lost": 1, "a": 1}}), [], staged=stages)
    (lake.root / lost["source"]).write_bytes(b"short")
    opened = lake.open(closed(1))
    assert opened.snapshot.state == lake.state == {"bookmarks": {"kept": 1, "a": 1}}
    assert set(opened.snapshot.staged) == {"kept"}
    assert "lost" in opened.notes[0]


def test_state_file_that_agrees(lake: Lake) -> None:
    """What counts is what `state.json` says, not how it is written; without one it is written again."""
    lake.load(lake.open(FIRST), {"a": 1, "b": [2]})
    lake.edit_state('  {"b":\n[2], "a": 1}  ')
    assert lake.open(closed(1)).notes == []
    (lake.root / ".bridge/p/state.json").unlink()
    assert lake.open(closed(1)).notes == []
    assert (lake.state, lake.kinds) == ({"a": 1, "b": [2]}, ["data"])


@pytest.mark.parametrize("last", [closed(1), DEAD])
def test_state_edited_by_hand(lake: Lake, last: dict[str, Any]) -> None:
    """A STATE that the log never wrote is an operator's wish: the run starts from it, and the log records it."""
    lake.load(lake.open(FIRST), {"n": 1})
    lake.edit_state('{"n": "mine"}')
    opened = lake.open(last)
    assert opened.snapshot.state == lake.state == {"n": "mine"}
    assert lake.kinds[-1] == "state"
    assert "edited by hand" in opened.notes[0]
    assert len(opened.snapshot.tables["s"].files) == 1


def test_state_before_the_first_run(lake: Lake) -> None:
    """A `state.json` put into an empty bucket is where the first run starts."""
    lake.edit_state('{"bookmarks": {"s": 7}}')
    assert lake.open(FIRST).snapshot.state == {"bookmarks": {"s": 7}}
    assert lake.kinds == ["state"]


@pytest.mark.parametrize("last", [closed(3), DEAD])
@pytest.mark.parametrize("n", [1, 2])
def test_an_earlier_state_counts(lake: Lake, last: dict[str, Any], n: int) -> None:
    """Who writes an earlier STATE into `state.json` goes back to it: it is recorded, and the rows since come again."""
    committer = lake.open(FIRST)
    for number in (1, 2, 3):
        lake.load(committer, {"n": number})
    lake.edit_state(f'{{"n": {n}}}')
    opened = lake.open(last)
    assert opened.snapshot.state == lake.state == {"n": n}
    assert lake.kinds[-1] == "state"
    assert len(opened.snapshot.tables["s"].files) == 3
    assert opened.notes == [f"state.json was edited by hand: starting from n {n}; rows since then come again"]
    assert lake.open(closed(opened.snapshot.n)).notes == []


@pytest.mark.parametrize("last", [closed(1), DEAD])
def test_our_own_bytes_are_no_edit(lake: Lake, last: dict[str, Any]) -> None:
    """A copy of `state.json` that is put back, and one that says the same in other words, change nothing."""
    lake.load(lake.open(FIRST), {"n": 1})
    ours = lake.storage.read(".bridge/p/state.json") or b""
    for data in (b'{"n":1}', ours):
        lake.storage.write(".bridge/p/state.json", data)
        assert (lake.open(last).snapshot.state, lake.state) == ({"n": 1}, {"n": 1})
        last = DEAD
    assert set(lake.kinds) <= {"data", "fence"}


def test_what_a_death_left_is_no_edit(lake: Lake) -> None:
    """A run that dies before or after `state.json`, and before `published.json`, leaves no STATE of a person's."""
    committer = lake.open(FIRST)
    lake.load(committer, {"n": 1})
    before = lake.state_files()
    lake.load(committer, {"n": 2})
    after = lake.state_files()
    for left in (before, after | {"published.json": before["published.json"]}, after):
        lake.leave(left)
        opened = lake.open(DEAD)
        assert (opened.snapshot.state, lake.state, opened.notes) == ({"n": 2}, {"n": 2}, [])
    assert set(lake.kinds) == {"data", "fence"}


def test_an_edit_after_a_death_counts(lake: Lake) -> None:
    """Also the STATE before the last, which a run leaves that dies before `state.json`: `published.json` knows."""
    committer = lake.open(FIRST)
    for n in (1, 2):
        lake.load(committer, {"n": n})
    lake.edit_state('{"n": 1}')
    assert lake.open(DEAD).snapshot.state == lake.state == {"n": 1}
    assert lake.kinds[-1] == "state"


@pytest.mark.parametrize(("last", "state"), [(closed(2), {"n": 1}), (DEAD, {"n": 2})])
def test_a_lake_without_a_witness(lake: Lake, last: dict[str, Any], state: Any) -> None:
    """Older versions left none: after a death the STATE before the last is theirs, after a clean end a person's."""
    committer = lake.open(FIRST)
    for n in (1, 2):
        lake.load(committer, {"n": n})
    lake.storage.delete(".bridge/p/published.json")
    lake.edit_state('{"n": 1} \t\t ')
    assert lake.open(last).snapshot.state == lake.state == state


def test_a_state_written_late_is_no_edit(lake: Lake) -> None:
    """A run that slept before `state.json` until the STATE came back, and was killed as it woke, moves no bookmark."""
    for last, n in ((FIRST, 1), (DEAD, 2), (DEAD, 3), (DEAD, 1)):
        lake.load(lake.open(last), {"n": n})
    opened = lake.open(DEAD)
    lake.edit_state('{\n  "n": 2\n}')
    opened = lake.open(DEAD)
    assert (opened.snapshot.state, lake.state, opened.notes) == ({"n": 1}, {"n": 1}, [])


@pytest.mark.parametrize("text", ["", "{", '{"n": 1} x', "\x00"])
def test_state_that_is_not_json(lake: Lake, text: str) -> None:
    """A broken `state.json` stops the run before the tap starts, with what to do."""
    lake.load(lake.open(FIRST), {"n": 1})
    lake.edit_state(text)
    with pytest.raises(CorruptLake, match=r"state\.json is not JSON") as caught:
        lake.open(closed(1))
    assert caught.value.hint == f"rm {lake.root}/.bridge/p/state.json; the commit log brings back the last STATE"


@pytest.mark.parametrize("text", ["[]", "7", '"x"', "false"])
def test_state_that_is_no_object(lake: Lake, text: str) -> None:
    """JSON that nobody would call a STATE stops the run as broken JSON does, and is not committed."""
    lake.load(lake.open(FIRST), {"n": 1})
    lake.edit_state(text)
    with pytest.raises(CorruptLake, match=r"state\.json is not a JSON object") as caught:
        lake.open(closed(1))
    assert caught.value.hint.startswith(f"rm {lake.root}/.bridge/p/state.json;")
    assert lake.kinds == ["data"]


def test_crash_between_a_given_state_and_its_file(lake: Lake) -> None:
    """A STATE given by an operator counts from its record on, also if the run died before `state.json` was written."""
    committer = lake.open(FIRST)
    lake.load(committer, {"n": 1})
    before = lake.state_files()
    committer.set_state({"n": "given"}, "--state")
    lake.leave(before)
    assert lake.open(DEAD).snapshot.state == lake.state == {"n": "given"}


@pytest.mark.parametrize("data", [None, b'{"format": 1', b'{"format": 2, "n": 2, "state": null}'])
@pytest.mark.parametrize("last", [closed(3), DEAD])
def test_damaged_log_is_not_touched(lake: Lake, data: bytes | None, last: dict[str, Any]) -> None:
    """With a record missing, unreadable or of a newer version, opening fails and changes not one byte."""
    committer = lake.open(FIRST)
    for n in (1, 2, 3):
        lake.load(committer, {"n": n})
    path = lake.root / committer.log.key(2)
    path.unlink() if data is None else path.write_bytes(data)
    before = lake.everything()
    with pytest.raises(CorruptLake) as caught:
        lake.open(last)
    assert caught.value.hint
    assert caught.value.exit_code == 3
    assert lake.everything() == before


def test_gap_in_what_a_dead_run_wrote(lake: Lake) -> None:
    """The number of a deleted record is never given out again, though the lease names a head before it."""
    committer = lake.open(FIRST)
    for n in (1, 2, 3):
        lake.load(committer, {"n": n})
    (lake.root / committer.log.key(2)).unlink()
    with pytest.raises(CorruptLake):
        lake.open({"format": 1, "head": 1, "closed": None})
