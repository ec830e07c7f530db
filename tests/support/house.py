"""The shape of bridge/, counted: `python -m tests.support.house` prints it, tests/test_architecture.py limits it.

`python -m tests.support.house doors` prints the table of doors as ARCHITECTURE.md has it.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path

ROOT = Path(__file__).parents[2]
WINGS = ("settings", "protocol", "lake", "load", "read", "operate", "serve", "cli")
READER = ROOT / "bridge" / "protocol" / "decode" / "reader"
"""A project of its own, in Rust."""
FILES = sorted(path for path in (ROOT / "bridge").rglob("*.py") if not path.is_relative_to(READER))
OTHER_FILES = sorted([*(ROOT / "taps").rglob("*.py"), *(ROOT / "targets").rglob("*.py")])
ROAD = (
    "cli/run/many cli/run/reporter serve/launch/launch serve/launch/project load/run/run load/run/plan lake/commit/open"
)
"""The files that a run passes before its tap starts."""


def module_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_of(path): path for path in FILES}


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@cache
def names_imported(path: Path) -> list[tuple[str, str]]:
    """Each module a file imports anywhere, functions included, with the name that it takes; empty: the module."""
    names: list[tuple[str, str]] = []
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            names += [(alias.name, "") for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            # `from package import module` is about the module, not about the package
            wholes = [(f"{node.module}.{alias.name}", alias.name) for alias in node.names]
            names += [(whole, "") if whole in MODULES else (node.module, name) for whole, name in wholes]
    return names


def imports_of(path: Path) -> list[str]:
    return [module for module, _ in names_imported(path)]


def wing_of(module: str) -> str:
    """The wing that a module of `bridge` is in; empty for those at the top, and for other packages."""
    parts = module.split(".")
    return parts[1] if parts[0] == "bridge" and len(parts) > 1 and parts[1] in WINGS else ""


def entrances() -> Iterator[tuple[Path, str, str]]:
    """Every import of another wing: the file, the module, and the name that it takes."""
    for path in FILES + OTHER_FILES:
        for module, name in names_imported(path):
            if wing_of(module) not in ("", wing_of(module_of(path))) and module_of(path) != "bridge":
                yield path, module, name


def doors(wing: str) -> tuple[str, ...]:
    """The modules of a wing that others may import, as its `__init__` lists them."""
    return tuple(getattr(import_module(f"bridge.{wing}"), "DOORS", ()))


def door_table() -> str:
    """The doors of each wing, one room a line, for ARCHITECTURE.md."""
    lines = ["```text"]
    for wing in WINGS:
        rooms: dict[str, list[str]] = {}
        for door in doors(wing):
            room, _, name = door.rpartition(".")
            rooms.setdefault(room, []).append(name)
        for room, names in sorted(rooms.items()):
            line = f"{'/'.join([wing, *room.split('.')]).rstrip('/') + '/':<28}"
            for name in sorted(names):
                if len(line) + len(name) > 118:
                    lines.append(line.rstrip())
                    line = " " * 28
                line += f"{name} "
            lines.append(line.rstrip())
    return "\n".join([*lines, "```"])


def docstrings(files: list[Path]) -> Iterator[tuple[Path, ast.AST, str]]:
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for path in files:
        for node in ast.walk(parsed(path)):
            if isinstance(node, kinds) and (text := ast.get_docstring(node)):
                yield path, node, text
            elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
                yield path, node, str(node.value.value)  # beside an attribute


def classes() -> Counter[str]:
    """How often each name of a class stands in bridge/."""
    nodes = (node for path in FILES for node in ast.walk(parsed(path)))
    return Counter(node.name for node in nodes if isinstance(node, ast.ClassDef))


def lines_of(files: list[Path]) -> int:
    return sum(path.read_text().count("\n") for path in files)


def measures() -> dict[str, object]:
    """What a review asks of the house, by name."""
    crossing = [(module, name) for path, module, name in entrances() if path in FILES]
    road = [ROOT / "bridge" / f"{name}.py" for name in ROAD.split()]
    code = "\n".join(path.read_text() for path in FILES)
    return {
        "files of bridge": len(FILES),
        "doors between wings": len({module for module, _ in crossing}),
        "names through them": len(set(crossing)),
        "imports of load/run/run.py": len({m for m in imports_of(MODULES["bridge.load.run.run"]) if m in MODULES}),
        "callbacks on the road of a run": sum(
            len(re.findall(r"\bCallable\b|\bpartial\(", path.read_text().split("\n\n\n", 1)[-1])) for path in road
        ),
        "class names that stand twice": sum(count > 1 for count in classes().values()),
        "dict[str, Any]": code.count("dict[str, Any]"),
        'docstrings that begin with "What"': sum(text.startswith("What") for _, _, text in docstrings(FILES)),
        "lines of bridge": lines_of(FILES),
        "lines of tests": lines_of(sorted((ROOT / "tests").rglob("*.py"))),
    }


if __name__ == "__main__":
    if sys.argv[1:] == ["doors"]:
        print(door_table())
    else:
        for measure, value in measures().items():
            print(f"{measure:<36} {value}")
