"""Which rows of files that an upsert wrote again differ from those that they replace, and which keys went.

Memory holds the keys, and 16 bytes of each row, of one file and the one that it replaces; in Delta's and Iceberg's
tables, where a new file does not tell which one it replaces, of all files that the commit removed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b

import pyarrow as pa
import pyarrow.compute as pc

from bridge.read.query.changes.json_text import objects, slices
from bridge.read.query.changes.parts import FilePart

_DIGEST = 16
"""Bytes."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows with all that tells them apart: their keys, also as text, and a digest of each row."""

    keys: pa.Table
    texts: pa.Array
    digests: pa.Array

    @classmethod
    def of(cls, files: Iterable[FilePart], keys: pa.Schema) -> Rows:
        pieces = [piece for file in files for piece in _pieces(file, keys)]
        return cls.joined(pieces, keys)

    @classmethod
    def of_slice(cls, rows: pa.Table, keys: pa.Schema) -> Rows:
        """Make it of the rows of one slice."""
        texts = objects(rows, exact=True).cast(pa.binary())
        digests = [blake2b(text, digest_size=_DIGEST).digest() for text in texts.to_pylist()]
        return cls(rows.select(keys.names), key_texts(rows, keys), pa.array(digests, pa.binary(_DIGEST)))

    @classmethod
    def joined(cls, pieces: Sequence[Rows], keys: pa.Schema) -> Rows:
        """The rows of all pieces, in their order."""
        return cls(
            pa.concat_tables([keys.empty_table(), *(piece.keys for piece in pieces)]),
            pa.concat_arrays([pa.array([], pa.large_string()), *(piece.texts for piece in pieces)]),
            pa.concat_arrays([pa.array([], pa.binary(_DIGEST)), *(piece.digests for piece in pieces)]),
        )

    def missing_in(self, texts: pa.Array) -> Rows:
        """The rows whose keys are not among these."""
        return self.filter(pc.invert(pc.is_in(self.texts, texts)))

    def filter(self, chosen: pa.Array) -> Rows:
        """The rows that are chosen; `chosen` says it of each."""
        return Rows(self.keys.filter(chosen), self.texts.filter(chosen), self.digests.filter(chosen))


def key_texts(rows: pa.Table, keys: pa.Schema) -> pa.Array:
    """The keys of the rows of one slice as text; those of which a merge says that they are equal are equal here."""
    own = rows.select(keys.names)
    plain = [pc.add(one, 0.0) if pa.types.is_floating(one.type) else one for one in own.columns]  # -0 is 0
    return objects(pa.table(plain, own.schema), exact=True).cast(pa.large_string())


def _pieces(file: FilePart, keys: pa.Schema) -> Iterator[Rows]:
    for table in file.tables():
        for rows in slices(table):
            yield Rows.of_slice(rows, keys)


def changed(old: Rows, new: Rows) -> pa.BooleanArray:
    """For each new row: true if no old row with its key has the same values.

    A key that several old rows have counts as changed: nobody knows which of them a reader has.
    """
    at = pc.index_in(new.texts, value_set=old.texts)
    same = pc.fill_null(pc.equal(old.digests.take(at), new.digests), False)
    counts = pc.value_counts(old.texts)
    doubled = counts.field("values").filter(pc.greater(counts.field("counts"), 1))
    return pc.invert(pc.and_not(same, pc.is_in(new.texts, doubled)))
