"""The settings of one pipeline as frozen values, typed once. Their repr shows no secret.

Relative paths are made absolute while validating: against `context={"folders": {key: folder}}`, the folder of the file
that has the key, or else the current one. The docstring under a key is its description in `bridge.schema.json`.
"""

from __future__ import annotations

import shlex
import warnings
from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta
from fnmatch import fnmatchcase
from glob import escape
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator
from pydantic_core import PydanticCustomError

from bridge.errors import SettingsError
from bridge.settings.destination import APPEND_ONLY, Destination, LoadMethod, StreamKeys
from bridge.settings.receivers import Metrics, Notification, OpenLineage
from bridge.settings.values.checked import (
    duration_or_none,
    parsed,
    process_count,
    spool_place,
    stream_glob,
    table_path,
    tap_command,
    tap_config,
    wrong,
)
from bridge.settings.values.forget import Relations
from bridge.settings.values.guarding import Guard
from bridge.settings.values.masks import Masked, MaskKey
from bridge.settings.values.replication_slot import ReplicationSlot
from bridge.settings.values.schedules import Reconcile, Schedule
from bridge.settings.values.section import Bytes, Duration, FilePath, Section
from bridge.settings.values.units import DURATION, GIB, MIB
from bridge.settings.values.views import Views

_NO_KEYS = StreamKeys()


class Source(Section):
    """The tap, and what it is given."""

    tap: Annotated[str | list[str], BeforeValidator(tap_command)] = Field(repr=False)
    """The tap's command, on PATH or a path, with its arguments: `tap-x --flag` or `[tap-x, --flag]`. No shell is
    involved."""
    pip_url: str | None = Field(default=None, repr=False)
    """The source from which `install` installs the tap, such as `tap-x==1.2` or `git+https://...`; `--python 3.12`
    behind it chooses another Python, by its version or path."""
    config: Annotated[
        dict[str, Any] | Path, BeforeValidator(tap_config), WithJsonSchema({"type": ["object", "string", "null"]})
    ] = Field(default_factory=dict, repr=False)
    """The tap's settings; or a JSON file, which is passed to the tap unchanged."""
    env: dict[str, str] = Field(default_factory=dict, repr=False)
    """Variables that are added to the tap's environment."""
    catalog: FilePath = None
    """The catalog file to pass to the tap. `discover` keeps it up to date, and keeps your edits."""
    select: list[str] = Field(default_factory=list)
    """Streams and columns by globs: `public-*`, `public-users.email`; `!` excludes; the last match wins. `streams` is
    another name for this key."""
    idle_timeout: Annotated[
        timedelta | None,
        parsed(duration_or_none),
        WithJsonSchema({"type": ["string", "null"], "pattern": DURATION}),
    ] = timedelta(minutes=10)
    """If the tap prints nothing for this long, it is stopped and the run fails; `null`: never. A tap that has exited
    has ended, even if a child process still holds its stdout."""
    discover: Literal["auto", "never"] = "auto"
    """`auto`: the first run asks the tap how its streams are replicated, if it can discover; a tap that answers in less
    than 5 s is asked before each run, also whether column types have changed. `never`: do not ask."""
    parallelism: Annotated[
        int | Literal["auto"],
        BeforeValidator(process_count),
        WithJsonSchema({"anyOf": [{"type": "integer", "minimum": 1}, {"const": "auto"}]}),
    ] = 1
    """How many processes of the tap run at once, each for some of the streams; `auto`: one for each core. Needs a
    catalog."""
    replication_slot: ReplicationSlot = ReplicationSlot()
    check_counts: Literal["auto", "exact", "never"] = "auto"
    """A run ends with a look at how many rows PostgreSQL, MySQL or MariaDB has. `auto`: at most a second a
    table; beyond a million rows by the server's estimate. `exact`: count every table. `never`: do not look."""

    @model_validator(mode="before")
    @classmethod
    def _alias(cls, data: Any) -> Any:
        if not isinstance(data, dict) or "streams" not in data:
            return data
        if "select" in data:
            raise wrong("streams is another name of select", hint="keep one of them", at="streams")
        return {"select" if key == "streams" else key: value for key, value in data.items()}

    @property
    def argv(self) -> list[str]:
        """The tap's command as a list; it never sees a shell. Raises SettingsError where no tap was given."""
        argv = shlex.split(self.tap) if isinstance(self.tap, str) else list(self.tap)
        if not argv:
            raise SettingsError("no tap", hint="give --tap, or a NAME from bridge.yaml")
        return argv

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        """Show the executable only: arguments, settings and environment may hold secrets."""
        yield "tap", self.argv[0] if self.tap else ""
        yield from super().__repr_args__()


