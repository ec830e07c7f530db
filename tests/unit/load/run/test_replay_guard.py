"""A tap that is started again from an earlier STATE sends rows once more: they are in the lake once all the same."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.errors import SettingsError
from bridge.lake.commit.open import open_pipeline
from bridge.lake.commit.rollback import roll_back
from bridge.lake.log import Log
from bridge.lake.state.store import StateStore
from bridge.lake.storage import open_storage
from bridge.load.maintain.compact import CompactOptions, compact
from bridge.load.run.checks.replay_guard import ReplayGuard
from bridge.load.tap.stdin import Start
from tests.support.pipe import Found, Listening, Pipe, wire

EAGER = {"every": "1s", "bytes": "1MiB", "rows": 1}
"""Every STATE that can be one is a barrier."""


class Killed(BaseException):
    """The process ends here."""


def schema(stream: str = "t", *, resumes: bool = True, **properties: Any) -> dict[str, Any]:
    columns = {"id": {"type": "integer"}, **properties}
    bookmark = {"bookmark_properties": ["id"]} if resumes else {}
    return {"type": "SCHEMA", "stream": stream, "schema": {"properties": columns}, "key_properties": ["id"]} | bookmark


def record(number: int, stream: str = "t", **more: Any) -> dict[str, Any]:
    return {"type": "RECORD", "stream": stream, "record": {"id": number, **more}}


def state(number: int | None, stream: str = "t") -> dict[str, Any]:
    said = {"replication_key": "id", "replication_key_value": number} if number else {}
    return {"type": "STATE", "value": {"bookmarks": {stream: said}}}


def value(number: int | None, stream: str = "t") -> Any:
    return state(number, stream)["value"]


def sent(first: int, last: int, *, states: Iterable[int] = ()) -> list[dict[str, Any]]:
    """The SCHEMA and the records of both numbers and those between, a STATE after some."""
    messages = [schema()]
    for number in range(first, last + 1):
        messages.append(record(number))
        if number in states:
            messages.append(state(number))
    return messages


@dataclass
class Meltano:
    """Starts taps from the STATE that it has, and keeps those that the target printed, as long as it lives."""

    pipe: Pipe
    kept: Any = None
    options: dict[str, Any] = field(default_factory=lambda: {"commit": EAGER, "load_method": "append-only"})

    def run(self, *messages: dict[str, Any], hears: int = 1000, dies: bool = False, **settings: Any) -> Found | None:
        """A run of which Meltano hears so many STATEs; the target is then killed, if it `dies`, before the next one.

        It does not end well either if it is the first one's first STATE that nobody reads.
        """
        heard: list[Any] = []

        def said(state: Any) -> None:
            if len(heard) == hears and (dies or (self.kept is None and not heard)):
                raise Killed
            heard.append(state)

        listening = Listening(Start(self.kept), said)
        try:
            return self.pipe.load(wire(*messages), listening=listening, **self.options | settings)
        except Killed:
            return None
        finally:
            self.kept = [self.kept, *heard[:hears]][-1]

    def ids(self, stream: str = "t") -> list[int]:
        """What the table's folder holds, which is what the log says."""
        log = Log(open_storage(str(self.pipe.lake)), "p")
        table = log.snapshot(log.head()).tables.get(stream)
        files = sorted((self.pipe.lake / "p" / stream).glob("*.parquet"))
        assert [file.name for file in files] == sorted(table.files if table else ())
        return sorted(number for file in files for number in pq.read_table(file)["id"].to_pylist())


@pytest.fixture
def meltano(tmp_path: Path) -> Meltano:
    return Meltano(Pipe(tmp_path))


def test_killed_between_its_commit_and_the_print(meltano: Meltano) -> None:
    meltano.run(*sent(1, 3, states=[3]))
    meltano.run(*sent(4, 6, states=[6]), hears=0, dies=True)
    assert meltano.ids() == [1, 2, 3, 4, 5, 6]
    assert meltano.kept == value(3)
    found = meltano.run(*sent(4, 7, states=[7]))
    assert found and not found.warnings
    assert meltano.ids() == [1, 2, 3, 4, 5, 6, 7]
    assert meltano.kept == found.state == value(7)


def test_killed_again_and_again(meltano: Meltano) -> None:
    for last in (2, 4, 6, 8):
        meltano.run(*sent(1, last, states=[1, last]), hears=0, dies=True)
    meltano.run(*sent(1, 9, states=[5, 9]))
    assert meltano.ids() == list(range(1, 10))


