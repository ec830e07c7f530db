"""The nasty tables of one database: SQL beside this file, in three parts that runs lie between."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

_PARTS = ("", "-- before the second run", "-- before the third run")


@dataclass(frozen=True)
class Cases:
    """Statements of all tables: those that make them, and what happens to them before the second and third run."""

    steps: tuple[str, str, str]
    keyed: tuple[str, ...]
    """Tables that are there at first and have a key."""


def read_cases(database: str) -> Cases:
    steps, keyed = ["", "", ""], []
    text = Path(__file__).with_name(f"{database}.sql").read_text()
    for name, hint, sql in re.findall(
        r"^-- table (.+?)( \(no key\))?$(.*?)(?=^-- table|\Z)", text, re.DOTALL | re.MULTILINE
    ):
        parts = re.split(r"^(-- before.*)$", f"{_PARTS[0]}\n{sql}", flags=re.MULTILINE)
        for label, part in zip(["", *parts[1::2]], parts[::2], strict=True):
            steps[_PARTS.index(label)] += part
        if parts[0].strip() and not hint:
            keyed.append(name)
    return Cases((steps[0], steps[1], steps[2]), tuple(keyed))
