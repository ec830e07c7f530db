"""The tables of look-ups: at which commit they are read, and which are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bridge.errors import LakeError, SettingsError
from bridge.lake.log import Log
from bridge.load.spark import lookups
from bridge.load.spark.lookups import Lookups
from bridge.load.write.context import WriteContext
from bridge.settings.sql.lookup import Lookup
from bridge.settings.sql.transform import read_transform
from tests.support.tables import INTEGER, Shop

COLUMNS: dict[str, Any] = {"id": INTEGER, "name": {"type": ["null", "string"]}}


def names_of(pipeline: str = "shop.") -> Lookup:
    text = f"SELECT s.*, n.name FROM stream s JOIN {pipeline}names n ON n.id = s.id"
    return read_transform(text).lookups[0]


def of(shop: Shop, pipeline: str = "other") -> Lookups:
    """What a run of a pipeline reads that begins now."""
    log = Log(shop.storage, pipeline)
    context = WriteContext(shop.storage.uri, pipeline, "run", 1, "", "zstd", {})
    return Lookups(shop.storage, context, log.snapshot(log.latest()))


def rows(count: int, text: str = "x") -> list[dict[str, Any]]:
    return [{"id": number, "name": text} for number in range(count)]


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
    monkeypatch.setattr(lookups, "_PAUSE", 0.0)
    return Shop(tmp_path)


def test_files_that_went_meanwhile(shop: Shop) -> None:
    """Of another pipeline the next commit is read then; of its own, the run is told."""
    shop.load("names", COLUMNS, rows(3), mode="overwrite")
    other, own = of(shop), of(shop, "shop")
    assert other.columns(names_of()).names == ["id", "name"]
    shop.load("names", COLUMNS, rows(2, "y"), mode="overwrite")
    assert other.rows(names_of()).to_pydict() == {"id": [0, 1], "name": ["y", "y"]}
    assert other.commits == {"shop": 2}
    with pytest.raises(LakeError, match="cannot read"):
        own.rows(names_of(""))


def test_one_commit_for_all_tables_of_a_pipeline(shop: Shop) -> None:
    """As soon as one was read."""
    shop.load("names", COLUMNS, rows(1))
    shop.load("more", COLUMNS, rows(1))
    reading = of(shop)
    reading.rows(names_of())
    shop.load("more", COLUMNS, rows(5))
    more = read_transform("SELECT s.* FROM stream s JOIN shop.more m ON m.id = s.id").lookups[0]
    assert reading.rows(more).num_rows == 1


def test_a_table_that_is_too_large(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is refused as it is read, with what to do."""
    shop.load("names", COLUMNS, rows(1000))
    monkeypatch.setattr(lookups, "_MOST", 4000)
    with pytest.raises(SettingsError, match=r"too large to look rows up in it table=shop\.names") as raised:
        of(shop).rows(names_of())
    assert "select fewer of its columns" in raised.value.hint


def test_a_pipeline_that_has_loaded_nothing(shop: Shop) -> None:
    """What to run first."""
    with pytest.raises(SettingsError, match="in a table that there is not pipeline=shop table=names") as raised:
        of(shop).columns(names_of())
    assert raised.value.hint == "load it first: singer-bridge run shop"
