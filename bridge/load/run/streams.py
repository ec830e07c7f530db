"""The plan of each stream of a run: made from settings, catalog and snapshot, and again when its SCHEMA comes.

Here, and nowhere else in a load, the settings are asked how a stream is called, replicated and loaded. Whoever needs
such a fact is given the plan.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import pyarrow as pa

from bridge.errors import BridgeError, DataError, SettingsError, did_you_mean
from bridge.lake.log import Snapshot
from bridge.lake.records import TableState
from bridge.load.run.masking import Masking
from bridge.load.run.tables.auto import load_method
from bridge.load.run.tables.column_plan import ColumnPlan, IncomingSchema, allows_null
from bridge.load.run.tables.declared import comes_in_part
from bridge.load.write.layout import TableLayout
from bridge.load.write.merge.versioning import Versioning
from bridge.protocol.schema.merging import Evolution
from bridge.protocol.schema.table_schema import TableSchema
from bridge.protocol.singer.catalog import (
    Catalog,
    declares_keys,
    entries_by_name,
    key_properties,
    replication_key,
    replication_method,
    root_facts,
)
from bridge.protocol.singer.messages import Schema
from bridge.protocol.singer.state import is_empty, is_flat, resume_point
from bridge.settings.destination import APPEND_ONLY, HISTORY, OVERWRITE, UPSERT, LoadMethod, StreamKeys
from bridge.settings.options import Pipeline
from bridge.settings.sql.transform import read_transform

NEW_KEY = "set key_properties for it under streams, to the key of all of its rows"
"""The remedy for a key that changes within a run."""
_NOWHERE = TableLayout("")


@dataclass(frozen=True, slots=True)
class StreamPlan:
    """How one run loads one stream."""

    name: str
    """As its messages call it."""
    names: tuple[str, ...]
    """All names that a STATE may have for it, its id in the catalog first."""
    method: LoadMethod = APPEND_ONLY
    """How this run loads it."""
    reason: str = ""
    usual: LoadMethod = APPEND_ONLY
    """How it is loaded without the flags of this run."""
    resumes: bool = False
    """Whether the tap names a column for its bookmark."""
    is_known: bool = False
    """Whether somebody says how it is replicated."""
    is_part: bool = False
    """Whether it is a child of which the tap sends only what changed in its parent, though it says FULL_TABLE."""
    keys: tuple[str, ...] = ()
    """The properties that make a row's key: those of the settings, else those that the tap declares."""
    bookmark: str = ""
    """The columns of its bookmark, for people."""
    resumes_by: tuple[str, ...] = ()
    """The columns of the bookmark, if it is known to be incremental."""
    settings: StreamKeys = field(default_factory=StreamKeys)
    setting: Literal["auto", LoadMethod] = "auto"
    """How the settings have it loaded."""
    replication: str | None = None
    """FULL_TABLE, INCREMENTAL or LOG_BASED, as the catalog says."""
    replication_key: str | None = None
    parent: str = ""
    """The stream whose bookmark may cover this one's rows."""
    evolution: Evolution = field(default_factory=Evolution)
    """How its table's columns may change."""
    layout: TableLayout = _NOWHERE
    """Where its rows go, once its table is decided on."""

    @property
    def word(self) -> str:
        """The load method of this run, as settings and people call it."""
        return HISTORY if self.method == UPSERT and self.setting == HISTORY else self.method

    @property
    def sweeps(self) -> bool:
        """Whether a complete version removes or marks older rows in place."""
        adds = self.method == APPEND_ONLY
        return self.method == UPSERT or (adds and self.layout.hard_delete is not None)

    @property
    def watched(self) -> tuple[str, ...]:
        """Columns that tell which rows have changed: the tap does not see again a row that has none."""
        return self.resumes_by if self.usual != OVERWRITE else ()

    @property
    def each_run(self) -> str:
        """Say in a few words how each further run changes the table."""
        if self.usual == OVERWRITE:
            return "replaces the table"
        if self.usual == UPSERT:
            what = "changes" if self.is_known or self.is_part else "all rows again"
            return f"{what}, {'versions' if self.history else 'merged'} by {', '.join(self.keys) or 'key'}"
        if self.is_known:
            return f"adds rows after its {self.bookmark}" if self.bookmark else "adds rows"
        return "a second run is refused: no key"

    @property
    def backfilled_by(self) -> str:
        """The property whose values a window of its rows is of. Raises `SettingsError` if it cannot be backfilled."""
        if self.usual == OVERWRITE:
            hint = f"load all of it: run -s {shlex.quote(self.name)}, without --backfill"
            what = "each run replaces the table, so no part of it is backfilled"
            raise SettingsError(what, hint=hint, stream=self.name)
        if self.history:
            hint = "set its bookmark back, by `singer-bridge state edit`: each row that comes again finds its version"
            raise SettingsError("a history table cannot be backfilled", hint=hint, stream=self.name)
        if len(self.resumes_by) != 1:
            hint = (
                "a window is of a replication key; `singer-bridge reconcile --apply` makes any table as its source is"
            )
            raise SettingsError("the stream has no replication key", hint=hint, stream=self.name)
        if self.parent:
            hint = f"its rows come with those of {self.parent}; `singer-bridge reconcile` compares the whole table"
            raise SettingsError("a child stream has no windows of its own", hint=hint, stream=self.name)
        if self.usual == APPEND_ONLY and self.settings.transform is not None:
            hint = "its rows in the table cannot be told from others: set load_method: upsert, or load all by --full"
            raise SettingsError("a table that a transform fills has no windows", hint=hint, stream=self.name)
        return self.resumes_by[0]

    def never_null(self, message: Schema) -> Sequence[str]:
        """The columns that are never null: the table's keys; an upsert's where null is not allowed."""
        if self.usual != UPSERT:
            return self.keys
        properties = message.schema.get("properties") or {}
        return [key for key in self.keys if not allows_null(properties.get(key))]

    def without_key(self, *, swept: bool) -> StreamPlan:
        """The plan of a table that may have lost its key: its rows of older versions are still removed or marked."""
        if self.method != APPEND_ONLY or not swept:
            return self
        return replace(self, layout=replace(self.layout, hard_delete=bool(self.layout.hard_delete)))

    @property
    def history(self) -> Versioning | None:
        """How versions of its rows are told apart; None: the table has only the last one of each."""
        return Versioning.of(self.name, self.settings, is_on=self.setting == HISTORY)

    def is_merged(self, table: TableState | None) -> bool | None:
        """Whether rows are merged into a table by key, by the settings or by the log.

        None: the settings leave it open, and an older version loaded the table, which did not note it.
        """
        if self.setting in (UPSERT, HISTORY) or (table and table.upserts):
            return True
        is_open = self.setting == "auto" and table is not None and table.schema is not None
        return None if is_open and table and table.upserts is None else False


