"""Which streams go together into one process of the tap, and which STATE each of them starts from."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.errors import SettingsError
from bridge.lake.log import Snapshot
from bridge.lake.pipeline_state import PipelineState, merge_group, starting_groups
from bridge.lake.records import TapGroup
from bridge.lake.runs import RunFile
from bridge.lake.storage import open_storage
from bridge.load.run.planning.division import Division, balanced, divided, families
from bridge.protocol.singer.catalog import selected_streams
from bridge.settings.options import Pipeline


def pipeline(parallelism: Any = 2, **streams: str) -> Pipeline:
    """Settings with a parent for some streams."""
    return Pipeline.model_validate(
        {
            "name": "p",
            "source": {"tap": "tap", "parallelism": parallelism},
            "destination": {"bucket": "/nowhere"},
            "streams": {name: {"parent": parent} for name, parent in streams.items()},
        }
    )


def catalog(*names: str, **parents: str) -> dict[str, Any]:
    """Selected streams; `parents` by stream as Stitch's taps write them."""
    return {
        "streams": [
            {
                "tap_stream_id": name,
                "stream": name.upper(),
                "schema": {},
                "metadata": [{"breadcrumb": [], "metadata": m}],
            }
            for name in names
            for m in [{"selected": True} | ({"parent-tap-stream-id": parents[name]} if name in parents else {})]
        ]
    }


def marks(**bookmarks: Any) -> dict[str, Any]:
    return {"bookmarks": bookmarks}


def view(state: Any, *groups: TapGroup, edited: bool = False) -> Snapshot:
    """A lake after a commit of several processes, or of one."""
    return Snapshot(1, PipelineState(state, list(groups) if groups or edited else None))


def test_children_stay_with_their_parents() -> None:
    """Whatever says who a stream's parent is, and however deep, it is one family; also when the parent is not read."""
    found = catalog("a", "b", "c", "d", "e", b="a", d="gone", e="gone")
    assert families(found, pipeline(c="B")) == [("a", "b", "c"), ("d", "e")]
    found["streams"][0]["metadata"][0]["metadata"]["selected"] = False
    assert families(found, pipeline()) == [("b",), ("c",), ("d", "e")]


def test_two_that_name_one_another_are_a_family() -> None:
    """A circle of parents ends somewhere, and a glob that matches the parent itself does no harm."""
    assert families(catalog("a", "b", "c"), pipeline(a="b", b="a")) == [("a", "b"), ("c",)]
    assert families(catalog("a", "b", "c"), pipeline(**{"*": "a"})) == [("a", "b", "c")]


def test_streams_of_one_name_stay_together() -> None:
    """Two ids whose RECORDs have one name are one table: two processes that write to it know nothing of each other."""
    found = catalog("one-users", "two-users", "orders")
    for entry in found["streams"][:2]:
        entry["stream"] = "users"
    assert families(found, pipeline()) == [("one-users", "two-users"), ("orders",)]


def test_a_parent_that_does_not_exist_is_refused() -> None:
    """A wrong name would part a child from its parent without a word."""
    with pytest.raises(SettingsError, match="parent names no stream") as caught:
        families(catalog("orders", "lines"), pipeline(lines="order"))
    assert 'did you mean "orders"?' in caught.value.hint


def test_the_longest_first() -> None:
    """What took longest is placed first, each time where least is; a stream that nobody has seen takes the median."""
    found = [("a",), ("b",), ("c",), ("d", "e")]
    assert balanced(found, 2, {"a": 9, "b": 6, "c": 3}) == [("c", "d", "e"), ("a", "b")]
    groups = balanced(found, 2, {"a": 10, "b": 6, "c": 3, "d": 1, "e": 1})
    assert groups == [("a",), ("b", "c", "d", "e")]
    assert sorted(map(len, balanced([(n,) for n in "abcdefgh"], 4, {}))) == [2, 2, 2, 2]
    assert sorted(map(len, balanced([(n,) for n in "abcdefgh"], 4, dict.fromkeys("abcdefgh", 0.0)))) == [2, 2, 2, 2]


def test_groups_stay_as_they_are() -> None:
    """A stream that is new goes where least is; those that were there stay, whatever their seconds are now."""
    found = [("a",), ("b",), ("c",), ("d",)]
    assert balanced(found, 2, {"a": 9, "b": 9}, [("a", "b"), ("c",)]) == [("a", "b"), ("c", "d")]
    assert balanced(found, 3, {}, [("a", "b"), ("c",)]) == [("a", "b"), ("c",), ("d",)]


