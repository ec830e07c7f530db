"""Each rule of the commit protocol, by a test that fails without it. `tests/crash` adds a death at every step."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from bridge.errors import BridgeError, CommitLost, CommitUnknown, EngineError, LakeError
from bridge.lake.commit.open import open_committer
from bridge.lake.pipeline_state import PipelineState
from bridge.lake.storage.local.storage import LocalStorage
from bridge.lake.storage.protocol import Swap
from tests.support.lake import DEAD, FIRST, Faulty, Lake, closed, fail, unreachable
from tests.support.records import staged_table


def test_first_run_needs_no_fence(lake: Lake) -> None:
    """A bucket that nobody wrote to, and one whose last run closed, are opened without a record."""
    committer = lake.open(FIRST)
    assert lake.kinds == []
    lake.load(committer, {"n": 1})
    assert lake.open(closed(1)).snapshot.state == {"n": 1}
    assert lake.kinds == ["data"]


@pytest.mark.parametrize("last", [DEAD, FIRST, closed(1), closed(3)])
def test_fence_unless_closed(lake: Lake, last: dict[str, Any]) -> None:
    """A run fences unless the lease says that the head is where the last run closed."""
    committer = lake.open(FIRST)
    lake.load(committer, {"n": 1})
    lake.load(committer, {"n": 2})
    opened = lake.open(last)
    assert lake.kinds == ["data", "data", "fence"]
    assert (opened.snapshot.n, opened.snapshot.state, opened.generation) == (3, {"n": 2}, 3)
    assert set(opened.snapshot.tables["s"].files) == lake.visible()


def test_fence_of_a_first_run_that_died(lake: Lake) -> None:
    """A first run that died before any commit is fenced too, and what it left pending is deleted."""
    left = lake.pending(lake.open(FIRST).generation)
    lake.open(DEAD)
    assert lake.kinds == ["fence"]
    assert left["name"] not in lake.waiting


@pytest.mark.parametrize("last", [FIRST, DEAD])
def test_generation_is_below_every_later_fence(lake: Lake, last: dict[str, Any]) -> None:
    """Whether a run fenced or not, the fence that ends it has a higher number: its files are known as older."""
    first = lake.open(last)
    second = lake.open(DEAD)
    assert first.generation < second.generation == 1 + len(lake.kinds[:-1])
    lake.load(second, {"n": 1})
    assert lake.open(closed(len(lake.kinds))).generation < lake.open(DEAD).generation


def test_abort_only_lower_generations(lake: Lake) -> None:
    """Pending files of a run that was fenced off go; those of this generation, of a later one and strangers stay."""
    old, staged = lake.pending(0), lake.pending(0)
    lake.open(FIRST).commit(PipelineState({"t": 1}), [], staged={"t": staged_table(1, staged, stream="t")})
    same, later = lake.pending(2), lake.pending(3)
    (lake.root / ".bridge/p/pending/note.txt").write_text("not ours")
    assert lake.open(DEAD).generation == 2
    assert lake.waiting == {staged["name"], same["name"], later["name"], "note.txt"}
    assert old["name"] not in lake.waiting


def test_a_fenced_writer_loses(lake: Lake) -> None:
    """A slow run whose successor has opened cannot commit any more, and changes nothing by trying."""
    slow = lake.open(FIRST)
    file = lake.pending(slow.generation)
    fast = lake.open(DEAD)
    again = lake.pending(slow.generation)
    before = lake.everything()
    for _ in range(2):  # a loser never tries the next number
        with pytest.raises(CommitLost) as caught:
            slow.commit(PipelineState({"n": "slow"}), [lake.entry(again)])
    assert caught.value.hint
    assert lake.everything() == before
    assert file["name"] not in lake.waiting
    lake.load(fast, {"n": "fast"})
    assert (lake.kinds, lake.state) == (["fence", "data"], {"n": "fast"})


def test_an_overtaken_opener_loses(lake: Lake) -> None:
    """A run that finds its fence's number taken stops before it has aborted anything."""
    racing = Faulty(lake)

    def overtaken(put: Callable[[], bool]) -> bool:
        racing.armed = False
        lake.load(slow, {"n": "slow"})
        return put()

    slow = lake.open(FIRST)
    waiting = lake.pending(slow.generation)
    racing._put, racing.armed = overtaken, True
    with pytest.raises(CommitLost):
        lake.open(DEAD, racing)
    assert lake.kinds == ["data"]
    assert lake.waiting == {waiting["name"]}


