"""An Arrow dataset whose files Python opens, safe for engines that call it from threads of their own."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
from pyarrow import fs


class PythonDataset(ds.FileSystemDataset):  # type: ignore[misc]
    """A dataset of Parquet files on a Python file system.

    `Scanner.to_reader` of pyarrow 26 and before starts to read while it holds Python's lock. It waits for a thread
    that is to open a file, which waits for that lock, for ever. DuckDB calls it. `to_batches` lets the lock go.
    """

    @classmethod
    def of(cls, names: Iterable[str], schema: pa.Schema, files: fs.FileSystemHandler) -> PythonDataset:
        """The rows of the files as this schema has them; a column that a file lacks is null."""
        layout, system = ds.ParquetFileFormat(), fs.PyFileSystem(files)
        return cls([layout.make_fragment(name, system) for name in names], schema, layout, system)

    def scanner(self, *args: Any, **options: Any) -> Any:
        return _Scanner(super().scanner(*args, **options))


class _Scanner:
    """A `Scanner` whose reader lets Python's lock go while it waits."""

    def __init__(self, scanner: ds.Scanner) -> None:
        self._scanner = scanner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._scanner, name)

    def to_reader(self) -> pa.RecordBatchReader:
        return pa.RecordBatchReader.from_batches(self._scanner.projected_schema, self._scanner.to_batches())
