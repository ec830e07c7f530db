"""Which package installed a tap's program? Read from the venv around it, without starting anything.

The answer is for the run record. A program of no package, such as your own script, has no version.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import Distribution, distributions
from pathlib import Path

_UNKNOWN = "unknown"


def tap_version(program: str) -> str:
    """The version of the package whose program this is, or "unknown". Nothing in the venv raises an error."""
    return tap_package(program)[1]


def _field(package: Distribution, name: str) -> str:
    return next(iter(package.metadata.get_all(name) or ()), "") or _UNKNOWN


def tap_package(program: str) -> tuple[str, str]:
    """Name and version of the package whose program this is, each "unknown" if nothing says it."""
    path = Path(program)
    try:
        for folder in dict.fromkeys(_package_folders(path)):
            for package in distributions(path=[str(folder)]):
                if _has_program(package, path.name):
                    return _field(package, "Name"), _field(package, "Version")
    except (OSError, ValueError, KeyError, TypeError):
        pass
    return _UNKNOWN, _UNKNOWN


def _package_folders(program: Path) -> Iterator[Path]:
    """The package folders of the venv that a program, or the link to it, is in."""
    for place in (program, program.resolve()):
        yield from sorted(place.parent.parent.glob("lib*/python3*/*-packages"))


def _has_program(package: Distribution, name: str) -> bool:
    # Read as text: parsing the entry points of every package of a venv takes longer than reading them.
    text = package.read_text("entry_points.txt") or ""
    scripts = text.partition("[console_scripts]")[2].partition("\n[")[0]
    return any(line.partition("=")[0].strip() == name for line in scripts.splitlines())