@dataclass(frozen=True, slots=True)
class Unsettled:
    """Columns of a SCHEMA that are not decided on yet; `table` has the table's present ones."""

    incoming: IncomingSchema
    table: TableSchema | None


@dataclass(slots=True)
class StreamProgress:
    """The progress of one stream in this run.

    `opened`, `last_row` and `activated` count messages, so they can be compared.
    """

    plan: StreamPlan
    schema: TableSchema = field(default_factory=lambda: TableSchema(pa.schema([])))
    opened: int = 0
    records: int = 0
    last_row: int = -1
    waiting: bool = False  # rows since its last publication
    first_state: bytes | None = None  # the latest STATE before the first of them
    versions: set[int | None] = field(default_factory=set)
    activated: int | None = None
    announced: int | None = None  # the version of the latest ACTIVATE_VERSION
    complete: int | None = None  # the version of the ACTIVATE_VERSION at `activated`
    latest: int | None = None  # the version of the latest rows
    swapped: bool = False  # this overwrite has replaced the table: rows of its `version` are now added
    version: int | None = None
    refused: BridgeError | None = None  # raised at its first row: the table has all rows already
    former: int | None = None  # the version of the table's rows before this run
    is_apart: bool = False  # no bookmark of a stream outside of its family covers its rows
    texts: dict[str, str] = field(default_factory=dict)  # columns that its SCHEMA makes text, and how
    declared: Schema | None = None  # its latest SCHEMA
    stored_as: str = ""  # the name under which the spool keeps its latest SCHEMA
    unsettled: Unsettled | None = None  # its latest SCHEMA, until its columns are decided on
    interleaves: bool = False  # its rows came back after another stream's

    @property
    def name(self) -> str:
        return self.plan.name

    @property
    def method(self) -> LoadMethod:
        return self.plan.method

    @property
    def keyed(self) -> bool:
        """Whether the last row of a key wins, so that the order of messages matters."""
        return bool(self.plan.layout.keys)

    @property
    def names(self) -> tuple[str, ...]:
        """All names that a STATE may have for the stream, the one of its messages first."""
        return self.name, *(name for name in self.plan.names if name != self.name)

    def take_key(self, plan: StreamPlan) -> None:
        """Go on with a new key. Raises `DataError` if rows came that can neither be merged by the old one nor wait."""
        if self.records and OVERWRITE in (self.method, plan.method):
            hint = f"{NEW_KEY}; or run without --full"
            raise DataError("the key changes within an overwrite", hint=hint, stream=self.name)
        if self.method == APPEND_ONLY and self.waiting:
            what = "a key comes within a run, after rows that have none and that no STATE covers"
            raise DataError(what, hint=NEW_KEY, stream=self.name)
        self.plan = plan

    @property
    def doubles(self) -> bool:
        """Whether changes were added to a table that is overwritten: rows of its version, which never completed."""
        extends = self.method == OVERWRITE and self.swapped and self.former is not None and self.version == self.former
        return bool(extends and self.records and self.plan.keys) and self.announced is None