class Incremental(Section):
    """Settings of runs that resume at their bookmarks."""

    enabled: bool = True
    """`false`: every run is `--full`."""


class CommitEvery(Section):
    """When a run commits: whichever comes first, and always at its end."""

    every: Duration = timedelta(minutes=5)
    """Commit at the next STATE after this much time."""
    bytes: Annotated[Bytes, Field(ge=MIB)] = 256 * MIB
    """Commit at the next STATE after this much output of the tap. At least 1MiB."""
    rows: Annotated[int, Field(ge=1)] | None = None
    """Commit at the next STATE after this many records. Default: their number does not matter."""
    at: Literal["state", "end"] = "state"
    """`state`: at STATEs on the way, as the other keys say. `end`: once, when the tap has ended well; a run that fails
    or is stopped leaves tables and STATE as they were."""


class Spool(Section):
    """The scratch files between tap and Spark."""

    dir: Annotated[
        Path | Literal["bucket"] | None,
        BeforeValidator(spool_place),
        WithJsonSchema({"type": ["string", "null"]}),
    ] = None
    """The spool's folder; default: inside `.singer-bridge`. `bucket`, the default on a cluster: executors read it from
    the lake's bucket, and need no folder that all share. Only its owner can read the folder, unless executors do."""
    max_bytes: Bytes = 2 * GIB  # twice that was a sixth slower: what waits for long is written to the disk
    """At this size the tap has to wait; must be more than twice `commit.bytes`. One line of the tap may take a quarter
    of it (at least 64 MiB, at most 1 GiB). Rows of an upsert count until their commit; if a tap sends no STATE, they
    may exceed it, with a warning."""

    @property
    def folder(self) -> Path | None:
        """The folder, if the settings name one."""
        return self.dir if isinstance(self.dir, Path) else None


class Spark(Section):
    """The engine: where it runs, and its own settings."""

    master: str = "local[*]"
    """Where Spark runs: on this machine, or on a cluster."""
    small: Bytes = 8 * MIB
    """With more than this of rows that wait to be committed, Spark starts; before, the run's own process writes them.
    `0`: Spark writes all. A cluster does so in any case."""
    conf: dict[str, str] = Field(default_factory=dict, repr=False)
    """Spark's own settings; values are text. `spark.pyspark.python` is the executors' Python on a cluster."""

    @property
    def small_bytes(self) -> int:
        """Bytes that the run's own process writes at most."""
        return self.small if is_local(self.master) else 0


def is_local(master: str) -> bool:
    """Whether Spark's executors live on this machine, with its Python and its folders."""
    return master.startswith("local")


with warnings.catch_warnings():
    warnings.simplefilter("ignore", UserWarning)  # pydantic has a method `validate`, which nobody is to use any more

    class Rejects(Section):
        """Settings for records that do not fit their schema."""

        on_reject: Literal["quarantine", "fail"] = "quarantine"
        """`quarantine`: keep a record that does not fit its schema, and go on. `fail`: fail at the first one."""
        max: Annotated[int, Field(ge=0)] = 1000
        """More rejects than this in one run fail it."""
        validate: Literal["types", "full"] = "types"  # type: ignore[assignment]
        """The rules that a record must match: the types of its columns, or its whole SCHEMA."""


class Retry(Section):
    """Settings to try a failed run again, from its last commit."""

    attempts: Annotated[int, Field(ge=1)] = 1
    """How many runs there may be altogether, until one succeeds."""
    backoff: Duration = timedelta(seconds=30)
    """The wait before the second attempt; it doubles before each later one."""

    def pause_before(self, attempt: int) -> timedelta:
        """How long to wait before an attempt, from the second one on."""
        return self.backoff * (1 << (attempt - 2))


class Retention(Section):
    """How long things are kept that no table needs any more."""

    commits: Duration = timedelta(days=90)
    """How long commit records are kept."""
    runs: Duration = timedelta(days=90)
    """How long run records are kept."""
    logs: Duration = timedelta(days=30)
    """How long the logs of tap and Spark are kept."""
    rejects: Duration = timedelta(days=90)
    """How long rejects are kept, counted from the start of their run."""
    trash: Duration = timedelta(days=7)
    """How long files that were removed from a table are kept."""