def test_only_what_came_after_the_state_that_was_heard(meltano: Meltano) -> None:
    meltano.run(*sent(1, 9, states=[3, 6, 9]), hears=1, dies=True)
    assert meltano.kept == value(3)
    found = meltano.run(*sent(4, 9, states=[9]))
    assert found and sum(f.rows for f in found.view.tables["t"].files.values()) == 9
    assert meltano.ids() == list(range(1, 10))


def test_rows_stay_visible_until_they_come_again(meltano: Meltano) -> None:
    """A tap that is started again and fails at once has taken nothing from the readers."""
    meltano.run(*sent(1, 3, states=[3]), hears=0, dies=True)
    meltano.run(schema())
    assert meltano.ids() == [1, 2, 3]
    meltano.run(*sent(1, 4, states=[4]))
    assert meltano.ids() == [1, 2, 3, 4]


def test_rows_after_the_last_state_come_once_more(meltano: Meltano) -> None:
    """The tap died, or sends its last STATE before its last rows: the pipe does not tell."""
    meltano.run(*sent(1, 5, states=[3]))
    assert meltano.ids() == [1, 2, 3, 4, 5]
    assert meltano.kept == value(3)
    meltano.run(*sent(4, 7, states=[6]))
    assert meltano.ids() == [1, 2, 3, 4, 5, 6, 7]
    meltano.run(*sent(7, 7, states=[7]))
    assert meltano.ids() == [1, 2, 3, 4, 5, 6, 7]


def test_a_first_load_that_ended_before_its_first_state(meltano: Meltano) -> None:
    meltano.run(*sent(1, 2))
    meltano.run(*sent(1, 3, states=[3]))
    assert meltano.ids() == [1, 2, 3]


def test_a_full_table_is_added_again_by_intent(meltano: Meltano) -> None:
    full = [schema(resumes=False), record(1), record(2), state(None)]
    meltano.run(*full)
    meltano.run(*full)
    assert meltano.ids() == [1, 1, 2, 2]


@pytest.mark.parametrize("before", [0, 2])
def test_a_tap_that_ends_before_its_first_state(meltano: Meltano, before: int) -> None:
    """Its SCHEMA names no bookmark: rows of the first attempt are taken back once the next one sends a STATE."""
    plain = schema(resumes=False)
    if before:
        meltano.run(plain, record(1), record(2), state(2))
    rows = [record(number) for number in (before + 1, before + 2)]
    meltano.run(schema("new", resumes=False), record(1, "new"), plain, *rows)
    assert meltano.ids() == list(range(1, before + 3))
    meltano.run(schema("new", resumes=False), record(1, "new"), plain, *rows, record(before + 3), state(before + 3))
    assert meltano.ids() == list(range(1, before + 4))
    assert meltano.ids("new") == [1]
    meltano.run(schema("new", resumes=False), record(2, "new"), plain, state(before + 3))
    assert meltano.ids("new") == [1, 2]


def test_a_tap_that_never_sends_a_state_adds_its_table_in_each_run(meltano: Meltano) -> None:
    """As append-only says: no earlier copy of the table is taken back, and none of a table that is empty now."""
    full = [schema(resumes=False), record(1), record(2), schema("other", resumes=False)]
    meltano.run(*full, record(7, "other"))
    meltano.run(*full)
    meltano.run(*full)
    assert meltano.ids() == [1, 1, 1, 2, 2, 2]
    assert meltano.ids("other") == [7]


def test_of_several_streams_only_those_that_resume(meltano: Meltano) -> None:
    """Rows of the full table stay, those after the other one's STATE go."""
    both = [schema("full", resumes=False), record(7, "full"), *sent(1, 3, states=[2])]
    meltano.run(*both)
    meltano.run(schema("full", resumes=False), record(7, "full"), *sent(3, 4, states=[4]))
    assert meltano.ids("full") == [7, 7]
    assert meltano.ids() == [1, 2, 3, 4]


def test_a_state_that_a_later_run_had_is_too_old(meltano: Meltano) -> None:
    """Somebody set the STATE back by hand: that is no reason to take rows away."""
    meltano.run(*sent(1, 3, states=[3]))
    meltano.run(*sent(4, 5, states=[5]))
    meltano.run(schema())  # was started from 5: nobody will send 4 and 5 because of a lost STATE
    meltano.kept = value(3)
    found = meltano.run(*sent(4, 6, states=[6]))
    assert found and "is not this pipeline's last" in found.warnings[0]
    assert meltano.ids() == [1, 2, 3, 4, 4, 5, 5, 6]


