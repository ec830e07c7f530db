"""A table as the library of its format reads it, by the table's own log, as one of our commits left it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from bridge import Lake
from bridge.lake.formats.iceberg.catalog import keep_catalog, read_catalog
from bridge.lake.log import Log
from bridge.lake.storage import Storage
from bridge.settings.options import Pipeline


def own_rows(log: Log, stream: str, n: int | None = None) -> pa.Table | None:
    """The rows that a reader of the table's own log has as of commit `n`, by default of the last one there.

    None: there is no such version, or no more, as Iceberg tables drop snapshots whose columns changed their type.
    """
    table = log.snapshot(log.latest() if n is None else n).tables[stream]
    read = {"delta": _delta, "iceberg": _iceberg}[table.format]
    return read(log, table.folder, None if n is None else _changed(log, stream, n))


def _changed(log: Log, stream: str, n: int) -> int:
    """The last commit up to `n` that changed a table."""
    records = log.history(n, fences=False)
    return next(record.n for record in records if any(change.stream == stream for change in record.tables))


def catalog_in(folder: Path) -> dict[str, str]:
    """The properties of an Iceberg catalog that is a file of this machine, for tables in a store."""
    return {"type": "sql", "uri": f"sqlite:///{folder.absolute()}/catalog.db"}


def note_catalog(storage: Storage, pipeline: str, folder: Path) -> None:
    """Have the bucket say that the pipeline's Iceberg tables are in that catalog, as a run does."""
    destination = {"bucket": storage.uri, "format": "iceberg", "catalog": {"properties": catalog_in(folder)}}
    settings = {"name": pipeline, "source": {"tap": "tap"}, "destination": destination}
    keep_catalog(storage, Pipeline.model_validate(settings))


def check_own_logs(log: Log, n: int) -> None:
    """Compare all tables with a log of their own, as the library of the format reads them, with our own readers.

    After the last commit both the newest version and the one of that commit.
    """
    lake, last = Lake(log.storage.uri, at=n), log.latest()
    for stream, table in log.snapshot(n).tables.items():
        for at in ([n, None] if n == last else [n]) if table.has_own_log else ():
            own = own_rows(log, stream, at)
            if own is not None or n == last:
                rows = lake.table(log.pipeline, stream).to_table()
                assert own is not None and sorted_rows(own, rows.column_names) == sorted_rows(rows), (stream, n, at)


def sorted_rows(rows: pa.Table, columns: Sequence[str] = ()) -> list[Any]:
    """Rows in an order of their own."""
    return sorted((rows.select(columns) if columns else rows).to_pylist(), key=str)


def _delta(log: Log, folder: str, commit: int | None) -> pa.Table | None:
    from deltalake import DeltaTable
    from deltalake.exceptions import TableNotFoundError

    where, options = f"{log.storage.uri}/{folder}", log.storage.for_libraries() or None
    try:
        table = DeltaTable(where, storage_options=options)
    except TableNotFoundError:
        return None
    if commit is not None:
        commits = [entry["commit"] for entry in table.history()]
        table = DeltaTable(where, table.version() - commits.index(commit), storage_options=options)
    return table.to_pyarrow_dataset().to_table()


def _iceberg(log: Log, folder: str, commit: int | None) -> pa.Table | None:
    from pyiceberg.catalog import load_catalog
    from pyiceberg.exceptions import NoSuchTableError

    facts = read_catalog(log.storage, log.pipeline)
    with load_catalog(facts.name, **facts.properties, **_own_access(log.storage)) as catalog:
        try:
            table = catalog.load_table((facts.namespace, folder.rpartition("/")[2]))
        except NoSuchTableError:
            return None
    if commit is None:
        return table.scan().to_arrow()
    commits = {int(snapshot.summary["singer-bridge.commit"]): snapshot.snapshot_id for snapshot in table.snapshots()}
    return table.scan(snapshot_id=commits[commit]).to_arrow() if commit in commits else None


def _own_access(storage: Storage) -> dict[str, str]:
    """With what pyiceberg finds its own way to the store."""
    if storage.folder is not None:
        return {}
    names = {"s3.access-key-id": "aws_access_key_id", "s3.secret-access-key": "aws_secret_access_key"}
    names |= {"s3.region": "aws_region", "s3.endpoint": "aws_endpoint_url"}
    options = storage.for_libraries()
    return {name: options[key] for name, key in names.items()}
