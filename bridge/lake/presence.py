"""Whether the files that the commit log names are there. Everybody who has to know asks here.

A run asks before its tap starts, by one listing a table (`require_files`). `doctor` and `verify` look at each file.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from bridge.errors import MissingFiles
from bridge.lake.records import TableState
from bridge.storage import Storage
from bridge.storage.parallel import parallel_map

_LISTED = 10_000
"""Files of one table up to which it is listed whole; of a larger one so many, spread evenly, are asked for."""
_ASKED = 20


def wrong_size(storage: Storage, key: str, size: int) -> str | None:
    """Return what is wrong with a file by its size alone, None if nothing is: `gone`, or how many bytes it has."""
    there = storage.size(key)
    if there is None:
        return "gone"
    return None if there == size else f"{there:,} bytes, and the log says {size:,}"


def missing_files(storage: Storage, tables: Mapping[str, TableState]) -> dict[str, list[str]]:
    """Return by stream the names of files that are not there; streams that miss none are left out."""
    names = parallel_map(storage, lambda stream: _missing(storage, tables[stream]), list(tables))
    return {stream: missing for stream, missing in zip(tables, names, strict=True) if missing}


def _missing(storage: Storage, table: TableState) -> list[str]:
    if len(table.files) <= _LISTED:
        return sorted(table.files.keys() - set(storage.walk(table.folder))) if table.files else []
    names = sorted(table.files)
    some = names[:: len(names) // _ASKED]
    return [name for name in some if storage.size(f"{table.folder}/{name}") is None]


def require_files(
    storage: Storage, pipeline: str, tables: Mapping[str, TableState], replaced: Collection[str], *, piped: bool = False
) -> list[str]:
    """Raise `MissingFiles` where a table's files are gone; return a warning for each that is `replaced` by this run.

    `piped`: another program starts the tap, so there is no `singer-bridge run` to type.
    """
    missing = missing_files(storage, tables)
    for stream, names in missing.items():
        if stream not in replaced:
            raise _lost(storage, pipeline, stream, tables[stream], names, piped=piped)
    return [f"{_count(stream, names)}; this run replaces the table" for stream, names in missing.items()]


def _count(stream: str, names: list[str]) -> str:
    return f"{stream}: {len(names):,} file{'' if len(names) == 1 else 's'} of its table {_verb(names)} gone"


def _verb(names: list[str]) -> str:
    return "is" if len(names) == 1 else "are"


def _lost(
    storage: Storage, pipeline: str, stream: str, table: TableState, names: list[str], *, piped: bool
) -> MissingFiles:
    where = f"--to {storage.uri} --name {pipeline}" if piped else pipeline
    hint = (
        "restore from a backup of the bucket what was deleted; "
        f"see what is wrong, and bring back what is in the trash: singer-bridge verify {where} --repair"
    )
    if not piped and table.format != "iceberg":  # whose catalog still names metadata that is gone, too
        hint += f"\nor load the table anew: singer-bridge run {pipeline} --full -s {stream}"
    file = f"{storage.uri}/{table.folder}/{names[0]}"
    return MissingFiles(f"{_count(stream, names)}, and nothing but a backup has their rows", hint=hint, file=file)
