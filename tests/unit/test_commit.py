"""Each rule of the commit protocol, by a test that fails without it. `tests/crash` adds a death at every step."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import orjson
import pytest

from bridge.commit import Committer
from bridge.errors import BridgeError, CommitLost, CommitUnknown, CorruptLake, EngineError, LakeError
from bridge.log import Log, meta
from bridge.storage.local import LocalStorage

DEAD: dict[str, Any] = {"format": 1, "head": None, "closed": None}
"""What the lease of a run that was killed says."""

FIRST: dict[str, Any] = {}
"""What the lease says before any run."""


def closed(head: int) -> dict[str, Any]:
    """What the lease of a run that ended cleanly says."""
    return {"format": 1, "head": head, "closed": head}


class Lake:
    """A bucket, looked at from outside."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.storage = LocalStorage(root)
        self._files = 0

    def open(self, last: dict[str, Any], storage: LocalStorage | None = None) -> Committer:
        return Committer(storage or self.storage, "p", "run", last=last)

    def pending(self, generation: int) -> dict[str, Any]:
        """Write a pending file of a run's generation and return it as a report names it."""
        self._files += 1
        name = f"part-{generation:010d}-000001-{self._files:032x}.parquet"
        source = meta("p", "pending", f"{name}.pending")
        with closing(self.storage.open_pending(source)) as file:
            file.write(b"rows" * self._files)
        return {"name": name, "source": source, "size": 4 * self._files, "rows": 1}

    def entry(self, *files: dict[str, Any], removes: tuple[str, ...] = (), stream: str = "s") -> dict[str, Any]:
        mode = "replace" if removes else "append"
        adds, folder = list(files), f"p/{stream}"
        return {"stream": stream, "folder": folder, "schema": "c", "mode": mode, "adds": adds, "removes": list(removes)}

    def load(self, committer: Committer, state: Any, **facts: Any) -> dict[str, Any]:
        """Commit one new file of the table `s` and return it."""
        file = self.pending(committer.generation)
        committer.commit(state, [self.entry(file)], **facts)
        return file

    def visible(self, stream: str = "s") -> set[str]:
        folder = self.root / "p" / stream
        return {path.name for path in folder.iterdir()} if folder.exists() else set()

    @property
    def waiting(self) -> set[str]:
        return {path.name.removesuffix(".pending") for path in (self.root / ".bridge/p/pending").glob("*")}

    @property
    def kinds(self) -> list[str]:
        log = Log(self.storage, "p")
        return [record["kind"] for record in reversed(list(log.history(log.head())))]

    @property
    def state(self) -> Any:
        path = self.root / ".bridge/p/state.json"
        return orjson.loads(path.read_bytes()) if path.exists() else None

    def edit_state(self, text: str) -> None:
        self.storage.write(".bridge/p/state.json", text.encode())

    def manifest(self, stream: str = "s") -> set[str]:
        return {Path(line).name for line in (self.root / f".bridge/tables/p/{stream}.manifest").read_text().splitlines()}

    def everything(self) -> dict[str, bytes]:
        return {str(path.relative_to(self.root)): path.read_bytes() for path in self.root.rglob("*") if path.is_file()}


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
    monkeypatch.setattr("os.fsync", lambda fd: None)  # no power cut here
    return Lake(tmp_path)


class Faulty(LocalStorage):
    """A bucket behind a bad network: what happens around each call is given."""

    def __init__(
        self,
        lake: Lake,
        *,
        put: Callable[[Callable[[], bool]], bool] | None = None,
        read: Callable[[], None] = lambda: None,
        publish: Callable[[Callable[[], None]], None] | None = None,
    ) -> None:
        super().__init__(lake.root)
        self._put, self._read, self._publish = put, read, publish
        self.armed = False

    def put_if_absent(self, key: str, data: bytes) -> bool:
        def whole() -> bool:
            return super(Faulty, self).put_if_absent(key, data)

        return self._put(whole) if self._put and self.armed else whole()

    def read(self, key: str) -> bytes | None:
        if self.armed:
            self._read()
        return super().read(key)

    def publish(self, changes: Any) -> None:
        def whole() -> None:
            super(Faulty, self).publish(changes)

        if self._publish and self.armed:
            self._publish(whole)
        else:
            whole()


def unreachable() -> LakeError:
    return LakeError("cannot reach the bucket", hint="look at the network")


def fail(*_: Any) -> Any:
    raise unreachable()


def test_first_run_needs_no_fence(lake: Lake) -> None:
    """A bucket that nobody wrote to, and one whose last run closed, are opened without a record."""
    committer = lake.open(FIRST)
    assert lake.kinds == []
    lake.load(committer, {"n": 1})
    assert lake.open(closed(1)).view.state == {"n": 1}
    assert lake.kinds == ["data"]