def test_what_was_added_from_a_strange_state_can_be_taken_back(meltano: Meltano) -> None:
    for number in (1, 2, 3):
        meltano.run(*sent(number, number, states=[number]))
    meltano.kept = value(1)
    meltano.run(*sent(2, 3, states=[3]), hears=0, dies=True)
    assert meltano.ids() == [1, 2, 2, 3, 3]
    meltano.run(*sent(2, 4, states=[4]))
    assert meltano.ids() == [1, 2, 2, 3, 3, 4]


def test_nobody_knows_the_first_state(tmp_path: Path) -> None:
    pipe = Pipe(tmp_path)
    data = wire(*sent(1, 2, states=[2]))
    first = pipe.load(data, listening=Listening(None))
    assert not first.warnings
    found = pipe.load(data, listening=Listening(None))
    assert "is not known" in found.warnings[0]
    assert sorted(row["id"] for row in found.rows("t")) == [1, 1, 2, 2]


def test_a_full_refresh_after_one_good_run_appends_as_asked(meltano: Meltano) -> None:
    """Or another tap under the same name: nothing is taken away on a guess."""
    meltano.run(*sent(1, 2, states=[2]))
    meltano.kept = None
    found = meltano.run(*sent(1, 2, states=[2]))
    assert found and found.warnings
    assert meltano.ids() == [1, 1, 2, 2]


def test_a_full_refresh_after_many_runs_appends_as_asked(meltano: Meltano) -> None:
    meltano.run(*sent(1, 2, states=[2]))
    meltano.run(*sent(3, 3, states=[3]))
    meltano.kept = None
    found = meltano.run(*sent(1, 3, states=[3]))
    assert found and found.warnings
    assert meltano.ids() == [1, 1, 2, 2, 3, 3]
    assert found.state == value(3)


@pytest.mark.parametrize("method", ["upsert", "overwrite"])
def test_tables_that_are_replaced_or_merged(meltano: Meltano, method: str) -> None:
    meltano.options["load_method"] = method
    meltano.run(*sent(1, 3, states=[3]))
    meltano.run(schema(), record(3), record(4), state(4), hears=0, dies=True)
    meltano.run(schema(), record(3), record(5), state(5))
    expected = {"upsert": [1, 2, 3, 5], "overwrite": [3, 5]}
    assert meltano.ids() == expected[method]


def test_a_type_that_changed_in_between(meltano: Meltano) -> None:
    """The files that were written anew for a wider type go back as well."""
    meltano.run(*sent(1, 2, states=[2]))
    wider = schema(note={"type": "string"})
    wider["schema"]["properties"]["id"] = {"type": "number"}
    meltano.run(wider, record(3, note="x"), state(3), hears=0, dies=True)
    meltano.run(*sent(3, 4, states=[4]))
    assert meltano.ids() == [1, 2, 3, 4]


def test_a_table_that_was_compacted_in_between(meltano: Meltano) -> None:
    meltano.run(*sent(1, 2, states=[1, 2]))
    meltano.run(*sent(3, 4, states=[4]), hears=0, dies=True)
    compact(open_storage(str(meltano.pipe.lake)), meltano.pipe.pipeline(), CompactOptions())
    assert meltano.ids() == [1, 2, 3, 4]
    meltano.run(*sent(3, 5, states=[5]))
    assert meltano.ids() == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("between", [1, 2])
def test_rows_after_the_last_state_of_a_table_that_was_compacted(meltano: Meltano, between: int) -> None:
    """A compaction keeps the STATE, and the rows that it does not cover: they are taken back all the same."""
    meltano.run(*sent(1, 2, states=[2]))
    meltano.run(*sent(3, 4, states=[4]))
    meltano.run(*sent(5, 8, states=[6]))
    for _ in range(between):
        assert compact(open_storage(str(meltano.pipe.lake)), meltano.pipe.pipeline(), CompactOptions())
    assert meltano.ids() == list(range(1, 9))
    meltano.run(*sent(7, 9, states=[9]))
    assert meltano.ids() == list(range(1, 10))


