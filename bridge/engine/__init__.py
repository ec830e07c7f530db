"""Spark, in the only room that imports pyspark: a session with a JVM of its own, and the query that loads manifests."""

from bridge.engine.query import Engine

__all__ = ["Engine"]
