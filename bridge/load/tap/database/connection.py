"""The part that connections to all kinds of databases share: questions, and answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

Query = tuple[str, list[Any]]
"""A statement and its values; a lone % is written %%."""
Answer = list[Sequence[Any]] | None
"""The rows; None: the server refused the statement, or gave no rows in time."""


class NotAsked(Exception):
    """Why the database was not asked."""


class Connection(Protocol):
    """An open connection in which each statement is its own transaction, and times are in UTC."""

    def ask(self, queries: Sequence[Query], each: float, whole: float) -> list[Answer]:
        """An answer to each query, which takes `each` seconds at most; after `whole` seconds no other one is begun.

        Raises `NotAsked` if the connection is lost.
        """
        ...

    def close(self) -> None:
        """Close it; it may be lost already."""
        ...
