"""Variables in `.env`, which has their values, and in `.env.example`, which only names them."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

_NAME = re.compile(r"^\s*(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)\s*=", re.MULTILINE)


def name_variables(path: Path, title: str, names: Sequence[str], optional: Sequence[str] = ()) -> list[str]:
    """Append the names that the file lacks, without values, under a comment; return them.

    Those that are `optional` become comments themselves.
    """
    missing = _missing(path, names)
    comments = [f"# {name}=" for name in _missing(path, optional)]
    existing = path.read_text(encoding="utf-8-sig").splitlines() if path.exists() else []
    lines = [*(f"{name}=" for name in missing), *(line for line in comments if line not in existing)]
    if lines:
        _append(path, [f"# {title}", *lines], mode=0o644)
    return missing


def set_variables(path: Path, values: Mapping[str, str]) -> None:
    """Append the variables that the file lacks. A new file is readable only by its owner."""
    missing = _missing(path, list(values))
    if missing:
        _append(path, [f"{name}={_quoted(values[name])}" for name in missing], mode=0o600)


def _missing(path: Path, names: Sequence[str]) -> list[str]:
    existing = set(_NAME.findall(path.read_text(encoding="utf-8-sig"))) if path.exists() else set()
    return [name for name in dict.fromkeys(names) if name not in existing]


def _append(path: Path, lines: list[str], *, mode: int) -> None:
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    gap = "" if not text or text.endswith("\n") else "\n"
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, mode), "w", encoding="utf-8") as file:
        file.write(gap + "\n".join(lines) + "\n")


def _quoted(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