@pytest.mark.parametrize("last", [DEAD, FIRST, closed(1), closed(3)])
def test_fence_unless_closed(lake: Lake, last: dict[str, Any]) -> None:
    """A run fences unless the lease says that the head is where the last run closed."""
    committer = lake.open(FIRST)
    lake.load(committer, {"n": 1})
    lake.load(committer, {"n": 2})
    opened = lake.open(last)
    assert lake.kinds == ["data", "data", "fence"]
    assert (opened.view.n, opened.view.state, opened.generation) == (3, {"n": 2}, 3)
    assert set(opened.view.tables["s"].files) == lake.visible()


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
    lake.open(FIRST).commit({"t": 1}, [], staged={"t": {"version": 1, "files": [staged]}})
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
            slow.commit({"n": "slow"}, [lake.entry(again)])
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
            runs[number].commit({"winner": number}, [lake.entry(files[number])])
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
    assert [run.view.n for run in runs].count(0) == 7


def test_lost_answer_that_landed(lake: Lake) -> None:
    """A put that landed and whose answer was lost is recognised by its nonce: one commit, published."""

    def lost(put: Callable[[], bool]) -> bool:
        put()
        raise unreachable()

    storage = Faulty(lake, put=lost)
    committer = lake.open(FIRST, storage)
    storage.armed = True
    file = lake.load(committer, {"n": 1})
    assert (lake.kinds, lake.visible(), lake.state, committer.view.n) == (["data"], {file["name"]}, {"n": 1}, 1)


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
    assert (lake.visible(), len(lake.waiting), lake.state, committer.view.n) == (set(), 1, None, 0)
    found = lake.open(DEAD)
    assert found.view.state == lake.state == ({"n": 1} if landed else None)
    assert (len(lake.visible()), lake.waiting) == (int(landed), set())


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
    assert lake.visible() == lake.manifest() == set(opened.view.tables["s"].files) != set()
    assert (lake.state, lake.waiting) == ({"n": 1}, set())
    assert lake.kinds == ["data"] + ["fence"] * (fences + 1)


def unpublished(lake: Lake, state: Any, entries: list[dict[str, Any]], last: dict[str, Any], **facts: Any) -> None:
    """Make a commit and die before it is published."""
    storage = Faulty(lake, publish=fail)
    committer = lake.open(last, storage)
    storage.armed = True
    with pytest.raises(LakeError, match="cannot reach the bucket"):
        committer.commit(state, entries, **facts)


def test_void(lake: Lake) -> None:
    """A commit that lost a file before it was visible is taken back whole: old files, old STATE, and a note of it."""
    old = lake.load(lake.open(FIRST), {"n": 1})
    one, two = lake.pending(1), lake.pending(1)
    unpublished(lake, {"n": 2}, [lake.entry(one, two, removes=(old["name"],))], closed(1))
    (lake.root / one["source"]).unlink()
    opened = lake.open(DEAD)
    assert lake.kinds == ["data", "data", "fence", "void"]
    assert lake.visible() == lake.manifest() == set(opened.view.tables["s"].files) == {old["name"]}
    assert opened.view.state == lake.state == {"n": 1}
    assert "commit 2 had lost 1 file(s)" in opened.notes[0]
    assert lake.waiting == set()


def test_void_only_while_the_state_is_unseen(lake: Lake) -> None:
    """Once `state.json` said STATE n a lost file of n is damage: nothing is guessed, nothing is taken back."""
    file = lake.load(lake.open(FIRST), {"n": 1})
    (lake.root / "p/s" / file["name"]).unlink()
    with pytest.raises(CorruptLake, match="a committed file is gone") as caught:
        lake.open(DEAD)
    assert file["name"] in str(caught.value)
    assert "--full" in caught.value.hint
    assert (lake.kinds, lake.state) == (["data", "fence"], {"n": 1})


def test_void_never_reaches_behind_a_later_commit(lake: Lake) -> None:
    """A commit that was followed by a STATE had been published: its damage later does not undo that STATE."""
    committer = lake.open(FIRST)
    file = lake.load(committer, {"n": 1})
    committer.set_state({"n": "set"}, "by hand")
    (lake.root / "p/s" / file["name"]).unlink()
    assert lake.open(DEAD).view.state == {"n": "set"}
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
    committer.commit(state(t={"version": 3, "pk": 5}, a=1), [], staged={"t": {"version": 3, "files": [staged]}})
    unpublished(lake, state(t={}, a=2), [lake.entry(staged, stream="t")], closed(1), staged={})
    (lake.root / staged["source"]).unlink()
    opened = lake.open(DEAD)
    assert opened.view.state == lake.state == state(a=1)
    assert (opened.view.staged, lake.visible("t")) == ({}, set())


def test_lost_staged_file(lake: Lake) -> None:
    """A half loaded table that lost a file is dropped when a run opens, with its bookmark; others stay staged."""
    kept, lost = lake.pending(0), lake.pending(0)
    stages = {s: {"version": 1, "files": [file]} for s, file in (("kept", kept), ("lost", lost))}
    lake.open(FIRST).commit({"bookmarks": {"kept": 1, "lost": 1, "a": 1}}, [], staged=stages)
    (lake.root / lost["source"]).write_bytes(b"short")
    opened = lake.open(closed(1))
    assert opened.view.state == lake.state == {"bookmarks": {"kept": 1, "a": 1}}
    assert set(opened.view.staged) == {"kept"}
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
    assert opened.view.state == lake.state == {"n": "mine"}
    assert lake.kinds[-1] == "state"
    assert "edited by hand" in opened.notes[0]
    assert len(opened.view.tables["s"].files) == 1


