"""Reports of executors to the driver, as JSON. Nothing of them is stored.

The driver accepts one report for each bundle, and publishes only the files of that one.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct, field, json

from bridge.errors import BridgeError, DataError, EngineError, LakeError
from bridge.lake.file_records import PendingFile, RejectFile


class SegmentCount(Struct, frozen=True):
    """How many of one segment's lines became rows and rejects."""

    file: str
    """The segment's file in the spool."""
    start: int
    """Its first byte in that file."""
    rows: int
    rejects: int


class SpillFile(Struct, frozen=True):
    """Rows of an upsert, in the spool until a barrier merges them into the table."""

    stream: str
    name: str
    """As `shared_spool` has it."""
    spilled: int
    """Bytes of the file."""
    rows: int
    bytes: int
    """Of the rows in memory."""
    extra: bool
    """It has the column for fields outside the SCHEMA."""
    sample: str
    """Some of its keys, an Arrow stream in base64. They tell where to cut the table's keys into ranges."""


class RowChanges(Struct, frozen=True):
    """The rows that a file of the table lost and got as it was written again; none if `name` is empty."""

    old: str
    """The file's name in the table before."""
    new: str
    """Its name in the table now."""
    name: str = ""
    """The rows, in a file of `shared_spool`: each with its `CHANGE`, 1 or -1."""
    bytes: int = 0
    rows: int = 0


class Rejected(Struct, frozen=True):
    """A reject file that a worker has written."""

    file: RejectFile
    first: dict[str, Any] = {}
    """The first reject, for the error of a run that has too many: `reason`, and if known `pointer`, `offset`, `value`.
    A long value is cut."""


class Failure(Struct, frozen=True):
    """An error of an executor."""

    type: str
    message: str
    hint: str


class WorkReport(Struct, omit_defaults=True, kw_only=True):
    """The outcome of one bundle: each of its lines is a row, a reject, or filtered out."""

    counts: list[SegmentCount] = []
    """One for each segment."""
    files: list[PendingFile] = []
    """Files that a commit can name."""
    spills: list[SpillFile] = []
    """Files to be merged into a table first."""
    rejects: list[Rejected] = []
    extra: dict[str, dict[str, int]] = {}
    """By stream, how many records have a field outside the SCHEMA, by the field's name."""
    versions: dict[str, list[int | None]] = {}
    """By stream, the Singer `version`s of its RECORDs; null: some have none."""
    folders: dict[str, int] = {}
    """By stream, how many partition folders its rows went to."""
    changed: dict[str, dict[str, dict[str, int]]] = {}
    """By stream, kind and column, how many values the column cannot give back."""
    filtered: dict[str, int] = {}
    """By stream, lines that its transform left out."""
    made: list[tuple[str, str, str]] = []
    """By a transform: a stream, the schema that was read, and the schema of the result."""
    failed: Failure | None = field(default=None)
    """The failure, if any; then nothing else counts."""

    @property
    def rows(self) -> int:
        """In all of its files."""
        return sum(file.rows for file in self.files) + sum(spill.rows for spill in self.spills)


# Made at import: two threads that meet a type first at the same time crash msgspec.
read_report = json.Decoder(WorkReport).decode

_KINDS: dict[str, type[BridgeError]] = {kind.__name__: kind for kind in (DataError, EngineError, LakeError)}


def failure(error: BridgeError) -> WorkReport:
    """Report an error instead of raising it: Spark would try again what only an operator can repair."""
    return WorkReport(failed=Failure(type(error).__name__, error.message, error.hint))


def raise_failure(failed: Failure | None) -> None:
    """Raise, on the driver, the error that an executor reported."""
    if failed:
        raise _KINDS.get(failed.type, EngineError)(failed.message, hint=failed.hint)
