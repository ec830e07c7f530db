"""Each rule of what a barrier publishes, holds, stages or refuses; `test_epoch_crashes` tries them all together."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from bridge.errors import DataError, SettingsError
from bridge.load.run.barriers import Barrier, BarrierPolicy
from bridge.load.run.streams import StreamPlan, StreamProgress
from bridge.protocol.schema.table_schema import from_singer
from bridge.settings.destination import LoadMethod

TABLE = from_singer({"properties": {"id": {"type": "integer"}}}, [])


class Run:
    """Plays a run from short lines: `rows a`, `rows a 3` (a version), `activate a 3`, or a STATE's value."""

    def __init__(
        self,
        start: Any = None,
        *,
        replace: str = "",
        staged: dict[str, int] | None = None,
        kept: str = "",
        whole: bool = False,
    ) -> None:
        self.replace = replace.split()
        self.epochs = BarrierPolicy(start, staged=staged or {}, retained=kept.split(), whole=whole)

    def open(self, name: str) -> StreamProgress:
        if name not in self.epochs.streams:
            method: LoadMethod = "overwrite" if name in self.replace else "append-only"
            self.epochs.open(StreamProgress(StreamPlan(name, (name,), method), TABLE))
        return self.epochs.streams[name]

    def play(self, *steps: Any) -> Run:
        for step in steps:
            verb, name, version = [*step.split(), "", ""][:3] if isinstance(step, str) else ("state", "", "")
            if verb == "state":
                self.epochs.state(orjson.dumps({"type": "STATE", "value": step}))
            elif verb == "schema":
                self.open(name)
            elif verb == "activate":
                self.epochs.activate(self.open(name), int(version))
            else:
                self.epochs.rows(self.open(name), 1)
                self.open(name).versions.add(int(version) if version else None)
        return self

    def barrier(self, *steps: Any, end: bool = False) -> Barrier | None:
        return self.play(*steps).epochs.barrier(end=end)

    def published(self, *steps: Any, end: bool = False) -> dict[str, str] | None:
        """Return what is published after these steps, and how; None if it is no barrier."""
        barrier = self.barrier(*steps, end=end)
        return None if barrier is None else barrier.publish | dict.fromkeys(barrier.extends, "extend")


def marks(**bookmarks: Any) -> dict[str, Any]:
    return {"bookmarks": bookmarks}


def test_rows_that_the_state_covers_are_published() -> None:
    """A moved bookmark publishes the rows before it, and the STATE is kept verbatim."""
    said = marks(a={"id": 1, "note": None}) | {"extra": [1]}
    barrier = Run().barrier("rows a", said)
    assert barrier
    assert (barrier.publish, barrier.state, barrier.merged, barrier.staged) == ({"a": "append-only"}, said, False, {})


def test_no_state_is_no_barrier() -> None:
    """Before the first STATE nothing is committed; the clean end publishes all with the STATE of before."""
    run = Run(marks(a={"id": 1}))
    assert run.published("rows a") is None
    barrier = run.barrier(end=True)
    assert barrier
    assert (barrier.publish, barrier.state) == ({"a": "append-only"}, marks(a={"id": 1}))


def test_a_state_is_decided_upon_once() -> None:
    """Rows after a STATE are not its own: asked again without a new STATE, the answer is no, chosen or not before."""
    run = Run()
    assert run.published("rows a", marks(a={"id": 1})) == {"a": "append-only"}
    assert run.published("rows a", "rows a") is None
    assert run.published(marks(a={"id": 3})) == {"a": "append-only"}
    child = Run(marks(p={"id": 1}))
    assert child.published("schema p", "rows c", marks(p={"id": 2})) is None
    assert child.published() is None
    again = Run(marks(a={"version": 3, "pk": 1}), replace="a", staged={"a": 3})
    assert again.published("rows a 3", marks(a={"version": 4, "pk": 0})) is None
    again.open("a").versions.clear()  # what the dispatcher does on the first row of another version
    assert again.published("rows a 4") is None


def test_an_unchanged_state_commits_nothing() -> None:
    """An echo of the head's STATE, or one with only notes in it, is no commit."""
    run = Run(marks(a={"id": 1}))
    assert run.published(marks(a={"id": 1})) is None
    assert run.published("rows a", marks(a={"id": 1, "starting_replication_value": 1})) is None


