"""The house keeps its shape: rungs of rooms, one room for pyspark, taps apart, small files and folders."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
RUNGS = """
durations
errors exact_json
findings
settings singer schema spool
storage decode
lake tap
write commit project slots views
state spark
load
facts maintain smoke
query
launch spark_source
orchestrate demo service
cli
"""
LEVEL = {room: level for level, rooms in enumerate(RUNGS.split("\n")) for room in rooms.split()}
READER = ROOT / "bridge" / "decode" / "reader"
"""A project of its own, in Rust."""
FILES = sorted(path for path in (ROOT / "bridge").rglob("*.py") if not path.is_relative_to(READER))
ALL_FILES = FILES + sorted([*(ROOT / "taps").rglob("*.py"), *(ROOT / "targets").rglob("*.py")])


def module_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_of(path) for path in FILES}


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@cache
def imports_of(path: Path) -> list[str]:
    """Every module a file imports anywhere, functions included."""
    names: list[str] = []
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            # `from package import module` is about the module, not about the package
            wholes = [f"{node.module}.{alias.name}" for alias in node.names]
            names += [whole if whole in MODULES else node.module for whole in wholes]
    return names


def room_of(module: str) -> str:
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else ""


def test_a_module_imports_only_from_rungs_above_its_own() -> None:
    """Imports have one direction, so there are no cycles between rooms. Rooms of one rung do not know each other."""
    for path in FILES:
        room = room_of(module_of(path))
        for name in imports_of(path) if room in LEVEL else []:
            other = room_of(name) if name.startswith("bridge.") else ""
            if other in LEVEL and other != room:
                assert LEVEL[other] < LEVEL[room], f"{module_of(path)} imports {name}"


def test_every_room_is_on_a_rung() -> None:
    """A new room gets its line before it gets its first import."""
    rooms = {room_of(module_of(path)) for path in FILES} - {"", "__main__"}
    assert rooms == set(LEVEL)


def test_no_module_imports_itself_in_a_circle() -> None:
    """Inside a room, too, imports have one direction."""
    modules = {module_of(path): path for path in FILES}
    graph = {name: {other for other in imports_of(path) if other in modules} for name, path in modules.items()}
    graph["bridge"] = set()  # it imports what is public only when somebody asks for that
    done: set[str] = set()

    def visit(name: str, path: tuple[str, ...]) -> None:
        assert name not in path, " -> ".join((*path, name))
        if name not in done:
            for other in graph[name] - {name}:
                visit(other, (*path, name))
            done.add(name)

    for name in graph:
        visit(name, ())


def test_only_spark_imports_pyspark() -> None:
    """`state get`, `discover` and `--help` can never start a JVM.

    `spark_source` works in a session that is somebody else's: nothing of ours imports it.
    """
    found = {
        room_of(module_of(path)) for path in ALL_FILES for name in imports_of(path) if name.split(".")[0] == "pyspark"
    }
    assert found == {"spark", "spark_source"}
    users = {
        room_of(module_of(path)) for path in ALL_FILES for name in imports_of(path) if room_of(name) == "spark_source"
    }
    assert users == {"spark_source"}


READS_LAKES = ROOT / "taps" / "tap_bridge"
"""The tap whose source is a lake: of the bridge it imports what reads one, never what loads."""


def test_taps_and_bridge_meet_on_a_pipe_only() -> None:
    """A tap is another program: neither side imports the other, and nobody imports `taps.x`.

    `tap-bridge` reads lakes, so it imports rooms that a reader of a lake needs.
    """
    for path in ALL_FILES:
        for name in imports_of(path):
            assert name.split(".")[0] != "taps", path
            if path.is_relative_to(READS_LAKES) and name.startswith("bridge."):
                assert LEVEL.get(room_of(name), 0) <= LEVEL["query"] or room_of(name) == "cli", path
                assert room_of(name) not in ("load", "spark", "tap"), path
            elif path.is_relative_to(ROOT / "taps"):
                assert name.split(".")[0] != "bridge", path
            else:
                assert not name.startswith(("tap_smoke", "tap_replay", "tap_bridge")), path


def test_files_and_functions_stay_small() -> None:
    """At most 400 lines a file and 50 a function."""
    for path in ALL_FILES:
        assert path.read_text().count("\n") <= 400, path
        for node in ast.walk(parsed(path)):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                assert (node.end_lineno or 0) - node.lineno < 50, f"{path}: {node.name}"


def test_no_room_without_a_name() -> None:
    """No drawer for everything: each module says what it is about, in its name and its first line."""
    for path in ALL_FILES:
        assert path.stem not in ("utils", "helpers", "base", "common", "misc")
        assert ast.get_docstring(parsed(path)), path


def test_a_folder_can_be_read_at_a_glance() -> None:
    """At most 18 files a folder, and six at the top. Each room's `__init__` says in at most 15 lines what it is for."""
    for folder in {path.parent for path in FILES}:
        files = [path for path in FILES if path.parent == folder]
        assert len(files) <= (6 if folder == ROOT / "bridge" else 18), folder
        room = folder / "__init__.py"
        promise = ast.get_docstring(parsed(room)) or ""
        assert folder == ROOT / "bridge" or 0 < promise.count("\n") + 1 <= 15, room