class Streams:
    """The plans of a run's streams. `opened` has those whose SCHEMA has come."""

    def __init__(
        self,
        pipeline: Pipeline,
        catalog: Catalog | None,
        snapshot: Snapshot,
        *,
        full: bool = False,
        append: bool = False,
        whole: Collection[str] = (),
        masking: Masking | None = None,
    ) -> None:
        """`whole`: streams of which each run extracts all rows, as the tap said when it was asked before the run."""
        self.masking = masking or Masking(pipeline)
        self.pipeline, self.catalog, self._snapshot = pipeline, catalog, snapshot
        self.entries = entries_by_name(catalog) if catalog else {}  # a look-up among thousands takes long
        self._full, self._append, self._whole = full, append, whole
        self.opened: dict[str, StreamPlan] = {}
        self._expected: dict[str, StreamPlan] = {}

    def __getitem__(self, name: str) -> StreamPlan:
        """A stream's plan as its SCHEMA made it, or as it is expected before that."""
        return self.opened.get(name) or self.expected(name)

    def expected(self, name: str) -> StreamPlan:
        """A stream's plan as far as settings and catalog say it, before its SCHEMA."""
        if name not in self._expected:
            self._expected[name] = self._made(name)
        return self._expected[name]

    def with_schema(self, message: Schema) -> StreamPlan:
        """The plan of a stream whose SCHEMA has come. Raises `SettingsError` for a key that is no column, or masked."""
        plan = self.expected(message.stream)
        self.refuse_masks(plan, message.key_properties or (), message.bookmark_properties or ())
        return self._decided(plan, _keys(plan.settings, message), message.bookmark_properties)

    def refuse_masks(self, plan: StreamPlan, keys: Sequence[str], bookmarks: Sequence[str] = ()) -> None:
        """Raise `SettingsError` for a mask that the key of a stream's table, or its bookmark, cannot have."""
        own, resumes_by = plan.settings.key_properties, plan.settings.replication_key or plan.replication_key
        marks = [resumes_by] if resumes_by else []
        if not resumes_by and plan.replication == "INCREMENTAL" and plan.name in self.entries:
            marks = root_facts(self.entries[plan.name]).get("valid-replication-keys") or []
        self.masking.refuse(plan.name, keys if own is None else own, [*bookmarks, *marks], plan.settings.sequence)

    def _made(self, name: str) -> StreamPlan:
        pipeline, entry = self.pipeline, self.entries.get(name)
        settings, alone = pipeline.stream(name), {"streams": [entry] if entry else []}
        key, chosen = replication_key(alone, name), settings.key_properties
        plan = StreamPlan(
            name,
            pipeline.names_of(name),
            settings=settings,
            setting=settings.load_method or pipeline.destination.load_method,
            replication=replication_method(alone, name),
            replication_key=key,
            parent=str(settings.parent or (entry and root_facts(entry).get("parent-tap-stream-id")) or ""),
        )
        keys = chosen if chosen is not None else key_properties(entry) if entry else []
        return self._decided(plan, keys, [key] if key else None)

    def _decided(self, plan: StreamPlan, keys: Sequence[str], bookmarks: Sequence[str] | None) -> StreamPlan:
        """The plan with its load method, for these key and bookmark columns."""
        setting, replication, key = plan.setting, plan.replication, plan.replication_key
        is_part = self._is_part(plan)
        shared = self.pipeline.destination.shared
        usual, reason = load_method(setting, replication, bookmarks, keys, shared=shared, is_part=is_part)
        is_known = setting != "auto" or bool((replication and not is_part) or bookmarks)
        if setting != "auto" and (glob := self.pipeline.glob_of(plan.name, "load_method")):
            reason += f" for {glob}"
        elif setting == "auto" and plan.name in self._whole:
            usual, reason, is_known = OVERWRITE, "the tap discovers it as FULL_TABLE", True
        replaces = self._full and not (usual != OVERWRITE and self._append)
        columns = tuple(bookmarks or ([key] if key else ()))
        return replace(
            plan,
            method=OVERWRITE if replaces else usual,
            reason="--full" if replaces else reason,
            usual=usual,
            is_known=is_known,
            is_part=is_part,
            keys=tuple(keys),
            resumes=bool(bookmarks),
            evolution=self._evolution(plan.settings, [*keys, *filter(None, [plan.settings.sequence])]),
            bookmark=", ".join(columns),
            resumes_by=columns if replication == "INCREMENTAL" or (replication is None and bookmarks) else (),
        )

    def _is_part(self, plan: StreamPlan) -> bool:
        """Whether `auto` may not take a stream's rows for all that there are. The user's own word counts."""
        is_open = plan.setting == "auto" and plan.settings.replication_method is None
        return (
            is_open
            and plan.replication == "FULL_TABLE"
            and comes_in_part(self._snapshot.state, plan.names, plan.parent)
        )

    def columns(self, plan: StreamPlan) -> ColumnPlan:
        """How the settings shape its columns. Raises `SettingsError` for a statement over columns of two types."""
        settings, text = plan.settings, plan.settings.transform
        if text is not None and settings.on_type_change == "variant":
            hint = "a statement sees one column of one type: choose rewrite or fail, or cast in the statement"
            raise SettingsError("transform and on_type_change: variant do not go together", hint=hint, stream=plan.name)
        return ColumnPlan(
            plan.name,
            settings.columns or (),
            settings.rename or {},
            self.pipeline.destination.column_names,
            self.pipeline.metadata(plan.name),
            read_transform(text) if text is not None else None,
            settings.replication_key or plan.replication_key,
            settings.sequence,
            log_based=plan.replication == "LOG_BASED",
            null_times=settings.on_bad_time == "null",
        )

    def _evolution(self, settings: StreamKeys, keys: Sequence[str]) -> Evolution:
        """How the table's columns may change. We must not rewrite files of another pipeline."""
        change, policy = settings.on_type_change or "rewrite", settings.schema_policy or "evolve"
        if self.pipeline.destination.shared:  # its rows are not merged, so its keys may have variants, too
            return Evolution("fail" if change == "rewrite" else change, policy)
        return Evolution(change, policy, tuple(keys))

    def repeating(self, names: Iterable[str]) -> list[str]:
        """Which of these streams a run would add once more, as far as the catalog says; none if it is told to.

        Only those of which the catalog says that they have no key: else their SCHEMA may still name one.
        """
        plans = [self.expected(name) for name in names if name in self.entries and declares_keys(self.entries[name])]
        return [plan.name for plan in plans if self.repeats(plan)]

    def repeats(self, plan: StreamPlan) -> bool:
        """Whether rows are added that the table has, as no bookmark says where the tap resumes."""
        state, table = self._snapshot.state, self._snapshot.table(plan.names)
        if self._full or plan.is_known or plan.usual != APPEND_ONLY or not table or not table.rows:
            return False
        if is_flat(state) and not is_empty(state):
            return False  # one position for the whole tap
        names = [plan.names, *([self.expected(plan.parent).names] if plan.parent else [])]
        return all(resume_point(state, each) is None for each in names)


def _keys(settings: StreamKeys, message: Schema) -> Sequence[str]:
    """The table's keys: those of the settings, else those that the tap declares. Raises `SettingsError`."""
    keys = settings.key_properties
    if keys is None:
        return message.key_properties or []
    columns = message.schema.get("properties") or {}
    if missing := [key for key in keys if key not in columns]:
        hint = did_you_mean(missing[0], columns) or f"the tap's columns are: {', '.join(list(columns)[:20])}"
        raise SettingsError("key_properties names no column", hint=hint, stream=message.stream, key=missing[0])
    return list(dict.fromkeys(keys))