def test_race_for_one_number(lake: Lake) -> None:
    """Of eight runs that commit the same number at once one wins; the others end, and only its file is visible."""
    runs = [lake.open(FIRST) for _ in range(8)]
    files = [lake.pending(run.generation) for run in runs]
    start = threading.Barrier(len(runs))
    outcome: list[int | CommitLost] = []

    def race(number: int) -> None:
        start.wait()
        try:
            runs[number].commit(PipelineState({"winner": number}), [lake.entry(files[number])])
            outcome.append(number)
        except CommitLost as error:
            outcome.append(error)

    threads = [threading.Thread(target=race, args=(number,)) for number in range(len(runs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (winner,) = [item for item in outcome if isinstance(item, int)]
    assert len(outcome) == 8
    assert (lake.kinds, lake.visible(), lake.state) == (["data"], {files[winner]["name"]}, {"winner": winner})
    assert [run.snapshot.n for run in runs].count(0) == 7


def test_lost_answer_that_landed(lake: Lake) -> None:
    """A put that landed and whose answer was lost is recognised by its nonce: one commit, published."""

    def lost(put: Callable[[], bool]) -> bool:
        put()
        raise unreachable()

    storage = Faulty(lake, put=lost)
    committer = lake.open(FIRST, storage)
    storage.armed = True
    file = lake.load(committer, {"n": 1})
    assert (lake.kinds, lake.visible(), lake.state, committer.snapshot.n) == (["data"], {file["name"]}, {"n": 1}, 1)


def test_repeated_put_that_had_landed(lake: Lake) -> None:
    """A client that sends a put twice and hears `exists` the second time has not lost to anybody."""
    storage = Faulty(lake, put=lambda put: put() and put())
    committer = lake.open(FIRST, storage)
    storage.armed = True
    file = lake.load(committer, {"n": 1})
    assert (lake.kinds, lake.visible()) == (["data"], {file["name"]})


def test_put_that_failed(lake: Lake) -> None:
    """A put that did not land is an error of the bucket; its pending file is not aborted, the put may still arrive."""
    storage = Faulty(lake, put=fail)
    committer = lake.open(FIRST, storage)
    storage.armed = True
    with pytest.raises(LakeError, match="cannot reach the bucket") as caught:
        lake.load(committer, {"n": 1})
    assert not isinstance(caught.value, CommitUnknown)
    assert (lake.kinds, lake.visible(), len(lake.waiting), lake.state) == ([], set(), 1, None)


@pytest.mark.parametrize("landed", [True, False])
def test_unknown_outcome(lake: Lake, landed: bool) -> None:
    """When the read-back fails too the run ends without touching anything, and the next one finds out."""

    def lost(put: Callable[[], bool]) -> bool:
        if landed:
            put()
        raise unreachable()

    storage = Faulty(lake, put=lost, read=fail)
    committer = lake.open(FIRST, storage)
    storage.armed = True
    with pytest.raises(CommitUnknown) as caught:
        lake.load(committer, {"n": 1})
    assert caught.value.hint
    assert (lake.visible(), len(lake.waiting), lake.state, committer.snapshot.n) == (set(), 1, None, 0)
    found = lake.open(DEAD)
    assert found.snapshot.state == lake.state == ({"n": 1} if landed else None)
    assert (len(lake.visible()), lake.waiting) == (int(landed), set())


def test_state_file_is_the_heads(lake: Lake) -> None:
    """A run that was overtaken while it published ends, and puts its STATE over nobody's."""
    storage = Faulty(lake)

    def overtaken(publish: Callable[[], None]) -> None:
        publish()
        lake.open(DEAD).set_state({"n": "successor"}, "test")

    committer = lake.open(FIRST, storage)
    storage._publish, storage.armed = overtaken, True
    with pytest.raises(CommitLost, match="another run took over"):
        lake.load(committer, {"n": "slow"})
    assert lake.state == {"n": "successor"}


@pytest.mark.parametrize("data", [None, b"", b"rows, but others"])
@pytest.mark.parametrize("staged", [True, False])
def test_pending_files_are_verified(lake: Lake, data: bytes | None, staged: bool) -> None:
    """A pending file that is gone or not as long as written stops the commit before its number is taken."""
    committer = lake.open(FIRST)
    good, bad = lake.pending(0), lake.pending(0)
    path = lake.root / bad["source"]
    path.unlink() if data is None else path.write_bytes(data)
    facts = {"staged": {"t": staged_table(1, bad, stream="t")}} if staged else {}
    with pytest.raises(EngineError, match="a pending file is not what was written") as caught:
        committer.commit(PipelineState({"n": 1}), [lake.entry(good) if staged else lake.entry(good, bad)], **facts)
    assert "nothing was committed" in caught.value.hint
    assert (lake.kinds, lake.visible(), lake.state) == ([], set(), None)


def test_pending_file_deleted_after_the_commit(lake: Lake) -> None:
    """A file that vanishes between its verification and its publication fails the run; the next one takes it back."""
    storage = Faulty(lake)
    committer = lake.open(FIRST, storage)
    file = lake.pending(0)

    def deleted(publish: Callable[[], None]) -> None:
        (lake.root / file["source"]).unlink()
        publish()

    storage._publish, storage.armed = deleted, True
    with pytest.raises(LakeError, match="a pending file is gone"):
        committer.commit(PipelineState({"n": 1}), [lake.entry(file)])
    assert lake.state is None
    assert lake.open(DEAD).snapshot.state is None
    assert lake.kinds == ["data", "fence", "void"]


def test_manifest_is_the_table(lake: Lake) -> None:
    """After each commit a table's manifest names exactly its files, each by where it is."""
    committer = lake.open(FIRST)
    one, two = lake.load(committer, {"n": 1}), lake.load(committer, {"n": 2})
    three = lake.pending(0)
    for names in ({one["name"], two["name"]}, {three["name"]}):
        lines = (lake.root / ".bridge/tables/p/s.manifest").read_text().splitlines()
        assert set(lines) == {str(lake.root / "p/s" / name) for name in names}
        assert lake.visible() == names
        if three["name"] not in names:
            committer.commit(PipelineState({"n": 3}), [lake.entry(three, removes=tuple(names))])


def test_every_error_of_the_protocol_helps(lake: Lake) -> None:
    """Whatever the protocol raises is an error of the lake, exit 3, that tells the operator what to do."""
    committer, other = lake.open(FIRST), lake.open(FIRST)
    lake.load(other, {"n": 1})
    with pytest.raises(BridgeError) as caught:
        lake.load(committer, {"n": 2})
    assert (caught.value.exit_code, bool(caught.value.hint)) == (3, True)


class Sleeping(LocalStorage):
    """A bucket before which a run sleeps for once, just as it is about to write `state.json`."""

    sleep: Callable[[], None] | None = None

    def swap_all(self, swaps: Sequence[Swap]) -> Sequence[str | None]:
        if any(swap.key.endswith("state.json") for swap in swaps) and self.sleep:
            sleep, self.sleep = self.sleep, None
            sleep()
        return super().swap_all(swaps)


def test_a_run_that_slept_until_the_state_came_back(lake: Lake) -> None:
    """It finds the bytes that it saw, and swaps them; `published.json` ends it. The next run mends the file."""
    storage = Sleeping(lake.root)
    committer = open_committer(storage, "p", "slow", last=FIRST)
    lake.load(committer, {"n": "a"})

    def others() -> None:
        other = lake.open(DEAD)
        lake.load(other, {"n": "b"})
        lake.load(other, {"n": "a"})

    storage.sleep = others
    with pytest.raises(CommitLost):
        lake.load(committer, {"n": "slow"})
    assert lake.open(DEAD).snapshot.state == lake.state == {"n": "a"}
    assert set(lake.kinds) == {"data", "fence"}