def test_rows_are_held_while_their_bookmark_stands_still() -> None:
    """A tap that notes a bookmark at a stream's end only would send these rows again: they wait, others do not."""
    run = Run(marks(a={"id": 1}, b={"id": 1}))
    assert run.published("rows a", marks(a={"id": 1}, b={"id": 1}), "rows b", marks(a={"id": 1}, b={"id": 2})) == {
        "b": "append-only"
    }
    assert run.published("rows b", marks(a={"id": 9}, b={"id": 3})) == {"a": "append-only", "b": "append-only"}


def test_unsorted_rows_are_held_until_their_end() -> None:
    """Progress markers hold; once the bookmark is plain, all of the rows are published."""
    run = Run()
    markers = {"progress_markers": {"replication_key_value": 3}}
    assert run.published("rows a", marks(a=markers)) is None
    assert run.published("rows b", marks(a=markers, b={"id": 1})) == {"b": "append-only"}
    assert run.published("rows b", marks(a={"replication_key_value": 9}, b={"id": 2})) == {
        "a": "append-only",
        "b": "append-only",
    }


def test_a_finished_full_table_is_held_until_the_end() -> None:
    """Later streams commit past a full table's rows; they are published at the clean end, with the last STATE."""
    run = Run()
    assert run.published("rows a", marks(a={}), "schema b", "rows b", marks(a={}, b={"id": 1})) == {"b": "append-only"}
    barrier = run.barrier(end=True)
    assert barrier
    assert barrier.publish == {"a": "append-only", "b": "append-only"}
    assert barrier.end


def test_currently_syncing_that_moved_on_publishes() -> None:
    """A tap that names the stream under way may skip those it is through with: their rows are covered."""
    run = Run()
    first, second = marks() | {"currently_syncing": "a"}, marks() | {"currently_syncing": "b"}
    assert run.published(first, "rows a", second) == {"a": "append-only"}
    assert run.published("rows b", marks() | {"currently_syncing": None}) is None


def test_currently_syncing_that_never_named_a_stream_covers_nothing() -> None:
    """A child's rows are not covered because its parent is under way; nor may they be held if the name changed."""
    parent = {"currently_syncing": "p"}
    assert Run().published(marks() | parent, "schema p", "rows c", marks() | parent) is None
    run = Run()
    assert run.published("rows c", "rows b", marks(b={"id": 1}) | {"currently_syncing": "b"}) is None
    run = Run()
    start = marks() | parent
    assert run.published(start, "schema p", "rows c", "rows p", marks(p={"id": 1}) | parent) is None


def test_a_childs_rows_stop_their_parents_bookmark() -> None:
    """A stream without bookmark may be its parent's child: while that moves there is no barrier, until the end."""
    run = Run(marks(p={"id": 1}))
    assert run.published("schema p", "rows c", "rows p", marks(p={"id": 2})) is None
    assert run.published("rows c", marks(p={"id": 3})) is None
    assert run.published(end=True) == {"p": "append-only", "c": "append-only"}


def test_a_deselected_parent_counts_as_open() -> None:
    """A bookmark of a stream that sends nothing may stand for a child's rows too."""
    assert Run(marks(p={"id": 1})).published("rows c", marks(p={"id": 2})) is None


def test_partitions_that_are_through_are_not_held_alone() -> None:
    """One partition with markers holds the stream, and another one that moved makes it no barrier."""
    parts = [{"context": {"n": 1}, "replication_key_value": 5}, {"context": {"n": 2}, "progress_markers": {"x": 1}}]
    assert Run().published("rows a", marks(a={"partitions": parts})) is None
    assert Run().published("rows a", marks(a={"partitions": parts[:1]})) == {"a": "append-only"}


def test_rows_after_the_last_state_are_published_at_the_clean_end() -> None:
    """Exit 0 says that everything was sent: the rows go with the last STATE, or with the head's if none came."""
    barrier = Run(marks(a={"id": 1})).barrier("rows a", marks(a={"id": 2}), "rows a", end=True)
    assert barrier
    assert (barrier.publish, barrier.state) == ({"a": "append-only"}, marks(a={"id": 2}))
    nothing = Run().barrier("rows a", end=True)
    assert nothing
    assert nothing.state is None


