"""Files of tables, and of rejects, as the records of commits name them."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, Struct, field

from bridge.exact_json import LARGEST

Count = Annotated[int, Meta(ge=-LARGEST, le=LARGEST)]
"""A number of rows, bytes or commits: one that can be added up, shown and put into a column."""

UNKNOWN = "(unknown)"
"""The field of keys that a newer version has added."""


class LiveFile(Struct, frozen=True, omit_defaults=True, gc=False):
    """A file of a table, as far as the log knows its rows."""

    size: Count
    """Bytes."""
    rows: Count
    version: int | None = None
    """The Singer `version` of all its rows. Absent where they have none, or where a column says it row by row."""
    deleted: Count = 0
    """1: all of its rows say that they are deleted."""
    stale: Count = 0
    """1: its rows are of an older version, and the next commit has to mark them as deleted."""


class FileAdd(Struct, frozen=True, omit_defaults=True, kw_only=True, gc=False):
    """A file that a commit adds to a table."""

    name: str
    """Its name in the table's folder, with Hive's folders of its partition."""
    source: str
    """The key of its bytes before they are published: pending, in the trash, or where they are to be already."""
    size: Count
    """Bytes."""
    rows: Count
    upload: str = ""
    """The upload that becomes visible by the commit. Absent where `source` is a file."""
    version: int | None = None
    """As in `LiveFile`."""
    deleted: Count = 0
    """As in `LiveFile`."""
    stale: Count = 0
    """As in `LiveFile`."""
    rewritten: bool = False
    """Its rows were in the table already: the file was written again with newer columns."""

    @classmethod
    def of(cls, name: str, source: str, file: LiveFile) -> FileAdd:
        """A file that comes back to a table, with all that was known of its rows."""
        return cls(
            name=name,
            source=source,
            size=file.size,
            rows=file.rows,
            version=file.version,
            deleted=file.deleted,
            stale=file.stale,
        )

    @property
    def live(self) -> LiveFile:
        """The part of it that the table's state keeps."""
        return LiveFile(self.size, self.rows, self.version, self.deleted, self.stale)


class PendingFile(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A file that was written and is in no table yet, as the worker reports it and a staged table names it."""

    stream: str
    name: str
    """As in `FileAdd`."""
    source: str
    """The key of its bytes."""
    size: Count
    """Bytes."""
    rows: Count
    extra: bool
    """It has the column for fields outside the SCHEMA."""
    columns: str
    """The types of its columns as text, to tell whether it fits a later schema."""
    version: int | None = None
    """As in `LiveFile`."""
    upload: str = ""
    """As in `FileAdd`."""
    unknown: dict[str, Any] = field(default_factory=dict, name=UNKNOWN)
    """Keys of a newer version."""

    def add(self, version: int | None = None, *, deleted: int = 0, stale: int = 0, rewritten: bool = False) -> FileAdd:
        """The same file as a commit adds it; its own `version` goes before the one given."""
        return FileAdd(
            name=self.name,
            source=self.source,
            size=self.size,
            rows=self.rows,
            upload=self.upload,
            version=version if self.version is None else self.version,
            deleted=deleted,
            stale=stale,
            rewritten=rewritten,
        )


class RejectFile(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A file of rejects, with enough to list it unread."""

    commit: Count | None = None
    """The commit that first named it. Absent in that commit itself."""
    stream: str | None
    """None: lines of the tap that are no Singer messages."""
    file: str
    """Its key."""
    lines: Count
    """Rejects in it."""
    reasons: dict[str, tuple[Count, Count]]
    """By reason, how many rejects and how many bytes."""
    refused: bool = False
    """The guard refused the commit of its stream's rows, so the next run brings the same records again."""
    unknown: dict[str, Any] = field(default_factory=dict, name=UNKNOWN)
    """Keys of a newer version."""

    @property
    def run(self) -> str:
        """The run that wrote it, which its key names."""
        return self.file.rpartition("/")[2].rpartition("-")[0]
