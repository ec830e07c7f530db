"""How a reader is told where a bucket is: a module for each store answers the same questions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from bridge.operate.readers import azure, gcs, s3
from bridge.operate.readers.table import Table
from bridge.settings.values.stores import section_of_bucket


class Store(Protocol):
    """Statements and notes for the readers of one store. A statement never includes keys."""

    FILE_SYSTEM: str
    """pyarrow's class."""

    def notes(self, table: Table, dialect: str) -> Iterator[str]:
        """Notes on what an engine needs once, each a comment; of DuckDB, its secret, after `first: `."""

    def storage_options(self, table: Table) -> dict[str, str]:
        """The options of Polars and delta-rs."""

    def filesystem_arguments(self, table: Table) -> dict[str, str]:
        """The arguments of pyarrow's file system."""

    def catalog_properties(self, table: Table) -> dict[str, str]:
        """The properties of pyiceberg."""


_STORES: dict[str, Store] = {"s3": s3, "azure": azure, "gcs": gcs}


def store_of(uri: str) -> Store | None:
    """The store of a bucket or a path in it; None for one of this machine."""
    return _STORES.get(section_of_bucket(uri))


def variable_of(uri: str) -> str:
    """The name of pyarrow's file system in the code."""
    return section_of_bucket(uri)