@pytest.mark.parametrize("said", [{}, marks(), None, marks() | {"currently_syncing": None}])
def test_an_empty_state_is_never_stored_over_a_full_one(said: Any) -> None:
    """An emitted `{}` is no barrier, and at the end the head's STATE stays; `--full` may store it."""
    run = Run(marks(a={"id": 1}))
    assert run.published("rows a", said) is None
    barrier = run.barrier(end=True)
    assert barrier
    assert (barrier.state, barrier.publish, barrier.merged) == (marks(a={"id": 1}), {"a": "append-only"}, False)
    assert Run(marks(b={"id": 1}), replace="a").published("rows a 3", "activate a 3", said) is None
    whole = Run({"a": 1}, whole=True).barrier("rows a", {}, end=True)
    assert whole
    assert whole.state == {}


def test_flat_states_by_stream() -> None:
    """In a flat STATE a stream's bookmark stands at its name, and rows whose own has not moved are not covered."""
    run = Run()
    assert run.published("rows a", {"a": 1}) == {"a": "append-only"}
    assert run.published("schema b", "rows b", {"a": 1}) is None
    assert run.published("rows a", {"a": 2}) is None
    assert run.published({"a": 2, "b": 1}) == {"a": "append-only", "b": "append-only"}


def test_flat_states_of_the_whole_tap() -> None:
    """Where no key is a stream's name the STATE is one position: it covers all rows when it has moved."""
    run = Run({"cursor": 1})
    assert run.published("rows a", {"cursor": 1}) is None
    assert run.published("rows b", {"cursor": 2}) == {"a": "append-only", "b": "append-only"}
    assert Run("t1").published("rows a", "rows b") is None
    bare = Run(5)
    bare.epochs.rows(bare.open("a"), 1)
    bare.epochs.state(b'{"type":"STATE","value":6}')
    assert bare.published() == {"a": "append-only"}


def test_an_overwrite_waits_for_its_end() -> None:
    """Other streams commit while a table is loaded; it is swapped at the clean end, whole."""
    run = Run(replace="a")
    assert run.published("rows a", marks(a={}), "rows b", marks(a={}, b={"id": 1})) == {"b": "append-only"}
    assert run.published("rows a", end=True) == {"a": "overwrite", "b": "append-only"}


def test_activate_version_swaps_at_the_next_state() -> None:
    """Rows, ACTIVATE_VERSION, STATE: swapped there; what comes later is added to the new table."""
    run = Run(replace="a")
    assert run.published("rows a 3", "activate a 3", marks(b={"id": 1})) == {"a": "overwrite"}
    assert run.published("rows a 3", marks(a={"id": 1}, b={"id": 1})) == {"a": "extend"}
    assert run.published(end=True) == {"a": "extend"}


def test_activate_version_after_the_last_state_waits() -> None:
    """The STATE before the message does not know of it: the swap is for the next STATE, or the end."""
    run = Run(replace="a")
    assert run.published("rows a 3", marks(x={"id": 1}), "activate a 3") == {}
    assert run.published(marks(x={"id": 2})) == {"a": "overwrite"}


@pytest.mark.parametrize("staged", [{}, {"a": 3}])
def test_activate_version_before_the_rows_swaps_nothing(staged: dict[str, int]) -> None:
    """Taps announce a version before its rows, and again when they continue it: neither is the table's end."""
    start = marks(a={"version": 3, "last_pk": 1}) if staged else None
    run = Run(start, replace="a", staged=staged)
    barrier = run.barrier("schema a", "activate a 3", "rows a 3", marks(a={"version": 3, "last_pk": 5}))
    assert barrier
    assert (barrier.publish, barrier.staged) == ({}, {"a": 3})


def test_activate_version_of_other_rows_swaps_nothing() -> None:
    """A message of another version than the rows' ends nothing."""
    run = Run(replace="a")
    assert run.published("rows a 3", "activate a 4", marks(b={"id": 1})) == {}


def test_a_resumable_table_is_named_in_the_commit() -> None:
    """If the STATE counts on the rows that were sent, the commit names their version; the next run ends it."""
    said = marks(a={"version": 3, "last_pk": 5})
    barrier = Run(replace="a").barrier("rows a 3", said)
    assert barrier
    assert (barrier.publish, barrier.staged) == ({}, {"a": 3})
    run = Run(said, replace="a", staged={"a": 3})
    again = run.barrier("rows a 3", marks(a={"version": 3, "last_pk": 9}))
    assert again
    assert again.staged == {"a": 3}
    last = run.barrier("activate a 3", marks(a={"done": True}))
    assert last
    assert (last.publish, last.staged) == ({"a": "overwrite"}, {})


