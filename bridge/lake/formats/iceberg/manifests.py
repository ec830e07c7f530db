"""The parts of a snapshot of an Iceberg table: manifests, which name its files, and the list of these.

All of it is new files with names that are never used again; nothing is visible before a catalog names the table's next
metadata. A writer that crashes, or that loses the race, leaves only unused files.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from bridge.lake.formats.file_notes import MissingStats, read_order
from bridge.lake.records import TableState
from bridge.lake.storage.parallel import parallel_map

if TYPE_CHECKING:
    import pyarrow.parquet as pq
    from pyiceberg.io.fileformat import DataFileStatistics
    from pyiceberg.manifest import DataFile, ManifestEntry, ManifestFile
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.snapshots import Snapshot

    from bridge.lake.formats.iceberg.io import BucketIO
    from bridge.lake.formats.iceberg.layout import IcebergLayout

_MOST_MANIFESTS = 100
"""More of them are brought together in one, as a reader reads each; Iceberg's own default."""
_CODEC: Any = "gzip"


@dataclass(frozen=True, slots=True)
class SnapshotFiles:
    """The change of a snapshot: `table` is as it will be, in the folder `root`, a URI; `old` are its files now."""

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


def snapshot(
    files: SnapshotFiles, metadata: TableMetadata | None, layout: IcebergLayout, summary: dict[str, str]
) -> Snapshot:
    """Write what a new snapshot is made of and return it; `summary` says of which commit it is, and of what kind.

    `layout` gets the specs and the orders that the new files need.
    """
    from pyiceberg.manifest import write_manifest_list
    from pyiceberg.table.snapshots import Snapshot, Summary

    number = uuid.uuid4().int >> 65
    sequence = sequence_of(metadata) + 1 if metadata else 1
    parent = metadata.current_snapshot_id if metadata else None
    write = _Writer(files, layout, number)
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
        "schema-id": layout.schema.schema_id,
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


def _operation(kind: str, files: SnapshotFiles) -> Any:
    from pyiceberg.table.snapshots import Operation

    if kind == "compact":
        return Operation.REPLACE
    if not files.removed:
        return Operation.APPEND
    return Operation.OVERWRITE if files.added else Operation.DELETE


def _counted(files: SnapshotFiles) -> dict[str, str]:
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


@dataclass(frozen=True, slots=True)
class _Footer:
    """The facts in a file's footer; empty where it cannot be used."""

    statistics: DataFileStatistics | None = None
    serialized: dict[str, Any] = field(default_factory=dict)
    sort_by: tuple[str, ...] = ()
    row_groups: int = 0


