"""What a snapshot of an Iceberg table is made of: the files that it has, in manifests, and the list of these.

All of it is new files with names that are never used again; nothing is visible before a catalog names the table's next
metadata. A writer that crashes, or that loses the race, leaves only unused files.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bridge.lake.records import TableState
from bridge.storage.parallel import parallel_map

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile, ManifestEntry, ManifestFile
    from pyiceberg.schema import Schema
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.snapshots import Snapshot

    from bridge.lake.formats.iceberg.io import BucketIO

_MOST_MANIFESTS = 100
"""More of them are brought together in one, as a reader reads each; Iceberg's own default."""
_CODEC: Any = "gzip"


@dataclass(frozen=True, slots=True)
class Files:
    """What a snapshot is to change: `table` is as it will be, in the folder `root`, a URI; `old` are its files now."""

    io: BucketIO
    root: str
    table: TableState
    old: frozenset[str]

    @property
    def added(self) -> list[str]:
        return sorted(self.table.files.keys() - self.old)

    @property
    def removed(self) -> set[str]:
        return set(self.old - self.table.files.keys())


def files_of(io: BucketIO, root: str, metadata: TableMetadata) -> frozenset[str]:
    """The names of the files that the current snapshot has; what is no data file of this folder by its URI."""
    return frozenset(
        _name(root, entry.data_file) for manifest in _manifests(io, metadata) for entry in _entries(io, manifest)
    )


def snapshot(files: Files, metadata: TableMetadata | None, schema: Schema, summary: dict[str, str]) -> Snapshot:
    """Write what a new snapshot is made of and return it; `summary` says of which commit it is, and of what kind."""
    from pyiceberg.manifest import write_manifest_list
    from pyiceberg.table.snapshots import Snapshot, Summary

    number = uuid.uuid4().int >> 65
    sequence = sequence_of(metadata) + 1 if metadata else 1
    parent = metadata.current_snapshot_id if metadata else None
    write = _Writer(files, schema, number)
    manifests = [*write.retained(_manifests(files.io, metadata) if metadata else []), *write.new()]
    where = f"{files.root}/metadata/snap-{number}-{write.id}.avro"
    with write_manifest_list(2, files.io.new_output(where), number, parent, sequence, _CODEC) as listed:
        listed.add_manifests(manifests)
    facts = summary | _counted(files)
    operation = facts.pop("operation")
    fields: dict[str, Any] = {
        "snapshot-id": number,
        "parent-snapshot-id": parent,
        "sequence-number": sequence,
        "timestamp-ms": _now(metadata),
        "manifest-list": where,
        "summary": Summary(_operation(operation, files), **facts),
        "schema-id": schema.schema_id,
    }
    return Snapshot(**fields)


def sequence_of(metadata: TableMetadata) -> int:
    """How many snapshots there were; 0 of a table of the first version, which does not count them."""
    return int(getattr(metadata, "last_sequence_number", 0))


def _now(metadata: TableMetadata | None) -> int:
    """The time in milliseconds, never before the table's own: clocks differ."""
    from datetime import datetime, timezone

    now = int(datetime.now(timezone.utc).timestamp() * 1000)
    return max(now, metadata.last_updated_ms + 1) if metadata else now


def _operation(kind: str, files: Files) -> Any:
    from pyiceberg.table.snapshots import Operation

    if kind == "compact":
        return Operation.REPLACE
    if not files.removed:
        return Operation.APPEND
    return Operation.OVERWRITE if files.added else Operation.DELETE


def _counted(files: Files) -> dict[str, str]:
    all_ = files.table.files
    return {
        "added-data-files": str(len(files.added)),
        "added-records": str(sum(all_[name].rows for name in files.added)),
        "deleted-data-files": str(len(files.removed)),
        "total-data-files": str(len(all_)),
        "total-records": str(files.table.rows),
        "total-files-size": str(sum(file.size for file in all_.values())),
        "total-delete-files": "0",
        "total-position-deletes": "0",
        "total-equality-deletes": "0",
    }


