"""A stream has two names, its id in the catalog and that of its RECORDs: bookmarks are by one, tables by the other."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from bridge.errors import SettingsError
from bridge.load.run.barriers import Barrier, BarrierPolicy
from bridge.load.run.streams import StreamPlan, StreamProgress
from bridge.load.run.tables.table_plan import refuse_namesakes
from bridge.protocol.schema.table_schema import from_singer
from bridge.protocol.singer.catalog import namesakes, stream_names
from bridge.protocol.singer.state import bookmark, known_as, moved_on
from bridge.settings.destination import LoadMethod
from tests.support.catalogs import catalog, stream

TABLE = from_singer({"properties": {"id": {"type": "integer"}}}, [])


def people(name: str, *, selected: bool) -> dict[str, Any]:
    return stream(name, selected=selected) | {"stream": "people"}


def test_names_by_either() -> None:
    """The id comes first; a stream of one name has one; a shared name is the selected stream's."""
    names = stream_names(
        catalog(people("shop-people", selected=True), people("crm-people", selected=False), stream("a"))
    )
    assert names["shop-people"] == names["people"] == ("shop-people", "people")
    assert names["a"] == ("a",)


def test_a_name_that_several_selected_streams_share() -> None:
    """It is nobody's, so that no setting or bookmark of one is taken for the other's."""
    both = catalog(people("shop-people", selected=True), people("crm-people", selected=True))
    assert "people" not in stream_names(both)
    assert namesakes(both, "people") == ["shop-people", "crm-people"]
    assert namesakes(both, "shop-people") == []
    with pytest.raises(SettingsError, match="by one name, so they would share a table name=people") as caught:
        refuse_namesakes("p", both, ["shop-people", "people"])
    assert "select: [shop-people] and select: [crm-people]" in caught.value.hint
    one = catalog(people("shop-people", selected=True), people("crm-people", selected=False))
    refuse_namesakes("p", one, ["people"])


def test_a_name_of_streams_none_of_which_is_selected() -> None:
    """As in a kept catalog, where bridge.yaml selects: whichever of them has a bookmark is meant."""
    none = catalog(people("crm-people", selected=False), people("shop-people", selected=False))
    names = stream_names(none)["people"]
    state = {"bookmarks": {"shop-people": {"id": 3}}}
    assert bookmark(state, names) == {"id": 3}
    assert known_as(state, names) == "shop-people"


def test_an_id_is_never_another_streams_name() -> None:
    """`people` is the stream of that id, though another one calls its RECORDs so."""
    names = stream_names(catalog(people("people", selected=True), people("shop-people", selected=True)))
    assert names["shop-people"] == ("shop-people",)
    assert names["people"] == ("people",)


def test_currently_syncing_is_an_id() -> None:
    """A tap that is at the stream itself has not moved on to another one."""
    at = {"bookmarks": {}, "currently_syncing": "shop-people"}
    assert moved_on(None, at, "people")
    assert not moved_on(None, at, ("people", "shop-people"))


def played(mode: LoadMethod, *steps: Any, start: Any = None, end: bool = False) -> Barrier | None:
    """Play rows (a number) and STATEs of a stream `people` whose id is `shop-people`."""
    epochs = BarrierPolicy(start, staged={})
    one = StreamProgress(StreamPlan("people", ("shop-people", "people"), mode), TABLE)
    epochs.open(one)
    for step in steps:
        if isinstance(step, int):
            epochs.rows(one, step)
            one.versions.add(None)
        else:
            epochs.state(orjson.dumps({"type": "STATE", "value": step}))
    return epochs.barrier(end=end)


def at(number: int, **more: Any) -> dict[str, Any]:
    return {"bookmarks": {"shop-people": {"id": number}}} | more


def test_rows_are_covered_by_the_bookmark_of_the_id() -> None:
    """A commit in the middle of a run publishes them; before, all of them waited for the end."""
    barrier = played("append-only", 3, at(3))
    assert barrier
    assert barrier.publish == {"people": "append-only"}
    assert barrier.state == at(3)


def test_a_bookmark_that_stands_still_covers_nothing() -> None:
    """Of the id as of the name: rows that the tap sends again from there are held."""
    barrier = played("append-only", at(3), 2, at(3), start=at(3))
    assert barrier is None or barrier.publish == {}


def test_an_overwrite_whose_tap_is_at_it_is_emptied_at_the_end() -> None:
    """`currently_syncing` names the stream itself by its id: no rows are no news of another one."""
    barrier = played("overwrite", start={"bookmarks": {}, "currently_syncing": "shop-people"}, end=True)
    assert barrier
    assert barrier.publish == {"people": "overwrite"}
