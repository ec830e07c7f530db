"""A table as readers see it: its columns, and where an engine finds it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from bridge.lake.table_columns import Entry
from bridge.settings.values.stores import AzureOptions, GcsOptions, S3Options


@dataclass(frozen=True, slots=True)
class Table:
    """The table to read: its columns, and where the engine finds it.

    `bucket` is the bucket as the engine sees it; `own` is its URI here, which manifests hold. Of `s3`, the server and
    its region count; of `azure`, the account and its endpoint; of `gcs`, the server. Files of a `partitioned` table are
    in folders, but still have all columns: an engine must not look for columns in the folders' names, whose types it
    would have to guess.
    """

    folder: str
    columns: list[Entry]
    bucket: str
    own: str
    s3: S3Options = field(default_factory=S3Options)
    partitioned: bool = False
    azure: AzureOptions = field(default_factory=AzureOptions)
    gcs: GcsOptions = field(default_factory=GcsOptions)

    @property
    def name(self) -> str:
        """A name that every engine takes; two tables get different names if they differ in more than punctuation."""
        plain = re.sub(r"\W+", "_", self.folder.rsplit("/", 1)[-1], flags=re.ASCII).strip("_").lower()
        return plain if re.match(r"[a-z]", plain) else f"t_{plain}"

    @property
    def path(self) -> str:
        return f"{self.bucket}/{self.folder}"

    @property
    def manifest(self) -> str:
        return f"{self.bucket}/.bridge/tables/{self.folder}.manifest"

    @property
    def symlinks(self) -> str:
        """The folder of the manifest's copy, with nothing else in it: Hive takes folders, not files."""
        return f"{self.bucket}/.bridge/tables/{self.folder}.symlinks"


def file_uri(path: str) -> str:
    """A path of this machine as a URI; a URI stays as it is."""
    return path if "://" in path else f"file://{path}"


def inside(uri: str) -> str:
    """Container or bucket, and path, of a URI in a store, as pyarrow names a file."""
    place, _, path = uri.partition("://")[2].partition("/")
    return f"{place.partition('@')[0]}/{path}"
