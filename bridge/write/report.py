"""What executors tell the driver, as JSON: of a bundle of segments, and of what failed.

Nothing here is stored. The driver accepts one report for each bundle, and only its files can be published.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct, field, json

from bridge.errors import BridgeError, DataError, EngineError, LakeError
from bridge.lake.records import PendingFile, RejectFile


class SegmentCount(Struct, frozen=True):
    """What became of one segment's lines."""

    file: str
    """The spool's file that the segment is in."""
    start: int
    """Where it begins there, in bytes."""
    rows: int
    rejects: int


class SpillFile(Struct, frozen=True):
    """Rows of an upsert, in the spool until a barrier merges them into the table."""

    stream: str
    name: str
    """In the spool's folder for spills."""
    spilled: int
    """Bytes on disk."""
    rows: int
    bytes: int
    """Of the rows in memory."""
    extra: bool
    """It has the column for fields outside the SCHEMA."""
    sample: str
    """Some keys, an Arrow stream in base64: how the keys are spread."""


class Rejected(Struct, frozen=True):
    """A reject file that a worker has written, and its first reject for the error of a run that has too many."""

    file: RejectFile
    first: dict[str, Any] = {}
    """`reason`, and as far as they are known `pointer`, `offset` and `value`, which is cut."""


class Failure(Struct, frozen=True):
    """An error of an executor."""

    type: str
    message: str
    hint: str


class WorkReport(Struct, omit_defaults=True, kw_only=True):
    """What was done of one bundle: each of its lines is a row, a reject, or filtered out."""

    counts: list[SegmentCount] = []
    """One for each segment."""
    files: list[PendingFile] = []
    """Files that a commit can name."""
    spills: list[SpillFile] = []
    """Files that have to be merged first."""
    rejects: list[Rejected] = []
    extra: dict[str, dict[str, int]] = {}
    """By stream, fields outside its SCHEMA, and how many records have them."""
    versions: dict[str, list[int | None]] = {}
    """By stream, the Singer `version`s of its RECORDs; null: there were some without."""
    folders: dict[str, int] = {}
    """By stream, over how many folders of partitions its rows are spread."""
    filtered: dict[str, int] = {}
    """By stream, lines that the statement of its transform left out."""
    made: list[tuple[str, str, str]] = []
    """A stream, the schema that was read, and the one that a statement made of it."""
    failed: Failure | None = field(default=None)
    """What went wrong; then nothing else counts."""

    @property
    def rows(self) -> int:
        """Rows in all of its files."""
        return sum(file.rows for file in self.files) + sum(spill.rows for spill in self.spills)


read_report = json.Decoder(WorkReport).decode
"""Reads a report. Made at import: two threads that meet a type first at the same time crash msgspec."""

_KINDS: dict[str, type[BridgeError]] = {kind.__name__: kind for kind in (DataError, EngineError, LakeError)}


def failure(error: BridgeError) -> WorkReport:
    """Turn an error into a report: retrying what an operator must repair would only cost time."""
    return WorkReport(failed=Failure(type(error).__name__, error.message, error.hint))


def raise_failure(failed: Failure | None) -> None:
    """Raise again, on the driver, the error that an executor reported."""
    if failed:
        raise _KINDS.get(failed.type, EngineError)(failed.message, hint=failed.hint)