@pytest.mark.parametrize("has_appended", [True, False])
def test_rows_that_cannot_be_taken_back_any_more(meltano: Meltano, has_appended: bool) -> None:
    """The trash is empty by now: rows of append-only tables are twice, and the run says so. Others merge them again."""
    meltano.options |= {"load_method": "upsert", "streams": {"log": {"load_method": "append-only"}}}
    log = [schema("log"), record(9, "log")] if has_appended else []
    meltano.run(*sent(1, 2, states=[2]))
    meltano.run(schema(), record(2), *log, state(3), hears=0)
    for path in (meltano.pipe.lake / ".bridge/p/trash").rglob("*.removed"):
        path.unlink()
    found = meltano.run(schema(), record(2), *log, state(3))
    assert found and len(found.warnings) == has_appended
    assert all("cannot be taken back" in text and "append-only tables twice" in text for text in found.warnings)
    assert (meltano.ids(), meltano.ids("log")) == ([1, 2], [9, 9] if has_appended else [])


def test_the_states_are_told_once_their_rows_are_there(tmp_path: Path) -> None:
    pipe, told = Pipe(tmp_path), list[tuple[int, int]]()

    def said(state: Any) -> None:
        files = [*(pipe.lake / "p/t").glob("*.parquet")]
        told.append(
            (state["bookmarks"]["t"]["replication_key_value"], sum(pq.read_metadata(f).num_rows for f in files))
        )

    pipe.load(wire(*sent(1, 6, states=[2, 4, 6])), listening=Listening(Start(None), said), commit=EAGER)
    assert told[-1] == (6, 6)
    assert all(rows >= last for last, rows in told)


def test_an_empty_state_is_not_told(tmp_path: Path) -> None:
    """Nor is one of an earlier process."""
    pipe, told = Pipe(tmp_path), list[Any]()
    pipe.load(wire(*sent(1, 2, states=[2])), listening=Listening(Start(None)))
    pipe.load(wire(schema(), record(3)), listening=Listening(Start(value(2)), told.append))
    pipe.load(wire(schema(), {"type": "STATE", "value": {}}), listening=Listening(Start(value(2)), told.append))
    assert told == []


def test_a_state_that_a_rollback_took_back_is_refused(meltano: Meltano) -> None:
    """The program that starts the tap did not hear of it: the rows between would be missing for ever."""
    for number in (1, 2, 3):
        meltano.run(*sent(number, number, states=[number]))
    roll_back(open_storage(str(meltano.pipe.lake)), "p", 1)
    with pytest.raises(SettingsError, match="rows between would be missing") as refused:
        meltano.run(*sent(4, 4, states=[4]))
    assert "singer-bridge state get --to" in refused.value.hint
    assert meltano.ids() == [1]
    meltano.kept = value(1)  # set back, as the hint says
    found = meltano.run(*sent(2, 4, states=[4]))
    assert found and not found.warnings
    assert meltano.ids() == [1, 2, 3, 4]


def test_a_table_that_had_a_version_is_appended_to(meltano: Meltano) -> None:
    """Its rows are twice, and the run says so."""
    versioned = record(1) | {"version": 5}, {"type": "ACTIVATE_VERSION", "stream": "t", "version": 5}
    meltano.run(schema(), *versioned, state(1), load_method="overwrite")
    meltano.run(*sent(2, 3, states=[3]))
    meltano.kept = value(2)
    found = meltano.run(*sent(3, 3, states=[3]))
    assert found and "append-only tables twice" in found.warnings[0]
    assert meltano.ids() == [1, 2, 3, 3]


def test_a_rollback_whose_rows_came_again(meltano: Meltano) -> None:
    """The lake is further than the STATE that was taken back: nothing is missing, and rows are there twice."""
    for number in (1, 2, 3):
        meltano.run(*sent(number, number, states=[number]))
    roll_back(open_storage(str(meltano.pipe.lake)), "p", 1)
    meltano.kept = value(1)
    meltano.run(*sent(2, 5, states=[5]))
    meltano.kept = value(3)
    found = meltano.run(*sent(4, 5, states=[5]))
    assert found and "is not this pipeline's last" in found.warnings[0]


def test_with_the_setting_a_run_goes_on_and_says_what_is_missing(meltano: Meltano) -> None:
    """It is said once: from then on the STATE is one that the run was allowed to start from."""
    for number in (1, 2, 3):
        meltano.run(*sent(number, number, states=[number]))
    storage = open_storage(str(meltano.pipe.lake))
    roll_back(storage, "p", 1)
    with open_pipeline(storage, "p", "accepts") as committer:
        guard = ReplayGuard(committer, Start(meltano.kept), accepts_missing=True)
    [difference] = guard.differences
    assert (difference.stream, difference.kind) == ("t", "missing_rows")
    assert "twice" not in difference.text
    assert meltano.run(*sent(4, 4, states=[4]))
    assert meltano.ids() == [1, 4]