def test_staged_files_of_a_silent_stream_stay_named() -> None:
    """A run that does not mention a half loaded table keeps what is staged of it."""
    barrier = Run(marks(a={"version": 3, "pk": 1}), replace="a", staged={"a": 3}).barrier("rows b", marks(b={"id": 1}))
    assert barrier
    assert barrier.staged == {"a": 3}


def test_an_adopted_table_without_new_rows_is_swapped_at_the_end() -> None:
    """A run cut between the last row and the end of the table loses nothing: the next clean end swaps it."""
    run = Run(marks(a={"version": 3, "last_pk": 9}), replace="a", staged={"a": 3})
    assert run.published("schema a", "activate a 3", end=True) == {"a": "overwrite"}


def test_a_restarted_version_waits_for_its_own_state() -> None:
    """Rows of a new version do not fit what the head's STATE says: no barrier until the STATE has moved to it."""
    run = Run(marks(a={"version": 3, "last_pk": 9}), replace="a", staged={"a": 3})
    run.play("schema a")
    run.open("a").versions.clear()  # what the dispatcher does on the first row of another version
    assert run.published("rows a 4", "rows b", marks(a={"version": 3, "last_pk": 9}, b={"id": 1})) is None
    barrier = run.barrier("rows a 4", marks(a={"version": 4, "last_pk": 2}, b={"id": 2}))
    assert barrier
    assert (barrier.staged, barrier.publish) == ({"a": 4}, {"b": "append-only"})


def test_a_version_alone_is_not_counted_on() -> None:
    """A table that its tap restarts under the same version is not adopted: its rows would come twice."""
    barrier = Run(replace="a").barrier("rows a 3", "rows b", marks(a={"version": 3}, b={"id": 1}))
    assert barrier
    assert (barrier.staged, barrier.publish) == ({}, {"b": "append-only"})


def test_an_overwrite_whose_bookmark_moves_without_version_is_no_barrier() -> None:
    """A tap that resumes in the middle of a table would send only the rest: nothing is committed before the end."""
    run = Run(replace="a")
    assert run.published("rows a", marks(a={"id": 5})) is None
    assert run.published("rows a", end=True) == {"a": "overwrite"}


def test_an_overwrite_that_the_tap_would_skip_is_no_barrier() -> None:
    """Once `currently_syncing` has moved on, a restarted tap would not send the table again."""
    run = Run(replace="a")
    assert (
        run.published(
            marks() | {"currently_syncing": "a"}, "rows a", "rows b", marks(b={"id": 1}) | {"currently_syncing": "b"}
        )
        is None
    )
    assert run.published(end=True) == {"a": "overwrite", "b": "append-only"}


def test_a_skipped_overwrite_keeps_its_table() -> None:
    """A tap that resumes at a later stream and sends an earlier one's SCHEMA only has not emptied that table."""
    start = marks() | {"currently_syncing": "b"}
    assert Run(start, replace="a b").published("schema a", "schema b", end=True) == {"b": "overwrite"}


def test_a_schema_without_rows_empties_its_table() -> None:
    """Zero rows and a clean end are an empty table; a stream that was not mentioned is untouched."""
    assert Run(marks(a={}), replace="a z").published("schema a", marks(a={}), end=True) == {"a": "overwrite"}


def test_a_half_loaded_table_keeps_its_method() -> None:
    """A table that became another while it was half loaded is refused with what to do; `--full` appends no rows."""
    again = "set load_method back to what it was; or start the table again: --full -s 'a b'"
    hints: dict[LoadMethod, str] = {"append-only": "set load_method back to what it was", "upsert": again}
    for mode, hint in hints.items():
        run = Run(marks(**{"a b": {"version": 3, "pk": 1}}), staged={"a b": 3})
        with pytest.raises(SettingsError, match="changed its load method") as caught:
            run.epochs.open(StreamProgress(StreamPlan("a b", ("a b",), mode), TABLE))
        assert caught.value.hint == hint


def test_streams_that_do_not_speak_keep_their_bookmark() -> None:
    """A deselected stream's bookmark is the head's, whatever the tap says of it, and the commit says merged."""
    run = Run(marks(a={"id": 1}, k={"id": 7}), kept="k")
    barrier = run.barrier("rows a", marks(a={"id": 2}))
    assert barrier
    assert (barrier.state, barrier.merged) == (marks(a={"id": 2}, k={"id": 7}), True)
    echoed = run.barrier("rows a", marks(a={"id": 3}, k={"id": 7}))
    assert echoed
    assert echoed.merged is False