class Keys(Section):
    """The keys that a pipeline has in the file."""

    source: Source
    destination: Destination
    incremental: Incremental = Incremental()
    commit: CommitEvery = CommitEvery()
    on_no_state: Literal["warn", "fail"] = "warn"
    """If the tap sends rows and no STATE, the next run extracts them again. `fail`: the run fails, and
    nothing of it is committed. Streams whose tables each run replaces do not count."""
    new_columns: Literal["add", "warn", "ignore"] | None = None
    """A column that the source has and the kept catalog lacks. `add`: it is loaded from this run on,
    and the run says so. `warn`: the run says so, and the table differs. `ignore`: nothing. Default: `add` where all
    columns of the stream are selected, or a pattern names the column; else `warn`."""
    on_null_key: Literal["warn", "fail"] = "warn"
    """Rows of an incremental stream whose replication key is NULL: the tap does not see them again when they
    change. `warn`: the run says so. `fail`: the run fails, and none of them is committed."""
    rejects: Rejects = Rejects()
    guard: Guard | None = Guard()
    spool: Spool = Spool()
    spark: Spark = Spark()
    retry: Retry = Retry()
    retention: Retention = Retention()
    schedule: Schedule | None = None
    reconcile: Reconcile | None = None
    notify: list[Notification] = Field(default_factory=list)
    """Receivers of notifications, each a `url` and, in `on`, the kinds of facts that it gets."""
    stale_after: Duration | None = None
    """If no run has succeeded for this long, the pipeline is stale. Default: never."""
    openlineage: OpenLineage | None = None
    metrics: Metrics = Metrics()
    streams: dict[Annotated[str, BeforeValidator(stream_glob)], StreamKeys] = Field(default_factory=dict)
    """The settings of single streams, by globs of their names."""
    mask: Masked = Field(default_factory=dict)
    """Masks of personal data, before anything is written: a glob of `STREAM.FIELD`, also of a nested field, and
    `hash`, `redact`, `last4`, `year`, `drop` or `keep`. `*` stands for any characters; the last match counts."""
    mask_key: MaskKey = Field(default=None, repr=False)
    """The key of `hash`, and of the codes in receipts of `forget`, which are HMAC-SHA-256: `${MASK_KEY}`."""
    forget: Relations = Field(default_factory=dict)
    """By which columns of other streams `forget` finds a key of a stream: `{customers: {orders: customer_id}}`."""
    views: Views = Field(default_factory=dict)
    """Tables that each commit keeps as the `GROUP BY` of a stream or of another view, by their names: `SELECT key, ...,
    aggregates FROM stream [WHERE ...] GROUP BY key, ...` in Spark SQL. Or a mapping: this as `sql`, and `keep` and
    `lateness` for windows of time."""

    @model_validator(mode="after")
    def _room(self) -> Keys:
        """An epoch waits in the spool while the next one fills: with less room the tap would block for ever."""
        if self.spool.max_bytes > 2 * self.commit.bytes:
            return self
        hint = f"raise spool.max_bytes above {2 * self.commit.bytes // MIB}MiB, or lower commit.bytes"
        key = "spool.max_bytes" if "max_bytes" in self.spool.model_fields_set else "commit.bytes"
        raise wrong("spool.max_bytes must be more than twice commit.bytes", hint=hint, at=key)

    @model_validator(mode="after")
    def _own_tables(self) -> Keys:
        if self.views and self.destination.shared:
            hint = "remove destination.shared, or the views: other pipelines change a shared table, too"
            raise wrong("a shared table has no views", hint=hint, at="views")
        return self

    @model_validator(mode="after")
    def _hashed(self) -> Keys:
        if "hash" in self.mask.values() and not self.mask_key:
            hint = "make one with `openssl rand -hex 32`, and write mask_key: ${MASK_KEY}"
            raise wrong("to hash needs a key", hint=hint, at="mask_key")
        return self

    @property
    def spool_in_bucket(self) -> bool:
        """Whether executors read the spool from the bucket: a folder of the project is seen by this machine only."""
        return self.spool.dir == "bucket" or (self.spool.dir is None and not is_local(self.spark.master))


