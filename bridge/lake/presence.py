"""Which pipelines are in a bucket, and are the files there that their commit logs name?

A run asks before its tap starts, by one listing a table (`require_files`). `doctor` and `verify` look at each file:
`bridge.operate.verify.unpublished`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING

from bridge.errors import LakeError, MissingFiles
from bridge.lake.log import Log, Snapshot
from bridge.lake.paths import PENDING, generation_of, last_name, pipeline_key
from bridge.lake.records import TableState
from bridge.lake.storage import Add, Storage
from bridge.lake.storage.parallel import parallel_map
from bridge.settings.commands import pipeline_arguments, reload

if TYPE_CHECKING:
    from bridge.settings.options import Pipeline  # an executor of Spark may not have pydantic

ABSENT = "gone"
"""The problem of a file that does not exist."""
_LISTED = 10_000
"""A table with more files is not listed: an evenly spread sample is checked."""
_ASKED = 20


def pipelines_in(storage: Storage) -> list[str]:
    """The names of the pipelines that were run into this bucket, sorted."""
    return sorted(name for name in storage.list(".bridge") if name != "tables" and _is_pipeline(storage, name))


def _is_pipeline(storage: Storage, name: str) -> bool:
    try:
        if storage.size(pipeline_key(name, "lease.json")) is not None:
            return True
        return any(any(storage.list(pipeline_key(name, folder))) for folder in ("commits", "runs"))
    except LakeError:  # a file, where pipelines have folders
        return False


def wrong_size(storage: Storage, key: str, size: int) -> str | None:
    """The problem of a file that its size shows: `ABSENT`, or how many bytes it has; None if there is none."""
    existing = storage.size(key)
    if existing is None:
        return ABSENT
    return None if existing == size else f"{existing:,} bytes, and the log says {size:,}"


def missing_files(storage: Storage, tables: Mapping[str, TableState]) -> dict[str, list[str]]:
    """The names of missing files by stream; streams without any are left out."""
    names = parallel_map(storage, lambda stream: _missing(storage, tables[stream]), list(tables))
    return {stream: missing for stream, missing in zip(tables, names, strict=True) if missing}


def _missing(storage: Storage, table: TableState) -> list[str]:
    if len(table.files) <= _LISTED:
        return sorted(table.files.keys() - set(storage.walk(table.folder))) if table.files else []
    names = sorted(table.files)
    some = names[:: len(names) // _ASKED]
    return [name for name in some if storage.size(f"{table.folder}/{name}") is None]


def require_files(
    storage: Storage,
    pipeline: Pipeline,
    tables: Mapping[str, TableState],
    replaced: Collection[str],
    *,
    piped: bool = False,
) -> list[str]:
    """Raise `MissingFiles` if a table's files are gone; return a warning for each table that this run replaces.

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
    storage: Storage, pipeline: Pipeline, stream: str, table: TableState, names: list[str], *, piped: bool
) -> MissingFiles:
    where = pipeline_arguments(pipeline.name, storage.uri, piped=piped)
    hint = (
        "restore from a backup of the bucket what was deleted; "
        f"see what is wrong, and bring back what is in the trash: singer-bridge verify {where} --repair"
    )
    if not piped and table.format != "iceberg":  # its catalog still names metadata that is gone, too
        hint += f"\nor load the table again: {reload(pipeline, [stream])}"
    file = f"{storage.uri}/{table.folder}/{names[0]}"
    return MissingFiles(f"{_count(stream, names)}, and nothing but a backup has their rows", hint=hint, file=file)


def stale_pending(log: Log, snapshot: Snapshot, generation: int) -> Iterator[tuple[Add, str]]:
    """Yield the pending files of lower generations that are not staged, each with the key that it would have got.

    Best effort: some stores cannot list what is pending.
    """
    staged = {last_name(file.name) for stage in snapshot.staged.values() for file in stage.files}
    for pending in log.storage.pending(pipeline_key(log.pipeline, "pending")):
        key = (pending.key or pending.source).removesuffix(PENDING)
        wrote = generation_of(key)
        if wrote is not None and wrote < generation and last_name(key) not in staged:
            yield pending, key