@pytest.mark.parametrize("last", [[("a", "b"), ("c", "d")], [("a",), ("b",), ("c",), ("d",)]])
def test_another_number_divides_anew(last: list[tuple[str, ...]]) -> None:
    """No group is left empty, and there are never more than were asked for."""
    groups = balanced([("a",), ("b",), ("c",), ("d",)], 3, {}, last)
    assert len(groups) == 3
    assert all(groups)


@given(st.lists(st.integers(1, 4), min_size=1, max_size=8), st.integers(1, 8), st.integers(0, 5), st.randoms())
def test_each_stream_in_one_group(sizes: list[int], count: int, before: int, random: Any) -> None:
    """Whatever was before: each stream is in one group, families are together, no group is empty, as many as asked."""
    found = [tuple(f"{n}.{k}" for k in range(size)) for n, size in enumerate(sizes)]
    names = [stream for family in found for stream in family]
    last = [[] for _ in range(before)]
    for name in names if before else ():
        last[random.randrange(before)].append(name)
    groups = balanced(found, min(count, len(found)), {name: random.random() for name in names}, last)
    assert sorted(stream for group in groups for stream in group) == sorted(names)
    assert all(any(set(family) <= set(group) for group in groups) for family in found)
    assert len(groups) == min(count, len(found))
    assert all(groups)


def test_each_group_gets_its_own_state_back() -> None:
    """The whole of it, verbatim: the parent's bookmark of the other process would lose the child's rows."""
    first, second = TapGroup(("p",), marks(p=9)), TapGroup(("c",), marks(p=2, c=2))
    groups, idle, spread = starting_groups([("p",), ("c",)], view(marks(p=9, c=2), first, second).pipeline_state)
    assert (groups, idle, spread) == ([first, second], [], [])


def test_a_part_of_a_group_has_its_state() -> None:
    """Streams of one process go on from its STATE when they are divided, and those that do not run now keep it."""
    both, other = TapGroup(("a", "b"), marks(a=1, b=2)), TapGroup(("c",), marks(c=3))
    seen = view(marks(a=1, b=2, c=3), both, other)
    groups, idle, spread = starting_groups([("a",), ("b",), ("c",)], seen.pipeline_state)
    assert ([group.state for group in groups], idle, spread) == ([both.state, both.state, other.state], [], [])
    groups, idle, spread = starting_groups([("b",)], seen.pipeline_state)
    assert (groups, idle, spread) == ([TapGroup(("b",), both.state)], [TapGroup(("a",), both.state), other], [])


def test_streams_of_two_processes_together_start_from_what_is_shown() -> None:
    """No single process has a STATE for them; whoever runs it is told."""
    one, two = TapGroup(("a",), marks(a=1)), TapGroup(("b",), marks(b=2))
    groups, idle, spread = starting_groups([("a", "b")], view(marks(a=1, b=2), one, two).pipeline_state)
    assert (groups, idle) == ([TapGroup(("a", "b"), marks(a=1, b=2))], [])
    assert spread == groups


def test_a_new_stream_joins_a_group() -> None:
    """The group goes on from its own STATE if that says of the new one what is shown; else from what is shown."""
    one, two = TapGroup(("a",), marks(a=1)), TapGroup(("b",), marks(b=2, x=5))
    seen = view(marks(a=1, b=2, x=5), one, two)
    groups, _, spread = starting_groups([("a", "n"), ("b",)], seen.pipeline_state)
    assert ([group.state for group in groups], spread) == ([one.state, two.state], [])
    groups, _, spread = starting_groups([("a", "x"), ("b",)], seen.pipeline_state)
    assert (groups[0].state, spread) == (seen.state, groups[:1])


def test_after_an_edit_all_start_from_it() -> None:
    """A STATE that was written by hand is for all of them, and each is told of."""
    groups, _, spread = starting_groups([("a",), ("b",)], view(marks(a=1), edited=True).pipeline_state)
    assert [group.state for group in groups] == [marks(a=1)] * 2
    assert spread == groups
    assert starting_groups([("a",), ("b",)], view(marks(a=1)).pipeline_state)[2] == [], (
        "one tap's own STATE is good for all"
    )