class Pipeline(Keys):
    """One pipeline, ready to run."""

    name: str
    secrets: frozenset[str] = Field(default=frozenset(), repr=False)
    """Texts that no log, error or record may show; see `bridge.settings.redact.redactor`."""

    names: dict[str, tuple[str, ...]] = Field(default_factory=dict, repr=False)
    """All names of a stream by each of them, as far as a catalog says: `singer.catalog.stream_names`."""
    view_places: dict[str, str] = Field(default_factory=dict, repr=False)
    """Where each view stands, as `file:line`; empty if no file has it."""
    looks_up_in: Destination | None = Field(default=None, repr=False)
    """Of a trial, whose own bucket is empty: where the tables are in which a `transform` looks rows up."""
    inherited: frozenset[str] = frozenset()
    """Globs under `streams` and `mask` that only the file's `defaults` have: they may be meant for other pipelines."""
    system_tables: str | None = None
    """The folder of the bucket in which the system tables are kept as tables; None for nowhere."""

    def names_of(self, name: str) -> tuple[str, ...]:
        """All names of a stream: its id in the catalog, and what its RECORDs are called."""
        return self.names.get(name, (name,))

    def all_names(self, names: Iterable[str]) -> frozenset[str]:
        """All names of several streams."""
        return frozenset(other for name in names for other in (name, *self.names_of(name)))

    def _matches(self, name: str, glob: str) -> bool:
        return any(fnmatchcase(one, glob) for one in self.names_of(name))

    def stream(self, name: str) -> StreamKeys:
        """The settings of one stream in `streams`: every glob that matches, key by key the last one wins.

        A glob matches the stream's id in the catalog as well as the name of its RECORDs, whichever `name` is.
        """
        declared: dict[str, Any] = {}
        for glob, keys in self.streams.items():
            if self._matches(name, glob):
                declared |= {key: getattr(keys, key) for key in keys.model_fields_set}
        return StreamKeys(**declared) if declared else _NO_KEYS

    def with_stream(self, name: str, changes: Mapping[str, Any]) -> Pipeline:
        """The pipeline with these keys of one stream changed, whichever globs match it: the last one wins."""
        streams = {glob: keys for glob, keys in self.streams.items() if glob != escape(name)}
        streams[escape(name)] = self.stream(name).model_copy(update=dict(changes))
        return self.model_copy(update={"streams": streams})

    def load_method(self, name: str) -> Literal["auto", LoadMethod]:
        """How one stream is to be loaded: as `streams` says, else as `destination` does."""
        return self.stream(name).load_method or self.destination.load_method

    def refuses_null_keys(self, name: str) -> bool:
        """Whether rows of a stream without a replication key are an error."""
        return (self.stream(name).on_null_key or self.on_null_key) == "fail"

    @property
    def decides_methods(self) -> bool:
        """Whether `auto` decides how some streams are loaded, by what is known of their replication."""
        methods = (self.destination.load_method, *(keys.load_method for keys in self.streams.values()))
        return "auto" in methods and not self.destination.shared  # a shared table is only added to

    def guard_of(self, name: str) -> Guard:
        """When one stream's overwrite is refused: as `streams` says key by key, else as `guard` does."""
        streams = (
            keys.guard
            for glob, keys in self.streams.items()
            if fnmatchcase(name, glob) and "guard" in keys.model_fields_set
        )
        declared: dict[str, float | None] = {}
        for guard in (self.guard, *streams):
            if guard is None:
                declared = {"rejected": None, "shrink": None}
            else:
                declared |= {key: getattr(guard, key) for key in guard.model_fields_set}
        return Guard(**declared)

    def metadata(self, name: str) -> bool:
        """Whether one stream's rows get the SDK's metadata columns."""
        declared = self.stream(name).add_record_metadata
        return self.destination.add_record_metadata if declared is None else declared

    def appends_only(self, names: Iterable[str] = ()) -> bool:
        """Whether a stream is set to append-only: one of `names`; without names any that there may be."""
        if names := list(names):
            return any(self.load_method(name) == APPEND_ONLY for name in names)
        declared = (keys.load_method for keys in self.streams.values())
        return APPEND_ONLY in (self.destination.load_method, *declared)

    def glob_of(self, name: str, key: str) -> str | None:
        """The glob under `streams` whose `key` holds for a stream, None if none says anything."""
        globs = (g for g, keys in self.streams.items() if self._matches(name, g) and key in keys.model_fields_set)
        return max(globs, key=list(self.streams).index, default=None)

    @property
    def table_root(self) -> str:
        """The folder of the tables inside the bucket: `destination.path` with its placeholders filled."""
        path = self.destination.path.replace("{pipeline}", self.name)
        return path.replace("{tap}", Path(self.source.argv[0]).name) if "{tap}" in path else path

    @model_validator(mode="after")
    def _folders(self) -> Pipeline:
        """The tap's name is a folder too, once it is filled in."""
        if "{tap}" in self.destination.path:
            try:
                table_path(self.table_root)
            except PydanticCustomError:
                hint = "write the folder out instead of {tap}"
                raise wrong("the tap's name cannot be a folder", hint=hint, at="destination.path") from None
        return self
