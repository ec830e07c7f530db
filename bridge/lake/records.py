"""The contents of a commit: every type that the commit log holds, field by field.

`.bridge/<pipeline>/commits/<n>.json` is a `CommitRecord`. It is created once and never changed. A key that is absent
from the JSON has the field's default here, and a field that has its default is left out; key order is field order.
STATE is opaque: no digit of it changes.

`record_json.py` reads and writes them. What later records repeat (`StagedTable`, `PendingFile`, `RejectFile`,
`TapGroup`) keeps the keys that a newer version of the same format may have added.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from msgspec import UNSET, Struct, field

from bridge.lake.file_records import UNKNOWN, Count, FileAdd, LiveFile, PendingFile, RejectFile
from bridge.protocol.singer.state import bookmark

FORMAT = 1
PLAIN = "parquet"
"""The table format that has no log of its own: the files in the folder are the table."""

HIDDEN = "_view_"
"""How the names of a view's columns begin that are its state, and not for readers."""


def _null() -> None:
    """A default that is written all the same: of defaults that a function gives, msgspec leaves out none."""


def _empty() -> dict[str, Any]:
    """An empty dict, for the same purpose as `_null`."""
    return {}


class StagedTable(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The first part of an overwrite that is not complete: durable files that no reader sees."""

    version: int
    """The Singer `version` of its rows."""
    schema: str
    """The hash under which its columns are kept."""
    folder: str = field(default_factory=str)
    """The table's folder."""
    files: list[PendingFile]
    rejects: Sequence[RejectFile] = ()
    """Reject files of the same rows, which count when these are published. Absent: none."""
    partition_by: tuple[Any, ...] | None = None
    """As in `TableChange`."""
    unknown: dict[str, Any] = field(default_factory=dict, name=UNKNOWN)
    """Keys of a newer version."""


class TapGroup(Struct, frozen=True, omit_defaults=True):
    """The streams of one process of a parallel tap, by their ids, and the whole STATE of that process."""

    streams: tuple[str, ...]
    state: Any = field(default_factory=_null)
    unknown: dict[str, Any] = field(default_factory=dict, name=UNKNOWN)
    """Keys of a newer version."""

    def covers(self, other: TapGroup) -> bool:
        """Whether streams that were not in this group stand in its STATE where the other one has them."""
        new = set(other.streams) - set(self.streams)
        return all(bookmark(self.state, stream) == bookmark(other.state, stream) for stream in new)

    @property
    def label(self) -> str:
        """Its streams, for people: the first of many."""
        more = len(self.streams) - 3
        return ", ".join(self.streams[:3]) + (f" and {more} more" if more > 0 else "")


class Watermark(Struct, frozen=True, omit_defaults=True):
    """How far the windows of a view have come. Both are microseconds since 1970."""

    latest: int
    """The greatest time of a row that ever came. It never falls."""
    closed: int | None = None
    """Windows that end by then are closed: they are in the table of closed windows. Absent: none ever closed."""


class TableChange(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The change that a commit makes to one table. `TableState.change` makes it.

    A name under both `adds` and `removes` is a file that is replaced under its name.
    """

    stream: str
    folder: str
    """The table's folder, a key without a slash at its end."""
    schema: str | None
    """The hash under which the table's columns are kept. None: the table has none after this commit."""
    version: int | None = field(default_factory=_null)
    """The Singer `version` that the table has after this commit. None: its rows have none."""
    mode: Literal["append", "replace"]
    """`replace`: the table is exchanged as a whole."""
    adds: list[FileAdd]
    removes: list[str]
    """Names of files that are of the table no longer."""
    aborts: Sequence[FileAdd] = ()
    """Pending files of a commit that is taken back. Absent in any other kind than `void`."""
    shared: bool = False
    """Other pipelines write to the folder, too. Absent: none does."""
    merged: dict[str, Count] = {}
    """How many `rows` came for an upsert, and how many were `inserted`, `updated`, `superseded` by a later one with the
    same key, or `deleted`; `swept`: rows of older versions that went or were marked; `dropped`: rows that went as more
    than one had the key of a new row, `dropped_nulls`: those whose key has a null. Of a
    view `late`: rows that came too late for their window. Absent: rows were only added."""
    partition_by: tuple[Any, ...] | None = None
    """How the table's folders are named, as the settings have it. Absent: as before, or not at all."""
    format: str = PLAIN
    """The table format. Absent: plain Parquet."""
    view: str = ""
    """The SELECT whose result the table holds after this commit. Absent: the table holds a stream's rows."""
    upserts: bool | None = None
    """Whether rows that come are merged into the table by key. Absent: an older version loaded it and did not say."""
    key: tuple[str, ...] = ()
    """The columns by which each row is there once after this commit. Absent: none, or it is not certain."""
    watermark: Watermark | None = None
    """Of a view with `keep` or `lateness`."""
    closes: str = ""
    """The view whose closed windows the table holds. Absent: it is no such table."""
    masks: dict[str, str] = {}
    """How the rows' values are masked, as far as it matters which rows are alike: `*` has the id of the key by which
    values are hashed, a column of the key `hash`. Absent: no value is hashed."""

    @property
    def is_of_view(self) -> bool:
        """Whether the table holds what a view makes of rows, and no stream's rows."""
        return bool(self.view or self.closes)

    @property
    def has_own_log(self) -> bool:
        """Whether the table format has a log of its own, so that files that go stay where they are for a while."""
        return self.format != PLAIN

    @property
    def replaces(self) -> bool:
        """Whether the table is exchanged as a whole."""
        return self.mode == "replace"

    @property
    def new_rows(self) -> int:
        """Rows that came: not those of files that were only written again."""
        if "rows" in self.merged:
            return self.merged["rows"]
        removed = set(self.removes)
        return sum(add.rows for add in self.adds if add.name not in removed and not add.rewritten)


class TableState(Struct, frozen=True, omit_defaults=True):
    """A table after a commit, as the log says it is, and as a snapshot holds it."""

    folder: str
    schema: str | None
    """As in `TableChange`."""
    files: dict[str, LiveFile] = field(default_factory=_empty)
    """By name, as in `FileAdd`."""
    version: int | None = field(default_factory=_null)
    """The one that the RECORDs of an overwrite carried, or that was activated last. None: neither."""
    format: str = PLAIN
    """As in `TableChange`."""
    partition_by: tuple[Any, ...] = ()
    """The partitions that the settings had at the first commit. Absent: no folders."""
    view: str = ""
    """As in `TableChange`."""
    upserts: bool | None = None
    """As in `TableChange`."""
    key: tuple[str, ...] = ()
    """As in `TableChange`."""
    watermark: Watermark | None = None
    """As in `TableChange`."""
    closes: str = ""
    """As in `TableChange`."""
    masks: dict[str, str] = {}
    """As in `TableChange`."""

    @property
    def is_of_view(self) -> bool:
        return bool(self.view or self.closes)

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files.values())

    @property
    def has_own_log(self) -> bool:
        return self.format != PLAIN

    def hides(self, column: str) -> bool:
        """Whether a column is state of the view that the table holds, and not for readers."""
        return bool(self.view) and column.startswith(HIDDEN)

    def change(
        self,
        stream: str,
        adds: Sequence[FileAdd] = (),
        removes: Sequence[str] = (),
        *,
        replaces: bool = False,
        aborts: Sequence[FileAdd] = (),
        shared: bool = False,
        merged: dict[str, int] | None = None,
        partition_by: tuple[Any, ...] | None = None,
    ) -> TableChange:
        """Build what a commit does to a table that has this one's folder, columns, version, format and key after it."""
        return TableChange(
            stream=stream,
            folder=self.folder,
            schema=self.schema,
            version=self.version,
            mode="replace" if replaces else "append",
            adds=list(adds),
            removes=list(removes),
            aborts=aborts,
            shared=shared,
            merged=merged or {},
            partition_by=partition_by,
            format=self.format,
            view=self.view,
            upserts=self.upserts,
            key=self.key,
            watermark=self.watermark,
            closes=self.closes,
            masks=self.masks,
        )

    def after(self, change: TableChange) -> TableState:
        """The table after one more commit."""
        files = dict(self.files)
        for name in change.removes:
            files.pop(name, None)
        files |= {add.name: add.live for add in change.adds}
        by = self.partition_by if change.partition_by is None else change.partition_by
        more = change.view, change.upserts, change.key, change.watermark, change.closes, change.masks
        return TableState(change.folder, change.schema, files, change.version, change.format, by, *more)


class CommitRecord(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One commit. Of a list, `()` stands for an absent key."""

    format: int = field(default_factory=lambda: FORMAT)
    """The version of the record's format. A reader refuses a higher one."""
    n: Count
    """The commit's number, without gaps from 1. It is the record's name, too."""
    kind: str
    """`data`: rows of a run. `fence`: a run began after one that died; changes nothing. `state`: another STATE.
    `void`: takes back a commit that lost files before they were visible. `rollback`, `compact`, `replay` of rejects,
    `purge` of rejects, `forget`: rows of a key went for good."""
    run: str
    """The id of the run that made it."""
    generation: Count
    """The number of the fence that opened the run, or of the last commit before it; part of every file name."""
    nonce: str
    """Random: whether a put whose outcome is unknown was ours."""
    at: str
    """When it was made: ISO 8601 in UTC, to the millisecond."""
    state: Any
    """The STATE whose rows are in the lake after this commit, as the tap said it. None: no STATE yet."""
    staged: dict[str, StagedTable] = field(default_factory=_empty)
    """By stream, all tables that are half loaded after this commit."""
    groups: list[TapGroup] | None = None
    """The processes of a parallel tap; `state` is then what is shown for all. Empty: changed by hand since. Absent: the
    STATE is one tap's."""
    tables: Sequence[TableChange] = ()
    """Absent in kinds that change no table: `fence` and `state`."""
    voids: Count | None = None
    """The number of the commit that a `void` takes back. Absent in other kinds."""
    uncovered: Sequence[str] = ()
    """Streams with rows after the last STATE, which a tap restarted from it sends again. Absent: none."""
    merged: bool | None = None
    """Whether `state` joins the tap's STATE with bookmarks of other streams. Absent where no tap was read."""
    through: Count | None = None
    """The number of the last sealed batch in it, within its run. Absent where nothing was loaded."""
    rejects: Sequence[RejectFile] = ()
    """Reject files that count from this commit on. Absent in kinds that have none."""
    consumed: Sequence[str] = ()
    """Keys of reject files that count no longer. Absent where it can be none."""
    refused: str | None = None
    """Why the guard refused the rows: the commit has their rejects only. Absent: nothing was refused."""
    supersedes: bool = False
    """The `rollback` takes back rows that a target's tap sends again. Absent: it does not."""
    to: Count | None = None
    """The commit that a `rollback` goes back to. Absent in other kinds."""
    after: Count | None = None
    """In a `fence`: the last commit that is none, so that a row of fences is passed in one step. 0: there is none."""
    start: Count | None = None
    """In a `fence`: the commit from whose STATE the run's tap goes on; for targets only. 0: from the beginning."""
    given: Any = UNSET
    """In a `fence`: the STATE that the run's tap was given, if no commit has it; for targets only. A STATE may be null,
    so `UNSET` stands for an absent key."""
    reason: str | None = None
    """Why it was made, for people. Absent in `data` and `fence`."""
    looked_up: dict[str, Count] = {}
    """By pipeline, the commit in whose tables the rows of a `transform` were looked up. Absent: in none."""
    snapshot: dict[str, TableState] | None = None
    """All tables by stream after this commit, so that reading the lake starts here. In every 100th record only."""
    moved: dict[str, str] | None = None
    """When each bookmark last changed, as `at`. With `snapshot` only."""
    rejected: dict[str, RejectFile] | None = None
    """All reject files that count, by key. With `snapshot` only."""
