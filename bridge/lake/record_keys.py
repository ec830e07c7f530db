"""Which keys a commit record may name: files of its own pipeline, below folders that the pipeline may have.

Others may write to the bucket, but not make us read, move or delete what is elsewhere. So every key of a record is
checked here, once, when it is read.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

from bridge.lake.records import CommitRecord

_BAD = re.compile(r"\A(?:/|\Z)|//|/\Z|(?:\A|[/\\])\.\.?(?:[/\\]|\Z)|[\0\ud800-\udfff]")
"""No key: an empty part, `.` and `..`, a path from the root, and what no file can be called."""


def is_key(text: str) -> bool:
    """Whether a text is a key that leads to one place below the folder that it is of."""
    return _BAD.search(text) is None


def _are_keys(keys: Collection[str]) -> bool:
    """The same of many texts. A snapshot may name a hundred thousand files: one look at all of them clears most."""
    text = f"/{'/'.join(keys)}/"
    if text.isascii() and not any(suspect in text for suspect in ("//", "/.", "\\", "\0")):
        return True
    return all(map(is_key, keys))


def foreign_key(pipeline: str, record: CommitRecord) -> str | None:
    """A key of a record that its pipeline cannot have written, None if there is none."""
    for keys, places in _named(f".bridge/{pipeline}/", record):
        if keys and not (_are_keys(keys) and (not places or all(key.startswith(places) for key in keys))):
            return next(key for key in keys if not is_key(key) or not key.startswith(places or ""))
    for folder, schema in _tables(record):
        if folder.startswith(".") or not is_key(folder):  # readers see no folder with a dot
            return folder
        if schema is not None and ("/" in schema or not is_key(schema)):  # it is the name of a file
            return schema
    return None


def _named(own: str, record: CommitRecord) -> Iterator[tuple[Collection[str], tuple[str, ...]]]:
    """Yield the keys of files, with the folders in one of which they have to be; none for names in a table's folder."""
    hidden, rejects, rejected = (f"{own}pending/", f"{own}trash/"), (f"{own}rejects/",), record.rejected or {}
    for change in record.tables:
        yield change.removes, ()
        for files, places in ((change.adds, (*hidden, f"{change.folder}/")), (change.aborts, hidden)):
            if files:
                yield [file.name for file in files], ()
                yield [file.source for file in files], places
    for stage in record.staged.values():
        yield [file.name for file in stage.files], ()
        yield [file.source for file in stage.files], hidden
        yield [reject.file for reject in stage.rejects], rejects
    for table in (record.snapshot or {}).values():
        yield table.files, ()
    yield [reject.file for reject in record.rejects], rejects
    yield record.consumed, rejects
    yield rejected, rejects
    yield [reject.file for reject in rejected.values()], rejects


def _tables(record: CommitRecord) -> Iterator[tuple[str, str | None]]:
    """Yield the folder of each table, and the hash of its columns."""
    yield from ((change.folder, change.schema) for change in record.tables)
    yield from ((table.folder, table.schema) for table in (record.snapshot or {}).values())
    # An older version named no folder for staged rows.
    yield from ((stage.folder or "t", stage.schema) for stage in record.staged.values())
