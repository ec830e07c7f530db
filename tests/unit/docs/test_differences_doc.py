"""docs/differences.md lists each kind of difference that a run can say, and no other."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from bridge.load.tap import new_columns
from bridge.protocol.decode import changed

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/differences.md").read_text()
HANDED_ON = {changed.LOST_DIGITS, changed.CHANGED_VALUES, changed.DELETION_TIME, changed.NULL_KEY, changed.BAD_TIME}
HANDED_ON |= {new_columns.NEW, new_columns.DROPPED, new_columns.UNKNOWN}
HANDED_ON |= {new_columns.NEW_TABLE, new_columns.DROPPED_TABLE}
"""Kinds that reach a `Difference` as a variable."""


def kinds() -> Iterator[str]:
    """Yield the kinds that the code of runs writes."""
    for path in [*(ROOT / "bridge/load/run").rglob("*.py"), *(ROOT / "bridge/load/slots").rglob("*.py")]:
        tree = ast.parse(path.read_text())
        constants = {
            target.id: node.value.value
            for node in ast.walk(tree)
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Difference":
                kind = node.args[1]
                if isinstance(kind, ast.Constant):
                    yield str(kind.value)
                elif isinstance(kind, ast.Name) and kind.id in constants:
                    yield str(constants[kind.id])
    yield from HANDED_ON


@pytest.mark.parametrize("kind", sorted({*kinds()}))
def test_each_kind_is_on_the_page(kind: str) -> None:
    """As the record of a run, `notify` and the page of the service name it."""
    assert f"`{kind}`" in PAGE


def test_each_row_says_what_to_type() -> None:
    """What differs, how one learns of it, what to type: three cells, and the first two are never empty."""
    rows = [line for line in PAGE.splitlines() if line.startswith("| ") and not re.match(r"\| what may|\|---", line)]
    cells = [[cell.strip() for cell in row.strip("|").split(" | ")] for row in rows]
    assert len(rows) > 30
    assert all(len(each) == 3 and each[0] and each[1] for each in cells), [c for c in cells if len(c) != 3]
