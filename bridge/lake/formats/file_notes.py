"""The notes in the metadata of our Parquet files: how the rows are sorted, and the statistics that a footer lacks.

The order: Parquet's own `sorting_columns` are not used: those of files that an older version merged by key may be
wrong. The statistics: bounds of texts beyond 4 KiB, and NaN.
Arrow writes no bounds for a row group with such a text, and ignores NaN in the bounds of numbers, so that our writer
takes them out. A table format's statistics are made from the footer alone, so the writer notes both in the file's
metadata, under `KEY`, while it has the rows. Of a file without that note, from somebody else or a version before it,
neither is known.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import orjson

if TYPE_CHECKING:
    import pyarrow as pa

KEY = b"singer-bridge.bounds"
"""The note's name among a Parquet file's metadata. Its value is JSON: `[{"column": [...], "min", "max", "nan"}]`."""
_SORTED = b"singer-bridge.sort_by"
"""The name of another note. Its value is JSON: the setting `sort_by`."""
_LONGEST = 64
"""Characters of a text that are a bound; more would only make the table's log longer."""
_LAST = "\U0010ffff"
_FOOTER_BYTES = 4096
"""Bytes of a text from which on Arrow's footers have no bounds."""

Path = tuple[str, ...]
"""A column: its name, below those of the structs that it is in."""


def order_note(sort_by: Sequence[str]) -> dict[bytes, bytes]:
    """The note to keep in a file whose row groups are sorted so; empty without an order."""
    return {_SORTED: orjson.dumps(list(sort_by))} if sort_by else {}


def read_order(metadata: dict[bytes, bytes] | None) -> tuple[str, ...]:
    """The order within each row group of a file; empty without a note. Raises `ValueError` for one that is not ours."""
    order = orjson.loads((metadata or {}).get(_SORTED, b"[]"))
    if not isinstance(order, list) or not all(isinstance(one, str) for one in order):
        raise ValueError("not an order")
    return tuple(order)


def at_least(text: str) -> str:
    """A lower bound of a text: its beginning."""
    return text[:_LONGEST]


def at_most(text: str) -> str:
    """A short upper bound of `text` in the order of code points, which is also that of UTF-8."""
    cut = _LONGEST
    while text[cut : cut + 1] == _LAST:  # no character is greater than this one: cut after it
        cut += 1
    return text if len(text) <= cut else text[:cut] + _LAST


class MissingStats:
    """Collects, over the row groups of one file, what its footer will leave out."""

    def __init__(self) -> None:
        self.texts: dict[Path, tuple[str, str]] = {}
        self.nans: set[Path] = set()

    @classmethod
    def read(cls, metadata: dict[bytes, bytes] | None) -> MissingStats:
        """Read the note of a file; empty without one. Raises `ValueError` for a note that is not ours."""
        missing = cls()
        for entry in orjson.loads((metadata or {}).get(KEY, b"[]")):
            path = tuple(entry["column"])
            if "min" in entry:
                missing.texts[path] = entry["min"], entry["max"]
            if "nan" in entry:
                missing.nans.add(path)
        return missing

    def observe(self, rows: pa.Table) -> Iterator[int]:
        """Take in the rows of one row group; yield the places of the file's columns that have NaN in it."""
        import pyarrow as pa
        import pyarrow.compute as pc

        for place, (path, values) in enumerate(leaves(rows)):
            if pa.types.is_floating(values.type):
                if pc.any(pc.is_nan(values)).as_py():
                    if path:
                        self.nans.add(path)
                    yield place
            elif path and pa.types.is_string(values.type) and values.nbytes > _FOOTER_BYTES:
                longest = pc.max(pc.binary_length(values)).as_py()
                if longest is None or longest < _FOOTER_BYTES:  # None: no row has a text
                    continue
                ends = pc.min_max(values).as_py()
                low, high = at_least(ends["min"]), at_most(ends["max"])
                old_low, old_high = self.texts.get(path, (low, high))
                self.texts[path] = min(low, old_low), max(high, old_high)

    def to_metadata(self) -> dict[bytes, bytes]:
        """The note to keep in the file; empty if the footer leaves nothing out."""
        entries: list[dict[str, Any]] = [
            {"column": path, "min": low, "max": high} for path, (low, high) in self.texts.items()
        ]
        entries += [{"column": path, "nan": True} for path in sorted(self.nans)]
        return {KEY: orjson.dumps(entries)} if entries else {}


def leaves(rows: pa.Table) -> Iterator[tuple[Path, pa.ChunkedArray]]:
    """Yield each of the file's columns, in its order. One inside a list has no path."""
    for field, values in zip(rows.schema, rows.columns, strict=True):
        yield from _inside((field.name,), values)


def _inside(path: Path, values: pa.ChunkedArray) -> Iterator[tuple[Path, pa.ChunkedArray]]:
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_struct(values.type):
        for at, field in enumerate(values.type):
            yield from _inside((*path, field.name) if path else (), pc.struct_field(values, [at]))
    elif pa.types.is_map(values.type):  # a table has none, an answer may
        yield from _inside((), pa.chunked_array([part.keys for part in values.chunks], values.type.key_type))
        yield from _inside((), pa.chunked_array([part.items for part in values.chunks], values.type.item_type))
    elif any(
        is_list(values.type) for is_list in (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    ):
        yield from _inside((), pc.list_flatten(values))
    else:
        yield path, values
