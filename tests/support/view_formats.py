"""A table as the library of its format reads it, by the table's own log, as one of our commits left it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

from bridge import Lake
from bridge.lake.formats.iceberg.catalog import keep_catalog, read_catalog
from bridge.lake.log import Log
from bridge.settings.options import Pipeline
from bridge.storage import Storage


def own_rows(log: Log, stream: str, n: int) -> pa.Table | None:
    """The rows that a reader of the table's own log has as of commit `n`.

    None: there is no such version any more, as Iceberg tables drop snapshots whose columns changed their type. Only the
    last commit's is there always.
    """
    table = log.view(n).tables[stream]
    changed = (record.n for record in log.history(n, fences=False) if any(c.stream == stream for c in record.tables))
    read = {"delta": _delta, "iceberg": _iceberg}[table.format]
    return read(log, table.folder, next(changed), is_last=n == log.latest())


def catalog_in(folder: Path) -> dict[str, str]:
    """The properties of an Iceberg catalog that is a file of this machine, for tables in a store."""
    return {"type": "sql", "uri": f"sqlite:///{folder.absolute()}/catalog.db"}


def note_catalog(storage: Storage, pipeline: str, folder: Path) -> None:
    """Have the bucket say that the pipeline's Iceberg tables are in that catalog, as a run does."""
    destination = {"bucket": storage.uri, "format": "iceberg", "catalog": {"properties": catalog_in(folder)}}
    settings = {"name": pipeline, "source": {"tap": "tap"}, "destination": destination}
    keep_catalog(storage, Pipeline.model_validate(settings))


def check_own_logs(log: Log, n: int) -> None:
    """Compare all tables with a log of their own, as the library of the format reads them, with our own readers."""
    lake = Lake(log.storage.uri, at=n)
    for stream, table in log.view(n).tables.items():
        if table.has_own_log and (own := own_rows(log, stream, n)) is not None:
            rows = lake.table(log.pipeline, stream).to_table()
            assert _sorted(own.select(rows.column_names)) == _sorted(rows), f"{stream} at commit {n}"


def _sorted(rows: pa.Table) -> list[Any]:
    return sorted(rows.to_pylist(), key=str)


def _delta(log: Log, folder: str, commit: int, *, is_last: bool) -> pa.Table:
    from deltalake import DeltaTable

    storage = log.storage
    where, options = f"{storage.uri}/{folder}", storage.for_libraries() or None
    last = DeltaTable(where, storage_options=options)
    commits = [entry["commit"] for entry in last.history()]
    version = last.version() - commits.index(commit)
    assert not is_last or version == last.version()
    return DeltaTable(where, version, storage_options=options).to_pyarrow_dataset().to_table()


def _iceberg(log: Log, folder: str, commit: int, *, is_last: bool) -> pa.Table | None:
    from pyiceberg.catalog import load_catalog

    facts = read_catalog(log.storage, log.pipeline)
    with load_catalog(facts.name, **facts.properties, **_own_access(log.storage)) as catalog:
        table = catalog.load_table((facts.namespace, folder.rpartition("/")[2]))
    commits = {_commit_of(snapshot): snapshot for snapshot in table.snapshots()}
    assert not is_last or commits[commit] == table.current_snapshot()
    return table.scan(snapshot_id=commits[commit].snapshot_id).to_arrow() if commit in commits else None


def _commit_of(snapshot: Any) -> int:
    return int(snapshot.summary["singer-bridge.commit"])


def _own_access(storage: Storage) -> dict[str, str]:
    """With what pyiceberg finds its own way to the store."""
    if storage.folder is not None:
        return {}
    names = {"s3.access-key-id": "aws_access_key_id", "s3.secret-access-key": "aws_secret_access_key"}
    names |= {"s3.region": "aws_region", "s3.endpoint": "aws_endpoint_url"}
    options = storage.for_libraries()
    return {name: options[key] for name, key in names.items()}
