"""What differs in silence today, each with its reason. An entry that no longer occurs fails, too."""

from __future__ import annotations

from .oracle import Finding

KNOWN: dict[tuple[str, str, str, str], str] = {}
"""By the beginning of tap and method, the table, the sort and the column: why it is so."""


def unknown(database: str, tap: str, method: str, silent: list[Finding]) -> list[str]:
    """The silent differences that are not known."""
    found = {(f"{database} {tap} {method}", one.table, one.sort, one.column): str(one) for one in silent}
    return [text for entry, text in found.items() if not any(_fits(known, entry) for known in KNOWN)]


def _fits(known: tuple[str, str, str, str], entry: tuple[str, str, str, str]) -> bool:
    return entry[0].startswith(known[0]) and known[1:] == entry[1:]
