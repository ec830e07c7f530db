"""Arrow datasets whose rows Python reads, safe for engines that call them from threads of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
from pyarrow import fs

from bridge.errors import BridgeError


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


class LazyRows(ds.InMemoryDataset):  # type: ignore[misc]
    """A dataset whose rows are made when they are read for the first time; until then only its columns are known."""

    _make: Callable[[], pa.Table]
    _rows: ds.Dataset | None = None
    _failed: BridgeError | None = None

    @classmethod
    def of(cls, schema: pa.Schema, make: Callable[[], pa.Table]) -> LazyRows:
        """The rows that `make` returns. A `BridgeError` that it raises is raised again by `raise_failed`."""
        self: LazyRows = cls(schema.empty_table())
        self._make = make
        return self

    def scanner(self, *args: Any, **options: Any) -> Any:
        try:
            self._rows = self._rows or ds.dataset(self._make())
        except BridgeError as error:
            self._failed = error
            raise
        return self._rows.scanner(*args, **options)

    def raise_failed(self) -> None:
        """Raise what kept the rows from being made, if anything did: engines keep only the text of an error."""
        failed, self._failed = self._failed, None
        if failed is not None:
            raise failed
