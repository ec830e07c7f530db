"""Databases as Iceberg catalogs, as runs need them: a limited wait for PostgreSQL, no connection between two commits.

Call `prepare_sql` before a catalog is opened. It changes pyiceberg's module for this process.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sqlalchemy import Engine

_PATIENCE = 10
"""Seconds that PostgreSQL may take to accept a connection, unless the URI says `connect_timeout`."""


def prepare_sql() -> None:
    """Make pyiceberg connect to databases by our own engine."""
    from pyiceberg.catalog import sql

    sql.create_engine = _engine  # type: ignore[assignment, attr-defined]


def _engine(uri: str, **options: Any) -> Engine:
    """An engine that holds no connection between two commits, which may be minutes apart."""
    from sqlalchemy import create_engine, make_url
    from sqlalchemy.pool import NullPool

    url = make_url(uri)
    if url.get_driver_name().startswith("psycopg") and "connect_timeout" not in url.query:
        options["connect_args"] = {"connect_timeout": _PATIENCE}
    return create_engine(url, poolclass=NullPool, **options)
