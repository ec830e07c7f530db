"""`tap-bridge` goes on: under other columns, after types and tables were taken back, from a STATE edited by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bridge import Lake
from bridge.errors import LakeError
from bridge.lake.commit.rollback import roll_back
from tests.support.tables import INTEGER, STRING, Shop
from tests.support.tap_bridge import (
    AT,
    activated,
    difference,
    discovered,
    last_state,
    load,
    messages,
    read,
    rows,
    sent,
    states,
    upsert,
)


def select(catalog: Any, column: str, *, selected: bool) -> None:
    """Choose a column of a catalog's only stream, or leave it out."""
    for one in catalog["streams"][0]["metadata"]:
        if one["breadcrumb"] == ["properties", column]:
            one["metadata"]["selected"] = selected


def test_other_columns_in_the_middle_of_a_merge(users: Shop, tmp_path: Path) -> None:
    """Which rows a merge changed depends on the columns: it is sent from its start, and no changed row is left out."""
    catalog = discovered(tmp_path)
    select(catalog, "name", selected=False)
    state = last_state(read(tmp_path, catalog=catalog))
    upsert(users, [*rows(1, 2, 3, 4, name="b"), *({"id": n, "_sdc_deleted_at": AT} for n in (5, 6))], hard_delete=False)
    text = read(tmp_path, state, catalog, state_every=1)
    assert sent(text) == [5, 6]
    middle = states(text)[-2]
    assert middle["bookmarks"]["users"]["next"]["rows"] == 1
    select(catalog, "name", selected=True)
    assert sent(read(tmp_path, middle, catalog)) == [1, 2, 3, 4, 5, 6]
    select(catalog, "name", selected=False)
    assert sent(read(tmp_path, middle, catalog)) == [6]


@pytest.mark.parametrize("back", ["overwrite", "rollback"])
@pytest.mark.parametrize("started", ["whole", "changes"])
def test_a_wider_type_that_was_taken_back(back: str, started: str, tmp_path: Path) -> None:
    """Commits before an overwrite or a rollback are not read as the present types, which they may not fit."""
    shop = Shop(tmp_path)
    shop.load("t", {"id": INTEGER}, [{"id": 1}])
    state = last_state(read(tmp_path))
    shop.load("t", {"id": STRING}, [{"id": "x"}, {"id": "y"}])
    if started == "whole":
        state = states(read(tmp_path, state_every=1))[1]
        assert "commit" not in state["bookmarks"]["t"]
    if back == "overwrite":
        shop.load("t", {"id": INTEGER}, [{"id": 3}], mode="overwrite")
    else:
        roll_back(shop.storage, "shop", 1)
    text = read(tmp_path, state)
    assert sent(text) == ([3] if back == "overwrite" else [] if started == "changes" else [1])
    assert sent(read(tmp_path, last_state(text))) == []


def test_a_rollback_to_before_a_table(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Its copy is emptied, once, and goes on when the table is there again; a first run knows nothing of it."""
    source = tmp_path / "source"
    shop = Shop(source)
    shop.load("t", {"id": INTEGER}, [{"id": 1}])
    upsert(shop, rows(1, 2))
    catalog = discovered(source)
    state = load(tmp_path, read(source, catalog=catalog))
    shop._head = roll_back(shop.storage, "shop", 1)[1]
    text = read(source, state, catalog)
    assert (sent(text), activated(text)) == ([], ["users"])
    state = load(tmp_path, text, streams={"users": {"guard": {"shrink": None}}})
    assert Lake(tmp_path / "lake").table("copy", "users").count_rows() == 0
    assert "users: the table was rolled back" in caplog.text
    again = read(source, state)
    assert (sent(again), activated(again), messages(read(source), "SCHEMA")[1:]) == ([], [], [])
    upsert(shop, rows(3))
    load(tmp_path, read(source, last_state(again)))
    assert difference(source, tmp_path, "users") == []


def test_a_table_that_the_lake_does_not_know(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A bookmark of a table that a lake made anew lacks is named in the log."""
    Shop(tmp_path).load("t", {"id": INTEGER}, [{"id": 1}])
    state = last_state(read(tmp_path))
    state["bookmarks"]["old"] = state["bookmarks"]["t"]
    assert sent(read(tmp_path, state)) == []
    assert "old: the lake has no such table any more" in caplog.text


@pytest.mark.parametrize("rows_sent", [-1, 7, "x", None])
def test_a_place_that_cannot_be(rows_sent: Any, users: Shop, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """More rows than the file has, or no number: the whole table, said in the log; a target must not empty its own."""
    middle = states(read(tmp_path, state_every=2))[1]
    assert middle["bookmarks"]["users"]["next"]["rows"] == 2
    middle["bookmarks"]["users"]["next"]["rows"] = rows_sent
    text = read(tmp_path, middle)
    assert (sent(text), activated(text)) == ([1, 2, 3, 4, 5, 6], ["users"])
    assert "so the whole table is sent" in caplog.text


@pytest.mark.parametrize("bookmarks", [[], {"users": None}, {"users": 5}, {"users": {"replication_key_value": 3}}])
def test_a_state_that_cannot_be_read(
    bookmarks: Any, users: Shop, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The whole table is sent, and the log says why; without a bookmark it has nothing to say."""
    assert sent(read(tmp_path, {"bookmarks": bookmarks})) == [1, 2, 3, 4, 5, 6]
    assert "cannot be read" in caplog.text
    caplog.clear()
    read(tmp_path, {"bookmarks": {"users": {}}})
    assert "cannot be read" not in caplog.text


def test_a_file_that_is_damaged(tmp_path: Path) -> None:
    """Bytes that are no Parquet are an error of the lake that names the file."""
    shop = Shop(tmp_path)
    shop.load("t", {"id": INTEGER}, [{"id": 1}])
    (file,) = shop.root.glob("shop/t/*.parquet")
    file.write_bytes(b"x" * file.stat().st_size)
    with pytest.raises(LakeError, match=f"cannot be read file={file.name}"):
        read(tmp_path)
