"""Spark, in the only room that imports pyspark: a session with a JVM of its own, and the query that loads manifests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bridge.spark.query import Engine

__all__ = ["Engine"]


def __getattr__(name: str) -> Any:
    """Import the query when it is asked for: executors, and the process that forks them, have no use for it."""
    if name != "Engine":
        raise AttributeError(name)
    from bridge.spark.query import Engine

    return Engine