class _Writer:
    """Writes the manifests of one snapshot."""

    def __init__(self, files: Files, schema: Schema, number: int) -> None:
        self.files, self.schema, self.number = files, schema, number
        self.id = uuid.uuid4()
        self._count = 0

    def new(self) -> list[ManifestFile]:
        """Write one with the files that come."""
        from pyiceberg.manifest import ManifestEntryStatus

        names = self.files.added
        made = parallel_map(self.files.io.storage, self._data_file, names)
        return self._written([(ManifestEntryStatus.ADDED, file) for file in made])

    def retained(self, manifests: list[ManifestFile]) -> list[ManifestFile]:
        """The manifests that stay. One with files that go is written anew; if there are too many, all are."""
        from pyiceberg.manifest import ManifestContent, ManifestEntryStatus

        removed, stay = self.files.removed, list[Any]()
        for manifest in manifests:
            if manifest.content != ManifestContent.DATA:
                continue  # somebody else's deletions of rows: our log knows nothing of them
            if not removed:
                stay.append(manifest)
                continue
            entries = _entries(self.files.io, manifest)
            deleted = [entry for entry in entries if _name(self.files.root, entry.data_file) in removed]
            if not deleted:
                stay += [manifest] if entries else []
                continue
            left = [
                (ManifestEntryStatus.EXISTING, entry)
                for entry in entries
                if _name(self.files.root, entry.data_file) not in removed
            ]
            stay += self._written(left + [(ManifestEntryStatus.DELETED, entry) for entry in deleted])
        if len(stay) <= _MOST_MANIFESTS:
            return stay
        live = [(ManifestEntryStatus.EXISTING, entry) for one in stay for entry in _entries(self.files.io, one)]
        return self._written(live)

    def _written(self, entries: list[tuple[Any, Any]]) -> list[ManifestFile]:
        from pyiceberg.manifest import ManifestEntry, ManifestEntryStatus, write_manifest
        from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC as FLAT

        if not entries:
            return []
        self._count += 1
        output = self.files.io.new_output(f"{self.files.root}/metadata/{self.id}-m{self._count}.avro")
        with write_manifest(2, FLAT, self.schema, output, self.number, _CODEC) as writer:
            for status, entry in entries:
                if status == ManifestEntryStatus.EXISTING:
                    writer.existing(entry)
                elif status == ManifestEntryStatus.DELETED:
                    writer.delete(entry)
                else:
                    new = {"status": status, "snapshot_id": self.number, "data_file": entry}
                    writer.add_entry(ManifestEntry.from_args(**new, sequence_number=None, file_sequence_number=None))
        return [writer.to_manifest_file()]

    def _data_file(self, name: str) -> DataFile:
        from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
        from pyiceberg.typedef import Record

        file = self.files.table.files[name]
        facts: dict[str, Any] = {"record_count": file.rows}
        with suppress(KeyError, ValueError, TypeError):  # without bounds a file is read more often, and never wrongly
            facts |= self._statistics(name)
        return DataFile.from_args(
            content=DataFileContent.DATA,
            file_path=f"{self.files.root}/{name}",
            file_format=FileFormat.PARQUET,
            partition=Record(),
            file_size_in_bytes=file.size,
            sort_order_id=None,
            spec_id=0,
            equality_ids=None,
            key_metadata=None,
            **facts,
        )

    def _statistics(self, name: str) -> dict[str, Any]:
        import pyarrow.parquet as pq
        from pyiceberg.io.pyarrow import (
            compute_statistics_plan,
            data_file_statistics_from_parquet_metadata,
            parquet_path_to_id_mapping,
        )

        key = self.files.io.key(f"{self.files.root}/{name}")
        with self.files.io.storage.open(key) as file:
            footer = pq.read_metadata(file)
        plan, paths = compute_statistics_plan(self.schema, {}), parquet_path_to_id_mapping(self.schema)
        return data_file_statistics_from_parquet_metadata(footer, plan, paths).to_serialized_dict()


def _manifests(io: BucketIO, metadata: TableMetadata) -> list[ManifestFile]:
    """The manifests of the current snapshot that have files."""
    now = metadata.current_snapshot()
    every = now.manifests(io) if now else []
    return [one for one in every if one.has_added_files() or one.has_existing_files()]


def _entries(io: BucketIO, manifest: ManifestFile) -> list[ManifestEntry]:
    return manifest.fetch_manifest_entry(io)


def _name(root: str, file: DataFile) -> str:
    """A file's name in the table; its URI for what is no file of ours."""
    from pyiceberg.manifest import DataFileContent

    return file.file_path.removeprefix(f"{root}/") if file.content == DataFileContent.DATA else file.file_path


def garbage(io: BucketIO, before: TableMetadata, after: TableMetadata) -> Iterator[str]:
    """Yield the URIs of metadata that `before` needed and `after`, the next version of the table, does not."""
    yield from {one.metadata_file for one in before.metadata_log} - {one.metadata_file for one in after.metadata_log}
    left = {one.snapshot_id for one in after.snapshots}
    expired = [one for one in before.snapshots if one.snapshot_id not in left]
    if expired:
        needed = {each_.manifest_path for one in after.snapshots for each_ in one.manifests(io)}
        yield from {each_.manifest_path for one in expired for each_ in one.manifests(io)} - needed
        yield from (one.manifest_list for one in expired)