@pytest.mark.parametrize("by", ["set", "edit", "clear"])
def test_a_state_that_was_set_back_by_hand_is_refused(meltano: Meltano, by: str) -> None:
    """Somebody wants rows again, but the tap does not start there."""
    for number in (1, 2, 3):
        meltano.run(*sent(number, number, states=[number]))
    given = {} if by == "clear" else value(1)
    if by == "edit":
        (meltano.pipe.lake / ".bridge/p/state.json").write_text(json.dumps(given))
    else:
        StateStore(meltano.pipe.lake, "p").replace(given)
    with pytest.raises(SettingsError, match="rows that were to come again would be missing"):
        meltano.run(*sent(4, 4, states=[4]))
    assert meltano.ids() == [1, 2, 3]


def test_an_opaque_state_that_was_set_back(meltano: Meltano) -> None:
    """Texts have no order; that the lake had this STATE before says it."""
    opaque = [{"type": "STATE", "value": {"bookmarks": {"t": {"token": text}}}} for text in "ab"]
    for number, each in enumerate(opaque):
        meltano.run(schema(), record(number), each)
    StateStore(meltano.pipe.lake, "p").replace(opaque[0]["value"])
    with pytest.raises(SettingsError, match="would be missing"):
        meltano.run(schema(), record(2))


def test_a_state_that_was_set_forward_is_no_setback(meltano: Meltano) -> None:
    """The tap sends more than was asked for: nothing is missing."""
    for number in (1, 2):
        meltano.run(*sent(number, number, states=[number]))
    StateStore(meltano.pipe.lake, "p").replace(value(9))
    meltano.run(*sent(3, 3, states=[3]))
    assert meltano.ids() == [1, 2, 3]


def test_rejects_that_were_replayed_after_a_rollback_do_not_hide_it(meltano: Meltano) -> None:
    """Nor does a compaction: the STATE is still one that was taken back."""
    for number in (1, 2, 3, 4):
        meltano.run(*sent(number, number, states=[number]))
    storage = open_storage(str(meltano.pipe.lake))
    roll_back(storage, "p", 3)
    assert compact(storage, meltano.pipe.pipeline(), CompactOptions())
    with pytest.raises(SettingsError, match="would be missing"):
        meltano.run(*sent(5, 5, states=[5]))


runs = st.lists(
    st.tuples(
        st.integers(1, 5),  # new rows at the source
        st.integers(0, 8),  # so many rows until the tap dies
        st.sets(st.integers(1, 30)),  # a STATE after these
        st.integers(0, 4),  # so many STATEs are heard
        st.booleans(),  # the target is killed then
    ),
    min_size=1,
    max_size=6,
)


def whatever_dies(meltano: Meltano, runs: Any) -> None:
    """Meltano, tap and target end anywhere: after a run that nothing happened to, each row is there once."""
    rows = 0
    for new, tap_dies, states, hears, dies in runs:
        rows += new
        first = meltano.kept["bookmarks"]["t"]["replication_key_value"] + 1 if meltano.kept else 1
        meltano.run(*sent(first, min(rows, first + tap_dies - 1), states=states), hears=hears, dies=dies)
        assert sorted(set(meltano.ids())) == meltano.ids()
    first = meltano.kept["bookmarks"]["t"]["replication_key_value"] + 1 if meltano.kept else 1
    meltano.run(*sent(first, rows, states=[rows]))
    assert meltano.ids() == list(range(1, rows + 1))


@settings(max_examples=25, deadline=None)
@given(runs)
def test_exactly_once_whatever_dies(tmp_path_factory: pytest.TempPathFactory, runs: Any) -> None:
    whatever_dies(Meltano(Pipe(tmp_path_factory.mktemp("lake"))), runs)


@pytest.mark.slow
@settings(max_examples=1000, deadline=None)
@given(runs)
def test_exactly_once_whatever_dies_at_length(tmp_path_factory: pytest.TempPathFactory, runs: Any) -> None:
    whatever_dies(Meltano(Pipe(tmp_path_factory.mktemp("lake"))), runs)
