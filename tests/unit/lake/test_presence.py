"""A run notices that files of its tables are gone, before it starts its tap."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from bridge.errors import MissingFiles
from bridge.lake import presence
from bridge.lake.commit.open import open_pipeline, recover
from bridge.lake.lease import last_lease
from bridge.lake.log import Log
from bridge.lake.presence import missing_files, require_files, wrong_size
from bridge.lake.records import TableState
from bridge.lake.storage.local.storage import LocalStorage
from bridge.operate.verify.check import verify
from bridge.settings.options import Pipeline
from tests.support.shelf import Shelf, record, schema, state
from tests.support.tables import INTEGER, Shop

ID = {"id": INTEGER}
SETTINGS: dict[str, Any] = {"name": "shop", "source": {"tap": "t"}, "destination": {"bucket": "b"}}
SHOP = Pipeline.model_validate(SETTINGS)


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    """A lake of two tables, of two files and of one."""
    shop = Shop(tmp_path)
    shop.load("orders", ID, [{"id": 1}])
    shop.load("orders", ID, [{"id": 2}])
    shop.load("users", ID, [{"id": 3}])
    return shop


def tables(shop: Shop) -> dict[str, TableState]:
    log = Log(shop.storage, "shop")
    return log.snapshot(log.head()).tables


def test_all_there(shop: Shop) -> None:
    """Nothing is missing, and nothing is said."""
    assert missing_files(shop.storage, tables(shop)) == {}
    assert require_files(shop.storage, SHOP, tables(shop), set()) == []


def test_a_folder_is_deleted(shop: Shop) -> None:
    """The error says which table, how many files, and each way back."""
    shutil.rmtree(shop.root / "shop/orders")
    with pytest.raises(MissingFiles, match="orders: 2 files of its table are gone, and nothing but a backup") as caught:
        require_files(shop.storage, SHOP, tables(shop), set())
    assert "singer-bridge verify shop --repair" in caught.value.hint
    assert "singer-bridge run shop --full -s orders" in caught.value.hint
    assert caught.value.exit_code == 3


def test_a_table_that_is_appended_to(shop: Shop) -> None:
    """`--full` is refused of it, so the setting that allows it comes first."""
    shutil.rmtree(shop.root / "shop/orders")
    appended = Pipeline.model_validate(SETTINGS | {"streams": {"orders": {"load_method": "append-only"}}})
    with pytest.raises(MissingFiles) as caught:
        require_files(shop.storage, appended, tables(shop), set())
    again = "set load_method: auto for orders, then singer-bridge run shop --full -s orders"
    assert caught.value.hint.endswith(f"load the table again: {again}")


def test_one_file_is_deleted(shop: Shop) -> None:
    """Whichever it is, also of a table of which others are there."""
    first = min((shop.root / "shop/orders").iterdir())
    first.unlink()
    assert missing_files(shop.storage, tables(shop)) == {"orders": [first.name]}


def test_a_table_that_the_run_replaces(shop: Shop) -> None:
    """An overwrite brings all of its rows anew: a warning is enough."""
    shutil.rmtree(shop.root / "shop/users")
    said = require_files(shop.storage, SHOP, tables(shop), {"users"})
    assert said == ["users: 1 file of its table is gone; this run replaces the table"]


def test_a_large_table_is_sampled(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """More files than a listing is worth: some are asked for, so that a deleted folder is noticed still."""
    monkeypatch.setattr(presence, "_LISTED", 1)
    monkeypatch.setattr(presence, "_ASKED", 2)
    assert missing_files(shop.storage, tables(shop)) == {}
    shutil.rmtree(shop.root / "shop/orders")
    assert set(missing_files(shop.storage, tables(shop))) == {"orders"}


def test_nobody_has_to_recover_after_it(shop: Shop) -> None:
    """The lease closes in good order: recovery would stop at the same files, and `--full` could not replace them."""
    recover(shop.storage, "shop")
    shutil.rmtree(shop.root / "shop/users")
    with pytest.raises(MissingFiles), open_pipeline(shop.storage, "shop") as committer:
        require_files(shop.storage, SHOP, committer.snapshot.tables, set())
    assert last_lease(shop.storage, "shop")["closed"] == Log(shop.storage, "shop").head()


def test_the_size_of_a_file(tmp_path: Path) -> None:
    """What is wrong with it, in the words of `verify` and `doctor`."""
    (tmp_path / "file").write_bytes(b"12")
    storage = LocalStorage(tmp_path)
    sizes = [("file", 2), ("file", 1000), ("none", 1)]
    assert [wrong_size(storage, *one) for one in sizes] == [None, "2 bytes, and the log says 1,000", "gone"]


@pytest.mark.parametrize("kind", ["parquet", "delta"])
def test_a_deleted_table_is_made_anew(tmp_path: Path, kind: str) -> None:
    """What the error says works: a full load makes the table again, with the log of its own if it had one."""
    shelf, rows = Shelf(tmp_path), [record(number) for number in range(1, 6)]
    shelf.say(schema(), *rows, state(5), format=kind)
    shutil.rmtree(shelf.lake / "p/s")
    found = shelf.say(schema(), *rows, record(6), state(6), full=True, format=kind)
    assert (found.error, len(found.rows("s"))) == (None, 6)
    assert verify(shelf.storage, "p").errors == 0
    found = shelf.say(schema(), record(7), state(7), format=kind)
    assert (found.error, len(found.rows("s"))) == (None, 7)
