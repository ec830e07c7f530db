"""The facts about one stream's table that a worker needs to write its files."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bridge.load.write.partition import Partition
from bridge.load.write.row_window import RowWindow

if TYPE_CHECKING:  # workers need no settings
    from bridge.settings.options import Pipeline

_FILE_SIZE = 128 << 20


@dataclass(frozen=True, slots=True)
class TableLayout:
    """Where a stream's rows go, and how they lie there. Pickled to executors."""

    folder: str
    """The table's folder in the bucket."""
    format: str = "parquet"
    """`parquet`, `delta` or `iceberg`. In the folder of the latter two no file is replaced or moved."""
    partition_by: tuple[Partition, ...] = ()
    """The parts of the names of folders below the table's; empty: there are none."""
    sort_by: tuple[str, ...] = ()
    """Columns by which rows are sorted within a row group, the most important first; `-` before one: descending."""
    file_size: int = _FILE_SIZE
    """Bytes at which a file is closed and the next one begun, about."""
    metadata: bool = False
    """Rows get the Singer SDK's metadata columns."""
    transform: str | None = None
    """The SQL that rows go through before they are written; None: as they are."""
    keys: tuple[str, ...] = ()
    """Properties that make a row's key: the table keeps the last row of each. Empty: rows are only added."""
    changes: bool = False
    """Records are changes of rows: a column that one lacks keeps its value. False: it becomes null."""
    readable: bool = False
    """Pending files can be read before their commit: a view does that."""
    hard_delete: bool | None = None
    """True: rows that the tap reports as deleted go. False: they stay, with the time of it. None: not set."""
    watched: tuple[str, ...] = ()
    """Properties that tell the tap which rows have changed: rows without one are counted."""
    window: RowWindow | None = None
    """Only these rows are loaded; where rows are only added, they replace those that the table has."""

    @property
    def merges_changes(self) -> bool:
        """Whether what a record lacks is looked for: the SQL of a transform makes whole rows."""
        return self.changes and self.transform is None

    @classmethod
    def of(
        cls, pipeline: Pipeline, stream: str, folder: str, table_format: str, partition_by: Iterable[Any]
    ) -> TableLayout:
        """Take what the settings say of a stream. `partition_by` is as settings and commit log write it."""
        options = pipeline.stream(stream)
        return cls(
            folder,
            table_format,
            partition_by=tuple(Partition.read(one) for one in partition_by),
            sort_by=tuple(options.sort_by or ()),
            file_size=options.file_size or pipeline.destination.file_size,
            metadata=pipeline.metadata(stream),
            transform=options.transform,
        )
