"""A view's groups in its files: what changes is written again, in order, and nothing else is."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import bridge.load.write.groups
from bridge.errors import LakeError
from bridge.lake.storage.local.storage import LocalStorage
from bridge.load.write.context import WriteContext
from bridge.load.write.groups import Patch, groups_of, in_order, patch, shares, write_sorted
from bridge.load.write.layout import TableLayout
from bridge.load.write.signed_file import SignedFile

SCHEMA = pa.schema([("n", pa.int64()), ("k", pa.string()), ("d", pa.date32())])
KEYS = ["k", "d"]
Key = tuple[Any, Any]
"""Its text, and its day since 1970."""


class View:
    """A view's table in a folder; `groups` is what it must hold."""

    def __init__(self, root: Path, file_size: int) -> None:
        self.storage = LocalStorage(root)
        layouts = {"v": TableLayout("shop/v", sort_by=tuple(KEYS), file_size=file_size)}
        self.context = WriteContext(str(root), "shop", "run", 1, "", "zstd", layouts)
        self.files: list[SignedFile] = []
        self.groups: dict[Key, int] = {}

    def fill(self, groups: dict[Key, int]) -> None:
        self.groups = dict(groups)
        rows = in_order(table(groups), KEYS)
        self.files = self._signed(write_sorted(self.context, "v", SCHEMA, 1, iter([rows])))

    def change(self, changed: dict[Key, int | None]) -> list[SignedFile]:
        """Set groups, remove those with None; return the files that are replaced."""
        keys = table(dict.fromkeys(changed, 0)).select(KEYS)
        for key, n in changed.items():
            self.groups.pop(key, None)
            self.groups |= {key: n} if n is not None else {}
        rows = table({key: n for key, n in changed.items() if n is not None})
        of_file = {file.key: part for file, part in shares(self.context, self.files, rows, KEYS)}
        replaced = []
        for file, share in list(shares(self.context, self.files, keys, KEYS)):
            done = patch(self.context, Patch("v", 1, file, share, of_file.get(file.key, rows.slice(0, 0))))
            at = self.files.index(file)
            self.files[at : at + 1] = self._signed(done.files)
            replaced.append(file)
        return replaced

    def stored(self, keys: Iterable[Key]) -> dict[Key, int]:
        """The groups with these keys, as the files have them."""
        asked = table(dict.fromkeys(keys, 0)).select(KEYS)
        divided = shares(self.context, self.files, asked, KEYS)
        parts = [groups_of(self.context, file, share, SCHEMA) for file, share in divided]
        rows = [row for part in parts for row in part.to_pylist()]
        return {(row["k"], None if row["d"] is None else (row["d"] - date(1970, 1, 1)).days): row["n"] for row in rows}

    def _signed(self, files: Any) -> list[SignedFile]:
        return [SignedFile(file.source, file.size, file.rows) for file in files]

    def check(self) -> None:
        """All groups are there once, in the order of their keys, from file to file."""
        tables = [pq.ParquetFile(self.storage.root / file.key).read() for file in self.files]
        rows = pa.concat_tables([SCHEMA.empty_table(), *tables])
        assert rows.equals(in_order(table(self.groups), KEYS))


def table(groups: dict[Key, int]) -> pa.Table:
    texts, days = [k for k, _ in groups], [d for _, d in groups]
    return pa.table([[*groups.values()], texts, pa.array(days, pa.int32()).cast(pa.date32())], schema=SCHEMA)


def some(dice: random.Random, names: Sequence[str | None], count: int) -> dict[Key, int]:
    return {(dice.choice(names), dice.choice([None, 0, 1])): dice.randrange(99) for _ in range(count)}


@pytest.mark.parametrize("seed", range(6))
def test_groups_that_change_are_in_their_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """New keys before, between and behind the others, NULL among them; groups that go; files that come to be empty."""
    dice = random.Random(seed)
    monkeypatch.setattr(bridge.load.write.groups, "GROUP_ROWS", dice.choice([2, 5, 100]))
    view = View(tmp_path, dice.choice([1200, 2000, 1 << 20]))
    names = ["", "a", "B", "é", "\uffff", "\U0001d11e", *(f"k{number}" for number in range(40)), None]
    view.fill(some(dice, names, dice.choice([1, 40, 90])))
    view.check()
    for _ in range(6):
        lost = dict.fromkeys(key for key in view.groups if dice.random() < dice.choice([0, 0.1, 0.9]))
        changed = some(dice, names, dice.choice([1, 5, 40]))
        assert view.stored(lost | changed) == {k: n for k, n in view.groups.items() if k in lost or k in changed}
        view.change(lost | changed)
        view.check()


def test_only_files_with_such_keys_are_written_again(tmp_path: Path) -> None:
    """A key between two files goes to the first of them."""
    view = View(tmp_path, 1 << 20)
    view.fill({("a", 0): 1, ("c", 0): 1})
    first = view.files
    view.files = []
    view.fill({("e", 0): 1, ("g", 0): 1})
    view.files = [*view.files, *first]  # in any order
    assert view.change({("d", 0): 2, ("b", 0): 2}) == first
    assert view.stored(dict.fromkeys([("a", 0), ("d", 0), ("f", 0)])) == {("a", 0): 1, ("d", 0): 2}


def test_a_file_that_has_grown_is_divided(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In two of about the same size; one that has not grown is not, so there is no file for each commit."""
    monkeypatch.setattr(bridge.load.write.groups, "GROUP_ROWS", 20)
    view, dice = View(tmp_path, 8000), random.Random(1)
    view.fill({("a", 0): 1})
    for _ in range(40):
        view.change({(f"{dice.getrandbits(64):x}", 0): step for step in range(20)})
    view.check()
    assert len(view.files) > 2
    assert all(3000 < file.size < 16000 for file in view.files)


def test_a_file_that_is_not_the_one_on_record_is_refused(tmp_path: Path) -> None:
    """Nothing is written of it."""
    view = View(tmp_path, 1 << 20)
    view.fill({("a", 0): 1, ("c", 0): 1})
    view.files = [SignedFile(view.files[0].key, view.files[0].size, 3)]
    with pytest.raises(LakeError, match="not the one on record"):
        view.change({("a", 0): 2})
