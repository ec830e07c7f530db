"""What an executor needs to know of one stream's table to write its files."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Target"]


@dataclass(frozen=True, slots=True)
class Target:
    """Where a stream's rows go, and how. Pickled to executors."""

    folder: str
    """The table's folder in the bucket."""