def stations_of(message: str) -> list[tuple[int, str]]:
    """The modules that ARCHITECTURE.md lists as a message's way, with the depth of each in the tree of calls."""
    text = (ROOT / "ARCHITECTURE.md").read_text().split(f"```text\n{message}\n")[1].split("```")[0]
    return [((len(line) - len(line.lstrip())) // 2, line.split()[0]) for line in text.splitlines()]


@pytest.mark.parametrize(("message", "limit", "end"), [("a RECORD", 15, "committer"), ("a STATE", 12, "state_file")])
def test_a_message_goes_one_way(message: str, limit: int, end: str) -> None:
    """Each station is called by the one that it is indented under. Once left, none is entered again."""
    stations = stations_of(message)
    names = [name for _, name in stations]
    assert len(names) == len(set(names)) <= limit
    assert {"load/tap/pipe.py", "load/run/dispatcher.py", "load/run/loader.py", f"commit/{end}.py"} <= set(names)
    callers: list[Path] = []
    for depth, name in stations:
        path = ROOT / "bridge" / name
        assert depth <= len(callers), name
        del callers[depth:]
        if callers:
            assert module_of(path) in set(imports_of(callers[-1])), f"{callers[-1].name} does not call {name}"
        callers.append(path)


def test_what_is_called_does_not_call_back() -> None:
    """Neither the dispatcher nor Spark's room knows of the loader, and nothing of it is handed to them to call."""
    for name in ("dispatcher", "barriers", "events", "accounting", "table_changes", "loader"):
        text = (ROOT / f"bridge/load/run/{name}.py").read_text()
        assert "partial(" not in text, name
        assert name == "barriers" or "Callable" not in text, name
    assert "Callable" not in (ROOT / "bridge/load/run/plan.py").read_text()


UNCLEAR = {"found", "said", "told", "known", "wanted", "there", "gone", "kept", "heard", "done", "ours", "theirs"}


def bound_names(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Every name that a file gives to a variable, an argument, an attribute, a function or a class."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.attr
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield node.lineno, node.name


def test_a_name_says_what_it_names() -> None:
    """A bare participle such as `found` does not: by it a reader cannot tell what was found."""
    unclear = [
        f"{path.relative_to(ROOT)}:{line}: {name}"
        for path in ALL_FILES
        for line, name in bound_names(parsed(path))
        if name.strip("_").lower() in UNCLEAR
    ]
    advice = "name the thing (files, stream), or use existing, requested, declared, removed, retained, result, current"
    assert not unclear, f"{advice}: {unclear}"
