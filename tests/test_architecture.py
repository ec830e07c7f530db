"""The house keeps its shape: the ladder of imports, one room for pyspark, taps apart, small files."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LADDER = [
    ["errors", "verbatim"],
    ["transform"],
    ["settings"],
    ["config", "messages"],
    ["about", "catalog", "classdata", "java", "lastwords", "names", "stop", "storage", "types", "venvs"],
    ["feed"],
    ["pumps"],
    ["changes", "overrides", "proposal", "schema", "select"],
    ["decode", "kept", "log", "spool", "tap"],
    ["columns", "owners", "state"],
    ["edit", "groups", "leftovers", "stdin", "tablelog"],
    ["batches", "commit", "formats", "installed", "lock", "retention", "runs", "schedule", "tables"],
    ["commits", "fingerprint", "guard", "lastcommit", "opening", "past", "presence", "slots"],
    [
        "compact",
        "division",
        "engine",
        "epoch",
        "merge",
        "lookback",
        "recover",
        "resume",
        "rollback",
        "scratch",
        "source",
        "store",
    ],
    ["methods", "shaping", "starting", "supersede"],
    ["intake", "ledger", "placement", "verify"],
    ["parts", "repeats"],
    ["reading", "result"],
    ["adopt", "load", "rejects"],
    ["pipeline"],
    ["retry"],
    ["demo", "doctor", "project", "smoke"],
    ["cli"],
]
LEVEL = {room: level for level, rooms in enumerate(LADDER) for room in rooms}
FILES = sorted((ROOT / "bridge").rglob("*.py"))
ALL_FILES = FILES + sorted([*(ROOT / "taps").rglob("*.py"), *(ROOT / "targets").rglob("*.py")])


def module_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_of(path) for path in FILES}


def imports_of(path: Path) -> Iterator[str]:
    """Every module a file imports anywhere, functions included."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:  # `from package import module` is about the module, not about the package
                whole = f"{node.module}.{alias.name}"
                yield whole if whole in MODULES else node.module


def room_of(module: str) -> str:
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else ""


@pytest.mark.parametrize("path", FILES, ids=module_of)
def test_a_module_imports_only_from_lines_above_its_own(path: Path) -> None:
    """The ladder has no way back up, so there are no cycles between rooms."""
    room = room_of(module_of(path))
    if room in ("", "__main__"):
        return
    for name in imports_of(path):
        other = room_of(name) if name.startswith("bridge.") else ""
        if other in LEVEL and other != room:
            assert LEVEL[other] < LEVEL[room], f"{module_of(path)} imports {name}"


def test_every_room_is_on_the_ladder() -> None:
    """A new room gets its line before it gets its first import."""
    rooms = {room_of(module_of(path)) for path in FILES} - {"", "__main__"}
    assert rooms == set(LEVEL)


def test_no_module_imports_itself_in_a_circle() -> None:
    """Inside a room, too, imports have one direction."""
    modules = {module_of(path): path for path in FILES}
    graph = {name: {other for other in imports_of(path) if other in modules} for name, path in modules.items()}
    done: set[str] = set()

    def visit(name: str, path: tuple[str, ...]) -> None:
        assert name not in path, " -> ".join((*path, name))
        if name not in done:
            for other in graph[name] - {name}:
                visit(other, (*path, name))
            done.add(name)

    for name in graph:
        visit(name, ())


def test_only_engine_imports_pyspark() -> None:
    """`state get`, `discover` and `--help` can never start a JVM."""
    found = {
        room_of(module_of(path)) for path in ALL_FILES for name in imports_of(path) if name.split(".")[0] == "pyspark"
    }
    assert found == {"engine"}


def test_taps_and_bridge_meet_on_a_pipe_only() -> None:
    """A tap is another program: neither side imports the other, and nobody imports `taps.x`."""
    for path in ALL_FILES:
        for name in imports_of(path):
            assert name.split(".")[0] != "taps", path
            if path.is_relative_to(ROOT / "taps"):
                assert name.split(".")[0] != "bridge", path
            else:
                assert not name.startswith(("tap_smoke", "tap_replay")), path


@pytest.mark.parametrize("path", ALL_FILES, ids=module_of)
def test_files_and_functions_stay_small(path: Path) -> None:
    """At most 400 lines a file and 50 a function."""
    text = path.read_text()
    assert text.count("\n") <= 400
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            assert (node.end_lineno or 0) - node.lineno < 50, node.name


def test_no_room_without_a_name() -> None:
    """No drawer for everything: each module says what it is about, in its name and its first line."""
    for path in ALL_FILES:
        assert path.stem not in ("utils", "helpers", "base", "common", "misc")
        assert ast.get_docstring(ast.parse(path.read_text())), path