def test_what_is_shown() -> None:
    """Each stream's bookmark is its own process's; of those in no group, what changed; and who syncs is not said."""
    now = {"bookmarks": {"p": 1, "c": 1, "z": 0}, "currently_syncing": "p"}
    after = {"bookmarks": {"p": 5, "c": 3, "y": 1}, "currently_syncing": "c", "v": 2}
    assert merge_group(now, now, after, {"c"}, {"p"}) == {"bookmarks": {"p": 1, "c": 3, "z": 0, "y": 1}, "v": 2}
    assert merge_group(now, after, after, {"c"}, {"p"}) is now
    assert merge_group(None, None, marks(c=1), {"c"}, {"p"}) == marks(c=1)
    assert merge_group(marks(c=1, p=1), marks(c=1), marks(), {"c"}, {"p"}) == marks(p=1), (
        "it says nothing of its own any more"
    )


def test_what_was_forgotten() -> None:
    """Streams that start again have no bookmark in any process's STATE."""
    seen = view(
        marks(p=9, c=2), TapGroup(("p",), marks(p=9)), TapGroup(("c",), marks(p=2, c=2)), TapGroup(("n",), None)
    )
    assert seen.pipeline_state.without({"p"}).per_process == [
        TapGroup(("p",), marks()),
        TapGroup(("c",), marks(c=2)),
        TapGroup(("n",), None),
    ]
    assert view(marks(p=9)).pipeline_state.without({"p"}).per_process is None


def divide(folder: Path, settings: Pipeline, seen: Snapshot, *names: str) -> tuple[Division | None, list[str]]:
    return divided(settings, open_storage(str(folder)), seen, catalog(*names) if names else None)


def test_one_process_is_todays_way(tmp_path: Path) -> None:
    """Without parallelism, and with one family only, nothing is divided and nothing is said."""
    assert divide(tmp_path, pipeline(1), Snapshot(), "a", "b") == (None, [])
    assert divide(tmp_path, pipeline(1), Snapshot()) == (None, [])
    assert divide(tmp_path, pipeline(8), Snapshot(), "a") == (None, [])


def test_seconds_of_the_last_run_decide(tmp_path: Path) -> None:
    """They are noted by the names in messages, which may be others than the ids."""
    storage = open_storage(str(tmp_path))
    seconds = {"A": {"seconds": 5.0}, "B": {"seconds": 3.0}, "C": {"seconds": 3.5}, "GONE": {"seconds": 99.0}}
    RunFile(storage, "p", "20261120T133501Z-k3f9").finish(streams=seconds)
    RunFile(storage, "p", "20261120T143501Z-k3f9").finish(streams={})
    division, _ = divided(pipeline(), storage, Snapshot(), catalog("a", "b", "c"))
    assert division
    assert [group.streams for group in division.groups] == [("a",), ("b", "c")]
    assert [selected_streams(catalog) for catalog in division.catalogs] == [{"a"}, {"b", "c"}]
    assert division.names == ({"a", "A"}, {"b", "B", "c", "C"})


def test_auto_is_the_number_of_cores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At most as many as there are families."""
    monkeypatch.setattr(os, "cpu_count", lambda: 3)
    for names, count in (("abcdef", 3), ("ab", 2)):
        division, _ = divide(tmp_path, pipeline("auto"), Snapshot(), *names)
        assert division
        assert len(division.groups) == count


@pytest.mark.parametrize(
    ("state", "names", "message"),
    [({"p": 1}, "ab", "cannot be kept per stream"), (None, "", "needs a catalog")],
)
def test_what_cannot_be_divided(tmp_path: Path, state: Any, names: str, message: str) -> None:
    """A flat STATE is one position for all, and without a catalog no process knows what is its own."""
    with pytest.raises(SettingsError, match=message) as caught:
        divide(tmp_path, pipeline(), Snapshot(1, PipelineState(state)), *names)
    assert caught.value.hint


def test_one_process_after_several_is_told(tmp_path: Path) -> None:
    """It goes on from a STATE that no tap said; those who leave some streams out keep the others' STATEs."""
    seen = view(marks(a=1, b=2), TapGroup(("a",), marks(a=1)), TapGroup(("b",), marks(b=2)))
    division, notes = divide(tmp_path, pipeline(1), seen, "a", "b")
    assert division is None
    assert "one process of the tap goes on from a STATE put together" in notes[0]
    division, notes = divide(tmp_path, pipeline(1), seen, "b")
    assert division
    assert (division.groups, division.idle, notes) == (
        (TapGroup(("b",), marks(b=2)),),
        (TapGroup(("a",), marks(a=1)),),
        [],
    )