class _Writer:
    """Writes the manifests of one snapshot."""

    def __init__(self, files: SnapshotFiles, layout: IcebergLayout, number: int) -> None:
        self.files, self.layout, self.number = files, layout, number
        self.id = uuid.uuid4()
        self._count = 0

    def new(self) -> list[ManifestFile]:
        """Write those with the files that come: one for each spec. The table takes the order that all of them have."""
        from pyiceberg.manifest import ManifestEntryStatus

        names = self.files.added
        footers = parallel_map(self.files.io.storage, self._footer, names)
        orders = [self.layout.order_of(footer.sort_by) for footer in footers]
        if orders and all(order == orders[0] for order in orders):
            self.layout.order = orders[0]
        made: dict[int, list[Any]] = {}
        for name, footer, order in zip(names, footers, orders, strict=True):
            sorted_ = bool(order.fields) and footer.row_groups == 1 and self.layout.is_total(order)
            file = self._data_file(name, footer, order.order_id if sorted_ else None)
            made.setdefault(file.spec_id, []).append((ManifestEntryStatus.ADDED, file))
        return [self._written(entries, number) for number, entries in made.items()]

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
            left += [(ManifestEntryStatus.DELETED, entry) for entry in deleted]
            stay.append(self._written(left, manifest.partition_spec_id))
        if len(stay) <= _MOST_MANIFESTS:
            return stay
        live: dict[int, list[Any]] = {}
        for one in stay:
            entries = _entries(self.files.io, one)
            live.setdefault(one.partition_spec_id, []).extend((ManifestEntryStatus.EXISTING, each) for each in entries)
        return [self._written(entries, number) for number, entries in live.items() if entries]

    def _written(self, entries: list[tuple[Any, Any]], spec_id: int) -> ManifestFile:
        """Write a manifest with entries of one spec; there is at least one."""
        from pyiceberg.manifest import ManifestEntry, ManifestEntryStatus, write_manifest

        self._count += 1
        output = self.files.io.new_output(f"{self.files.root}/metadata/{self.id}-m{self._count}.avro")
        spec, schema = self.layout.spec_by_id(spec_id)
        with write_manifest(2, spec, schema, output, self.number, _CODEC) as writer:
            for status, entry in entries:
                if status == ManifestEntryStatus.EXISTING:
                    writer.existing(entry)
                elif status == ManifestEntryStatus.DELETED:
                    writer.delete(entry)
                else:
                    new = {"status": status, "snapshot_id": self.number, "data_file": entry}
                    writer.add_entry(ManifestEntry.from_args(**new, sequence_number=None, file_sequence_number=None))
        return writer.to_manifest_file()

    def _data_file(self, name: str, footer: _Footer, sort_order_id: int | None) -> DataFile:
        from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
        from pyiceberg.typedef import Record

        file, layout = self.files.table.files[name], self.layout
        partition = layout.partition_of(footer.statistics) if footer.statistics else None
        facts: dict[str, Any] = {"record_count": file.rows} | footer.serialized
        made = DataFile.from_args(
            content=DataFileContent.DATA,
            file_path=f"{self.files.root}/{name}",
            file_format=FileFormat.PARQUET,
            partition=Record() if partition is None else partition,
            file_size_in_bytes=file.size,
            sort_order_id=sort_order_id,
            equality_ids=None,
            key_metadata=None,
            **facts,
        )
        made.spec_id = (layout.flat if partition is None else layout.spec).spec_id
        return made

    def _footer(self, name: str) -> _Footer:
        import pyarrow.parquet as pq

        key = self.files.io.key(f"{self.files.root}/{name}")
        with suppress(KeyError, ValueError, TypeError):  # without bounds a file is read more often, and never wrongly
            with self.files.io.storage.open(key) as file:
                footer = pq.read_metadata(file)
            statistics = self._statistics(footer)
            sort_by = read_order(footer.metadata)
            return _Footer(statistics, statistics.to_serialized_dict(), sort_by, footer.num_row_groups)
        return _Footer()

    def _statistics(self, footer: pq.FileMetaData) -> DataFileStatistics:
        from pyiceberg.io.pyarrow import (
            MetricModeTypes,
            MetricsMode,
            compute_statistics_plan,
            data_file_statistics_from_parquet_metadata,
            parquet_path_to_id_mapping,
        )

        schema = self.layout.schema
        plan, paths = compute_statistics_plan(schema, {}), parquet_path_to_id_mapping(schema)
        for one in self.layout.spec.fields:  # pyiceberg takes a column with a dot in its name for one in a struct
            plan[one.source_id] = replace(plan[one.source_id], mode=MetricsMode(MetricModeTypes.FULL))
        statistics = data_file_statistics_from_parquet_metadata(footer, plan, paths)
        for path in _boundless(footer):
            statistics.column_aggregates.pop(paths[path], None)
        return statistics


def _boundless(footer: pq.FileMetaData) -> Iterator[str]:
    """Yield the columns without bounds: pyiceberg would take those of other row groups for the whole file's.

    And those with NaN, whose bounds leave it out in files of older versions. How many NaN a file has is not said: of a
    file with nothing else Iceberg would claim that no value is greater than 5, where NaN is for Spark.
    """
    nans = {".".join(path) for path in MissingStats.read(footer.metadata).nans}
    for at in range(footer.num_columns):
        chunks = [footer.row_group(group).column(at) for group in range(footer.num_row_groups)]
        name = footer.schema.column(at).path
        if name in nans or not all(map(_has_bounds, chunks)):
            yield name


def _has_bounds(chunk: pq.ColumnChunkMetaData) -> bool:
    statistics = chunk.statistics
    if statistics is None or not statistics.has_null_count:
        return False
    return bool(statistics.has_min_max or statistics.null_count == chunk.num_values)


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
