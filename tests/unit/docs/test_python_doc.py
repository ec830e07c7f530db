"""docs/python.md documents the whole API: every public name, argument, field and error. tests/test_docs.py runs it."""

from __future__ import annotations

import dataclasses
import inspect
import re
from pathlib import Path

import bridge
from bridge import errors
from bridge.load.run.result import Counts

PAGE = (Path(__file__).parents[3] / "docs/python.md").read_text()
CODE = set(re.findall(r"[A-Za-z_]\w*", " ".join(re.findall(r"`([^`]+)`", PAGE.replace("```", "")))))


def test_every_public_name() -> None:
    """`bridge.__all__` is the API, and the page has a line for each name in it."""
    assert [name for name in bridge.__all__ if f"`bridge.{name}`" not in PAGE] == []


def test_every_argument_of_a_run() -> None:
    """The page has the arguments of `Project.run`; each one is a flag of `run`."""
    arguments = set(inspect.signature(bridge.Project.run).parameters) - {"self"}
    assert arguments <= CODE


def test_every_field_of_a_result() -> None:
    """The table has a result's fields, and those of its streams that are not internal."""
    fields = {field.name for field in dataclasses.fields(bridge.Result)} | {"records"}
    assert fields <= CODE
    internal = {"names", "ended", "refused", "first_at", "last_at"}
    assert {field.name for field in dataclasses.fields(Counts)} - internal <= CODE


def test_every_error() -> None:
    """Each class of `bridge.errors` has its row."""
    classes = {name for name, value in vars(errors).items() if isinstance(value, type) and name[0] != "_"}
    assert {name for name in classes if issubclass(getattr(errors, name), bridge.BridgeError)} <= CODE


def test_every_method_of_lake_is_on_a_page() -> None:
    """Of `Lake` and `StateStore`, the page or the one that it links to names every public method."""
    folder = Path(__file__).parents[3] / "docs"
    text = PAGE + (folder / "query.md").read_text() + (folder / "state.md").read_text()
    for kind in (bridge.Lake, bridge.StateStore, bridge.Project):
        names = [name for name in vars(kind) if not name.startswith("_")]
        assert [name for name in names if not re.search(rf"\b{name}\b", text)] == [], kind