def test_state_before_the_first_run(lake: Lake) -> None:
    """A `state.json` put into an empty bucket is where the first run starts."""
    lake.edit_state('{"bookmarks": {"s": 7}}')
    assert lake.open(FIRST).view.state == {"bookmarks": {"s": 7}}
    assert lake.kinds == ["state"]


@pytest.mark.parametrize("last", [closed(3), DEAD])
def test_older_state_is_refused(lake: Lake, last: dict[str, Any]) -> None:
    """An older STATE of the log would load rows twice: refused, and the hint says how to go on."""
    committer = lake.open(FIRST)
    for n in (1, 2, 3):
        lake.load(committer, {"n": n})
    lake.edit_state('{"n": 1}')
    with pytest.raises(LakeError, match="older than the lake") as caught:
        lake.open(last)
    assert "delete state.json" in caught.value.hint
    (lake.root / ".bridge/p/state.json").unlink()
    assert lake.open(last).view.state == lake.state == {"n": 3}


def test_lag_is_repaired_only_after_a_death(lake: Lake) -> None:
    """The STATE before the last is what a run that died before step 5 leaves; after a clean end it is an edit."""
    committer = lake.open(FIRST)
    for n in (1, 2):
        lake.load(committer, {"n": n})
    lake.edit_state('{"n": 1}')
    with pytest.raises(LakeError, match="older than the lake"):
        lake.open(closed(2))
    assert lake.open(DEAD).view.state == lake.state == {"n": 2}


@pytest.mark.parametrize("text", ["", "{", '{"n": 1} x', "\x00"])
def test_state_that_is_not_json(lake: Lake, text: str) -> None:
    """A broken `state.json` stops the run before the tap starts, with what to do."""
    lake.load(lake.open(FIRST), {"n": 1})
    lake.edit_state(text)
    with pytest.raises(CorruptLake, match=r"state\.json is not JSON") as caught:
        lake.open(closed(1))
    assert "repair it, or delete it" in caught.value.hint


def test_crash_between_a_given_state_and_its_file(lake: Lake) -> None:
    """A STATE given by an operator counts from its record on, also if the run died before `state.json` was written."""
    committer = lake.open(FIRST)
    lake.load(committer, {"n": 1})
    committer.set_state({"n": "given"}, "--state")
    lake.edit_state('{"n": 1}')
    assert lake.open(DEAD).view.state == lake.state == {"n": "given"}


def test_state_file_is_the_heads(lake: Lake) -> None:
    """A run that was overtaken while it published does not put its STATE over that of its successor."""
    storage = Faulty(lake)

    def overtaken(publish: Callable[[], None]) -> None:
        publish()
        lake.open(DEAD).set_state({"n": "successor"}, "test")

    committer = lake.open(FIRST, storage)
    storage._publish, storage.armed = overtaken, True
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
    facts = {"staged": {"t": {"version": 1, "files": [bad]}}} if staged else {}
    with pytest.raises(EngineError, match="a pending file is not what was written") as caught:
        committer.commit({"n": 1}, [lake.entry(good) if staged else lake.entry(good, bad)], **facts)
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
        committer.commit({"n": 1}, [lake.entry(file)])
    assert lake.state is None
    assert lake.open(DEAD).view.state is None
    assert lake.kinds == ["data", "fence", "void"]


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
            committer.commit({"n": 3}, [lake.entry(three, removes=tuple(names))])


@pytest.mark.parametrize(("retention", "left"), [(timedelta(days=7), 1), (timedelta(seconds=-1), 0)])
def test_trash_is_kept_for_its_time(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, retention: timedelta, left: int
) -> None:
    """Removed files stay in the trash for the retention, under no name that a reader takes for Parquet."""
    monkeypatch.setattr("bridge.commit.TRASH_RETENTION", retention)
    committer = lake.open(FIRST)
    old = lake.load(committer, {"n": 1})
    committer.commit({"n": 2}, [lake.entry(lake.pending(0), removes=(old["name"],))])
    lake.open(closed(2))
    trash = [path for path in (lake.root / ".bridge/p/trash").rglob("*") if path.is_file()]
    assert len(trash) == left
    assert all(path.suffix == ".removed" for path in trash)


def test_every_error_of_the_protocol_helps(lake: Lake) -> None:
    """Whatever the protocol raises is an error of the lake, exit 3, that tells the operator what to do."""
    committer, other = lake.open(FIRST), lake.open(FIRST)
    lake.load(other, {"n": 1})
    with pytest.raises(BridgeError) as caught:
        lake.load(committer, {"n": 2})
    assert (caught.value.exit_code, bool(caught.value.hint)) == (3, True)