def test_streams_that_do_not_speak_veto_nothing() -> None:
    """A bookmark that is kept in any case cannot stand for anybody's rows."""
    run = Run(marks(k={"id": 7}), kept="k")
    other = {"id": 9}
    assert run.published(marks(k=other), "rows a", "rows b", marks(a={}, b={"id": 1}, k=other)) == {"b": "append-only"}


def test_flat_states_cannot_keep_streams_apart() -> None:
    """A flat STATE that forgets a stream which was not asked is refused rather than guessed at."""
    with pytest.raises(SettingsError):
        Run({"k": 7}, kept="k").barrier("rows a", {"a": 1})
    assert Run(kept="k").barrier("rows a", {"a": 1}) is not None


def test_a_deselected_parent_speaks_for_its_children() -> None:
    """The tap's words on a stream that was not asked count, unless its RECORDs came and were ignored."""
    run = Run(marks(parent={"id": 1}), kept="parent")
    barrier = run.barrier("rows child", marks(parent={"id": 2}, child={"id": 5}))
    assert barrier
    assert barrier.state == marks(parent={"id": 2}, child={"id": 5})
    run = Run(marks(parent={"id": 1}), kept="parent")
    run.epochs.muted.add("parent")
    barrier = run.barrier("rows child", marks(parent={"id": 2}, child={"id": 5}))
    assert barrier
    assert barrier.state == marks(parent={"id": 1}, child={"id": 5})


def test_full_is_one_commit_at_the_end() -> None:
    """With `--full` nothing is published before the clean end; unmentioned streams keep their bookmark."""
    run = Run(marks(a={"id": 9}, b={"id": 9}, z={"id": 9}), replace="a b", whole=True)
    assert run.published("rows a", marks(a={"id": 1})) is None
    assert run.published("activate a 1", marks(a={"id": 2})) is None
    barrier = run.barrier("schema b", end=True)
    assert barrier
    assert barrier.publish == {"a": "overwrite", "b": "overwrite"}
    assert barrier.state == marks(a={"id": 2}, z={"id": 9})
    assert barrier.merged


def test_full_without_any_state_keeps_the_heads() -> None:
    """A tap that says no STATE leaves the old one standing."""
    barrier = Run(marks(a={"id": 9}), replace="a", whole=True).barrier("rows a", end=True)
    assert barrier
    assert barrier.state == marks(a={"id": 9})


def test_a_broken_state_is_told_when_it_is_needed() -> None:
    """A STATE that is no JSON is an error at the barrier, not before: the next one may replace it."""
    run = Run().play("rows a")
    run.epochs.state(b'{"type":"STATE","val')
    assert run.published(marks(a={"id": 1})) == {"a": "append-only"}
    run.epochs.state(b'{"type":"STATE","val')
    with pytest.raises(DataError, match="broken STATE"):
        run.barrier()


def test_rows_between_the_state_and_the_decision() -> None:
    """A barrier decided late, when later rows are in already, keeps those waiting for their own STATE."""
    run = Run()
    assert run.published("rows a", marks(a={"id": 1}), "rows a", "schema b", "rows b") == {"a": "append-only"}
    assert run.published(marks(a={"id": 1}, b={"id": 1})) == {"b": "append-only"}
    assert run.published(marks(a={"id": 2}, b={"id": 1})) == {"a": "append-only"}


def test_a_new_version_without_rows_empties_a_table_that_could_go_on() -> None:
    """The STATE names the version that the table has: a tap that announces a newer one has read an empty table."""

    def published(announced: int) -> dict[str, str] | None:
        run = Run(marks(a={"version": 3}), replace="a")
        stream = run.open("a")
        stream.swapped, stream.version, stream.former = True, 3, 3
        return run.published(f"activate a {announced}", marks(a={"version": announced}), end=True)

    assert published(4) == {"a": "overwrite"}
    assert published(3) in ({}, {"a": "extend"})


def test_a_state_between_two_files_of_one_second_is_no_barrier() -> None:
    """The tap asks for files that are newer than its bookmark: started from the first file's, it skips the second."""
    first, second = (marks(a={"modified_since": f"2024-01-0{day}T00:00:00+00:00"}) for day in (1, 2))
    run = Run()
    assert run.published("rows a", first, "rows a", first) is None
    assert run.published("rows a", second) is None
    assert run.published("schema b", second | {"x": 1}) == {"a": "append-only"}  # the files of `a` are through
    assert run.published("rows a", second, end=True) == {"a": "append-only", "b": "append-only"}
