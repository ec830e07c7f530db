"""The house keeps its shape: wings with few doors, rungs of rooms, one room for pyspark, small files and folders."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.house import (
    FILES,
    MODULES,
    OTHER_FILES,
    ROOT,
    WINGS,
    door_table,
    doors,
    entrances,
    imports_of,
    module_of,
    parsed,
    wing_of,
)

RUNGS = """
durations
errors exact_json
findings
settings protocol.singer protocol.schema
protocol.decode
protocol.mask
lake.storage
lake
lake.commit
lake.state
load.spool load.views
load.tap
load.slots load.write
load.spark
load.preflight load.run
load.maintain
read.query
read.spark_source
operate.project operate.readers
operate operate.demo operate.reconcile operate.smoke operate.verify
operate.doctor
serve.facts
serve.launch
serve.orchestrate serve.service
cli
"""
"""Rooms, one rung a line: a room may import those above it. Wings follow each other as their rooms do."""
LEVEL = {room: level for level, rooms in enumerate(RUNGS.split("\n")) for room in rooms.split()}
ALL_FILES = FILES + OTHER_FILES
MOST_DOORS, MOST_NAMES = 172, 549
"""Doors between wings, and names that pass through them. The numbers may only fall."""


def room_of(module: str) -> str:
    """The room of a module of `bridge`, such as `load.tap`; its wing, if it is in no room of its own."""
    parts = module.split(".")[1:]
    room = ".".join(parts[:2])
    return room if room in LEVEL else "".join(parts[:1])


def test_a_module_imports_only_from_rungs_above_its_own() -> None:
    """Imports have one direction, so there are no cycles between rooms. Rooms of one rung do not know each other."""
    for path in FILES:
        room = room_of(module_of(path))
        for name in imports_of(path) if room in LEVEL else []:
            other = room_of(name) if name.startswith("bridge.") else ""
            if other in LEVEL and other != room:
                assert LEVEL[other] < LEVEL[room], f"{module_of(path)} imports {name}"


def test_wings_follow_each_other() -> None:
    """The rungs of a wing lie together, so a wing, too, imports only those above it; the last is the command line."""
    order = [room.split(".")[0] for rooms in RUNGS.split("\n") for room in rooms.split()]
    wings = [wing for n, wing in enumerate(order) if wing in WINGS and (n == 0 or order[n - 1] != wing)]
    assert [wing for wing in wings if wing != "protocol"] == [wing for wing in WINGS if wing != "protocol"]
    assert all(level < LEVEL["lake.storage"] for room, level in LEVEL.items() if room.startswith("protocol."))


def test_a_wing_is_entered_by_its_doors() -> None:
    """Each wing lists in its `__init__` which modules another may import; all else in it is private."""
    entered: dict[str, set[str]] = {wing: set() for wing in WINGS}
    for path, module, _ in entrances():
        wing = wing_of(module)
        inside = module.removeprefix(f"bridge.{wing}").removeprefix(".")
        assert inside in doors(wing) or not inside, f"{module_of(path)} enters {module}, which is no door of {wing}"
        entered[wing].add(inside)
    unused = {wing: set(doors(wing)) - entered[wing] for wing in WINGS}
    assert not any(unused.values()), f"nobody enters by {unused}"


def test_doors_become_fewer() -> None:
    """What crosses between wings of `bridge/` is a number that may only fall; ARCHITECTURE.md prints the doors."""
    crossing = {(module, name) for path, module, name in entrances() if path in FILES}
    assert len({module for module, _ in crossing}) <= MOST_DOORS
    assert len(crossing) <= MOST_NAMES
    assert door_table() in (ROOT / "ARCHITECTURE.md").read_text(), "python -m tests.support.house doors"


def test_every_room_is_on_a_rung() -> None:
    """A new room gets its line before it gets its first import."""
    rooms = {room_of(module_of(path)) for path in FILES} - {"", "__main__", "protocol", "load", "read", "serve"}
    assert rooms == set(LEVEL)
    assert all(wing in WINGS for wing in ("protocol", "load", "read", "serve"))  # nothing but rooms


def test_no_module_imports_itself_in_a_circle() -> None:
    """Inside a room, too, imports have one direction."""
    graph = {name: {other for other in imports_of(path) if other in MODULES} for name, path in MODULES.items()}
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
    assert found == {"load.spark", "read.spark_source"}
    users = {
        room_of(module_of(path))
        for path in ALL_FILES
        for name in imports_of(path)
        if room_of(name) == "read.spark_source"
    }
    assert users == {"read.spark_source"}


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
                assert LEVEL.get(room_of(name), 0) <= LEVEL["read.query"] or room_of(name) == "cli", path
                assert room_of(name) not in ("load.run", "load.spark", "load.tap"), path
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
    assert {"load/tap/pipe.py", "load/run/dispatcher.py", "load/run/loader.py", f"lake/commit/{end}.py"} <= set(names)
    callers: list[Path] = []
    for depth, name in stations:
        path = ROOT / "bridge" / name
        assert depth <= len(callers), name
        del callers[depth:]
        if callers:
            assert module_of(path) in set(imports_of(callers[-1])), f"{callers[-1].name} does not call {name}"
        callers.append(path)


def test_what_is_called_does_not_call_back() -> None:
    """Neither the dispatcher nor Spark's room knows of the loader, and nothing of it is handed to them to call.

    On the road of a run, too, control stays with the caller: attempts are an iterator, a pipeline is opened in steps.
    """
    for name in ("cli/run/reporter", "serve/launch/launch", "load/run/run", "lake/commit/open"):
        text = (ROOT / f"bridge/{name}.py").read_text()
        assert not any(word in text for word in ("Callable", "partial(", "lambda")), name
    for name in ("dispatcher", "barriers", "events", "accounting", "table_changes", "loader"):
        text = (ROOT / f"bridge/load/run/{name}.py").read_text()
        assert "partial(" not in text, name
        assert name == "barriers" or "Callable" not in text, name
    assert "Callable" not in (ROOT / "bridge/load/run/plan.py").read_text()


def test_a_run_is_put_together_from_few_parts() -> None:
    """`run.py` has a plan made and executed, and keeps the record: what it does in between is theirs."""
    names = {name for name in imports_of(ROOT / "bridge/load/run/run.py") if name in MODULES}
    assert len(names) <= 25, sorted(names)


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


def docstrings_of(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Every docstring of a file, of attributes too, and the type of what it describes; empty if it has none."""
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        for place, text in enumerate(body if isinstance(body, list) else []):
            if (
                isinstance(text, ast.Expr)
                and isinstance(text.value, ast.Constant)
                and isinstance(text.value.value, str)
            ):
                about = body[place - 1] if place else node
                kind = getattr(about, "annotation", getattr(about, "returns", None))
                yield text.value.value, ast.unparse(kind) if kind else ""


def test_a_docstring_is_a_sentence() -> None:
    """It has a subject, so none begins with "What"; "Whether" is left to booleans."""
    for path in ALL_FILES:
        for text, kind in docstrings_of(parsed(path)):
            assert text.split()[0] != "What", f"{path}: {text}"
            assert text.split()[0] != "Whether" or kind in ("bool", "bool | None"), f"{path}: {text}"


TWINS = {
    "Clients PendingFile PendingObject Rule Seen Settings": "one of them is in storage/, or both are",
    "Guard": "the settings' section, and what applies it to a table",
    "Source Spool": "one of them names a section in the schema of bridge.yaml",
    "View": "one of them is `bridge.View`",
}
"""Class names that stand twice, each with the reason. The list may only become shorter."""


def test_no_public_class_name_stands_twice() -> None:
    """A name leads to one class, so a search for it does, too."""
    classes = Counter(node.name for path in FILES for node in ast.walk(parsed(path)) if isinstance(node, ast.ClassDef))
    twice = {name for name, count in classes.items() if count > 1 and not name.startswith("_")}
    assert twice == {name for names in TWINS for name in names.split()}
